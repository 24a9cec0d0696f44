"""Regressions that crash tests have found: each of these once lost, doubled, hid or blocked rows."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater import faults
from headwater.clock import ManualClock
from headwater.config import Config
from headwater.errors import NotFound
from headwater.filelock import FileLock
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.errors import FrameCorrupt, SyncFailed, TransactionFinished

SCHEMA = {"id": "int64"}
SMALL = 400
"""Bytes of a segment that holds about two appends."""


class Died(BaseException):
    """Stands for `kill -9` where the call that is interrupted cleans nothing up."""


@contextmanager
def death_at(point: str) -> Iterator[None]:
    def hook(reached: str) -> None:
        if reached == point:
            raise Died

    faults.install(hook)
    try:
        with pytest.raises(Died):
            yield
    finally:
        faults.install(None)


@pytest.fixture
def another(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[], EmbeddedLog]]:
    """The same log as another process would open it."""
    opened: list[EmbeddedLog] = []

    def open_again() -> EmbeddedLog:
        opened.append(open_log(tmp_path / "log", clock=clock, config=Config(maintenance="manual")))
        return opened[-1]

    yield open_again
    for log in opened:
        log.close()


def ids(log: EmbeddedLog, topic: str = "rows", start: int | None = None) -> list[int]:
    return [row["id"] for row in log.read(topic, start="earliest" if start is None else start).rows()]


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


def segments(log: EmbeddedLog, topic: str = "rows") -> list[Path]:
    return sorted((log.path / "topics" / topic / "0").glob("*.log"))


def test_rows_that_a_killed_process_did_not_sync_are_there_at_the_first_look(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog]
) -> None:
    log.create("rows", SCHEMA)
    log.append("rows", rows(0))
    with death_at("sync.before"):
        log.append("rows", rows(1))
    after = another()
    known = ids(after)  # a receiver of webhooks reads the ids that it has, and appends others
    after.append("rows", rows(2))
    assert known == [0, 1]
    assert ids(after) == [0, 1, 2]


def test_a_roll_that_was_begun_is_finished_before_more_rows_come(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog]
) -> None:
    log.create("rows", SCHEMA, segment_bytes_max=SMALL)
    log.append("rows", rows(0))
    with death_at("roll.created"):
        log.append("rows", rows(*range(1, 40)))
    after = another()
    after.append("rows", rows(100))
    assert ids(after) == [0, 100]
    assert ids(after, start=1) == [100]


def test_a_retried_batch_is_known_though_others_have_joined_its_frame(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog]
) -> None:
    log.create("rows", SCHEMA, segment_bytes_max=2_000)
    idle = another()
    idle.append("rows", rows(0), producer="p", sequence=0)
    log.append("rows", rows(1), producer="p", sequence=1)
    log.append("rows", rows(2))
    log.maintain("rows", seal=True)
    assert segments(log)[0].name.count("-"), "the frames have been joined"
    assert idle.append("rows", rows(1), producer="p", sequence=1).duplicate
    assert ids(idle) == [0, 1, 2]


def test_a_retried_batch_is_known_though_retention_took_its_frame(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog], clock: ManualClock
) -> None:
    log.create("rows", SCHEMA, segment_bytes_max=SMALL, retention="10 seconds")
    log.append("rows", rows(0), producer="p", sequence=0)
    plain = another()
    for number in range(1, 6):
        plain.append("rows", rows(number))  # rolls, and knows nothing of producers
    clock.advance(seconds=60)
    plain.maintain("rows")
    assert 0 not in ids(plain)
    assert another().append("rows", rows(0), producer="p", sequence=0).duplicate


def test_a_retried_batch_without_key_goes_to_the_same_partition(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog]
) -> None:
    log.create("rows", SCHEMA, partitions=3)
    for number in range(5):
        log.append("rows", rows(number), producer="p", sequence=number)
    again = another()
    for number in range(5):
        assert again.append("rows", rows(number), producer="p", sequence=number).duplicate
    assert sorted(ids(again)) == [0, 1, 2, 3, 4]


def test_joined_rows_are_kept_as_long_as_the_newest_of_them(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("rows", SCHEMA, segment_bytes_max=2_000, retention="100 seconds")
    log.append("rows", rows(0))
    clock.advance(seconds=90)
    log.append("rows", rows(1))
    log.maintain("rows", seal=True)
    clock.advance(seconds=20)
    log.maintain("rows")
    assert 1 in ids(log)


def test_the_offset_at_a_time_is_found_within_joined_rows(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("rows", SCHEMA, segment_bytes_max=2_000)
    times = []
    for number in range(4):
        times.append(clock.now_us())
        log.append("rows", rows(number))
        clock.advance(seconds=1)
    log.maintain("rows", seal=True)
    assert [log.offset_at("rows", time)[0] for time in times] == [0, 1, 2, 3]
    assert log.offset_at("rows", times[-1] + 1)[0] == 4


def test_a_reader_goes_on_where_a_segment_is_sealed_and_joined_under_it(log: EmbeddedLog) -> None:
    log.create("rows", SCHEMA, segment_bytes_max=10_000)
    for number in range(6):
        log.append("rows", rows(number))
    batches = log.read("rows").batches()
    seen = [row["id"] for row in next(batches).rows()]
    log.maintain("rows", seal=True)
    for number in range(6, 12):
        log.append("rows", rows(number))
    log.maintain("rows", seal=True)
    seen += [row["id"] for batch in batches for row in batch.rows()]
    assert seen == [0, 1, 2, 3, 4, 5]


def test_a_deletion_that_was_begun_is_finished(log: EmbeddedLog, another: Callable[[], EmbeddedLog]) -> None:
    log.create("rows", SCHEMA)
    log.append("rows", rows(1))
    with death_at("topic.marked"):
        log.delete("rows")
    after = another()
    with pytest.raises(NotFound):
        after.append("rows", rows(2))
    after.create("rows", SCHEMA)
    assert ids(after) == []


def test_an_append_does_not_bring_back_half_of_a_deleted_topic(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog]
) -> None:
    log.create("rows", SCHEMA, partitions=2)
    other = another()
    other.append("rows", rows(1), partition=0)
    late = other.handle("rows").partition(1)
    log.delete("rows")
    with pytest.raises(NotFound):
        late.make()
    assert log.topics() == []


@pytest.mark.parametrize(
    "point", ["commit.recording", "commit.durable", "commit.copied", "commit.recorded", "commit.flipped"]
)
def test_a_process_that_lives_on_sees_all_of_a_dead_ones_transaction(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog], point: str
) -> None:
    for topic in ("a", "b", "c"):
        log.create(topic, SCHEMA)
        log.append(topic, rows(0))
    witness = another()
    assert [ids(witness, topic) for topic in ("a", "b", "c")] == [[0]] * 3
    with death_at(point), log.transaction() as transaction:
        for topic in ("a", "b", "c"):
            transaction.append(topic, rows(1))
    witness.append("b", rows(2))  # recovers one partition of three
    seen = [ids(witness, topic) for topic in ("a", "b", "c")]
    assert seen in ([[0, 1], [0, 1, 2], [0, 1]], [[0], [0, 2], [0]])


def test_what_is_prepared_can_be_committed_after_its_producer_came_back(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog]
) -> None:
    log.create("rows", SCHEMA)
    epoch = log.open_producer("p")
    transaction = log.transaction("p", epoch=epoch, sequence=1)
    transaction.append("rows", rows(1))
    name = transaction.prepare()
    restarted = another()
    restarted.open_producer("p")
    with restarted.transaction("p", sequence=2) as later:
        later.append("rows", rows(2))
    assert restarted.prepared() == [name]
    restarted.commit(name)
    assert sorted(ids(restarted)) == [1, 2]


def test_what_was_committed_cannot_be_rolled_back(log: EmbeddedLog, another: Callable[[], EmbeddedLog]) -> None:
    log.create("rows", SCHEMA)
    transaction = log.transaction()
    transaction.append("rows", rows(1))
    name = transaction.prepare()
    with death_at("commit.finished"):
        log.commit(name)
    after = another()
    assert after.prepared() == []
    with pytest.raises(TransactionFinished):
        after.rollback(name)
    assert ids(after) == [1]


@pytest.mark.parametrize("left", [b"", b"\0" * 5])
def test_a_log_opens_though_a_power_cut_emptied_its_state(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog], power_cut: Callable[[], None], left: bytes
) -> None:
    log.create("rows", SCHEMA)
    with log.transaction() as transaction:
        transaction.append("rows", rows(1))
    log.close()
    (log.path / "transactions" / "state").write_bytes(left)
    (log.path / "topics" / "rows" / "state").write_bytes(left)
    power_cut()
    assert ids(another()) == [1]


def test_frames_of_a_transaction_that_never_was_are_cut_without_the_state(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog], power_cut: Callable[[], None]
) -> None:
    log.create("rows", SCHEMA)
    log.append("rows", rows(0))
    tail = segments(log)[0].read_bytes()
    with log.transaction() as transaction:
        transaction.append("rows", rows(1))
        transaction.append("rows", rows(2))  # two frames: the second is no sign of damage before it
    assert len(segments(log)[0].read_bytes()) > len(tail)
    log.close()
    for name in ("commits.log", "commits.copy", "state"):
        (log.path / "transactions" / name).unlink()
    (log.path / "topics" / "rows" / "state").unlink()
    power_cut()
    assert ids(another()) == [0]


def test_damage_in_a_sealed_segment_is_reported_after_a_power_cut(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog], power_cut: Callable[[], None]
) -> None:
    log.create("rows", SCHEMA, segment_bytes_max=1_500)
    log.append("rows", rows(0))
    stale = (log.path / "topics" / "rows" / "state").read_bytes()
    for number in range(1, 20):
        log.append("rows", rows(number))
    log.close()
    (log.path / "topics" / "rows" / "state").write_bytes(stale)
    first = segments(log)[0]
    data = bytearray(first.read_bytes())
    data[-1 - 8] ^= 1
    first.write_bytes(data)
    power_cut()
    with pytest.raises(FrameCorrupt):
        another().append("rows", rows(9))
    assert len(segments(log)) > 1, "nothing was cut"


def test_an_unsynced_topic_goes_on_though_a_power_cut_left_garbage(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog], power_cut: Callable[[], None]
) -> None:
    log.create("rows", SCHEMA, durability="os")
    log.append("rows", rows(0, 1, 2))
    log.close()
    segments(log)[0].write_bytes(b"garbage" * 50)
    power_cut()
    after = another()
    assert after.append("rows", rows(3)).ranges == {0: (3, 4)}, "no offset is used twice"
    assert ids(after, start=3) == [3]


def test_rows_wait_for_the_archive_where_they_are(
    log: EmbeddedLog, another: Callable[[], EmbeddedLog], clock: ManualClock
) -> None:
    log.create("rows", SCHEMA, segment_bytes_max=SMALL, retention="10 seconds", archive=True)
    for number in range(6):
        log.append("rows", rows(number))
    clock.advance(seconds=60)
    with death_at("retention.marked"):
        log.maintain("rows")
    assert [row["id"] for row in another().read("rows", archived=True).rows()] == [0, 1, 2, 3, 4, 5]


def test_a_lock_is_not_closed_under_the_thread_that_holds_it(tmp_path: Path) -> None:
    lock, rival = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    with lock:
        closer = threading.Thread(target=lock.close)
        closer.start()
        assert not rival.try_acquire()
    closer.join()
    assert rival.try_acquire()
    rival.release()
    rival.close()


def test_bytes_whose_sync_failed_are_written_again_before_the_next_one_counts(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create("rows", SCHEMA)
    log.append("rows", rows(0))
    calls: list[str] = []
    failures = [OSError(errno.EIO, "the disk is gone")]
    real_sync, real_write = os.fdatasync, os.pwrite

    def sync(descriptor: int) -> None:
        calls.append("sync")
        if failures:
            raise failures.pop()
        real_sync(descriptor)

    def write(descriptor: int, data: bytes, position: int) -> int:
        calls.append(f"write {len(data)}")
        return real_write(descriptor, data, position)

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(os, "pwrite", write)
    safe = segments(log)[0].stat().st_size
    with pytest.raises(SyncFailed):
        log.append("rows", rows(1))
    assert ids(log) == [0], "what is not safe is not shown"
    calls.clear()
    log.append("rows", rows(2))
    again = segments(log)[0].stat().st_size - safe
    assert calls.index(f"write {again}") < calls.index("sync"), "both batches are handed over once more"
    assert ids(log) == [0, 1, 2]
