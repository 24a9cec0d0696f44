"""Approximate aggregates in windows, sessions and slides: a stream gives what the batch gives, however it is split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.errors import AggregateInvalid
from headwater.errors import ArgumentInvalid
from headwater.operators import AggregateTable, Hopping, Session, Sliding, Tumbling, agg
from headwater.operators.aggregates import Aggregate
from tests.laws import costly
from tests.operators.batches import bounded, streamed, with_arguments
from tests.operators.test_windows import END_OF_TIME, Row, arrivals
from tests.operators.test_windows import table as rows_table

#: What does not depend on the order in which partial results are merged.
COMPUTE: dict[str, Aggregate] = {
    "different": agg.approx_count_distinct("amount", error=0.2),
    "set": agg.sketch.theta("amount", lg_k=4),
    "counts": agg.count_min("amount", [1, 2], error=0.1),
    "some": agg.sample("amount", 3),
    "common": agg.approx_top_k("amount", 3, tracked=100),
    "median": agg.approx_percentile("amount", [0.5]),  # exact, as long as there are few
    "faded": agg.decayed_count(half_life=10),
}


def table(rows: Sequence[Row], *, first: int = 0) -> pa.Table:
    made = rows_table(rows, first=first)
    return with_arguments(made.select(["user", "amount", "at", "_partition", "_offset"]), COMPUTE)


def results(tables: Sequence[pa.Table]) -> list[tuple[Any, ...]]:
    found = []
    for row in (row for one in tables for row in one.to_pylist() if row["user"] != "end"):
        faded = round(row.pop("faded"), 6)
        found.append((repr(sorted(row.items(), key=lambda item: item[0])), faded))
    return sorted(found)


WINDOWS = {
    "tumbling": Tumbling(size=20, time=EventTime("at", delay=7, future_max=None), by="user", compute=COMPUTE),
    "hopping": Hopping(size=30, every=10, time=EventTime("at", delay=7, future_max=None), by="user", compute=COMPUTE),
    "session": Session(gap=10, time=EventTime("at", delay=7, future_max=None), by="user", compute=COMPUTE),
    "sliding": Sliding(size=15, time=EventTime("at", delay=7, future_max=None), by="user", compute=COMPUTE),
}


@costly(9)
@given(batches=arrivals(late_by=7), replay=st.integers(0, 5), partitions=st.integers(1, 3))
@pytest.mark.parametrize("kind", WINDOWS)
def test_a_stream_gives_what_the_batch_gives(kind: str, batches: list[list[Row]], replay: int, partitions: int) -> None:
    operator: Any = WINDOWS[kind]
    tables, offset = [], 0
    for batch in [*batches, [("end", 0, END_OF_TIME)], [("end", 0, END_OF_TIME)]]:
        tables.append(table(batch, first=offset))
        offset += len(batch)
    found = streamed(operator.contract, tables, partitions=partitions, replay=replay)
    everything = pa.concat_tables(tables[: len(batches)])
    expected, _ = bounded(operator.contract, everything)
    assert results(found) == results([expected])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: agg.approx_count_distinct("v", error=0), "a share between 0 and 1"),
        (lambda: agg.approx_count_distinct("v", error=2.0), "a share between 0 and 1"),
        (lambda: agg.approx_percentile("v", []), "shares between 0 and 1"),
        (lambda: agg.approx_percentile("v", [1.5]), "shares between 0 and 1"),
        (
            lambda: agg.approx_percentile("v", [0.5], method="gk"),  # type: ignore[arg-type]
            '"kll" or "tdigest"',
        ),
        (lambda: agg.approx_top_k("v", 0), "1 or more"),
        (lambda: agg.approx_top_k("v", 10, tracked=5), "at least n"),
        (lambda: agg.approx_top_k("v", half_life=0), "longer than none"),
        (lambda: agg.count_min("v", []), "the values to be counted"),
        (lambda: agg.count_min("v", [1], confidence=1.0), "a share between 0 and 1"),
        (lambda: agg.sample("v", 0), "1 or more"),
        (lambda: agg.sketch.hll("v", lg_k=30), "from 4 to 21"),
        (lambda: agg.sketch.kll("v", k=3), "from 8 to 65535"),
        (lambda: agg.decayed_sum("v", half_life="none"), "a duration"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(make: Any, says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        make()


@pytest.mark.parametrize(
    ("aggregate", "kind", "says"),
    [
        (agg.approx_count_distinct("v"), pa.list_(pa.int64()), "agg.approx_count_distinct.*a plain type"),
        (agg.approx_percentile("v"), pa.string(), "agg.approx_percentile.*a number"),
        (agg.approx_top_k("v"), pa.struct([("a", pa.int64())]), "agg.approx_top_k.*a plain type"),
        (agg.sketch.kll("v"), pa.string(), "agg.sketch.kll.*a number"),
        (agg.sketch.frequent("v"), pa.int64(), "agg.sketch.frequent.*text"),
        (agg.merge_sketches("v"), pa.string(), "agg.merge_sketches.*bytes"),
        (agg.sample("v", strata="country"), pa.string(), "agg.sample.*a plain field 'country'"),
        (agg.decayed_mean("v", half_life=1), pa.string(), "agg.decayed_mean.*a number"),
    ],
)
def test_columns_that_do_not_fit_are_refused(aggregate: Aggregate, kind: pa.DataType, says: str) -> None:
    with pytest.raises(AggregateInvalid, match=says):
        aggregate.partial(kind)


def test_what_is_asked_for_must_be_of_the_type_of_the_column() -> None:
    with pytest.raises(ArgumentInvalid, match="values of type int64"):
        agg.count_min("v", ["x"]).partial(pa.int64())


def test_a_table_that_takes_rows_back_refuses_sketches() -> None:
    with pytest.raises(ArgumentInvalid, match="a sketch cannot forget"):
        AggregateTable(by="country", compute={"n": agg.approx_count_distinct("id")}, key="id")
