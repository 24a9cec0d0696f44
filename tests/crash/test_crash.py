"""A few runs of `make crash`, and tests of its tools."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.faults import BACKUP_CRASH_POINTS, KAFKA_CRASH_POINTS, LETTER_CRASH_POINTS, MIRROR_CRASH_POINTS
from headwater.log.embedded import open_folder as open
from headwater.testing import CrashAt, Disk, run_until_killed
from tests.crash.run import POINTS, Plan
from tests.crash.scenarios import SCENARIOS
from tests.laws import SEED
from tests.package_files import crash_points

ROOT = Path(__file__).parents[2]


def test_each_crash_point_stands_in_production_code_and_in_the_list() -> None:
    assert {point for path, point in crash_points() if path.parts[0] == "log"} == {
        *POINTS,
        *BACKUP_CRASH_POINTS,
        *KAFKA_CRASH_POINTS,
        *LETTER_CRASH_POINTS,
        *MIRROR_CRASH_POINTS,
    }  # those have their own tests in tests/log


def test_each_crash_point_has_a_workload_that_reaches_it() -> None:
    assert {point for scenario in SCENARIOS for point in scenario.points} == set(POINTS)


def test_a_plan_is_made_from_its_seed_alone() -> None:
    assert Plan.of(1_000_042) == Plan.of(1_000_042)


@pytest.mark.process
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [4, pytest.param(40, marks=pytest.mark.long)])
def test_nothing_acknowledged_is_lost_at_any_point(rounds: int) -> None:
    # A single round would leave points out, for a crash is at a random visit, which a run may not come to.
    # In a process of its own: it forks, which is not safe beside the threads of other tests.
    words = [sys.executable, "-m", "tests.crash.run", "--runs", str(rounds * len(POINTS)), "--seed", str(SEED)]
    done = subprocess.run([*words, "--quiet"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, doubled 0, re-used offsets 0" in done.stdout


@pytest.mark.core
@pytest.mark.process
def test_a_child_dies_where_it_is_told(tmp_path: Path) -> None:
    def work() -> None:
        with open(tmp_path / "log") as log:
            log.create("rows", {"id": "int64"})
            for number in range(5):
                log.append("rows", [{"id": number}])

    ended = run_until_killed(work, at=CrashAt(point="append.half", visit=3))
    assert ended.killed
    assert (ended.reached["append.half"], ended.reached["append.published"]) == (3, 2)
    with open(tmp_path / "log") as log:
        assert [row["id"] for row in log.read("rows").rows()] == [0, 1]


@pytest.mark.core
@pytest.mark.process
def test_a_child_that_is_not_killed_says_how_far_it_came(tmp_path: Path) -> None:
    def work() -> None:
        with open(tmp_path / "log") as log:
            log.create("rows", {"id": "int64"})

    ended = run_until_killed(work)
    assert (ended.signal, ended.code, ended.reached["topic.published"]) == (0, 0, 1)


def test_a_child_can_be_told_by_its_environment() -> None:
    assert CrashAt.from_env({"HEADWATER_TEST_CRASH_AT": "append.half:3"}) == CrashAt(point="append.half", visit=3)
    assert CrashAt.from_env({}) is None


@pytest.mark.parametrize("text", ["append.nowhere", "append.half:0"])
def test_a_point_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a crash point"):
        CrashAt.parse(text)


def written(path: Path, data: bytes, *, synced: bool) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    os.pwrite(descriptor, data, 0)
    if synced:
        os.fsync(descriptor)
    os.close(descriptor)


def synced(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def test_a_power_cut_takes_bytes_that_were_not_synced(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "live", tmp_path / "record")
    with disk.watching():
        written(disk.folder / "file", b"safe", synced=True)
        written(disk.folder / "file", b"safe, not safe", synced=False)
        synced(disk.folder)
    disk.cut(tmp_path / "after", loss="lost", names="lost", seed=1)
    assert (tmp_path / "after" / "file").read_bytes() == b"safe"


def test_a_power_cut_takes_names_that_were_not_synced(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "live", tmp_path / "record")
    with disk.watching():
        written(disk.folder / "first", b"1", synced=True)
        synced(disk.folder)
        written(disk.folder / "second", b"2", synced=True)
        os.rename(disk.folder / "first", disk.folder / "renamed")
    disk.cut(tmp_path / "after", loss="kept", names="lost", seed=1)
    assert [path.name for path in (tmp_path / "after").iterdir()] == ["first"]


def test_a_power_cut_may_bring_back_what_was_removed(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "live", tmp_path / "record")
    with disk.watching():
        written(disk.folder / "file", b"here", synced=True)
        synced(disk.folder)
        (disk.folder / "file").unlink()
        written(disk.folder / "other", b"x", synced=True)
    disk.cut(tmp_path / "after", loss="kept", names="lost", seed=1)
    assert (tmp_path / "after" / "file").read_bytes() == b"here"


def test_what_was_there_when_the_watch_began_is_safe(tmp_path: Path) -> None:
    (tmp_path / "live" / "deep").mkdir(parents=True)
    (tmp_path / "live" / "deep" / "file").write_bytes(b"old")
    disk = Disk(tmp_path / "live", tmp_path / "record")
    with disk.watching():
        (tmp_path / "live" / "deep" / "file").write_bytes(b"new")
    disk.cut(tmp_path / "after", loss="lost", names="lost", seed=1)
    assert (tmp_path / "after" / "deep" / "file").read_bytes() == b"old"
