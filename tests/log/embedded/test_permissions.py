"""Permissions: a log is for its owner alone, unless its folder has others; and topics in shared memory."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.config import Config
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.memory_folder import check_memory_folder, remove_orphans, remove_orphans_once
from headwater.log.embedded.repair import repair
from headwater.log.errors import FolderUnsafe

SCHEMA = {"id": "int64"}


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def fill(log: EmbeddedLog) -> None:
    """Make every kind of file that a log has."""
    log.create("rows", SCHEMA, segment_bytes_max=4096, retention="1 KiB", archive=True)
    log.create("table", SCHEMA, key="id", compact=True, segment_bytes_max=4096)
    for number in range(40):
        log.append("rows", [{"id": number}], producer="p", sequence=number)
        log.append("table", [{"id": number % 3}])
    log.open_producer("p")
    with log.transaction("q", sequence=0) as transaction:
        transaction.append("rows", [{"id": 1}])
    prepared = log.transaction()
    prepared.append("rows", [{"id": 2}])
    prepared.prepare()
    with log.stage("q", sequence=1, attempt="a") as stage:
        stage.append("rows", [{"id": 3}])
        stage.finish()
    with log.consumer("table", group="g") as consumer:
        consumer.poll(seconds=0)
    log.maintain(seal=True)
    log.commit_offsets("g", "table", {0: 1})


def damage(folder: Path) -> None:
    """Give repair something to set aside."""
    segment = max((folder / "topics/table/0").glob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[180] ^= 1
    segment.write_bytes(data)


def permissions(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder.parent)): stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]
    }


def test_a_new_log_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with open_log(folder, config=Config(maintenance="manual")) as log:
        fill(log)
    damage(folder)
    with open_log(folder, config=Config(maintenance="manual")) as log:
        repair(log)
    assert {path: oct(mode) for path, mode in permissions(folder).items() if mode & 0o077} == {}
    assert (folder / "archive").is_dir()
    assert (folder / "quarantine").is_dir()


def test_a_log_in_a_folder_that_others_may_read_is_as_open_as_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir(mode=0o755)
    with open_log(folder, config=Config(maintenance="manual")) as log:
        fill(log)
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


def test_a_shared_log_stays_shared_when_files_are_added(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with open_log(folder, config=Config(maintenance="manual")):
        pass
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o770 if path.is_dir() else 0o660)
    os.umask(0o002)
    with open_log(folder, config=Config(maintenance="manual")) as log:
        fill(log)
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o770 if path.is_dir() else 0o660), path


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """The folder in memory of a topic that was created and closed."""
    with open_log(tmp_path / "log") as log:
        log.create("fast", SCHEMA, durability="memory")
        log.append("fast", [{"id": 1}])
        storage = log.handle("fast").storage
    yield storage
    if storage.is_symlink():
        storage.unlink()
    shutil.rmtree(storage, ignore_errors=True)


def test_rows_in_memory_are_for_their_owner_alone(memory: Path) -> None:
    assert {path: oct(mode) for path, mode in permissions(memory).items() if mode & 0o077} == {}


def test_a_folder_in_memory_that_others_may_write_is_refused(tmp_path: Path, memory: Path) -> None:
    memory.chmod(0o777)
    with open_log(tmp_path / "log") as log, pytest.raises(FolderUnsafe, match="its permissions are 777"):
        log.append("fast", [{"id": 2}])


def test_a_folder_in_memory_that_another_made_first_is_refused_before_anything_is_written(
    tmp_path: Path, memory: Path
) -> None:
    shutil.rmtree(memory)
    memory.mkdir()
    memory.chmod(0o777)
    with open_log(tmp_path / "log") as log, pytest.raises(FolderUnsafe):
        log.read("fast")
    assert list(memory.iterdir()) == []


def test_a_link_in_the_place_of_a_folder_in_memory_is_refused(tmp_path: Path, memory: Path) -> None:
    shutil.rmtree(memory)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    memory.symlink_to(tmp_path / "elsewhere")
    with open_log(tmp_path / "log") as log, pytest.raises(FolderUnsafe, match="not a folder"):
        log.read("fast")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_in_memory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, storage = tmp_path / "topic", tmp_path / "storage"
    for folder in (topic, storage):
        folder.mkdir(mode=0o700)
    mine = os.geteuid()
    check_memory_folder(storage, topic)
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    check_memory_folder(storage, topic)  # another user of a shared log: it belongs to the owner of the topic
    real = os.lstat(storage)
    strange = os.stat_result([*real[:4], mine + 2, *real[5:]])
    monkeypatch.setattr(os, "lstat", lambda _: strange)
    with pytest.raises(FolderUnsafe, match=f"the user with the number {mine + 2}"):
        check_memory_folder(storage, topic)


def test_the_folder_in_memory_of_a_deleted_log_is_removed_later(tmp_path: Path) -> None:
    def in_memory(name: str) -> Path:
        with open_log(tmp_path / name, config=Config(maintenance="manual")) as log:
            log.create("t", SCHEMA, durability="memory", exist_ok=True)
            log.append("t", [{"id": 1}])
            return log.handle("t").storage

    gone, moved, there = in_memory("gone"), in_memory("moved"), in_memory("there")
    try:
        shutil.rmtree(tmp_path / "gone")
        (tmp_path / "moved").rename(tmp_path / "elsewhere")
        assert in_memory("elsewhere") == moved, "a log that was moved is found again by its next use"
        remove_orphans()
        assert gone.exists(), "a process that sees other file systems may just have written to it"
        os.utime(gone / "state", (0, 0))
        os.utime(there / "state", (0, 0))
        remove_orphans_once.cache_clear()
        new = in_memory("new")
        assert [path.exists() for path in (gone, moved, there, new)] == [False, True, True, True]
        shutil.rmtree(new)
    finally:
        for folder in (gone, moved, there):
            shutil.rmtree(folder, ignore_errors=True)
