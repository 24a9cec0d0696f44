"""Changes that are held back: what is emitted makes the same table, later and in fewer changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headwater import EventTime
from headwater.engine.columns import HASH, SLOT
from headwater.engine.event_time import EVER
from headwater.engine.state_folder import LocalFolder
from headwater.engine.step import PartitionEngine
from headwater.engine.suppress import HeldChanges, Suppress
from headwater.errors import ArgumentInvalid
from headwater.operators import AggregateTable, TopN, agg
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


def timed_changelog(batches: list[list[tuple[str, int | None, int]]]) -> list[pa.Table]:
    """Changelogs whose rows have an event time, in seconds; a deletion retracts the row with the time that it had."""
    known: dict[str, tuple[int, int]] = {}
    tables = []
    for batch in batches:
        rows: list[dict[str, Any]] = []
        for page, value, at in {change[0]: change for change in batch}.values():
            old = known.pop(page, None)
            if value is not None:
                known[page] = (value, at)
            for op, row in (("-U" if value is not None else "-D", old), ("+U" if old else "+I", known.get(page))):
                if row is not None:
                    rows.append({"page": page, "_op": op, "n": row[0], "at": row[1] * SECOND})
        tables.append(pa.Table.from_pylist(rows, TIMED))
    return tables


TIMED = pa.schema([*ROWS, ("at", pa.timestamp("us", "UTC"))])


def held_without_time() -> Any:
    return HeldChanges(name="held", key=("page",), suppress=Suppress(every=1, clock="event")).contract(ROWS)


def held_by_event_time(**settings: Any) -> Any:
    suppress = Suppress(clock="event", **settings)
    return HeldChanges(name="held", key=("page",), suppress=suppress, time=EventTime("at", future_max=None)).contract


def test_by_event_time_changes_leave_when_the_watermark_has_passed_the_first_of_them() -> None:
    batches: list[list[tuple[str, int | None, int]]] = [
        [("a", 1, 0)],
        [("a", 2, 6), ("b", 7, 6)],
        [("c", 1, 9)],
        [("c", 2, 10)],
        [("c", 3, 15)],
        [("c", 4, 30)],
    ]
    outputs = streamed(held_by_event_time(every="10 seconds"), timed_changelog([*batches, []]), partitions=1)
    told = [[(row["page"], row["n"]) for row in one.to_pylist()] for one in outputs]
    # Where rows decide, the watermark of a batch follows from the batches before it.
    assert told == [[], [], [], [], [("a", 2)], [], [("b", 7), ("c", 4)]]


def test_by_the_watermark_that_the_source_recorded_changes_leave_in_the_same_batch_and_all_at_the_end(
    tmp_path: Path,
) -> None:
    contract = replace(held_by_event_time(every="10 seconds")(TIMED), partitions=1)
    told = []
    batches = timed_changelog([[("a", 1, 0)], [("a", 2, 6), ("b", 7, 6)], [("b", 8, 12)], [("c", 9, 15)], []])
    for number, (rows, seconds) in enumerate(zip(batches, (0, 6, 12, 15, None), strict=True)):
        time_us = EVER if seconds is None else seconds * SECOND
        hashes = pa.array([ord(page) for page in rows.column("page").to_pylist()], pa.int64())
        given_rows = rows.append_column(HASH, hashes).append_column(SLOT, pa.array([0] * rows.num_rows, pa.int32()))
        output = PartitionEngine(contract, LocalFolder(tmp_path), slot=0).run(
            given_rows,
            batch=number,
            processing_us=number,
            broadcast={},
            recorded={"": {"0": (time_us, number)}},
            final=seconds is None,
        )
        told.append([(row["page"], row["n"]) for row in output.to_pylist()])
    assert told == [[], [], [("a", 2)], [], [("b", 8), ("c", 9)]]


@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 2), st.integers(0, 40)), max_size=4),
        min_size=1,
        max_size=6,
    ),
    every=st.integers(1, 20),
    changes=st.none() | st.integers(1, 4),
    replay=st.integers(0, 5),
)
def test_by_event_time_it_is_a_changelog_of_the_same_table(
    batches: list[list[tuple[str, int | None, int]]], every: int, changes: int | None, replay: int
) -> None:
    far: list[list[tuple[str, int | None, int]]] = [[("end", number, 1_000 + number)] for number in range(3)]
    tables = timed_changelog([*batches, *far])
    make = held_by_event_time(every=every, changes=changes)
    outputs = streamed(make, tables, replay=replay)
    wanted = {key: row for key, row in table_of(tables, ["page"]).items() if key != ("end",)}
    found = {key: row for key, row in table_of(outputs, ["page"]).items() if key != ("end",)}
    assert found == wanted
    whole = table_of([bounded(make, pa.concat_tables(tables))[0]], ["page"])
    assert {key: row for key, row in whole.items() if key != ("end",)} == wanted


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Suppress, "a number of `changes`"),
        (lambda: Suppress(every="soon"), "every"),
        (lambda: Suppress(changes=0), "at least 1"),
        (lambda: Suppress(changes=1, clock="wall"), "processing"),  # type: ignore[arg-type]
        (lambda: held_without_time(), "column of event time"),
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


def test_a_ranking_is_held_back_by_an_operator_of_its_own(spark: SparkSession) -> None:
    games = spark.sql("SELECT * FROM VALUES ('+I', 'ada', 3), ('+I', 'bob', 5) AS t(_op, player, score)")
    best = games.transform(TopN(n=1, order=[("score", "desc")], key="player"))
    assert [tuple(row) for row in best.transform(Suppress(key="rank", every="1 minute")).collect()] == [
        ("+I", "bob", 5, 1)
    ]
    with pytest.raises(ArgumentInvalid, match="the key of its rows"):
        best.transform(Suppress(every="1 minute"))
    with pytest.raises(ArgumentInvalid, match="a changelog"):
        games.drop("_op").transform(Suppress(key="player", every="1 minute"))
