"""Processing time is what the source recorded; ticks and punctuations move it on without rows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.engine.micro_batch import MicroBatch, batch_time_us, time_folder
from headwater.log import Log
from headwater.spark.source import reader as module
from tests.spark.source.planner import Checkpoint, plan, table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000


@pytest.fixture(autouse=True)
def awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without news says so at once."""
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.0)


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    path = tmp_path / "clock"
    path.write_text(str(NOON_US))
    return path


def recorded_time(log: Log, batch: int) -> int | None:
    return batch_time_us(log.home.parent / "state", MicroBatch(query="q", number=batch))


def test_the_reader_records_the_time_of_each_batch_once(orders: Log, checkpoint: Checkpoint, clock: Path) -> None:
    checkpoint(plan(orders, clock=clock))
    assert recorded_time(orders, 0) == NOON_US
    assert recorded_time(orders, 1) is None
    assert len(time_folder(orders.home.parent / "state", "q").names("time-0-")) == 1
    checkpoint.forget_commit()
    clock.write_text(str(NOON_US + 7))
    checkpoint(plan(orders, clock=clock))
    assert recorded_time(orders, 0) == NOON_US


def test_a_tick_is_a_batch_without_rows(orders: Log, checkpoint: Checkpoint, clock: Path) -> None:
    run = checkpoint.start(plan(orders, clock=clock, tick="1 second"))
    run.trigger()
    assert recorded_time(orders, 0) == NOON_US
    clock.write_text(str(NOON_US + 999_999))
    assert run.trigger() is None
    clock.write_text(str(NOON_US + 1_000_000))
    assert run.trigger() == []
    assert recorded_time(orders, 1) == NOON_US + 1_000_000


def test_ticks_that_are_counted_come_to_rest_until_rows_come(orders: Log, checkpoint: Checkpoint, clock: Path) -> None:
    run = checkpoint.start(plan(orders, clock=clock, tick="1 second", ticks_max=1))
    run.trigger()
    clock.write_text(str(NOON_US + 1_000_000))
    assert run.trigger() == []
    clock.write_text(str(NOON_US + 60_000_000))
    assert run.trigger() is None
    orders.append("orders", [{"id": 99}], partition=0)
    assert run.trigger() == [{"id": 99, "name": None}]
    assert recorded_time(orders, 2) == NOON_US + 60_000_000
    clock.write_text(str(NOON_US + 61_000_000))
    assert run.trigger() == []
    assert recorded_time(orders, 3) == NOON_US + 61_000_000


def test_without_a_tick_time_alone_makes_no_batch(orders: Log, checkpoint: Checkpoint, clock: Path) -> None:
    run = checkpoint.start(plan(orders, clock=clock))
    run.trigger()
    clock.write_text(str(NOON_US + 60_000_000))
    assert run.trigger() is None
    orders.append("orders", [{"id": 99}], partition=0)
    run.trigger()
    assert recorded_time(orders, 1) == NOON_US + 60_000_000


def test_a_run_that_ends_when_it_has_caught_up_ends_at_the_time_it_began(
    orders: Log, checkpoint: Checkpoint, clock: Path
) -> None:
    run = checkpoint.start(plan(orders, clock=clock, tick="1 second", rows_max=8), available_now=True)
    run.trigger()
    clock.write_text(str(NOON_US + 60_000_000))
    run.trigger()
    assert run.trigger() is None
    assert (recorded_time(orders, 0), recorded_time(orders, 1)) == (NOON_US, NOON_US)


def test_time_never_goes_back(orders: Log, checkpoint: Checkpoint, clock: Path) -> None:
    checkpoint(plan(orders, clock=clock))
    clock.write_text(str(NOON_US - 5))
    orders.append("orders", [{"id": 99}], partition=0)
    checkpoint(plan(orders, clock=clock))
    assert recorded_time(orders, 1) == NOON_US


@pytest.fixture
def timed(log: Log) -> Log:
    log.create("orders", {"id": "int64", "at": "timestamp"}, time="at")
    return log


def test_punctuations_come_as_rows_of_their_own(timed: Log) -> None:
    timed.append("orders", [{"id": 1, "at": NOON}])
    timed.punctuate("orders", NOON)
    timed.append("orders", [{"id": 2, "at": NOON}])
    assert table(timed, punctuations=True) == [
        {"id": 1, "at": NOON, "_punctuation": None},
        {"id": None, "at": NOON, "_punctuation": NOON},
        {"id": 2, "at": NOON, "_punctuation": None},
    ]
    assert len(table(timed)) == 2


def test_a_punctuation_says_which_topic_and_partition_it_is_of(timed: Log) -> None:
    timed.create("returns", {"id": "int64", "at": "timestamp"}, time="at")
    timed.append("returns", [{"id": 1, "at": NOON}])
    timed.punctuate("returns", NOON)
    rows = table(timed, "orders,returns", punctuations=True, metadata="position")
    assert [(row["_topic"], row["_partition"], row["_offset"]) for row in rows] == [
        ("returns", 0, 0),
        ("returns", 0, None),
    ]


def test_a_punctuation_makes_a_batch_by_itself_and_comes_once(timed: Log, checkpoint: Checkpoint) -> None:
    timed.append("orders", [{"id": 1, "at": NOON}])
    timed.punctuate("orders", NOON)
    assert [len(batch) for batch in checkpoint(plan(timed, punctuations=True))] == [2]
    timed.punctuate("orders", NOON_US + 1_000_000)
    assert [len(batch) for batch in checkpoint(plan(timed, punctuations=True))] == [1]
    assert checkpoint(plan(timed, punctuations=True)) == []
    timed.append("orders", [{"id": 2, "at": NOON}])
    assert [len(batch) for batch in checkpoint(plan(timed, punctuations=True))] == [1]
    found = [int(row["_punctuation"].timestamp()) for row in checkpoint.rows if row["_punctuation"]]
    assert found == [NOON_US // 1_000_000, NOON_US // 1_000_000 + 1]
