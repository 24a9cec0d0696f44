"""Two drivers on one checkpoint in an object store: of each batch one is told that the other was first."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from benchmarks.peer_servers import PeerUnavailable
from benchmarks.s3a import s3a_jars
from headwater.engine.state_folder import open_folder
from tests.conditions import until
from tests.spark.checkpoint_racer import FILES

ROOT = Path(__file__).parents[2]
ROWS = 50
DRIVERS = ("one", "two")


@pytest.mark.process
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.long
@pytest.mark.parametrize("races", [2, 60])
def test_a_race_of_two_drivers_for_a_batch_has_one_winner(objects: str, tmp_path: Path, races: int) -> None:
    try:
        s3a_jars()
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    checkpoint = f"{objects.replace('s3://', 's3a://')}/checkpoint"
    with hw.open(tmp_path / "log", create=True) as log:
        log.create("orders", {"id": "int64"})
        log.create("copies", {"id": "int64"})
        words = [sys.executable, "-m", "tests.spark.checkpoint_racer", str(tmp_path)]
        drivers = {
            name: _started([*words, name, checkpoint, f"{objects}/state", str(races)], tmp_path, name)
            for name in DRIVERS
        }
        try:
            for name, driver in drivers.items():
                until((tmp_path / f"ready-{name}").exists, "the driver is ready", driver)
            _race_for_files(tmp_path, checkpoint, drivers)
            outcomes = [_race(log, race, tmp_path, drivers) for race in range(races)]
        finally:
            for driver in drivers.values():
                driver.kill()
                driver.wait()
        identity = json.loads(open_folder(checkpoint).read_text("metadata") or "{}")["id"]
        assert log.read("copies").table().column("id").to_pylist() == list(range(races * ROWS))
        assert log.committed_sequence(identity) == races - 1, "one batch for each race"
        print("refused:", sum(any(one["error"] for one in told) for told in outcomes), "of", races)


Drivers = dict[str, subprocess.Popen[bytes]]


def _race_for_files(home: Path, checkpoint: str, drivers: Drivers) -> None:
    """Let both drivers write files of the same names; each file is of one of them, and has what that one wrote."""
    _go(home, "go-files", seconds=2)
    won = {}
    for name, driver in drivers.items():
        path = home / f"files-{name}.json"
        until(path.exists, "all files are written", driver)
        won[name] = json.loads(path.read_text())
    print("files won:", {name: len(numbers) for name, numbers in won.items()})
    assert sorted(number for numbers in won.values() for number in numbers) == list(range(FILES))
    folder = open_folder(f"{checkpoint}-files").within("offsets")
    for name, numbers in won.items():
        assert {folder.read_text(str(number)) for number in numbers} <= {name}


def _go(home: Path, name: str, *, seconds: float) -> None:
    """Tell both drivers at which moment they start."""
    temporary = home / f".{name}"
    temporary.write_text(str(time.time() + seconds))
    temporary.rename(home / name)


def _race(log: hw.Log, race: int, home: Path, drivers: Drivers) -> list[dict[str, Any]]:
    """Let both drivers find the same new rows at the same moment; return what each says of it."""
    log.append("orders", [{"id": race * ROWS + number} for number in range(ROWS)])
    _go(home, f"go-{race}", seconds=0.3)
    told = []
    for name, driver in drivers.items():
        path = home / f"{race}-{name}.json"
        until(path.exists, f"race {race} has ended", driver)
        told.append(json.loads(path.read_text()))
    winners = [one for one in told if one["batches"] == [race]]
    assert len(winners) == 1, told
    return told


def _started(words: list[str], home: Path, name: str) -> subprocess.Popen[bytes]:
    with (home / f"{name}.log").open("wb") as output:
        return subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
