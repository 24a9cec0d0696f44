"""Values as the cells of a table: decimal numbers keep what they have."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.console.kit.values import rows_of


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_decimal_number_is_shown_so_that_it_can_be_read_back(value: float) -> None:
    [[text]] = rows_of(pa.table({"value": pa.array([value], pa.float64())}))
    assert text is not None
    assert float(text) == value


@given(value=st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_short_decimal_number_is_shown_with_no_more_digits_than_it_has(value: float) -> None:
    [[text]] = rows_of(pa.table({"value": pa.array([value], pa.float32())}))
    assert text is not None
    assert pa.array([float(text)], pa.float32())[0].as_py() == value
