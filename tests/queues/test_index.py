"""The index file of a queue: shared by open objects, lost, damaged, on a full disk, and larger than one look."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.config import Codec, Config
from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Log
from headwater.log.errors import DiskFull
from headwater.queues import Message, Outgoing, Queue, delete_queue, group, rows
from headwater.queues.errors import IndexDamaged, LeaseLost
from headwater.queues.journal import SCHEMA
from tests.queues.test_space import bodies, lose_index


@pytest.fixture
def log(local_log: Log) -> Log:
    """In its folder: these tests look at its files."""
    return local_log


def test_objects_that_have_a_lost_index_open_share_the_new_one(log: Log) -> None:
    first, second = log.queue("jobs"), log.queue("jobs")
    first.put_many([1, 2, 3])
    first.take(1)
    lose_index(log)
    assert bodies(first.take(2)) == [1, 2]
    assert bodies(second.take(9)) == [3]
    assert first.take(9) == []


def test_a_full_disk_is_an_error_after_which_leases_are_still_held(log: Log) -> None:
    queue = log.queue("jobs")
    queue.put_many([Outgoing(body=number, delay="1 hour") for number in range(3_000)])
    queue.put("now")
    with queue.state.changes() as index:
        database: sqlite3.Connection = index._db
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    queue.put("first", priority=0)
    database.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(DiskFull):
        queue.take(2)
    database.execute("PRAGMA max_page_count = 1000000")
    now, first = queue.take(2)
    assert bodies([now, first]) == ["now", "first"]
    assert now.attempt == 1
    queue.ack(now, first)


def test_an_index_that_is_damaged_in_the_middle_of_a_call_is_built_again(log: Log) -> None:
    queue = log.queue("jobs")
    queue.put_many([1, 2])
    queue.take(1)[0].ack()
    with pytest.raises(IndexDamaged, match="built again"), queue.state.changes() as index:
        raise IndexDamaged(path=str(index.path), why="a page is torn")
    assert bodies(queue.take(9)) == [2]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_message_behind_many_that_are_scheduled_is_found(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    monkeypatch.setattr(group, "SCAN_ROWS_MAX", 16)
    queue = log.queue("jobs", ordered=ordered)
    queue.put_many([*(Outgoing(body=number, delay="1 hour") for number in range(100)), "now"])
    [now] = queue.take(9)
    assert now.body == "now"
    now.ack()
    clock.advance(seconds=3600)
    assert bodies(queue.take(101)) == [*range(100)]


def test_an_index_of_an_earlier_time_follows_the_journal_also_with_its_schedule(
    log: Log, clock: ManualClock, tmp_path: Path
) -> None:
    """As after a power failure: the journal is synced, and the index is not."""
    with log.queue("jobs", lease="10 seconds") as queue:
        queue.put_many([Outgoing(body=number, delay=60 + number) for number in range(8)])
        assert queue.take(9) == []
    for path in Path(log.home).glob("queues/*/groups/*.sqlite"):
        shutil.copy(path, tmp_path / "earlier.sqlite")
    clock.advance(seconds=66)
    with log.queue("jobs") as queue:
        taken = queue.take(9)
        assert bodies(taken) == [*range(7)]
        queue.ack_many([taken[0], taken[2]])
        queue.nack(taken[3], delay="1 minute")
        queue.reject(taken[4])
        queue.release(taken[5])
    lose_index(log)
    shutil.copy(tmp_path / "earlier.sqlite", path)
    with log.queue("jobs") as queue:
        assert (queue.stats().waiting, queue.stats().scheduled) == (3, 2)
        assert bodies(queue.take(9)) == [1, 5, 6]
        clock.advance(seconds=1)
        assert bodies(queue.take(9)) == [7]
        clock.advance(seconds=59)
        assert (3, 2) in [(message.body, message.attempt) for message in queue.take(9)]


def test_of_what_is_scheduled_the_oldest_is_dropped_and_not_what_is_due_first(log: Log, clock: ManualClock) -> None:
    queue = log.queue("jobs", length_max=3, overflow="drop_oldest")
    for number, delay in enumerate([50, 60, 40, 30, 20]):
        queue.put(number, delay=delay)
    assert queue.stats().scheduled == 3
    clock.advance(seconds=60)
    assert bodies(queue.take(9)) == [4, 3, 2]


@pytest.mark.parametrize(("codec", "is_read_again"), [("none", False), ("lz4", True)])
def test_frames_of_scheduled_messages_are_kept_as_far_as_they_take_no_memory(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, codec: Codec, is_read_again: bool
) -> None:
    monkeypatch.setattr(rows, "PARTS_BYTES_MAX", 30_000)
    monkeypatch.setattr(rows, "AHEAD_ROWS_MAX", 0)
    with (
        hw.open(tmp_path / "log", clock=clock, config=Config(codec=codec)) as log,
        log.queue("jobs", lease="1 hour") as queue,
    ):
        for _ in range(3):  # frames of 50 kB each
            queue.put_many([Outgoing(body="x" * 1_000, delay=60 * (number + 1)) for number in range(50)])
        assert queue.take() == []
        reads, read_range = [0], log.read_range

        def counted(*args: Any, **options: Any) -> Any:  # Any: those of `read_range`
            reads[0] += 1
            return read_range(*args, **options)

        clock.advance(seconds=62)
        assert len(queue.take(9)) == 3  # and the rest of their frames is known
        monkeypatch.setattr(log, "read_range", counted)
        clock.advance(seconds=60)
        assert len(queue.take(9)) == 3
        assert (reads[0] > 0) == is_read_again


def test_parts_of_what_was_taken_in_one_call_end_in_every_way(log: Log, clock: ManualClock) -> None:
    queue, other = log.queue("jobs", lease="10 seconds"), log.queue("jobs", group="other")
    queue.put_many(list(range(100)))
    taken = queue.take(100)
    queue.ack_many([*taken[60:80], *taken[10:20], taken[0], taken[10]])
    queue.nack(taken[30])
    queue.reject(taken[31])
    assert (queue.stats().in_flight, queue.stats().acknowledged) == (67, 31)
    clock.advance(seconds=5)
    queue.extend(taken[40])
    clock.advance(seconds=5)
    assert bodies(queue.take(100)) == [*range(1, 10), *range(20, 31), *range(32, 40), *range(41, 60), *range(80, 100)]
    queue.ack(taken[40])
    with pytest.raises(LeaseLost, match=r"0\.50\."):
        queue.ack(taken[50])
    other.ack_many(other.take(100))
    lose_index(log)
    again = sorted(queue.take(100), key=lambda message: message.offset)
    assert bodies(again) == [*range(1, 10), *range(20, 31), *range(32, 40), *range(41, 60), *range(80, 100)]
    assert other.take(100) == []


def test_a_message_alone_and_one_with_options_are_stored_alike(log: Log) -> None:
    queue = log.queue("jobs")
    queue.put_many(["ä", None])
    queue.put_many([Outgoing(body="ä"), Outgoing(body=None)])
    rows = log.read("jobs").rows()
    assert [row["body"] for row in rows] == ['"ä"', "null"] * 2
    assert [{**row, "body": None, "_offset": None} for row in rows[:2]] == [
        {**row, "body": None, "_offset": None} for row in rows[2:]
    ]
    assert bodies(queue.take(9)) == ["ä", None] * 2


def test_a_journal_that_earlier_code_has_written_is_used(log: Log) -> None:
    columns = [field for field in SCHEMA if field.name != "length"]
    log.create("jobs.journal", pa.schema(columns), partitions=1)
    row = {"group": "default", "event": "ack", "partition": 0, "offset": 1, "attempts": 0, "ready_at_us": 0}
    log.append("jobs.journal", [row])
    queue = log.queue("jobs")
    queue.put_many([1, 2, 3])
    queue.ack_many(queue.take(9))
    assert queue.stats().acknowledged == 3
    assert [row["length"] for row in log.read("jobs.journal").rows()] == [None, 1, 1]


def test_settings_that_another_object_has_altered_apply_at_the_next_call(log: Log, clock: ManualClock) -> None:
    one, other = log.queue("jobs"), log.queue("jobs")
    other.alter(lease="5 seconds", ttl="1 minute", deduplicate="1 hour")
    assert one.put("a", id="x") == one.put("b", id="x") == "x"
    [message] = one.take()
    assert message.lease_until_us == clock.now_us() + 5_000_000
    clock.advance(seconds=61)
    assert one.take() == []
    with pytest.raises(ArgumentInvalid, match="ordered"):
        one.alter(ordered=True)


def test_a_consumer_that_waits_is_told_that_its_queue_was_deleted(tmp_path: Path) -> None:
    with hw.open(tmp_path / "log") as log:
        queue: Queue = log.queue("jobs")
        errors: list[BaseException] = []
        began = threading.Event()

        def work() -> None:
            began.set()
            try:
                queue.take(wait="60 seconds")
            except NotFound as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        assert began.wait(10)
        delete_queue(log, "jobs")
        thread.join(30)
        assert len(errors) == 1
        log.queue("jobs").put(1)
        with pytest.raises(NotFound, match="jobs"):
            queue.take()
        with pytest.raises(NotFound, match="jobs"):
            queue.put(2)


def test_a_paused_group_with_returned_messages_waits_for_an_event_of_the_journal(log: Log) -> None:
    queue = log.queue("jobs")
    queue.put(1)
    queue.take()[0].nack()
    queue.pause()
    messages, idle = queue.state.take(1, lease_us=1, owner="me", queue=queue)
    assert (messages, idle.event_us, idle.unread) == ([], None, False)


def test_a_clock_that_goes_back_loses_nothing(log: Log, clock: ManualClock) -> None:
    queue = log.queue("jobs", lease="10 seconds", deduplicate="1 minute")
    queue.put("a", id="1")
    queue.put("b", delay="5 seconds")
    [held] = queue.take()
    clock.advance(seconds=-3600)
    queue.put("again", id="1")
    queue.put("c")
    [c] = queue.take(9)
    assert c.body == "c"
    queue.ack(held, c)
    clock.advance(seconds=3605)
    assert bodies(queue.take(9)) == ["b"]


def test_a_full_queue_drops_the_oldest_of_the_lowest_priority_in_each_group(log: Log) -> None:
    queue = log.queue("jobs", priorities=2, length_max=3, overflow="drop_oldest")
    other = log.queue("jobs", group="other")
    [held] = [queue.put(0), *queue.take()][1:]
    queue.pause()
    queue.put_many([Outgoing(body=1, priority=1), Outgoing(body=2), Outgoing(body=3, delay="1 hour"), Outgoing(body=4)])
    queue.resume()
    held.ack()
    assert bodies(queue.take(9)) == [1]
    assert queue.stats().expired == 2
    assert bodies(other.take(9)) == [1, 4]
    assert (queue.stats().length, other.stats().length) == (2, 3)


def test_a_replay_to_offsets_that_do_not_exist_is_refused(log: Log) -> None:
    queue = log.queue("jobs")
    queue.put(1)
    for start in ({0: 2}, {1: 0}, {0: -1}):
        with pytest.raises(ArgumentInvalid, match="start"):
            queue.replay(start)
    assert bodies(queue.take(9)) == [1]


def test_an_error_at_the_end_of_a_delivery_ends_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hw.open(tmp_path / "log") as log:

        @log.worker("jobs")
        def work(message: Message) -> None:
            pass

        def full(*_: object) -> None:
            raise DiskFull(path="jobs")

        log.queue("jobs").put(1)
        monkeypatch.setattr(Queue, "ack", full)
        with pytest.raises(DiskFull):
            work.run(idle_seconds_max=0)
