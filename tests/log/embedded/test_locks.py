"""Locks that are held too long: no call waits without end, and the error names the process that holds the lock."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
#: Points at which a commit holds only locks of its own partitions, and then the lock of a commit log, too.
BEFORE_THE_RECORD = ("commit.written", "commit.synced", "commit.recording")
AFTER_THE_RECORD = ("commit.durable", "commit.copied", "commit.recorded", "commit.flipped")
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


def numbered(log: EmbeddedLog, sequence: int, *topics: str, producer: str = "p") -> bool:
    """Commit one transaction of a producer that numbers them; return whether it was committed before."""
    transaction = log.transaction(producer, sequence=sequence)
    for topic in topics:
        transaction.append(topic, [{"id": 1}])
    return all(one.duplicate for one in transaction.commit().values())


def prepared(log: EmbeddedLog, topic: str, *, row: int) -> str:
    transaction = log.transaction()
    transaction.append(topic, [{"id": row}])
    return transaction.prepare()


class Died(BaseException):
    """Stands for `kill -9`."""


def die_at(point: str, work: Callable[[], object]) -> None:
    def hook(reached: str) -> None:
        if reached == point:
            raise Died

    faults.install(hook)
    try:
        with pytest.raises(Died):
            work()
    finally:
        faults.install(None)


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


@pytest.mark.parametrize("point", BEFORE_THE_RECORD + AFTER_THE_RECORD)
def test_transactions_on_other_topics_go_on_while_one_commit_hangs(folder: Path, log: EmbeddedLog, point: str) -> None:
    with held_at(point, folder, lambda other: numbered(other, 7, "a", "b")):
        for row in (2, 3, 4):
            commit(log, "c", "d", row=row)
        assert not numbered(log, 0, "c", producer="q")
        assert numbered(log, 0, "c", producer="q"), "the second commit log knows it"
        assert (log.committed_sequence("q"), log.committed_sequence("none")) == (0, -1)
        name = prepared(log, "d", row=5)
        log.rollback(prepared(log, "d", row=6))
        assert log.prepared() == [name]
        log.commit(name)
        assert (ids(log, "c"), ids(log, "d")) == ([0, 2, 3, 4, 1], [0, 2, 3, 4, 5])
        with pytest.raises(Locked, match=f"process {os.getpid()}"):
            commit(log, "b", "c", row=3)
        if point in AFTER_THE_RECORD:
            with pytest.raises(Locked):
                log.committed_sequence("p")
    assert [ids(log, topic) for topic in TOPICS] == [[0, 1], [0, 1], [0, 2, 3, 4, 1], [0, 2, 3, 4, 5]]
    assert numbered(log, 7, "c"), "the first commit log knows it"
    commit(log, "a", "c", row=8)
    assert verify(log).ok
    with open_log(folder, config=SHORT_WAIT) as again:
        assert numbered(again, 0, "c", producer="q")
        assert numbered(again, 7, "a")
        assert again.prepared() == []


def test_a_commit_waits_for_other_commits_only_where_all_commit_logs_are_taken(folder: Path, log: EmbeddedLog) -> None:
    locks = [FileLock(folder / "transactions" / name) for name in ("lock", *(f"lock-{n}" for n in range(1, 8)))]
    with ExitStack() as held:
        for lock in locks[:-1]:
            held.enter_context(lock)
        commit(log, "a", "b")
        with locks[-1], pytest.raises(Locked, match="transactions/lock"):
            commit(log, "a", "b", row=2)
    commit(log, "a", "b", row=3)
    assert ids(log, "a") == ids(log, "b") == [0, 1, 3]


@pytest.mark.parametrize("point", AFTER_THE_RECORD)
def test_what_processes_died_over_in_several_commit_logs_is_resolved(
    folder: Path, log: EmbeddedLog, point: str
) -> None:
    with open_log(folder, config=SHORT_WAIT) as first, open_log(folder, config=SHORT_WAIT) as second:
        with FileLock(folder / "transactions" / "lock"):
            die_at(point, lambda: numbered(second, 0, "c", "d", producer="q"))
        die_at(point, lambda: numbered(first, 7, "a", "b"))
        assert log.committed_sequence("p") == 7
        assert numbered(log, 0, "d", producer="q")
        assert [ids(log, topic) for topic in TOPICS] == [[0, 1]] * 4
    assert verify(log).ok


def test_all_commit_logs_are_shortened_together(
    folder: Path, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old numbers are below one horizon, whichever commit log had their records."""
    with FileLock(folder / "transactions" / "lock"):
        numbered(log, 0, "a", "b", producer="q")
        numbered(log, 1, "a", "b", producer="q")
    monkeypatch.setattr(commits, "COMMITS_BYTES_MAX", 1)
    with open_log(folder, config=SHORT_WAIT) as other:
        numbered(other, 7, "c")
    monkeypatch.undo()
    for name in ("commits.log", "commits-1.log"):
        assert b"horizon" in (folder / "transactions" / name).read_bytes()
    for topic in TOPICS:
        (folder / "topics" / topic / "state").unlink()  # so that recovery asks for each transaction
    with open_log(folder, config=SHORT_WAIT) as again:
        assert numbered(again, 1, "c", producer="q")
        assert numbered(again, 7, "c")
        assert [ids(again, topic) for topic in TOPICS] == [[0, 1, 1], [0, 1, 1], [0, 1], [0]]
        commit(again, "a", "b", row=9)
        assert verify(again).ok


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
        assert ids(log, "c") == ids(log, "d") == [0], "other topics are read at once"
    assert ids(log, "a") == ids(log, "b") == [0, 1]


@pytest.mark.parametrize("point", ["commit.recording", "commit.durable", "commit.copied", "commit.recorded"])
def test_readers_go_on_while_a_commit_hangs_that_shows_nothing_yet(folder: Path, log: EmbeddedLog, point: str) -> None:
    with held_at(point, folder, lambda other: commit(other, "a", "b")):
        assert [ids(log, topic) for topic in TOPICS] == [[0]] * 4


def test_a_commit_whose_sequence_another_commits_first_changes_nothing(folder: Path) -> None:
    """Both write their frames at the same time; the second one to get the producer's lock cuts its own."""
    late: list[bool] = []
    with open_log(folder, config=LONG_WAIT) as log:
        with held_at("commit.synced", folder, lambda other: late.append(numbered(other, 7, "a", "b"))):
            assert not numbered(log, 7, "c", "d")
        assert late == [True]
        assert [ids(log, topic) for topic in TOPICS] == [[0], [0], [0, 1], [0, 1]]
        assert verify(log).ok


def test_a_prepared_transaction_is_either_committed_or_rolled_back(folder: Path, log: EmbeddedLog) -> None:
    name = prepared(log, "a", row=1)
    with held_at("commit.synced", folder, lambda other: other.commit(name)):
        for decide in (log.rollback, log.commit):
            with pytest.raises(Locked):
                decide(name)
        log.rollback(prepared(log, "b", row=2))
    with pytest.raises(NotFound):
        log.rollback(name + "x")
    assert (ids(log, "a"), ids(log, "b")) == ([0, 1], [0])
    assert verify(log).ok


def test_a_commit_finishes_what_a_dead_one_began_though_it_has_written_itself(folder: Path, log: EmbeddedLog) -> None:
    """A process dies after its record while another commit has written its frames, which are then written again."""

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
            commit(log, "c", "d", row=2)
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


def test_a_lock_is_not_needed_once_another_process_has_done_the_work(tmp_path: Path) -> None:
    first, second = (FileLock(tmp_path / "work.lock", seconds_max=0.05) for _ in range(2))
    assert first.acquire_unless(lambda: False)
    looks = iter([False, False, True])
    assert not second.acquire_unless(lambda: next(looks))
    with pytest.raises(Locked):
        second.acquire_unless(lambda: False)
    first.release()
    assert second.acquire_unless(lambda: False)
    second.release()
