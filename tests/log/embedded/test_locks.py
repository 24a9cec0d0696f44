"""Locks that are held too long: no call waits without end, and the error names the process that holds the lock."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater import faults
from headwater.config import Config
from headwater.errors import Locked, NotFound
from headwater.filelock import FileLock, holder_of
from headwater.log.embedded import EmbeddedLog, commits
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.repair import verify
from headwater.testing import start_child

SCHEMA = {"id": "int64"}
TOPICS = ("a", "b", "c", "d")
#: Points at which a commit holds only locks of its own partitions.
BEFORE_THE_LOCK = ("commit.written", "commit.synced")
#: Points at which it holds the transaction lock.
UNDER_THE_LOCK = ("commit.recording", "commit.durable", "commit.copied", "commit.recorded", "commit.flipped")
LONG_WAIT = Config(maintenance="manual")
SHORT_WAIT = Config(maintenance="manual", lock_seconds_max=0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    with open_log(path, config=LONG_WAIT) as log:
        for topic in TOPICS:
            log.create(topic, SCHEMA)
            log.append(topic, [{"id": 0}])
    return path


@pytest.fixture
def log(folder: Path) -> Iterator[EmbeddedLog]:
    with open_log(folder, config=SHORT_WAIT) as opened:
        yield opened


def commit(log: EmbeddedLog, *topics: str, row: int = 1) -> None:
    with log.transaction() as transaction:
        for topic in topics:
            transaction.append(topic, [{"id": row}])


def ids(log: EmbeddedLog, topic: str) -> list[int]:
    return [row["id"] for row in log.read(topic).rows()]


@contextmanager
def held_at(
    point: str,
    folder: Path,
    work: Callable[[EmbeddedLog], object],
    *,
    others: Callable[[str], None] = lambda _: None,
) -> Iterator[None]:
    """Another process, as far as the locks can tell, that stays at a point for as long as the block takes.

    `others` is told of the points that this one reaches.
    """
    come, go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with open_log(folder, config=LONG_WAIT) as other:
                work(other)
        except BaseException as error:
            errors.append(error)
            come.set()

    thread = threading.Thread(target=run)

    def hook(reached: str) -> None:
        if threading.current_thread() is not thread:
            others(reached)
        elif reached == point and not come.is_set():
            come.set()
            go_on.wait()

    faults.install(hook)
    thread.start()
    try:
        assert come.wait(60)
        yield
    finally:
        go_on.set()
        thread.join()
        faults.install(None)
    assert not errors


def test_a_lock_that_stays_held_is_an_error_that_names_its_holder(tmp_path: Path) -> None:
    lock, rival = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock", seconds_max=0.05)
    with lock:
        with pytest.raises(Locked) as caught:
            rival.__enter__()
        assert caught.value.what == str(tmp_path / "lock")
        assert f"process {os.getpid()} (" in caught.value.holder
        assert "kill -CONT" in str(caught.value)
    with rival:
        pass


def test_a_thread_that_waits_for_another_is_told_too(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", seconds_max=0.05)
    errors: list[Locked] = []

    def ask() -> None:
        try:
            lock.__enter__()
        except Locked as error:
            errors.append(error)

    with lock:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert len(errors) == 1
    with lock:
        pass


def test_a_waiting_process_gets_the_lock_when_it_is_free(tmp_path: Path) -> None:
    lock, rival = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    order: list[str] = []

    def ask() -> None:
        with rival:
            order.append("second")

    with lock:
        thread = threading.Thread(target=ask)
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_lock_that_is_free_has_no_holder(tmp_path: Path) -> None:
    with FileLock(tmp_path / "lock"):
        pass
    assert holder_of(tmp_path / "lock") == holder_of(tmp_path / "none") == "another process"


def test_an_append_beside_one_that_hangs_is_refused_and_other_topics_go_on(folder: Path, log: EmbeddedLog) -> None:
    with held_at("append.written", folder, lambda other: other.append("a", [{"id": 1}])):
        with pytest.raises(Locked, match=r"a/0/append\.lock"):
            log.append("a", [{"id": 2}])
        with pytest.raises(Locked):
            commit(log, "a", "b")
        log.append("b", [{"id": 2}])
        commit(log, "b", "c", row=3)
        assert (ids(log, "a"), ids(log, "b")) == ([0], [0, 2, 3])
    log.append("a", [{"id": 2}])
    assert ids(log, "a") == [0, 1, 2]


def test_a_commit_beside_a_sync_that_hangs_leaves_others_alone(folder: Path, log: EmbeddedLog) -> None:
    with held_at("sync.before", folder, lambda other: other.append("a", [{"id": 1}])):
        with pytest.raises(Locked, match=r"a/0/sync\.lock"):
            commit(log, "a", "b")
        commit(log, "b", "c", row=3)
        assert ids(log, "b") == [0, 3]
    assert ids(log, "a") == [0, 1]
    commit(log, "a", "b", row=4)
    assert verify(log).ok


@pytest.mark.parametrize("point", BEFORE_THE_LOCK)
def test_transactions_on_other_topics_go_on_while_one_commit_hangs(folder: Path, log: EmbeddedLog, point: str) -> None:
    with held_at(point, folder, lambda other: commit(other, "a", "b")):
        commit(log, "c", "d", row=2)
        assert log.committed_sequence("p") == -1
        assert [ids(log, topic) for topic in TOPICS] == [[0], [0], [0, 2], [0, 2]]
        with pytest.raises(Locked):
            commit(log, "b", "c", row=3)
    assert [ids(log, topic) for topic in TOPICS] == [[0, 1], [0, 1], [0, 2], [0, 2]]
    assert verify(log).ok


@pytest.mark.parametrize("point", UNDER_THE_LOCK)
def test_a_commit_that_hangs_with_the_lock_is_named_to_others(folder: Path, log: EmbeddedLog, point: str) -> None:
    with held_at(point, folder, lambda other: commit(other, "a", "b")):
        with pytest.raises(Locked, match=f"process {os.getpid()}"):
            commit(log, "c", "d", row=2)
        log.append("c", [{"id": 3}])
    assert [ids(log, topic) for topic in TOPICS] == [[0, 1], [0, 1], [0, 3], [0]]
    commit(log, "c", "d", row=2)
    assert verify(log).ok


def test_readers_neither_spin_nor_wait_without_end_while_a_commit_hangs_half_shown(
    folder: Path, log: EmbeddedLog
) -> None:
    with held_at("commit.flipped", folder, lambda other: commit(other, "a", "b")):
        began, used = time.monotonic(), time.thread_time()
        for _ in range(5):
            with pytest.raises(Locked, match=f"process {os.getpid()}"):
                log.end_offsets("b")
        assert time.thread_time() - used < (time.monotonic() - began) / 2
        with pytest.raises(Locked):
            ids(log, "a")
    assert ids(log, "a") == ids(log, "b") == [0, 1]


@pytest.mark.parametrize("point", ["commit.recording", "commit.durable", "commit.copied", "commit.recorded"])
def test_readers_go_on_while_a_commit_hangs_that_shows_nothing_yet(folder: Path, log: EmbeddedLog, point: str) -> None:
    with held_at(point, folder, lambda other: commit(other, "a", "b")):
        assert [ids(log, topic) for topic in TOPICS] == [[0]] * 4


def test_a_commit_whose_sequence_another_commits_first_changes_nothing(folder: Path) -> None:
    """Both write their frames at the same time; the second one to get the lock cuts its own."""

    def numbered(other: EmbeddedLog, *topics: str) -> bool:
        transaction = other.transaction("p", sequence=7)
        for topic in topics:
            transaction.append(topic, [{"id": 1}])
        return all(one.duplicate for one in transaction.commit().values())

    late: list[bool] = []
    with open_log(folder, config=LONG_WAIT) as log:
        with held_at("commit.synced", folder, lambda other: late.append(numbered(other, "a", "b"))):
            assert not numbered(log, "c", "d")
        assert late == [True]
        assert [ids(log, topic) for topic in TOPICS] == [[0], [0], [0, 1], [0, 1]]
        assert verify(log).ok


def test_a_prepared_transaction_that_is_rolled_back_meanwhile_is_not_committed(folder: Path, log: EmbeddedLog) -> None:
    transaction = log.transaction()
    transaction.append("a", [{"id": 1}])
    name = transaction.prepare()

    def late(other: EmbeddedLog) -> None:
        with pytest.raises(NotFound):
            other.commit(name)

    with held_at("commit.synced", folder, late):
        log.rollback(name)
    assert ids(log, "a") == [0]
    assert verify(log).ok


def test_a_commit_finishes_what_a_dead_one_began_though_it_has_written_itself(folder: Path, log: EmbeddedLog) -> None:
    """A process dies after its record while another commit has written its frames, which are then written again."""

    class Died(BaseException):
        pass

    def die(point: str) -> None:
        if point == "commit.recorded":
            raise Died

    held = held_at("commit.synced", folder, lambda other: commit(other, "c", "b", row=2), others=die)
    with held, pytest.raises(Died):
        commit(log, "a", "d")
    assert [ids(log, topic) for topic in TOPICS] == [[0, 1], [0, 2], [0, 2], [0, 1]]
    assert verify(log).ok


def test_the_commit_log_is_not_shortened_under_a_commit(
    folder: Path, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a commit under way must stay above the horizon, or its frames would count without a record."""
    monkeypatch.setattr(commits, "COMMITS_BYTES_MAX", 1)
    with held_at("commit.written", folder, lambda other: commit(other, "a", "b")):
        commit(log, "c", "d", row=2)
        assert b"horizon" not in (folder / "transactions" / "commits.log").read_bytes()
    commit(log, "c", "d", row=3)
    assert b"horizon" in (folder / "transactions" / "commits.log").read_bytes()
    assert [ids(log, topic) for topic in TOPICS] == [[0, 1], [0, 1], [0, 2, 3], [0, 2, 3]]
    assert verify(log).ok


@pytest.mark.process
@pytest.mark.parametrize("point", ["append.written", pytest.param("commit.flipped", marks=pytest.mark.core)])
def test_a_stopped_process_is_named_with_what_to_do(folder: Path, point: str) -> None:
    def work() -> None:
        def hook(reached: str) -> None:
            if reached == point:
                faults.install(None)
                os.kill(os.getpid(), signal.SIGSTOP)

        faults.install(hook)
        with open_log(folder, config=LONG_WAIT) as other:
            if point.startswith("commit"):
                commit(other, "a", "b")
            else:
                other.append("a", [{"id": 1}])

    child = start_child(work)
    try:
        _, status = os.waitpid(child, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        with open_log(folder, config=SHORT_WAIT) as log:
            with pytest.raises(Locked) as caught:
                commit(log, "a", "b", row=2)
            assert f"process {child} (" in caught.value.holder
            assert "which is stopped" in caught.value.holder
            os.kill(child, signal.SIGCONT)
            assert os.waitpid(child, 0)[1] == 0
            child = 0
            commit(log, "a", "b", row=2)
            assert ids(log, "a") == [0, 1, 2]
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
