"""State that is cut into another number of partitions between two batches: no output is another for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.contract import Contract
from headwater.engine.errors import StateMissing
from headwater.engine.state_folder import LocalFolder
from headwater.engine.state_maintenance import states
from headwater.engine.step import PartitionEngine
from headwater.faults import RESCALE_CRASH_POINTS, install
from headwater.operators import Dedupe, Session, Tumbling, agg
from tests.laws import costly
from tests.operators.batches import _placed, state_folder, streamed, with_arguments

COMPUTE = {"n": agg.count(), "total": agg.sum("amount"), "all": agg.collect_list("amount")}
TIME = EventTime("at", delay=5, future_max=None)
MADE: dict[str, Callable[[pa.Schema], Contract]] = {
    "windows": Tumbling(size=10, time=TIME, by="user", compute=COMPUTE, late="side_output", name="o").contract,
    "changes": Tumbling(size=10, time=TIME, by="user", compute=COMPUTE, emit="changes", name="o").contract,
    "sessions": Session(gap=5, time=TIME, by="user", compute=COMPUTE, late="side_output", name="o").contract,
    "once": Dedupe(by="user", time=TIME, within=20, name="o").contract,
}
Row = tuple[str, int, int]
BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 60), st.integers(0, 2)), max_size=10),
    min_size=2,
    max_size=7,
)
COUNTS = st.lists(st.integers(1, 6), min_size=7, max_size=7)


def tables(batches: Sequence[Sequence[Row]]) -> list[pa.Table]:
    found, first = [], 0
    for rows in batches:
        numbers = pa.array(range(first, first + len(rows)), pa.int64())
        table = pa.table(
            {
                "user": pa.array([user for user, _, _ in rows], pa.string()),
                "amount": numbers,
                "at": pa.array([at * 1_000_000 for _, at, _ in rows], pa.timestamp("us", "UTC")),
                "_partition": pa.array([partition for _, _, partition in rows], pa.int32()),
                "_offset": numbers,
            }
        )
        found.append(with_arguments(table, COMPUTE))
        first += len(rows)
    return found


def as_sets(outputs: Sequence[pa.Table]) -> list[list[str]]:
    return [sorted(map(repr, table.to_pylist())) for table in outputs]


def sides_of(sides: dict[str, list[pa.Table]]) -> dict[str, list[str]]:
    return {name: sorted(repr(row) for table in found for row in table.to_pylist()) for name, found in sides.items()}


@costly(7)
@pytest.mark.parametrize("operator", MADE)
@given(batches=BATCHES, counts=COUNTS, replay=st.integers(0, 6))
def test_rescaling_at_any_batches_changes_no_output(
    operator: str, batches: list[list[Row]], counts: list[int], replay: int
) -> None:
    rows = tables(batches)
    sides: dict[str, list[pa.Table]] = {}
    rescaled_sides: dict[str, list[pa.Table]] = {}
    plain = streamed(MADE[operator], rows, partitions=2, sides=sides)
    rescaled = streamed(MADE[operator], rows, partitions=counts, sides=rescaled_sides, replay=replay)
    assert as_sets(rescaled) == as_sets(plain)
    assert sides_of(rescaled_sides) == sides_of(sides)


class Query:
    """An operator, batch by batch, whose processes may end."""

    def __init__(self, folder: Path, make: Callable[[pa.Schema], Contract]) -> None:
        self.folder = folder
        self.make = make

    def attempt(self, number: int, rows: pa.Table, *, partitions: int, slots: Sequence[int] | None = None) -> pa.Table:
        contract = replace(self.make(rows.schema), partitions=partitions)
        return pa.concat_tables(
            PartitionEngine(contract, LocalFolder(self.folder), slot=slot).run(
                part, batch=number, processing_us=None, broadcast={}, first_of_run=True
            )
            for slot, part in enumerate(_placed(rows, contract))
            if slots is None or slot in slots
        )

    def sides(self) -> list[str]:
        found = []
        for path in sorted(self.folder.glob("sides/*/*.arrow")):
            with pa.memory_map(str(path)) as source:
                found += [repr((path.parent.name, row)) for row in pa.ipc.open_file(source).read_all().to_pylist()]
        return sorted(found)


@costly(3)
@given(
    batches=BATCHES,
    at=st.integers(1, 6),
    finished=st.sets(st.integers(0, 3), min_size=1),
    again=st.sampled_from([1, 2, 3, 4]),
)
def test_a_rescaled_batch_that_was_not_finished_is_done_again_with_any_number(
    batches: list[list[Row]], at: int, finished: set[int], again: int
) -> None:
    with state_folder() as first, state_folder() as second:
        plain, rescaled = (Query(Path(folder), MADE["windows"]) for folder in (first, second))
        wanted, found = [], []
        for number, rows in enumerate(tables(batches)):
            wanted.append(plain.attempt(number, rows, partitions=2))
            if number == at:
                rescaled.attempt(number, rows, partitions=4, slots=sorted(finished))
            found.append(rescaled.attempt(number, rows, partitions=2 if number < at else again))
        assert as_sets(found) == as_sets(wanted)
        assert rescaled.sides() == plain.sides()


ROWS: list[list[Row]] = [[(user, number * 4, 0) for user in "abcdefgh"] for number in range(8)]


@pytest.mark.parametrize("point", RESCALE_CRASH_POINTS)
def test_a_kill_in_the_middle_of_it_changes_nothing(tmp_path: Path, point: str) -> None:
    plain, rescaled = (Query(tmp_path / name, MADE["windows"]) for name in ("plain", "rescaled"))
    wanted, found, visits = [], [], []

    def die(reached: str) -> None:
        if reached == point:
            visits.append(reached)
            if len(visits) in (1, 3):
                raise KeyboardInterrupt

    for number, rows in enumerate(tables(ROWS)):
        wanted.append(plain.attempt(number, rows, partitions=2))
        partitions = 2 if number < 3 else 4
        if number == 3:
            install(die)
            try:
                for _ in range(2):
                    with pytest.raises(KeyboardInterrupt):
                        rescaled.attempt(number, rows, partitions=partitions)
            finally:
                install(None)
        found.append(rescaled.attempt(number, rows, partitions=partitions))
    assert as_sets(found) == as_sets(wanted)
    named = {one["name"] for slot in range(4) for one in _manifest(rescaled.folder, slot)["runs"]}
    assert {path.name.split(".")[0] for path in rescaled.folder.glob("*/run-000000000003-*")} <= named


def test_partitions_that_no_version_needs_any_more_are_removed(tmp_path: Path) -> None:
    query = Query(tmp_path / "query" / "o", MADE["windows"])
    (tmp_path / "query" / "operators").mkdir(parents=True)
    shown = []
    for number, rows in enumerate(tables(ROWS)):
        query.attempt(number, rows, partitions=4 if number < 3 else 2)
        shown.append(sorted(one.partition for one in states(tmp_path)))
    assert shown == [[0, 1, 2, 3]] * 3 + [[0, 1]] * 5
    assert sorted(path.name for path in query.folder.iterdir() if path.name.isdigit()) == ["0", "1"]


def test_a_partition_whose_state_is_gone_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    query = Query(tmp_path, MADE["windows"])
    first, second, *_ = tables(ROWS)
    for number, rows in enumerate([first, second]):
        query.attempt(number, rows, partitions=2)
    (tmp_path / "1" / "000000000001.json").unlink()
    with pytest.raises(StateMissing, match="before batch 2 is gone"):
        query.attempt(2, second, partitions=4)


def _manifest(folder: Path, slot: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(max((folder / str(slot)).glob("*.json")).read_text())
    return found
