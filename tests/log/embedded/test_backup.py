"""A backup is a consistent copy, made while others write; what is damaged in it is found."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import faults
from headwater.clock import ManualClock
from headwater.config import Config
from headwater.errors import HeadwaterError, InUse, Locked, NotFound, NotPossible
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.backup import MANIFEST, Backup, back_up, check_backup, restore
from headwater.log.embedded.repair import verify
from headwater.log.errors import BackupDamaged, FrameCorrupt
from tests.log.damage import sample

SCHEMA = {"id": "int64"}
#: Bytes of a segment that holds about two appends.
SMALL = 400
TOPICS = ("a", "b", "loose")


class Died(BaseException):
    """Stands for `kill -9`."""


@contextmanager
def at(point: str, act: Callable[[], object]) -> Iterator[None]:
    """Do something when `point` is reached for the first time."""
    done = False

    def hook(reached: str) -> None:
        nonlocal done
        if reached == point and not done:
            done = True
            act()

    faults.install(hook)
    try:
        yield
    finally:
        faults.install(None)
    assert done, f"{point} was never reached"


def die() -> None:
    raise Died


def opened(folder: Path) -> EmbeddedLog:
    return open_log(folder, clock=ManualClock(), config=Config(maintenance="manual", lock_seconds_max=5))


def ids(log: EmbeddedLog, topic: str) -> list[int]:
    return [row["id"] for row in log.read(topic).rows()]


@pytest.fixture
def written(log: EmbeddedLog) -> EmbeddedLog:
    """A log with topics of several kinds, whose transactions write the same number to all of them."""
    log.create("a", SCHEMA, segment_bytes_max=SMALL)
    log.create("b", SCHEMA, partitions=2, segment_bytes_max=SMALL)
    log.create("loose", SCHEMA, durability="os")
    for number in range(5):
        transact(log, number)
    return log


def transact(log: EmbeddedLog, number: int) -> None:
    """Write a number to all topics, and commit the offset behind it."""
    with log.transaction("p", sequence=number) as transaction:
        for topic in TOPICS:
            transaction.append(topic, [{"id": number}])
        transaction.commit_offsets("g", "a", {0: number + 1})


def restored(backup: Path) -> EmbeddedLog:
    target = backup.parent / f"restored-{backup.name}"
    restore(backup, target)
    return opened(target)


def assert_consistent(log: EmbeddedLog) -> int:
    """Each transaction is in all topics or in none; return how many there are."""
    count = len(ids(log, "a"))
    for topic in TOPICS:
        assert sorted(ids(log, topic)) == list(range(count)), topic
    assert log.committed("g", "a") == ({0: count} if count else {})
    assert log.committed_sequence("p") == count - 1
    assert verify(log).ok
    return count


@pytest.mark.parametrize("point", [name for name in faults.CRASH_POINTS if name.startswith("commit.")])
def test_a_transaction_that_died_anywhere_is_copied_whole_or_not_at_all(
    written: EmbeddedLog, tmp_path: Path, point: str
) -> None:
    with at(point, die), pytest.raises(Died):
        transact(written, 5)
    with opened(written.path) as other:
        back_up(other, tmp_path / "backup")
    with restored(tmp_path / "backup") as log:
        assert assert_consistent(log) in (5, 6)
        transact(log, assert_consistent(log))


@pytest.mark.parametrize("point", ["commit.written", "commit.synced"])
def test_a_backup_does_not_wait_for_a_transaction_that_is_not_committed(
    written: EmbeddedLog, tmp_path: Path, point: str
) -> None:
    with opened(written.path) as other, at(point, lambda: back_up(other, tmp_path / "backup")):
        transact(written, 5)
    with restored(tmp_path / "backup") as log:
        assert assert_consistent(log) == 5
    assert assert_consistent(written) == 6


def test_a_backup_beside_writers_is_a_prefix_at_one_moment(written: EmbeddedLog, tmp_path: Path) -> None:
    stop, failures = threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            with opened(written.path) as mine:
                number = 5
                while not stop.is_set():
                    transact(mine, number)
                    number += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(4):
            seen = len(ids(written, "loose"))
            back_up(written, tmp_path / f"backup{number}")
            with restored(tmp_path / f"backup{number}") as log:
                assert seen <= assert_consistent(log) <= len(ids(written, "loose"))
    finally:
        stop.set()
        thread.join()
    assert not failures


def more(log: EmbeddedLog) -> None:
    for number in range(5, 12):
        transact(log, number)


def test_rows_that_come_after_the_moment_are_not_copied(written: EmbeddedLog, tmp_path: Path) -> None:
    with at("backup.cut", lambda: more(written)):
        back_up(written, tmp_path / "backup")
    with restored(tmp_path / "backup") as log:
        assert assert_consistent(log) == 5


def test_maintenance_waits_for_a_backup(log: EmbeddedLog, tmp_path: Path) -> None:
    log.create("table", SCHEMA, key="id", compact=True, segment_bytes_max=SMALL)
    log.append("table", [{"id": 1}])

    def compact() -> None:
        log.append("table", [{"id": 1}])
        with opened(log.path) as other:
            other.config = log.config
            with pytest.raises(Locked):
                maintain(other)

    with at("backup.cut", compact):
        back_up(log, tmp_path / "backup")
    log.maintain("table", seal=True)
    with restored(tmp_path / "backup") as copy:
        assert ids(copy, "table") == [1]


def maintain(log: EmbeddedLog) -> None:
    for partition in log.handle("table").partitions():
        partition.lock_seconds_max = 0.01
    log.maintain("table", seal=True)


def test_a_topic_that_is_deleted_meanwhile_is_left_out_with_its_offsets(written: EmbeddedLog, tmp_path: Path) -> None:
    with at("backup.cut", lambda: written.delete("a")):
        assert back_up(written, tmp_path / "backup").left_out == ["a"]
    with restored(tmp_path / "backup") as log:
        assert log.topics() == ["b", "loose"]
        assert log.committed("g", "a") == {}


def test_a_topic_that_is_made_again_meanwhile_is_left_out(written: EmbeddedLog, tmp_path: Path) -> None:
    def again() -> None:
        written.delete("a")
        written.create("a", SCHEMA)
        written.append("a", [{"id": 99}])

    with at("backup.cut", again):
        assert back_up(written, tmp_path / "backup").left_out == ["a"]


def test_every_kind_of_file_is_copied(tmp_path: Path) -> None:
    made = sample.build(tmp_path)
    with sample.open_sample(made.folder) as log:
        back_up(log, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with sample.open_sample(tmp_path / "restored") as log:
        assert {topic: sample.rows_of(log, topic) for topic in log.topics()} == made.rows
        assert log.committed("g", "plain") == made.committed
        assert log.start_offsets("expired")[0] > 0
        assert log.append("joined", [{"id": 0}], producer="p", sequence=sample.ROWS - 1).duplicate
        assert log.prepared() == [made.prepared]
        log.commit(made.prepared)
        assert 1_000 in sample.rows_of(log, "parts")[0].values()
        assert verify(log).ok


def test_a_prepared_transaction_that_is_committed_meanwhile_stays_prepared_in_the_copy(
    written: EmbeddedLog, tmp_path: Path
) -> None:
    transaction = written.transaction()
    transaction.append("a", [{"id": 5}])
    name = transaction.prepare()
    with at("backup.cut", lambda: written.commit(name)):
        back_up(written, tmp_path / "backup")
    with restored(tmp_path / "backup") as log:
        assert log.prepared() == [name]
        log.commit(name)
        assert ids(log, "a") == [0, 1, 2, 3, 4, 5]


def test_the_rows_of_topics_in_memory_are_not_copied_and_no_offset_is_used_twice(
    log: EmbeddedLog, tmp_path: Path
) -> None:
    log.create("quick", SCHEMA, durability="memory")
    log.append("quick", [{"id": 1}])
    back_up(log, tmp_path / "backup")
    with restored(tmp_path / "backup") as copy:
        assert ids(copy, "quick") == []
        assert copy.append("quick", [{"id": 2}]).ranges[0][0] > log.end_offsets("quick")[0]
        assert ids(log, "quick") == [1]
        copy.delete("quick")


# -- death and damage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [name for name in faults.BACKUP_CRASH_POINTS if name.startswith("backup.")])
def test_a_backup_that_died_is_none_and_the_next_one_succeeds(
    written: EmbeddedLog, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, point: str
) -> None:
    left = tmp_path_factory.mktemp("left")
    # What `kill -9` leaves is what is there at the point, without the clean-up that follows an exception.
    with at(point, lambda: shutil.copytree(tmp_path, left, dirs_exist_ok=True)):
        back_up(written, tmp_path / "backup")
    assert not (left / "backup").exists()
    with pytest.raises(NotFound):
        restore(left / "backup", left / "restored")
    with opened(left / "log") as log:
        back_up(log, left / "backup")
        assert not list(left.glob(".*"))
    with restored(left / "backup") as log:
        assert assert_consistent(log) == 5


@pytest.mark.parametrize("point", [name for name in faults.BACKUP_CRASH_POINTS if name.startswith("restore.")])
def test_a_restore_that_died_left_no_log(written: EmbeddedLog, tmp_path: Path, point: str) -> None:
    back_up(written, tmp_path / "backup")
    left = tmp_path / "left"
    with at(point, lambda: shutil.copytree(tmp_path / "restored", left)):
        restore(tmp_path / "backup", tmp_path / "restored")
    with pytest.raises(HeadwaterError):
        open_log(left, create=False).close()
    if point == "restore.copied":
        restore(tmp_path / "backup", left)
    else:
        with pytest.raises(InUse):
            restore(tmp_path / "backup", left)


@pytest.fixture(scope="module")
def sample_backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    made = sample.build(folder)
    with sample.open_sample(made.folder) as log:
        back_up(log, folder / "backup")
    return folder / "backup"


@given(data=st.data())
def test_any_changed_byte_of_a_backup_is_found(sample_backup: Path, data: st.DataObject) -> None:
    files = sorted(path for path in sample_backup.rglob("*") if path.is_file() and path.stat().st_size)
    path = data.draw(st.sampled_from(files))
    content = path.read_bytes()
    position = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(damaged)
    try:
        with pytest.raises(HeadwaterError):
            check_backup(sample_backup)
    finally:
        path.write_bytes(content)


def test_a_file_of_a_backup_that_is_cut_or_gone_is_named(written: EmbeddedLog, tmp_path: Path) -> None:
    back_up(written, tmp_path / "backup")
    segment = min((tmp_path / "backup/log/topics/a/0").glob("*.log"))
    content = segment.read_bytes()
    for damage in (lambda: segment.write_bytes(content[:-8]), segment.unlink):
        damage()
        with pytest.raises(BackupDamaged) as caught:
            restore(tmp_path / "backup", tmp_path / "restored")
        assert caught.value.path == str(segment)
        assert not any((tmp_path / "restored").iterdir())


def test_a_damaged_log_gives_no_backup(written: EmbeddedLog, tmp_path: Path) -> None:
    segment = min((written.path / "topics/a/0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[-1 if len(content) % 8 else -20] ^= 1
    segment.write_bytes(content)
    with pytest.raises(FrameCorrupt, match=segment.name):
        back_up(written, tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


# -- where to, and since when -------------------------------------------------------------------------------------------


def test_nothing_is_overwritten(written: EmbeddedLog, tmp_path: Path) -> None:
    back_up(written, tmp_path / "backup")
    with pytest.raises(InUse):
        back_up(written, tmp_path / "backup")
    with pytest.raises(InUse):
        restore(tmp_path / "backup", written.path)
    (tmp_path / "empty").mkdir()
    restore(tmp_path / "backup", tmp_path / "empty")
    with opened(tmp_path / "empty") as log:
        assert assert_consistent(log) == 5


def test_an_incremental_backup_shares_what_has_not_changed_and_restores_alone(
    written: EmbeddedLog, tmp_path: Path
) -> None:
    first = back_up(written, tmp_path / "monday")
    for number in range(5, 8):
        transact(written, number)
    second = back_up(written, tmp_path / "tuesday", since=tmp_path / "monday")
    assert (first.bytes_shared, second.bytes_shared > 0) == (0, True)
    shared = [name for name in second.files if linked(tmp_path / "tuesday/log" / name)]
    assert sum(second.files[name].bytes for name in shared) == second.bytes_shared
    assert all(name.endswith(".log") and name.startswith("topics/") for name in shared)
    shutil.rmtree(tmp_path / "monday")
    with restored(tmp_path / "tuesday") as log:
        assert assert_consistent(log) == 8


def linked(path: Path) -> bool:
    return path.stat().st_nlink > 1


def test_a_restored_log_begins_a_new_series_of_backups(written: EmbeddedLog, tmp_path: Path) -> None:
    back_up(written, tmp_path / "monday")
    with restored(tmp_path / "monday") as log, pytest.raises(NotPossible):
        back_up(log, tmp_path / "tuesday", since=tmp_path / "monday")


def test_acknowledged_messages_are_not_delivered_again(log: EmbeddedLog, tmp_path: Path) -> None:
    with log.queue("jobs") as queue:
        for number in range(5):
            queue.put({"n": number})
        for message in queue.take(n=2):
            message.ack()
    back_up(log, tmp_path / "backup")
    with restored(tmp_path / "backup") as copy, copy.queue("jobs") as queue:
        assert [message.body["n"] for message in queue.take(n=10)] == [2, 3, 4]


def test_a_backup_says_what_it_has(written: EmbeddedLog, tmp_path: Path) -> None:
    made = back_up(written, tmp_path / "backup")
    assert isinstance(made, Backup)
    assert made.ends["a"] == {0: 5}
    assert sum(made.ends["b"].values()) == 5
    assert check_backup(tmp_path / "backup").files == made.files
    assert (tmp_path / "backup" / MANIFEST).is_file()
