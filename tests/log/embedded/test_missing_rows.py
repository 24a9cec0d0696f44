"""Reading rows of a file that was cut, or is missing, raises an error; no row is skipped silently, and no reader hangs."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.config import Config, Durability
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.repair import repair, verify
from headwater.log.embedded.segment import SEGMENT_HEADER_BYTES, SegmentMap, segment_header, start_path, walk
from headwater.log.errors import FrameCorrupt, OffsetExpired, SegmentMissing

ROWS = 60
GONE = (FrameCorrupt, SegmentMissing)


def opened(path: Path, **options: object) -> EmbeddedLog:
    return open_log(path, clock=ManualClock(), config=Config(maintenance="manual"), **options)  # type: ignore[arg-type]


def fill(log: EmbeddedLog, first: int, last: int) -> None:
    for number in range(first, last):
        log.append("t", [{"id": number}])


@pytest.fixture(scope="module", params=["plain", "rewritten", "mixed"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty rows in segments of about ten: as appends wrote them, all joined, or both in turn."""
    path = tmp_path_factory.mktemp("sample") / "log"
    with opened(path) as log:
        log.create("t", {"id": "int64"}, segment_bytes_max=2_700)
        fill(log, 0, ROWS // 2)
        if request.param != "plain":
            log.maintain("t", seal=True)
        fill(log, ROWS // 2, ROWS)
        if request.param == "rewritten":
            log.maintain("t")
    return path


@pytest.fixture
def folder(sample: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample, tmp_path / "log"))


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "topics/t/0").glob("*.log"))


def ids(log: EmbeddedLog, start: int | None = None) -> list[int]:
    rows = log.read("t", start="earliest" if start is None else start, columns=["id"]).rows()
    return [row["id"] for row in rows]


def to_its_header(path: Path) -> None:
    os.truncate(path, SEGMENT_HEADER_BYTES)


def between_frames(path: Path) -> None:
    positions = [position for position, _ in walk(SegmentMap(path).view)]
    os.truncate(path, positions[-1])


def inside_a_frame(path: Path) -> None:
    positions = [position for position, _ in walk(SegmentMap(path).view)]
    os.truncate(path, positions[-1] + 150)


def inside_the_last_header(path: Path) -> None:
    positions = [position for position, _ in walk(SegmentMap(path).view)]
    os.truncate(path, positions[-1] + 50)


def to_nothing(path: Path) -> None:
    os.truncate(path, 0)


CUTS: list[Callable[[Path], None]] = [
    to_its_header,
    between_frames,
    inside_a_frame,
    inside_the_last_header,
    to_nothing,
    Path.unlink,
]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("which", [0, 1, -2, -1])
@pytest.mark.parametrize("cut", CUTS)
def test_rows_that_are_gone_are_an_error_for_readers_and_found_by_verify(
    folder: Path, cut: Callable[[Path], None], which: int, read_only: bool
) -> None:
    cut(segments(folder)[which])
    with opened(folder, read_only=read_only) as log:
        seen: list[int] = []
        with pytest.raises(GONE):
            for batch in log.read("t", columns=["id"]):
                seen += batch.column("id").to_pylist()
        assert seen == list(range(len(seen)))
        assert log.end_offsets("t") == {0: ROWS}
        cursor = log.cursor("t", 0, 0)
        with pytest.raises(GONE):
            while cursor.offset < ROWS:
                cursor.read(rows_max=7)
        report = verify(log)
        assert not report.ok


@pytest.mark.parametrize("which", [0, 1, -2, -1])
@pytest.mark.parametrize("cut", CUTS)
def test_repair_tells_which_rows_are_lost_and_reading_and_writing_go_on(
    folder: Path, cut: Callable[[Path], None], which: int
) -> None:
    with opened(folder) as log:
        before = {row["_offset"]: row["id"] for row in log.read("t").rows()}
    cut(segments(folder)[which])
    with opened(folder) as log:
        planned = repair(log, dry_run=True)
        done = repair(log)
        assert [finding.kind for finding in planned.findings] == [finding.kind for finding in done.findings]
        lost = {
            offset for finding in done.findings for offset in range(finding.offset, finding.offset_next) if offset >= 0
        }
        rows = {row["_offset"]: row["id"] for row in log.read("t").rows()}
        assert lost
        assert rows == {offset: value for offset, value in before.items() if offset not in lost}
        assert verify(log).ok, [str(finding) for finding in verify(log).findings]
        log.append("t", [{"id": 99}])
        assert log.read("t").rows()[-1]["_offset"] == ROWS
    with opened(folder) as log:
        assert ids(log)[-1] == 99
        log.maintain("t", seal=True)
        assert [row["_offset"] for row in log.read("t").rows()] == [*rows, ROWS]
        assert verify(log).ok


@pytest.mark.parametrize("which", [0, 1, -2])
def test_rows_behind_the_gap_can_be_read_without_a_repair(folder: Path, which: int) -> None:
    segments(folder)[which].unlink()
    with opened(folder) as log:
        last = int(segments(folder)[-1].name[:20])
        assert ids(log, start=last) == list(range(last, ROWS))


@pytest.mark.parametrize("cut", [to_its_header, between_frames, Path.unlink])
def test_maintenance_does_not_make_a_loss_permanent(tmp_path: Path, cut: Callable[[Path], None]) -> None:
    """Joining frames, compaction and retention would hide what is missing under a name that covers it."""
    clock = ManualClock()
    with open_log(tmp_path / "log", clock=clock, config=Config(maintenance="manual")) as log:
        log.create("t", {"id": "int64"}, segment_bytes_max=2_700, retention="1 hour")
        fill(log, 0, ROWS)
        cut(segments(tmp_path / "log")[1])
        with contextlib.suppress(*GONE):
            log.maintain("t")
        with pytest.raises(GONE):
            ids(log)


def test_compaction_stops_at_a_segment_that_is_gone(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as log:
        log.create("t", {"id": "int64"}, key="id", compact=True, segment_bytes_max=2_700)
        for _ in range(3):
            fill(log, 0, 20)
        log.maintain("t", compact=False)
        middle = segments(tmp_path / "log")[2]
        middle.unlink()
        with pytest.raises(GONE):
            log.maintain("t", seal=True)
        with pytest.raises(GONE):
            ids(log)


# -- where a partition begins ------------------------------------------------------------------------------------------


@pytest.fixture
def expired(tmp_path: Path) -> tuple[Path, int]:
    """A log from which retention has taken rows, and the offset at which it now begins."""
    clock = ManualClock()
    path = tmp_path / "log"
    with open_log(path, clock=clock, config=Config(maintenance="manual")) as log:
        log.create("t", {"id": "int64"}, segment_bytes_max=2_700, retention="100 seconds")
        for number in range(ROWS):
            log.append("t", [{"id": number}])
            clock.advance(seconds=5)
        log.maintain("t")
        start = log.start_offsets("t")[0]
    assert 0 < start < ROWS
    return path, start


@pytest.mark.parametrize("damage", ["sound", "state lost", "record lost", "older state"])
def test_the_start_survives_the_loss_of_either_record(expired: tuple[Path, int], damage: str) -> None:
    path, start = expired
    if damage == "state lost":
        (path / "topics/t/state").unlink()
    elif damage == "record lost":
        for record in (path / "topics/t/0").glob("*.start"):
            record.unlink()
    elif damage == "older state":
        state = path / "topics/t/state"
        data = bytearray(state.read_bytes())
        data[64 + 80 :] = bytes(len(data) - 64 - 80)
        state.write_bytes(data)
    with opened(path) as log:
        assert log.start_offsets("t") == {0: start}
        assert ids(log) == list(range(start, ROWS))
        with pytest.raises(OffsetExpired):
            ids(log, start=start - 1)
        assert verify(log).ok
        log.maintain("t")
    assert [int(record.stem) for record in (path / "topics/t/0").glob("*.start")] == [start]


def test_all_see_one_start_where_retention_died_between_its_two_records(expired: tuple[Path, int]) -> None:
    path, start = expired
    with opened(path) as before:
        assert before.start_offsets("t") == {0: start}
        start_path(path / "topics/t/0", start + 1).touch()
        with opened(path) as after:
            assert after.start_offsets("t") == before.start_offsets("t") == {0: start + 1}


def test_the_start_does_not_move_because_a_file_is_gone(expired: tuple[Path, int]) -> None:
    path, start = expired
    segments(path)[0].unlink()
    with opened(path) as log:
        assert log.start_offsets("t") == {0: start}
        with pytest.raises(SegmentMissing):
            ids(log)
        findings = verify(log).findings
        assert [(finding.kind, finding.offset) for finding in findings] == [("missing rows", start)]
        repair(log)
        assert log.start_offsets("t") == {0: start}
        assert ids(log) == list(range(findings[0].offset_next, ROWS))


# -- an older state file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("tidied", [False, True])
def test_a_state_file_from_an_older_copy_hides_no_row(tmp_path: Path, durability: Durability, tidied: bool) -> None:
    path = tmp_path / "log"
    with opened(path) as log:
        log.create("t", {"id": "int64"}, segment_bytes_max=2_700, durability=durability)
        for number in range(ROWS):
            log.append("t", [{"id": number}])
            shutil.copyfile(path / "topics/t/state", tmp_path / f"{number}.state")
        if tidied:
            log.maintain("t")
    for number in (0, 9, 10, 11, 30, 58):  # at the ends of segments, and between
        for who in ("reader", "writer", "guest"):
            copy = tmp_path / f"{number} {who}"
            shutil.copytree(path, copy)
            shutil.copyfile(tmp_path / f"{number}.state", copy / "topics/t/state")
            with opened(copy, read_only=who == "guest") as log:
                if who == "writer":
                    assert log.append("t", [{"id": ROWS}]).ranges == {0: (ROWS, ROWS + 1)}
                assert ids(log) == list(range(ROWS + (who == "writer")))
                assert verify(log).ok
            shutil.rmtree(copy)


# -- segments of earlier releases --------------------------------------------------------------------------------------


def test_a_rewritten_segment_that_does_not_tell_its_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with opened(path) as log:
        log.create("t", {"id": "int64"}, segment_bytes_max=2_700)
        fill(log, 0, ROWS)
        log.maintain("t", seal=True)
        topic = int(log.topic("t").id[:15], 16)
    for segment in segments(path)[:-1]:
        data = segment.read_bytes()
        header = segment_header(partition=0, base=int(segment.name[:20]), created_us=1, topic=topic)
        segment.write_bytes(header + data[SEGMENT_HEADER_BYTES:])
    with opened(path) as log:
        assert ids(log) == list(range(ROWS))
        assert verify(log).ok


def test_what_a_power_cut_takes_from_a_topic_that_never_syncs_is_passed_over(
    tmp_path: Path, power_cut: Callable[[], None]
) -> None:
    path = tmp_path / "log"
    with opened(path) as log:
        log.create("t", {"id": "int64"}, segment_bytes_max=2_700, durability="os")
        fill(log, 0, ROWS)
    before = segments(path)
    before[1].unlink()
    between_frames(before[-1])
    power_cut()
    with opened(path) as log:
        log.append("t", [{"id": 99}])
        kept = [*range(int(before[1].stem)), *range(int(before[2].stem), ROWS - 1)]
        assert ids(log) == [*kept, 99]
        assert log.read("t").rows()[-1]["_offset"] == ROWS
        assert verify(log).ok


def test_a_segment_that_becomes_shorter_while_it_is_opened_is_mapped_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another process cuts frames that it has written but not published."""
    path, real = segments(folder)[-1], mmap.mmap
    mapped: list[int] = []

    def cut_first(descriptor: int, length: int, **options: int) -> mmap.mmap:
        if not mapped:
            os.truncate(path, length - 1000)
        mapped.append(length)
        return real(descriptor, length, **options)

    size = path.stat().st_size
    os.truncate(path, size + 1000)
    monkeypatch.setattr(mmap, "mmap", cut_first)
    assert SegmentMap(path).length == size
    assert mapped == [size + 1000, size]
