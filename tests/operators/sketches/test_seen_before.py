"""`SeenBefore`: a "no" is always right, a "yes" as often as was said, and the batches make no difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.errors import ArgumentInvalid
from headwater.operators import SeenBefore
from headwater.operators.seen_before import SHARD, SLICES, VALUE
from headwater.operators.sketches.bloom import Bloom
from headwater.operators.sketches.murmur3 import hashes_of
from tests.operators.batches import bounded, streamed

SECOND = 1_000_000
Row = tuple[str | None, int]


def table(operator: SeenBefore, rows: Sequence[Row], *, first: int = 0) -> pa.Table:
    """Rows of a topic, with what Spark would have computed of their value."""
    values = pa.array([value for value, _ in rows], pa.string())
    hashes = np.zeros(len(rows), np.int64)
    valid = np.flatnonzero(np.asarray(values.is_valid()))
    hashes[valid] = hashes_of(values.drop_null())[0].view(np.int64)
    return pa.table(
        {
            "value": values,
            "at": pa.array([at * SECOND for _, at in rows], pa.timestamp("us", "UTC")),
            "_partition": pa.array([0] * len(rows), pa.int32()),
            "_offset": pa.array(range(first, first + len(rows)), pa.int64()),
            VALUE: pa.array(hashes, mask=~np.asarray(values.is_valid())),
            SHARD: pa.array(hashes % operator.shards, pa.int64()),
        }
    )


def batches_of(operator: SeenBefore, batches: Sequence[Sequence[Row]]) -> list[pa.Table]:
    tables, offset = [], 0
    for batch in batches:
        tables.append(table(operator, batch, first=offset))
        offset += len(batch)
    return tables


def answers(tables: Sequence[pa.Table]) -> dict[int, bool | None]:
    return {row["_offset"]: row["seen"] for one in tables for row in one.to_pylist()}


def naive(batches: Sequence[Sequence[Row]], period: float | None) -> dict[int, bool | None]:
    """By the definition: what came before and was remembered, of which a quarter of the period is forgotten at a time."""
    known: list[tuple[str, float]] = []
    found: dict[int, bool | None] = {}
    offset = 0
    for batch in batches:
        placed = [(at, offset + place, value) for place, (value, at) in enumerate(batch)]
        offset += len(batch)
        for at, place, value in sorted(placed, key=lambda one: one[:2]):
            if value is None:
                found[place] = None
                continue
            if period is None:
                found[place] = any(other == value for other, _ in known)
                known.append((value, 0))
            else:
                length = period / SLICES
                found[place] = any(other == value and end > at - period for other, end in known)
                known.append((value, at // length * length + length))
    return found


@st.composite
def arrivals(draw: st.DrawFn, late_by: int) -> list[list[Row]]:
    values = st.one_of(st.none(), st.sampled_from([f"v{number}" for number in range(6)]))
    rows = draw(st.lists(st.tuples(values, st.integers(0, 200)), min_size=1, max_size=60))
    delays = draw(st.lists(st.integers(0, late_by), min_size=len(rows), max_size=len(rows)))
    arrived = [row for _, row in sorted(zip(delays, rows, strict=True), key=lambda one: one[0] + one[1][1])]
    cuts = sorted(draw(st.lists(st.integers(0, len(arrived)), min_size=2, max_size=5)))
    return [arrived[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(arrived)], strict=True)]


@given(batches=arrivals(late_by=10), replay=st.integers(0, 4), partitions=st.integers(1, 3))
def test_a_value_is_known_for_the_period(batches: list[list[Row]], replay: int, partitions: int) -> None:
    operator = SeenBefore(
        of="value", time=EventTime("at", delay=10, future_max=None), period=40, capacity=5_000, false_positives=1e-9
    )
    found = streamed(operator.contract, batches_of(operator, batches), partitions=partitions, replay=replay)
    assert answers(found) == naive(batches, 40)


@given(batches=arrivals(late_by=0), replay=st.integers(0, 4), partitions=st.integers(1, 3))
def test_without_a_period_a_value_is_known_for_ever(batches: list[list[Row]], replay: int, partitions: int) -> None:
    operator = SeenBefore(of="value", capacity=5_000, false_positives=1e-9)
    batches = [[(value, 0) for value, _ in batch] for batch in batches]
    found = streamed(operator.contract, batches_of(operator, batches), partitions=partitions, replay=replay)
    assert answers(found) == naive(batches, None)


@given(batches=arrivals(late_by=0))
def test_the_batches_make_no_difference_where_rows_are_in_order(batches: list[list[Row]]) -> None:
    operator = SeenBefore(
        of="value", time=EventTime("at", future_max=None), period=40, capacity=5_000, false_positives=1e-9
    )
    tables = batches_of(operator, batches)
    whole, _ = bounded(operator.contract, pa.concat_tables(tables))
    assert answers([whole]) == answers(streamed(operator.contract, tables))


@pytest.mark.parametrize("period", [None, 1_000])
def test_no_more_new_values_are_taken_for_old_than_was_said(period: int | None) -> None:
    operator = SeenBefore(
        of="value", time=None if period is None else "at", period=period, capacity=20_000, false_positives=0.02
    )
    # In each quarter of the period all of them come: no filter is less than full.
    rows = [(f"value {number}", 250 * quarter + number // 100) for quarter in range(4) for number in range(20_000)]
    (_, asked) = streamed(
        operator.contract, batches_of(operator, [rows, [(f"new {number}", 970) for number in range(20_000)]])
    )
    wrong = float(np.mean(np.asarray(asked.column("seen").combine_chunks())))
    assert 0 < wrong <= 0.02
    # What is said of each is what is true of all.
    stated = np.asarray(asked.column("seen_error"))[np.asarray(asked.column("seen").combine_chunks())]
    assert wrong <= 2 * stated.mean() + 0.001


def test_an_overfull_filter_says_so() -> None:
    operator = SeenBefore(of="value", capacity=100, false_positives=0.01)
    rows = [(f"value {number}", 0) for number in range(1_000)]
    (_, asked) = streamed(
        operator.contract, batches_of(operator, [rows, [(f"new {number}", 0) for number in range(500)]])
    )
    seen = np.asarray(asked.column("seen").combine_chunks())
    assert seen.mean() > 0.5  # far more than was expected of it
    assert np.asarray(asked.column("seen_error"))[seen].min() > 0.5  # and it is no secret


def test_what_is_over_is_forgotten() -> None:
    operator = SeenBefore(of="value", time=EventTime("at", future_max=None), period=40, capacity=2_000)
    contract = operator.contract(table(operator, [("a", 0)]).schema)
    step: Any = contract.step
    assert step.bloom.size < 10_000
    batches = [[(f"v{number}", number * 10)] for number in range(40)]
    found = streamed(operator.contract, batches_of(operator, [*batches, [("v0", 400)]]))
    assert answers(found)[40] is False


def test_a_filter_never_forgets_what_it_was_given() -> None:
    bloom = Bloom.sized(1_000, 0.01)
    hashes = hashes_of(pa.array(np.arange(1_000)))[0]
    filters = np.zeros((2, bloom.size), np.uint8)
    rows = np.arange(1_000) % 2
    bloom.add(filters, rows, bloom.places(hashes))
    assert bloom.holds(filters, rows, bloom.places(hashes)).all()
    others = bloom.places(hashes_of(pa.array(np.arange(1_000, 11_000)))[0])
    assert bloom.holds(filters, np.zeros(10_000, np.int64), others).mean() <= 0.01


@pytest.mark.parametrize(
    ("given_settings", "says"),
    [
        ({"of": "v", "time": "at"}, "a period beside `time`"),
        ({"of": "v", "time": "at", "period": 0}, "longer than none"),
        ({"of": "v", "false_positives": 0}, "a share between 0 and 1"),
        ({"of": "v", "capacity": 0}, "1 or more"),
        ({"of": ()}, "the column or columns"),
        ({"of": "v", "late": "keep"}, '"drop" or "side_output"'),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given_settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        SeenBefore(**given_settings)
