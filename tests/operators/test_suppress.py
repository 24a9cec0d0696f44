"""Changes that are held back: what is emitted makes the same table, later and in fewer changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headwater.engine.suppress import HeldChanges, Suppress
from headwater.errors import ArgumentInvalid
from headwater.operators import AggregateTable, agg
from tests.operators.batches import bounded, streamed, table_of

SECOND = 1_000_000
ROWS = pa.schema([("page", pa.string()), ("_op", pa.string()), ("n", pa.int64())])
Batches = list[list[tuple[str, int | None]]]


def changelog(batches: Batches) -> list[pa.Table]:
    """Whole changelogs, one correction per page and batch: the last value, or a deletion."""
    known: dict[str, int] = {}
    tables = []
    for batch in batches:
        rows = []
        for page, value in dict(batch).items():
            old = known.pop(page, None)
            if value is not None:
                known[page] = value
            if old == value:
                continue
            if old is not None:
                rows.append((page, "-D" if value is None else "-U", old))
            if value is not None:
                rows.append((page, "+I" if old is None else "+U", value))
        tables.append(pa.Table.from_pylist([dict(zip(ROWS.names, row, strict=True)) for row in rows], ROWS))
    return tables


def held(suppress: Suppress) -> Any:
    return HeldChanges(name="held", key=("page",), suppress=suppress).contract


PAGES = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 2)), max_size=4), min_size=1, max_size=6
)


@given(
    batches=PAGES,
    every=st.none() | st.integers(1, 5),
    changes=st.integers(1, 4),
    steps=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    replay=st.integers(0, 5),
)
def test_what_is_emitted_is_a_changelog_of_the_same_table(
    batches: Batches, every: int | None, changes: int, steps: list[int], replay: int
) -> None:
    tables = changelog(batches)
    nothing = ROWS.empty_table()
    times = [sum(steps[: number + 1]) * SECOND for number in range(len(tables))]
    suppress = Suppress(every=every, changes=changes)
    outputs = streamed(
        held(suppress), [*tables, nothing], processing_us=[*times, times[-1] + 9 * SECOND], replay=replay
    )
    wanted = table_of(tables, ["page"])
    if every is not None or changes == 1:
        assert table_of(outputs, ["page"]) == wanted
    else:
        table_of(outputs, ["page"])  # a changelog that is complete in itself
    assert table_of([bounded(held(suppress), pa.concat_tables(tables))[0]], ["page"]) == wanted


def test_changes_wait_for_their_time_or_their_number() -> None:
    tables = changelog([[("a", 1)], [("a", 2), ("b", 1)], [("a", 3)], [("b", 2)], []])
    times = [second * SECOND for second in (0, 4, 8, 9, 14)]
    outputs = streamed(held(Suppress(every="10 seconds", changes=3)), tables, processing_us=times, partitions=1)
    told = [[tuple(row.values()) for row in one.to_pylist()] for one in outputs]
    assert told == [[], [], [("a", "+I", 3)], [], [("b", "+I", 2)]]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Suppress, "a number of `changes`"),
        (lambda: Suppress(every="soon"), "every"),
        (lambda: Suppress(changes=0), "at least 1"),
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make: Any, says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        make()


def test_an_aggregate_holds_its_changes_back(spark: SparkSession) -> None:
    visits = spark.sql("SELECT * FROM VALUES ('a', 1L), ('a', 2L), ('b', 3L) AS t(page, n)")
    for by, wanted in (("page", [("a", 3), ("b", 3)]), ((), [(6,)])):
        operator = AggregateTable(by=by, compute={"total": agg.sum("n")}, emit=Suppress(every="1 minute"))
        found = operator(visits).drop("_op").collect()
        assert sorted(map(tuple, found)) == wanted
