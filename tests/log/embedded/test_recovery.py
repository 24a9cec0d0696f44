"""Recovery finds the true end of a partition, whatever its last writer left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import faults
from headwater.clock import ManualClock
from headwater.config import Config
from headwater.errors import NotFound
from headwater.log.embedded import EmbeddedLog, repair
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded import state as state_module
from headwater.log.embedded.segment import SEGMENT_HEADER_BYTES
from headwater.log.errors import DiskFull, FormatUnknown, FrameCorrupt, OffsetConflict, ReadOnly, SegmentMissing
from tests.laws import costly

ROWS = 20


@pytest.fixture(params=["fsync", "os"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log with twenty rows in as many frames, closed."""
    path = tmp_path / "log"
    with open_log(path, config=Config(maintenance="manual")) as log:
        log.create("t", {"id": "int64"}, durability=request.param)
        for number in range(ROWS):
            log.append("t", [{"id": number}])
    return path


def segment(folder: Path) -> Path:
    return sorted((folder / "topics/t/0").glob("*.log"))[-1]


def ids(log: EmbeddedLog) -> list[int]:
    return [row["id"] for row in log.read("t", columns=["id"]).rows()]


def after_a_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a reboot: records that were not synced are ignored."""
    monkeypatch.setattr(state_module, "boot_identity", lambda: b"another boot")
    state_module.boot_mark.cache_clear()


@pytest.fixture(autouse=True)
def _same_boot_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.undo()
    state_module.boot_mark.cache_clear()


TAILS: dict[str, Callable[[bytes], bytes]] = {
    "half a frame": lambda frame: frame[: len(frame) // 2],
    "a header alone": lambda frame: frame[:104],
    "part of a header": lambda frame: frame[:50],
    "zeros": lambda frame: bytes(len(frame)),
    "a page of zeros": lambda _frame: bytes(4096),
    "garbage": lambda frame: os.urandom(len(frame)),
    "a flipped bit": lambda frame: frame[:120] + bytes([frame[120] ^ 1]) + frame[121:],
    "one byte": lambda _frame: b"\x01",
}


@pytest.mark.parametrize("kind", TAILS)
@pytest.mark.parametrize("boot", ["same boot", "another boot"])
def test_a_bad_end_is_cut_and_everything_before_it_kept(
    folder: Path, kind: str, boot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = segment(folder).read_bytes()
    frame_size = (len(data) - SEGMENT_HEADER_BYTES) // ROWS
    with segment(folder).open("ab") as file:
        file.write(TAILS[kind](data[-frame_size:]))
    if boot == "another boot":
        after_a_power_cut(monkeypatch)
    with open_log(folder) as log:
        assert ids(log) == list(range(ROWS))
        log.append("t", [{"id": ROWS}])
        assert ids(log) == list(range(ROWS + 1))
        assert log.read("t").rows()[-1]["_offset"] == ROWS


def test_a_whole_frame_behind_the_end_is_kept(folder: Path) -> None:
    with open_log(folder) as log:
        partition = log.handle("t").partition(0)
        with partition.append_lock:
            tail = partition.tail()
            drafts = log._writer.draft(log.handle("t"), [{"id": ROWS}], partition=0, sent_at_us=0)
            partition.write(tail, drafts[0])  # and die here: written, never published
    with open_log(folder) as log:
        log.append("t", [{"id": ROWS + 1}])
        assert ids(log) == list(range(ROWS + 2))


def test_cut_bytes_are_set_aside(folder: Path) -> None:
    with segment(folder).open("ab") as file:
        file.write(b"precious")
    with open_log(folder) as log:
        log.append("t", [{"id": ROWS}])
    kept = list((folder / "quarantine").iterdir())
    assert [path.read_bytes() for path in kept] == [b"precious"]


@pytest.mark.parametrize("damage", ["missing", "empty", "zeros", "garbage"])
def test_a_lost_state_file_is_rebuilt_from_the_segments(folder: Path, damage: str) -> None:
    state = folder / "topics/t/state"
    if damage == "missing":
        state.unlink()
    else:
        size = state.stat().st_size
        state.write_bytes({"empty": b"", "zeros": bytes(size), "garbage": b"\x07" * size}[damage])
    if damage == "garbage":
        # The counters are garbage too; a topic marked deleted by chance must not be believed for ever.
        with state.open("r+b") as file:
            file.seek(8)
            file.write(bytes(8))
    with open_log(folder) as log:
        assert ids(log) == list(range(ROWS))
        log.append("t", [{"id": ROWS}])
        assert ids(log) == list(range(ROWS + 1))


def test_damage_among_acknowledged_rows_is_reported_exactly_and_never_skipped(folder: Path) -> None:
    data = bytearray(segment(folder).read_bytes())
    frame_size = (len(data) - SEGMENT_HEADER_BYTES) // ROWS
    position = SEGMENT_HEADER_BYTES + 7 * frame_size
    data[position + 120] ^= 1
    segment(folder).write_bytes(data)
    with open_log(folder) as log:
        with pytest.raises(FrameCorrupt) as caught:
            ids(log)
        assert (caught.value.position, caught.value.offset) == (position, 7)
        log.append("t", [{"id": ROWS}])
        assert [row["id"] for row in log.read("t", start=8).rows()] == list(range(8, ROWS + 1))


def test_acknowledged_bytes_that_are_gone_are_reported(folder: Path) -> None:
    with segment(folder).open("r+b") as file:
        file.truncate(segment(folder).stat().st_size - 100)
    with open_log(folder) as log, pytest.raises(FrameCorrupt, match="were acknowledged"):
        log.append("t", [{"id": ROWS}])


def test_a_segment_that_is_gone_is_reported(folder: Path) -> None:
    segment(folder).unlink()
    with open_log(folder) as log, pytest.raises((SegmentMissing, FrameCorrupt)):
        log.append("t", [{"id": ROWS}])


def test_after_a_power_cut_no_offset_that_was_seen_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    with open_log(path, config=Config(maintenance="manual")) as log:
        log.create("t", {"id": "int64"}, durability="os")
        for number in range(10):
            log.append("t", [{"id": number}])
    file = segment(path)
    os.truncate(file, SEGMENT_HEADER_BYTES + (file.stat().st_size - SEGMENT_HEADER_BYTES) // 2)
    after_a_power_cut(monkeypatch)
    with open_log(path, config=Config(maintenance="manual")) as log:
        log.append("t", [{"id": 99}])
        rows = log.read("t").rows()
        assert [row["id"] for row in rows] == [0, 1, 2, 3, 4, 99]
        assert rows[-1]["_offset"] == 10


@pytest.mark.parametrize("left", [b"", b"HEADWA", bytes(64)])
def test_an_unfinished_segment_is_used_by_the_next_writer(folder: Path, left: bytes) -> None:
    (folder / f"topics/t/0/{ROWS:020d}.log").write_bytes(left)
    with open_log(folder) as log:
        log.append("t", [{"id": ROWS}])
        assert ids(log) == list(range(ROWS + 1))


def test_a_half_made_topic_is_not_listed_and_does_not_disturb(folder: Path) -> None:
    (folder / "topics/.new-123").mkdir()
    (folder / "topics/.new-123/topic.json").write_text("{")
    with open_log(folder) as log:
        assert log.topics() == ["t"]
        log.create("u", {"id": "int64"})


@pytest.mark.process
@pytest.mark.core
def test_the_lock_of_a_killed_process_is_free(folder: Path) -> None:
    script = (
        "import sys, os, signal\n"
        "from headwater.log import open\n"
        f"log = open({str(folder)!r})\n"
        "partition = log.handle('t').partition(0)\n"
        "partition.append_lock.__enter__(); partition.sync_lock.__enter__(); partition.maintenance_lock.__enter__()\n"
        "print('locked', flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    with open_log(folder) as log:
        log.append("t", [{"id": ROWS}])
        log.maintain("t")
        assert ids(log) == list(range(ROWS + 1))


def test_another_format_is_refused_and_left_alone(folder: Path) -> None:
    mark = folder / "headwater.json"
    body = orjson.loads(mark.read_bytes())
    mark.write_bytes(orjson.dumps({**body, "format": 99}))
    with pytest.raises(FormatUnknown, match="99"):
        open_log(folder)
    mark.write_bytes(orjson.dumps(body))
    data = bytearray(segment(folder).read_bytes())
    import struct

    from google_crc32c import value as crc32c

    data[8:12] = struct.pack("<I", 7)
    data[60:64] = struct.pack("<I", crc32c(bytes(data[:60])))
    segment(folder).write_bytes(data)
    with open_log(folder) as log, pytest.raises(FormatUnknown, match="format 7"):
        ids(log)


def test_opening_a_log_that_was_never_created_raises(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_log(tmp_path / "nothing", create=False)
    with pytest.raises(NotFound):
        open_log(tmp_path / "nothing", read_only=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFound):
        open_log(tmp_path / "file")
    assert not (tmp_path / "nothing").exists()


def test_a_folder_opened_read_only_is_read_and_never_written(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    with open_log(folder, read_only=True) as log:
        assert ids(log) == list(range(ROWS))
        for act in (
            lambda: log.append("t", [{"id": 1}]),
            lambda: log.create("u", {"id": "int64"}),
            lambda: log.delete("t"),
            lambda: log.transaction(),
            lambda: log.open_producer("p"),
            lambda: log.maintain(),
        ):
            with pytest.raises(ReadOnly):
                act()
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before


def test_a_read_only_process_reads_after_a_power_cut_without_changing_anything(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with segment(folder).open("ab") as file:
        file.write(b"torn")
    after_a_power_cut(monkeypatch)
    size = segment(folder).stat().st_size
    with open_log(folder, read_only=True) as log:
        assert ids(log) == list(range(ROWS))
    assert segment(folder).stat().st_size == size


def test_a_full_disk_loses_nothing_and_appends_resume_when_there_is_space(disk_of: Callable[[int], Path]) -> None:
    disk = disk_of(4)
    with open_log(disk / "log", clock=ManualClock()) as log:
        log.create("t", {"id": "int64", "body": "string"})
        acknowledged = 0
        with pytest.raises(DiskFull):
            for number in range(1000):
                log.append("t", [{"id": number, "body": "x" * 50_000}])
                acknowledged += 1
        assert 10 < acknowledged < 100
        assert ids(log) == list(range(acknowledged))
        with pytest.raises(DiskFull):
            log.append("t", [{"id": acknowledged, "body": "x" * 200_000}])
        assert ids(log) == list(range(acknowledged))
        with pytest.raises(DiskFull), log.transaction() as transaction:
            transaction.append("t", [{"id": acknowledged, "body": "x" * 200_000}])
        assert ids(log) == list(range(acknowledged))
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        log.append("t", [{"id": acknowledged, "body": "x" * 200_000}])
        assert ids(log) == list(range(acknowledged + 1))


@costly(2)
@given(before=st.integers(1, 20), after=st.integers(0, 30), kept=st.floats(0, 1), expires=st.booleans())
def test_a_producer_goes_on_after_a_power_cut_that_left_its_index_ahead_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, before: int, after: int, kept: float, expires: bool
) -> None:
    """The snapshots of producers are synced, the segments of an `os` topic are not: any number of the last may be lost."""
    path, clock, batches = tmp_path_factory.mktemp("cut") / "log", ManualClock(), before + after
    with open_log(path, clock=clock, config=Config(maintenance="manual")) as log:
        retention = "60 seconds" if expires else "forever"
        log.create("t", {"id": "int64"}, durability="os", segment_bytes_max=900, retention=retention)
        for number in range(batches):
            log.append("t", [{"id": number}], producer="p", sequence=number)
            clock.advance(seconds=5)
            if number == before:
                log.maintain("t")
    segments = sorted((path / "topics/t/0").glob("*.log"))
    synced = sum("-" in segment.name for segment in segments)  # a rewritten one is synced
    for lost in segments[max(synced, 1, round(kept * len(segments))) :]:
        lost.unlink()
    (path / "topics/t/state").unlink()
    with pytest.MonkeyPatch.context() as patch:
        after_a_power_cut(patch)
        with open_log(path, clock=clock, config=Config(maintenance="manual")) as log:
            left = ids(log)
            assert left == list(range(left[0], left[-1] + 1)) if left else True
            for number in range(batches):
                log.append("t", [{"id": number}], producer="p", sequence=number)
            again = ids(log)
            assert again[: len(left)] == left
            assert len(again) == len(set(again)), "what is left is not appended a second time"
            assert set(again) >= set(range(max(0, batches - 5), batches)), "what is lost is appended again"
            assert not log.append("t", [{"id": batches}], producer="p", sequence=batches).duplicate
            log.maintain("t", seal=True)
            assert repair.verify(log).ok
        with open_log(path, clock=clock, config=Config(maintenance="manual")) as log:
            assert log.append("t", [{"id": batches}], producer="p", sequence=batches).duplicate
    state_module.boot_mark.cache_clear()


def test_a_conditional_append_goes_on_behind_rows_whose_writer_died_before_it_synced(tmp_path: Path) -> None:
    """The conflict names an end that the caller can see, so that it can read these rows and try again."""

    class Died(BaseException):
        pass

    def die(point: str) -> None:
        if point == "append.published":
            raise Died

    with (
        open_log(tmp_path / "log", config=Config(maintenance="manual")) as log,
        open_log(tmp_path / "log", config=Config(maintenance="manual")) as other,
    ):
        log.create("t", {"id": "int64"})
        log.append("t", [{"id": 0}])
        seen = other.end_offsets("t")[0]
        faults.install(die)
        try:
            with pytest.raises(Died):
                log.append("t", [{"id": 1}])
        finally:
            faults.install(None)
        with pytest.raises(OffsetConflict) as caught:
            other.append("t", [{"id": 2}], expected_offset=seen)
        assert other.end_offsets("t") == {0: caught.value.actual} == {0: 2}
        other.append("t", [{"id": 2}], expected_offset=2)
        assert ids(other) == [0, 1, 2]
