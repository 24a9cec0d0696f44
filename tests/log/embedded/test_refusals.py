"""Failures and damage of the machine raise Headwater's errors, with the place and a remedy."""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.config import Config
from headwater.errors import FilesExhausted, NotFound
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.files import FILES_EACH
from headwater.log.embedded.repair import verify
from headwater.log.errors import DiskFull, FileCorrupt, FormatUnknown, FrameCorrupt, SegmentMissing

ROWS = 20


def opened(path: Path) -> EmbeddedLog:
    return open_log(path, clock=ManualClock(), config=Config(maintenance="manual"))


def ids(log: EmbeddedLog, topic: str = "t") -> list[int]:
    return [row["id"] for row in log.read(topic, columns=["id"]).rows()]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic of two partitions and two schema versions, with a rewritten, a sealed and an active segment."""
    path = tmp_path_factory.mktemp("sample") / "log"
    with opened(path) as log:
        log.create("t", {"id": "int64"}, segment_bytes_max=1_500)
        shutil.copyfile(path / "topics/t/topic.json", path.parent / "one partition.json")
        for number in range(ROWS // 2):
            log.append("t", [{"id": number}])
        log.maintain("t", seal=True)
        for number in range(ROWS // 2, ROWS):
            log.append("t", [{"id": number}])
        log.alter("t", partitions=2)
        shutil.copyfile(path / "topics/t/topic.json", path.parent / "one version.json")
        log.alter("t", schema={"id": "int64", "more": "string"})
        log.append("t", [{"id": ROWS, "more": "x"}], partition=1)
    return path


@pytest.fixture
def folder(sample: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample, tmp_path / "log"))


@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_segment_that_is_cut_anywhere_raises_an_error_of_ours(folder: Path, which: int) -> None:
    path = sorted((folder / "topics/t/0").glob("*.log"))[which]
    data = path.read_bytes()
    for size in range(0, len(data), 31):
        path.write_bytes(data[:size])
        with opened(folder) as log, pytest.raises((FrameCorrupt, SegmentMissing)):
            ids(log)


@pytest.mark.parametrize("name", ["topics/t/topic.json", "headwater.json"])
def test_a_flipped_bit_in_a_description_is_found_or_changes_nothing(folder: Path, name: str) -> None:
    path = folder / name
    data = path.read_bytes()
    with opened(folder) as log:
        before = (log.id, log.topic("t"))
    refused = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            with opened(folder) as log:
                assert (log.id, log.topic("t")) == before
        except (FileCorrupt, FormatUnknown) as error:
            refused += str(path) in str(error)
    assert refused > len(data) * 0.6, "a space that becomes another is no damage"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"{}", b'{"format": 1}', b"\xff\xfe"])
@pytest.mark.parametrize("name", ["topics/t/topic.json", "headwater.json"])
def test_a_description_that_is_none_is_named(folder: Path, name: str, body: bytes) -> None:
    (folder / name).write_bytes(body)
    with pytest.raises(FileCorrupt) as caught, opened(folder) as log:
        ids(log)
    assert caught.value.path == str(folder / name)


def test_descriptions_of_earlier_releases_have_no_sum_and_are_read(folder: Path) -> None:
    import orjson

    for name in ("topics/t/topic.json", "headwater.json"):
        body = orjson.loads((folder / name).read_bytes())
        del body["crc"]
        (folder / name).write_bytes(orjson.dumps(body))
    with opened(folder) as log:
        assert len(ids(log)) == ROWS + 1


def test_a_log_that_has_lost_its_mark_is_not_taken_for_a_new_one(folder: Path) -> None:
    (folder / "headwater.json").unlink()
    with pytest.raises(FileCorrupt, match="it is gone"):
        opened(folder)


def test_a_topic_that_has_lost_its_description_is_not_taken_for_none(folder: Path) -> None:
    (folder / "topics/t/topic.json").unlink()
    with opened(folder) as log:
        with pytest.raises(FileCorrupt, match="it is gone"):
            ids(log)
        assert [finding.kind for finding in verify(log).findings] == ["topic unreadable"]


@pytest.mark.parametrize("copy", ["one partition.json", "one version.json"])
def test_an_older_copy_of_a_description_hides_no_row(folder: Path, sample: Path, copy: str) -> None:
    shutil.copyfile(sample.parent / copy, folder / "topics/t/topic.json")
    with opened(folder) as log:
        with pytest.raises(FileCorrupt, match=r"topic\.json"):
            ids(log)
        assert [finding.kind for finding in verify(log).findings] == ["topic unreadable"]


def test_a_full_disk_refuses_a_topic_and_leaves_none_behind(disk_of: Callable[[int], Path]) -> None:
    disk = disk_of(1)
    with opened(disk / "log") as log:
        log.create("t", {"id": "int64"})
        log.append("t", [{"id": 1}])
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
        with pytest.raises(DiskFull):
            log.create("u", {"id": "int64"}, partitions=500)
        assert log.topics() == ["t"]
        with pytest.raises(DiskFull):
            log.commit_offsets("g", "t", {0: 1})
        with pytest.raises(DiskFull):
            log.alter("t", partitions=500)
        with pytest.raises(DiskFull):
            log.open_producer("p")
        assert ids(log) == [1]
        filler.unlink()
        log.create("u", {"id": "int64"}, partitions=500)
        log.commit_offsets("g", "t", {0: 1})
        assert log.committed("g", "t") == {0: 1}
        assert verify(log).ok


def test_an_append_that_races_a_delete_finds_no_topic(tmp_path: Path) -> None:
    with opened(tmp_path) as log, opened(tmp_path) as other:
        log.create("t", {"id": "int64"})
        other.append("t", [{"id": 1}])
        assert ids(log) == [1]

        def rows() -> Iterator[dict[str, int]]:
            other.delete("t")
            yield {"id": 2}

        with pytest.raises(NotFound):
            log.append("t", rows())


@pytest.fixture
def few_files() -> Iterator[int]:
    """A process that may open few files."""
    gc.collect()  # files of logs that earlier tests left open
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    limit = used + max(20 * FILES_EACH, used)  # a log counts on it that most of the files are for logs
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_more_topics_than_files_can_be_used(few_files: int, tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for number in range(few_files // 2):
            log.create(f"t{number}", {"id": "int64"}, durability="os")
            log.append(f"t{number}", [{"id": number}])
        cursors = [log.cursor(f"t{number}", 0, 0) for number in range(20)]
        assert all(cursor.read(rows_max=1) for cursor in cursors)
        assert [ids(log, f"t{number}") for number in range(few_files // 2)] == [
            [number] for number in range(few_files // 2)
        ]


def test_a_process_that_has_no_file_left_is_told_so(few_files: int, tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.create("t", {"id": "int64"})
        log.append("t", [{"id": 1}])
        log.create("u", {"id": "int64"})
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        try:
            with pytest.raises(FilesExhausted) as caught:
                log.append("u", [{"id": 1}])
            assert caught.value.limit == few_files
        finally:
            for descriptor in taken:
                os.close(descriptor)
        log.append("u", [{"id": 1}])


def test_a_lock_that_is_held_stays_held_when_its_partition_lets_go_of_its_files(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.create("t", {"id": "int64"})
        log.append("t", [{"id": 1}])
        partition = log.handle("t").partition(0)
        other = os.open(partition.folder / "append.lock", os.O_RDWR)
        try:
            with partition.append_lock:
                partition.release_files()
                with pytest.raises(BlockingIOError):
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            partition.release_files()
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(other)
        log.append("t", [{"id": 2}])
        assert ids(log) == [1, 2]


def test_a_damaged_producer_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.create("t", {"id": "int64"})
        log.open_producer("p")
    (tmp_path / "producers/p").write_bytes(b"zz")
    with opened(tmp_path) as log:
        with pytest.raises(FileCorrupt, match="producers/p"):
            log.append("t", [{"id": 1}], producer="p")
        assert [finding.kind for finding in verify(log).findings] == ["damaged producer"]
