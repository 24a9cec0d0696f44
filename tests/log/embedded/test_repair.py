from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.config import Config
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.repair import repair, verify
from headwater.log.errors import FrameCorrupt, ReadOnly

ROWS = 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    with open_log(path, config=Config(maintenance="manual")) as log:
        log.create("t", {"id": "int64"}, segment_bytes_max=3000)
        log.create("other", {"id": "int64"})
        for number in range(ROWS):
            log.append("t", [{"id": number}])
            log.append("other", [{"id": number}])
    return path


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "topics/t/0").glob("*.log"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def ids(log: EmbeddedLog) -> list[int]:
    return [row["id"] for row in log.read("t", columns=["id"]).rows()]


def test_a_sound_log_has_no_findings(folder: Path) -> None:
    steps: list[tuple[int, int]] = []
    with open_log(folder) as log:
        report = verify(log, progress=lambda done, total: steps.append((done, total)))
    assert report.ok
    assert (report.topics, report.rows) == (2, 2 * ROWS)
    assert steps[-1][0] == steps[-1][1] == report.bytes


def test_a_flipped_bit_in_the_middle_is_named_by_file_byte_and_offset(folder: Path) -> None:
    flip(segments(folder)[0], 64 + 256 * 2 + 150)
    with open_log(folder) as log:
        report = verify(log)
        assert [finding.kind for finding in report.findings] == ["damaged frame"]
        finding = report.findings[0]
        assert (finding.topic, finding.partition, finding.position, finding.offset) == ("t", 0, 64 + 256 * 2, 2)
        assert finding.path == f"topics/t/0/{0:020d}.log"
        assert verify(log, "other").ok
        with pytest.raises(FrameCorrupt):
            ids(log)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_repair_sets_damage_aside_and_the_rest_can_be_read_again(folder: Path, which: int) -> None:
    path = segments(folder)[which]
    flip(path, 64 + 256 + 150)
    lost = int(path.stem) + 1
    with open_log(folder) as log:
        planned = repair(log, dry_run=True)
        assert "would be set aside" in planned.findings[0].action
        with pytest.raises(FrameCorrupt):
            ids(log)
        done = repair(log)
        assert [finding.kind for finding in done.findings] == ["damaged frame"]
        assert ids(log) == [number for number in range(ROWS) if number != lost]
        assert verify(log).ok
        log.append("t", [{"id": ROWS}])
        assert log.read("t").rows()[-1]["_offset"] == ROWS
    assert any((folder / "quarantine").iterdir())


def test_a_torn_end_is_told_from_damage(folder: Path) -> None:
    with segments(folder)[-1].open("ab") as file:
        file.write(b"torn")
    with open_log(folder) as log:
        assert [finding.kind for finding in verify(log).findings] == ["torn end"]
        repair(log)
        assert verify(log).ok
        assert ids(log) == list(range(ROWS))


def test_rows_that_were_acknowledged_and_are_gone_are_counted(folder: Path) -> None:
    path = segments(folder)[-1]
    os.truncate(path, path.stat().st_size - 10)
    with open_log(folder) as log:
        kinds = [finding.kind for finding in repair(log).findings]
        assert "acknowledged rows lost" in kinds or "damaged frame" in kinds
        assert ids(log) == list(range(ROWS - 1))
        log.append("t", [{"id": 99}])
        assert ids(log) == [*range(ROWS - 1), 99]
        assert verify(log).ok


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_lost_segment_is_reported_and_can_be_left_behind(folder: Path, which: int) -> None:
    path = segments(folder)[which]
    path.unlink()
    with open_log(folder) as log:
        report = verify(log)
        assert not report.ok or which == 0
        repair(log)
        log.append("t", [{"id": 99}])
        rows = log.read("t").rows()
        assert rows[-1]["id"] == 99
        assert rows[-1]["_offset"] == ROWS


def test_half_made_topics_and_leftovers_are_removed(folder: Path) -> None:
    (folder / "topics/.new-1").mkdir()
    (folder / "topics/.deleted-2").mkdir()
    (folder / "topics/t/0/.00.log.tmp").write_text("x")
    with open_log(folder) as log:
        assert len(verify(log).findings) == 3
        assert len(repair(log, dry_run=True).findings) == 3
        assert (folder / "topics/.new-1").exists()
        repair(log)
        assert verify(log).ok
    assert not (folder / "topics/.new-1").exists()


def test_an_unreadable_topic_does_not_hide_the_others(folder: Path) -> None:
    (folder / "topics/other/topic.json").write_text("{")
    with open_log(folder) as log:
        report = verify(log)
        assert [finding.kind for finding in report.findings] == ["topic unreadable"]
        assert report.rows == ROWS


def test_a_guest_may_verify_but_not_repair(folder: Path) -> None:
    with open_log(folder, read_only=True) as log:
        assert verify(log).ok
        assert repair(log, dry_run=True).ok
        with pytest.raises(ReadOnly):
            repair(log)
