"""Leases: one holder at a time, taken over from a holder that falls silent, and fenced from one that was only paused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.lease import Lease
from tests.conditions import until
from tests.log.contract.conftest import clock as clock
from tests.log.contract.conftest import kafka as kafka
from tests.log.contract.conftest import log as log
from tests.log.contract.conftest import server as server

#: Long enough for a holder on a loaded machine, short enough for a test.
SECONDS = 2.0
RACES = 60
#: Takes the leases of all races, at the same moment as the other process; prints those that it holds.
RACER = """
import json, sys, time
from headwater.log import open as open_log
from headwater.log.lease import Lease

address, name, races, start = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
with open_log(address) as log:
    leases = [Lease(log, f"race-{race}", holder=name, seconds=60) for race in range(races)]
    time.sleep(max(0.0, start - time.time()))
    print(json.dumps([race for race, lease in enumerate(leases) if lease._seconds_left() <= 0 and lease._taken()]))
"""
#: Takes the lease, says so, and appends a row each time that it believes to hold it.
HOLDER = """
import sys, time
from headwater.log import open as open_log
from headwater.log.lease import Lease

with open_log(sys.argv[1]) as log:
    lease = Lease(log, "app", holder=sys.argv[2], seconds=float(sys.argv[3]))
    lease.acquire(wait=True)
    print("held", flush=True)
    while lease.is_mine:
        time.sleep(0.01)
    print("lost", flush=True)
"""


def test_one_of_two_holds_a_lease(log: Log) -> None:
    first, second = (Lease(log, "app", holder=name, seconds=SECONDS) for name in ("a", "b"))
    assert first.acquire()
    assert not second.acquire()
    assert second.held_by() == "a"
    first.release()
    assert not first.is_mine
    assert second.acquire()
    second.release()


def test_a_lease_that_was_never_taken_is_free_at_once(log: Log) -> None:
    began = time.monotonic()
    lease = Lease(log, "app", holder="a", seconds=3_600)
    assert lease.held_by() is None
    assert lease.acquire()
    assert time.monotonic() - began < 60
    lease.release()


def test_leases_of_other_names_are_others(log: Log) -> None:
    first, second = (Lease(log, name, holder="a", seconds=SECONDS) for name in ("one", "two"))
    assert first.acquire()
    assert second.acquire()
    first.release()
    second.release()


def test_a_holder_that_falls_silent_is_replaced_and_can_send_nothing_more(log: Log) -> None:
    first, second = (Lease(log, "app", holder=name, seconds=0.5) for name in ("a", "b"))
    assert first.acquire()
    first._stop_renewal()
    assert second.acquire(wait=True)
    assert not first.is_mine
    assert not first._send(seconds=1.0)
    assert second.held_by() == "b"
    second.release()


def test_a_holder_whose_lease_is_taken_learns_it(log: Log) -> None:
    told: list[str] = []
    first = Lease(log, "app", holder="a", seconds=0.5, lost=lambda: told.append("lost"))
    assert first.acquire()
    second = Lease(log, "app", holder="b", seconds=0.5)
    second._read()
    assert second._taken()
    until(lambda: told == ["lost"], "the holder was told")
    assert not first.is_mine
    second.release()


def test_waiting_ends_when_it_is_no_longer_wanted(log: Log) -> None:
    first, second = (Lease(log, "app", holder=name, seconds=3_600) for name in ("a", "b"))
    assert first.acquire()
    answers = iter([False, False, True])
    assert not second.acquire(wait=True, stopped=lambda: next(answers))
    first.release()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with open_log(tmp_path / "shared"):
        yield tmp_path / "shared"


@contextmanager
def holder(folder: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that waits for the lease, and says when it holds it and when it has lost it."""
    words = [sys.executable, "-c", HOLDER, str(folder), name, str(SECONDS)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.process
def test_a_standby_takes_over_from_a_process_that_is_killed(folder: Path) -> None:
    with holder(folder, "a") as first:
        assert said(first) == "held"
        with holder(folder, "b") as second:
            first.kill()
            assert said(second) == "held"


@pytest.mark.process
def test_a_process_that_was_paused_finds_its_lease_lost(folder: Path) -> None:
    with holder(folder, "a") as first:
        assert said(first) == "held"
        os.kill(first.pid, signal.SIGSTOP)
        with holder(folder, "b") as second:
            assert said(second) == "held"
            os.kill(first.pid, signal.SIGCONT)
            assert said(first) == "lost"
            assert second.poll() is None


@pytest.mark.process
def test_of_two_that_take_a_lease_at_the_same_moment_one_holds_it(folder: Path) -> None:
    start = str(time.time() + 3.0)
    words = [sys.executable, "-c", RACER, str(folder)]
    racers = [
        subprocess.Popen([*words, name, str(RACES), start], stdout=subprocess.PIPE, text=True) for name in ("a", "b")
    ]
    won = [json.loads(racer.communicate(timeout=120)[0]) for racer in racers]
    assert sorted(race for races in won for race in races) == list(range(RACES))


def test_a_clock_that_is_set_back_changes_nothing(log: Log, clock: ManualClock) -> None:
    first, second = (Lease(log, "app", holder=name, seconds=SECONDS) for name in ("a", "b"))
    assert first.acquire()
    clock.advance(seconds=-3_600.0)
    assert not second.acquire()
    first.release()
