"""Event rows that are encoded without Arrow are the bytes that Arrow writes, and are read back."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.sourcing.event_payload import ROWS_MAX, from_payload, to_payload
from headwater.sourcing.event_rows import EventRow, to_batch

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
maybe = st.none() | text
numbers = st.integers(-(2**63), 2**63 - 1)
rows = st.builds(
    EventRow,
    entity=text,
    version=numbers,
    event=text,
    schema=st.integers(-(2**31), 2**31 - 1),
    data=text,
    at_us=numbers,
    command_id=maybe,
    by=maybe,
    why=maybe,
    correlation=maybe,
    causation=maybe,
    tags=st.none() | st.lists(text, max_size=3),
    offset=st.just(-1),
)


@given(st.lists(rows, min_size=1, max_size=ROWS_MAX))
def test_a_payload_made_without_arrow_is_the_one_that_arrow_makes(made: list[EventRow]) -> None:
    payload = to_payload(made)
    assert payload == to_batch(made).serialize().to_pybytes()
    assert from_payload(payload, 7) == [row._replace(offset=place) for place, row in enumerate(made, start=7)]


def test_a_message_of_other_columns_is_not_read() -> None:
    other = pa.record_batch({"entity": ["a"], "version": [1]}).serialize().to_pybytes()
    assert from_payload(other, 0) is None
    assert from_payload(b"", 0) is None
