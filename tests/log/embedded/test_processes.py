"""Several processes, forks and memory-only topics on one folder."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.config import Config
from headwater.errors import NotFound
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.topic import OFFSETS_PER_BOOT


def run(folder: Path, body: str) -> str:
    """What another process prints when it runs `body` with the log open."""
    script = f"from headwater.log import open as open_log\nlog = open_log({str(folder)!r})\n" + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(folder: Path) -> Iterator[EmbeddedLog]:
    with open_log(folder) as opened:
        opened.create("t", {"id": "int64"})
        yield opened


@pytest.mark.process
@pytest.mark.core
def test_a_waiting_reader_is_woken_by_another_process(log: EmbeddedLog, folder: Path) -> None:
    script = f"from headwater.log import open as o; import sys; log = o({str(folder)!r}); sys.stdin.readline(); log.append('t', [{{'id': 1}}])"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, text=True) as child:
        assert not log.wait("t", after={0: 0}, seconds=0)
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
        assert log.wait("t", after={0: 0}, seconds=60)
    assert log.read("t").count() == 1


@pytest.mark.process
def test_a_schema_changed_elsewhere_is_seen_at_the_next_call(log: EmbeddedLog, folder: Path) -> None:
    log.append("t", [{"id": 1}])
    run(folder, "log.alter('t', schema={'id': 'int64', 'note': 'string'})\nlog.append('t', [{'id': 2, 'note': 'x'}])")
    assert log.topic("t").schema_version == 2
    log.append("t", [{"id": 3, "note": "y"}])
    assert [row["note"] for row in log.read("t").rows()] == [None, "x", "y"]


@pytest.mark.process
def test_partitions_added_elsewhere_are_seen(log: EmbeddedLog, folder: Path) -> None:
    run(folder, "log.alter('t', partitions=3)\nlog.append('t', [{'id': 2}], partition=2)")
    assert log.end_offsets("t") == {0: 0, 1: 0, 2: 1}


@pytest.mark.process
def test_a_writer_is_told_when_its_topic_was_deleted_elsewhere(log: EmbeddedLog, folder: Path) -> None:
    log.append("t", [{"id": 1}])
    run(folder, "log.delete('t')")
    with pytest.raises(NotFound):
        log.append("t", [{"id": 2}])
    run(folder, "log.create('t', {'id': 'int64'})")
    log.append("t", [{"id": 3}])
    assert [row["id"] for row in log.read("t").rows()] == [3]


@pytest.mark.process
def test_a_topic_made_elsewhere_can_be_used(log: EmbeddedLog, folder: Path) -> None:
    run(folder, "log.create('u', {'id': 'int64'})\nlog.append('u', [{'id': 7}])")
    assert log.topics() == ["t", "u"]
    assert log.read("u").rows()[0]["id"] == 7


def _append_in_a_child(log: EmbeddedLog, first: int) -> None:
    for number in range(50):
        log.append("t", [{"id": first + number}])


@pytest.mark.process
@pytest.mark.core
def test_a_log_can_be_used_on_both_sides_of_a_fork(log: EmbeddedLog) -> None:
    log.append("t", [{"id": -1}])
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_append_in_a_child, args=(log, 1000 * number)) for number in range(1, 4)]
    for child in children:
        child.start()
    _append_in_a_child(log, 0)
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    rows = log.read("t").rows()
    assert [row["_offset"] for row in rows] == list(range(201))
    assert len({row["id"] for row in rows}) == 201


@pytest.mark.process
@pytest.mark.core
def test_a_child_that_lives_on_does_not_keep_its_dead_parents_lock(folder: Path, log: EmbeddedLog) -> None:
    script = textwrap.dedent(
        f"""
        import os, signal, sys
        from headwater.log.embedded import open_folder as open_log
        log = open_log({str(folder)!r})
        log.append("t", [{{"id": 1}}])
        lock = log.handle("t").partition(0).append_lock
        with lock:
            child = os.fork()
            if child == 0:
                os.close(1)
                signal.pause()
            print(child, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.wait(60)
    try:
        log.append("t", [{"id": 2}])
    finally:
        os.kill(child, 9)
    assert log.read("t").count() == 2


def test_many_topics_are_used_with_few_open_files(folder: Path) -> None:
    with open_log(folder, config=Config(open_partitions_max=4, durability="os")) as log:
        for number in range(40):
            log.create(f"t{number}", {"id": "int64"})
        before = len(os.listdir("/proc/self/fd"))
        for turn in range(3):
            for number in range(40):
                log.append(f"t{number}", [{"id": turn}])
        assert len(os.listdir("/proc/self/fd")) - before < 40
        assert all(log.read(f"t{number}").count() == 3 for number in range(40))


@pytest.fixture
def memory(log: EmbeddedLog) -> Iterator[Path]:
    log.create("m", {"id": "int64"}, durability="memory", partitions=2, key="id")
    storage = log.handle("m").storage
    yield storage
    shutil.rmtree(storage, ignore_errors=True)


@pytest.mark.process
@pytest.mark.core
def test_a_topic_in_memory_is_shared_between_processes(log: EmbeddedLog, folder: Path, memory: Path) -> None:
    log.append("m", [{"id": number} for number in range(10)])
    assert run(folder, "print(log.read('m').count())") == "10"
    run(folder, "log.append('m', [{'id': 11}])")
    assert log.read("m").count() == 11
    assert memory.is_relative_to("/dev/shm") or not Path("/dev/shm").is_dir()


def test_a_topic_in_memory_is_empty_after_a_reboot_and_re_uses_no_offset(
    log: EmbeddedLog, folder: Path, memory: Path
) -> None:
    log.append("m", [{"id": 1}], partition=0)
    log.close()
    shutil.rmtree(memory)
    with open_log(folder) as again:
        assert again.read("m").count() == 0
        assert again.append("m", [{"id": 2}], partition=0).ranges == {0: (OFFSETS_PER_BOOT, OFFSETS_PER_BOOT + 1)}
        assert [row["id"] for row in again.read("m").rows()] == [2]


def test_deleting_a_topic_in_memory_frees_the_memory(log: EmbeddedLog, memory: Path) -> None:
    log.append("m", [{"id": 1}])
    assert memory.exists()
    log.delete("m")
    assert not memory.exists()


def test_a_topic_created_again_survives_a_process_that_still_opens_the_deleted_one(tmp_path: Path) -> None:
    """Other processes open a topic while it is deleted and created again: it exists completely or not at all."""
    surprises: list[BaseException] = []
    done = threading.Event()

    def look() -> None:
        with open_log(tmp_path / "log") as log:
            while not done.is_set():
                try:
                    log.topic("t")
                except NotFound:
                    continue
                except BaseException as error:
                    surprises.append(error)
                    return

    with open_log(tmp_path / "log") as log:
        lookers = [threading.Thread(target=look) for _ in range(2)]
        for one in lookers:
            one.start()
        try:
            for number in range(40):
                log.create("t", "id int64", partitions=1 + number % 3)
                log.append("t", [{"id": number}])
                assert log.read("t").table().column("id").to_pylist() == [number]
                log.delete("t")
        finally:
            done.set()
            for one in lookers:
                one.join()
    assert surprises == []
