"""The engine alone, without Spark: any split into batches, any replay, any partition count gives the same result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.columns import HASH
from headwater.engine.contract import Contract, StepResult
from headwater.engine.errors import StepFailed, StepInvalid
from headwater.engine.event_time import BatchTime, WatermarkStrategy
from headwater.engine.rows import sorted_rows, source_progress
from headwater.engine.state_folder import LocalFolder, open_folder
from headwater.engine.step import PartitionEngine, due_keys, run_bounded
from tests.operators.batches import state_folder

ROWS = pa.schema(
    [
        ("user", pa.string()),
        ("amount", pa.int64()),
        ("at", pa.timestamp("us")),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
    ]
)


def total(state: pa.Table, rows: pa.Table, _time: BatchTime) -> tuple[pa.Table, pa.Table]:
    """A running total per user; the output is the new total of every user touched by rows."""
    both = pa.concat_tables(
        [
            state.select(["_key", "total"]),
            rows.select(["_key", "amount"]).rename_columns(["_key", "total"]),
        ]
    )
    sums = both.group_by("_key").aggregate([("total", "sum")]).rename_columns(["_key", "total"])
    touched = np.isin(np.asarray(sums.column("_key")), np.asarray(rows.column("_key")))
    return sums, sums.filter(pa.array(touched))


def contract(**changes: Any) -> Contract:
    settings_: dict[str, Any] = {
        "name": "total",
        "step": total,
        "key": ("user",),
        "rows": ROWS,
        "state": pa.schema([("total", pa.int64())]),
        "output": pa.schema([("user", pa.string()), ("total", pa.int64())]),
        "partitions": 1,
    }
    return Contract(**{**settings_, **changes})


def table(
    rows: Sequence[tuple[str | None, int]],
    *,
    first: int = 0,
    times: list[int] | None = None,
    hashes: Mapping[str, int] | None = None,
) -> pa.Table:
    users = [user for user, _ in rows]
    data = pa.table(
        {
            "user": pa.array(users, pa.string()),
            "amount": pa.array([amount for _, amount in rows], pa.int64()),
            "at": pa.array(times or [0] * len(rows), pa.timestamp("us")),
            "_partition": pa.array([0] * len(rows), pa.int32()),
            "_offset": pa.array(range(first, first + len(rows)), pa.int64()),
        }
    )
    known = hashes or {}
    numbers = [known.get(user or "", hash(user) & (2**62 - 1)) for user in users]
    return data.append_column(HASH, pa.array(numbers, pa.int64())).append_column(
        "_slot", pa.array([0] * len(rows), pa.int32())
    )


def run(
    engine: PartitionEngine, batch: int, rows: pa.Table, *, processing_us: int | None = None
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = engine.run(rows, batch=batch, processing_us=processing_us, broadcast={}).to_pylist()
    return found


USERS = st.sampled_from(["a", "b", "c", "d", "e"])
BATCHES = st.lists(st.lists(st.tuples(USERS, st.integers(-9, 9)), max_size=8), min_size=1, max_size=30)


@given(batches=BATCHES, replays=st.sets(st.integers(0, 29)), collide=st.booleans())
def test_any_split_and_any_replay_give_the_totals_of_the_whole(
    batches: list[list[tuple[str, int]]], replays: set[int], collide: bool
) -> None:
    hashes = dict.fromkeys("abcde", 7) if collide else None
    with state_folder() as folder:
        latest: dict[str, int] = {}
        for number, rows in enumerate(batches):
            # A fresh engine each time: nothing may live in memory alone.
            for _ in range(2 if number in replays else 1):
                found = run(
                    PartitionEngine(contract(), LocalFolder(Path(folder)), slot=0), number, table(rows, hashes=hashes)
                )
            latest.update({row["user"]: row["total"] for row in found})
        whole: dict[str, int] = {}
        for rows in batches:
            for user, amount in rows:
                whole[user] = whole.get(user, 0) + amount
        assert latest == whole
        bounded, _ = run_bounded(contract(), table([row for rows in batches for row in rows], hashes=hashes), {})
        assert {row["user"]: row["total"] for row in bounded.to_pylist()} == whole


def test_the_files_of_a_batch_do_not_grow_with_the_keys_held(tmp_path: Path) -> None:
    engine = PartitionEngine(contract(), LocalFolder(tmp_path), slot=0)
    run(engine, 0, table([(f"user{number}", 1) for number in range(20_000)]))
    before = {path.name for path in (tmp_path / "0").iterdir()}
    run(engine, 1, table([(f"user{number}", 1) for number in range(10)]))
    added = [path for path in (tmp_path / "0").iterdir() if path.name not in before]
    assert sum(path.stat().st_size for path in added) < 5_000


def test_old_versions_and_merged_runs_are_cleaned_up(tmp_path: Path) -> None:
    engine = PartitionEngine(contract(), LocalFolder(tmp_path), slot=0)
    for batch in range(100):
        run(engine, batch, table([(f"user{batch % 7}", 1)]))
    names = [path.name for path in (tmp_path / "0").iterdir()]
    assert len([name for name in names if name.endswith(".json")]) == 3
    assert len(names) < 40


def test_a_state_can_live_in_an_object_store() -> None:
    engine = PartitionEngine(contract(), open_folder("memory://state"), slot=0)
    run(engine, 0, table([("a", 1)]))
    assert run(engine, 1, table([("a", 2)])) == [{"user": "a", "total": 3}]


def forget_at_zero(state: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
    sums, output = total(state, rows, time)
    return sums.filter(pa.array(np.asarray(sums.column("total")) != 0)), output


def test_a_key_that_the_step_leaves_out_has_no_state_any_more(tmp_path: Path) -> None:
    engine = PartitionEngine(contract(step=forget_at_zero), LocalFolder(tmp_path), slot=0)
    run(engine, 0, table([("a", 5), ("b", 1)]))
    run(engine, 1, table([("a", -5)]))
    assert run(engine, 2, table([("a", 2)])) == [{"user": "a", "total": 2}]
    store = engine._store
    for batch in range(3, 40):
        run(engine, batch, table([("c", 1), ("c", -1)]))
    assert sorted(store.everything(store.load(99)).column("user").to_pylist()) == ["a", "b"]


def wake(state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
    """Ring ten microseconds of event time after the last row of a key, and forget it."""
    due = due_keys(state, time)
    ringing = np.setdiff1d(due, np.asarray(rows.column("_key")))
    kept = state.filter(
        pa.array(~np.isin(np.asarray(state.column("_key")), np.union1d(ringing, np.asarray(rows.column("_key")))))
    )
    last = rows.append_column("us", rows.column("at").cast(pa.int64())).group_by("_key").aggregate([("us", "max")])
    fresh = pa.table({"_wake_at": pa.array(np.asarray(last.column("us_max")) + 10), "_key": last.column("_key")})
    out = pa.table({"_key": pa.array(ringing), "rang": pa.array([True] * len(ringing), pa.bool_())})
    return StepResult(pa.concat_tables([kept.select(["_wake_at", "_key"]), fresh]), out)


@given(batches=BATCHES)
def test_keys_that_lose_their_state_are_counted_from_the_beginning(batches: list[list[tuple[str, int]]]) -> None:
    def positive(state: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
        sums, output = total(state, rows, time)
        return sums.filter(pa.array(np.asarray(sums.column("total")) > 0)), output

    held: dict[str, int] = {}
    gone = 0
    with state_folder() as folder:
        for number, rows in enumerate(batches):
            engine = PartitionEngine(contract(step=positive), LocalFolder(Path(folder)), slot=0)
            run(engine, number, table(rows))
            before = set(held)
            for user, amount in rows:
                held[user] = held.get(user, 0) + amount
            held = {user: amount for user, amount in held.items() if amount > 0}
            gone += len(before - set(held))
        assert engine._store.load(len(batches)).counts["evicted"] == gone


def test_timers_fire_when_the_watermark_passes_and_only_once(tmp_path: Path) -> None:
    made = contract(
        step=wake,
        state=pa.schema([("_wake_at", pa.int64())]),
        output=pa.schema([("user", pa.string()), ("rang", pa.bool_())]),
        event_time=WatermarkStrategy(time="at"),
    )
    engine = PartitionEngine(made, LocalFolder(tmp_path), slot=0)
    rang: list[tuple[int, str]] = []
    arrivals = [[("a", 0)], [("b", 5)], [("c", 9)], [("d", 10)], [("d", 30)], [], []]
    for batch, rows in enumerate(arrivals):
        found = run(engine, batch, table([(user, 0) for user, _ in rows], times=[at for _, at in rows]))
        rang += [(batch, row["user"]) for row in found]
    # Batch n goes by the watermark of the rows up to n-1: "a" is due at 10, seen in batch 3.
    assert sorted(rang) == [(4, "a"), (5, "b"), (5, "c")]


def test_late_rows_leave_by_their_side_with_how_late_they_were(tmp_path: Path) -> None:
    made = contract(event_time=WatermarkStrategy(time="at", delay_us=5))
    engine = PartitionEngine(made, LocalFolder(tmp_path), slot=0)
    run(engine, 0, table([("a", 1)], times=[100]))
    assert run(engine, 1, table([("a", 1), ("a", 1)], times=[95, 94])) == [{"user": "a", "total": 2}]
    side = LocalFolder(tmp_path / "sides" / "late").map("000000000001-00000")
    assert side.column("late_by_us").to_pylist() == [1]


def test_a_clock_from_the_far_future_does_not_close_everything(tmp_path: Path) -> None:
    made = contract(event_time=WatermarkStrategy(time="at", future_us=1000))
    engine = PartitionEngine(made, LocalFolder(tmp_path), slot=0)
    run(engine, 0, table([("a", 1), ("b", 1)], times=[100, 10**15]), processing_us=200)
    run(engine, 1, table([("a", 1)], times=[101]), processing_us=210)
    assert not (tmp_path / "sides" / "late").exists()


def test_an_idle_partition_stops_holding_the_watermark() -> None:
    strategy = WatermarkStrategy(idle_us=50)
    seen = {"": {"0": (100, 10), "1": (900, 100)}}
    assert strategy.watermark([seen], previous_us=0, now_us=20) == 100
    assert strategy.watermark([seen], previous_us=0, now_us=100) == 900
    assert strategy.watermark([seen], previous_us=950, now_us=100) == 950


def test_rows_without_a_key_or_a_time_are_rejected_with_the_reason(tmp_path: Path) -> None:
    engine = PartitionEngine(contract(event_time=WatermarkStrategy(time="at")), LocalFolder(tmp_path), slot=0)
    rows = pa.concat_tables([table([(None, 1), ("a", 1)], times=[1, 1]), table([("b", 1)], first=2, times=[1])])
    rows = rows.set_column(2, "at", pa.array([1, 1, None], pa.timestamp("us")))
    assert run(engine, 0, rows) == [{"user": "a", "total": 1}]
    side = LocalFolder(tmp_path / "sides" / "rejected").map("000000000000-00000")
    assert side.column("_reason").to_pylist() == ["the key is null", "the event time is null"]


def test_a_step_that_raises_names_operator_keys_and_offsets(tmp_path: Path) -> None:
    def fail(_state: pa.Table, _rows: pa.Table, _time: BatchTime) -> tuple[pa.Table, pa.Table]:
        raise ValueError("no")

    engine = PartitionEngine(contract(step=fail), LocalFolder(tmp_path), slot=0)
    with pytest.raises(StepFailed, match=r"'total'.*batch 0.*\{'user': 'a'\}.*offsets 5 to 6.*ValueError: no"):
        run(engine, 0, table([("a", 1), ("a", 1)], first=5))


@pytest.mark.parametrize("bad", ["state", "output", "key"])
def test_a_step_that_returns_the_wrong_thing_is_told_so(tmp_path: Path, bad: str) -> None:
    def wrong(_state: pa.Table, rows: pa.Table, _time: BatchTime) -> tuple[pa.Table, pa.Table]:
        good_state = pa.table(
            {"_key": pa.array([99 if bad == "key" else 0], pa.int64()), "total": pa.array([1], pa.int64())}
        )
        state = rows.select(["_key"]) if bad == "state" else good_state
        output = rows.select(["_key"]) if bad == "output" else good_state.slice(0, 0)
        return state, output

    engine = PartitionEngine(contract(step=wrong), LocalFolder(tmp_path), slot=0)
    with pytest.raises(StepInvalid):
        run(engine, 0, table([("a", 1)]))


def test_a_state_gains_a_column_without_losing_what_it_has(tmp_path: Path) -> None:
    run(PartitionEngine(contract(), LocalFolder(tmp_path), slot=0), 0, table([("a", 1)]))

    def wider(state: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
        sums, output = total(state, rows, time)
        return sums.append_column("note", pa.array(["x"] * sums.num_rows)), output

    made = contract(step=wider, state=pa.schema([("total", pa.int64()), ("note", pa.string())]))
    engine = PartitionEngine(made, LocalFolder(tmp_path), slot=0)
    assert run(engine, 1, table([("a", 2)])) == [{"user": "a", "total": 3}]


PLACELESS = ["user", "amount", "at", "tags", HASH, "_slot"]


@given(order=st.permutations(range(6)), with_time=st.booleans())
def test_rows_that_have_lost_their_place_are_ordered_by_what_they_hold(order: list[int], with_time: bool) -> None:
    rows = table([("ada", 2), ("ada", 1), ("bob", 5), ("ada", 1), ("bob", 3), ("ada", 1)], hashes={"ada": 7, "bob": 9})
    tags = pa.array([["x"], ["b"], None, ["a"], [], None], pa.list_(pa.string()))
    rows = rows.append_column("tags", tags).select(PLACELESS)
    chosen = contract(event_time=WatermarkStrategy(time="at" if with_time else None))
    assert sorted_rows(rows.take(order), chosen) == sorted_rows(rows, chosen)


def test_ties_are_settled_by_topic_partition_and_offset() -> None:
    rows = table([("ada", number) for number in range(6)], hashes={"ada": 7})
    places = {
        "_topic": pa.array(["b", "a", "a", "a", "b", "a"]),
        "_partition": pa.array([0, 1, 0, 0, 0, 1], pa.int32()),
        "_offset": pa.array([4, 3, 9, 2, 1, 0], pa.int64()),
    }
    for name, values in places.items():
        rows = rows.drop_columns([name]) if name in rows.column_names else rows
        rows = rows.append_column(name, values)
    assert sorted_rows(rows, contract(event_time=WatermarkStrategy(time="at"))).column("amount").to_pylist() == [
        3,
        2,
        5,
        1,
        4,
        0,
    ]


def test_partitions_of_two_topics_have_two_watermarks() -> None:
    rows = table([("ada", 1), ("ada", 2)], times=[50, 10]).append_column("_topic", pa.array(["fast", "slow"]))
    seen = source_progress(rows, contract(event_time=WatermarkStrategy(time="at")), processing_us=None)
    assert {place: at for place, (at, _) in seen[""].items()} == {"fast/0": 50, "slow/0": 10}
