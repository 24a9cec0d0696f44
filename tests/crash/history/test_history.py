"""A short history of real processes is clean, and a fault that is planted in their log is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.history.plant import PLANTS
from tests.laws import SEED

ROOT = Path(__file__).parents[3]

#: Which claim each planted fault breaks; it may break others besides.
BREAKS = {
    "lost-append": "no lost row",
    "double-append": "once only",
    "torn-transaction": "atomic transactions",
    "stale-condition": "conditional appends",
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    # In a process of its own: it forks, which is not safe beside the threads of other tests.
    command = [sys.executable, "-m", "tests.crash.run", "--history", "--quiet", "--seed", str(SEED), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.process
@pytest.mark.timeout(600)
def test_a_short_history_has_no_violation() -> None:
    done = run("--minutes", "0.1", "--processes", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violations: 0" in done.stdout


@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_long_history_has_no_violation() -> None:
    done = run("--minutes", "5")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_fault_is_found(plant: str) -> None:
    done = run("--minutes", "0.25", "--processes", "3", "--plant", plant)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(BREAKS[plant]))
    assert int(line.split()[-1]) > 0, done.stdout
