"""A smaller number of what `make chaos ARGS="--what capture"` does, and that its tools tell the truth."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.capture.check import Captured, Step, Written, compare
from tests.chaos.capture.databases import KINDS
from tests.chaos.capture.series import POINTS, plan
from tests.laws import SEED

ROOT = Path(__file__).parents[2]
WRITTEN = Written(
    audit={1: [(1, "c", 1), (2, "u", 5), (3, "d", 6), (4, "c", 9)]},
    items={1: {"id": 1, "version": 4}},
    notes=Counter({("tea",): 2}),
)


def captured(*steps: Step, notes: int = 2, version: int = 4) -> Captured:
    return Captured(steps={1: steps}, items={1: {"id": 1, "version": version}}, notes=Counter({("tea",): notes}))


@pytest.mark.parametrize("kills", [len(POINTS), 20, 100])
def test_as_many_kills_as_points_leave_out_no_point(kills: int) -> None:
    orders = plan(kills=kills, seed=1)
    assert {order.point for order in orders} == set(POINTS)
    assert [order.number for order in orders] == list(range(kills))


def test_every_version_once_and_in_order_is_good() -> None:
    steps: list[Step] = [("c", 1), ("r", 1), ("u", 2), ("d", None), ("c", 4)]
    assert compare(WRITTEN, captured(*steps), first_streamed=1).good
    assert compare(WRITTEN, captured(("r", 2), ("d", None), ("c", 4)), first_streamed=6).good


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ([("c", 1), ("u", 2), ("c", 4)], "lost"),
        ([("r", 2), ("d", None), ("c", 4)], "lost"),
        ([("c", 1), ("u", 2), ("u", 2), ("d", None), ("c", 4)], "doubled"),
        ([("c", 1), ("d", None), ("u", 2), ("c", 4)], "disordered"),
        ([("c", 1), ("u", 2), ("d", None), ("c", 4), ("r", 2)], "disordered"),
    ],
)
def test_what_is_lost_doubled_or_out_of_order_is_told(steps: list[Step], name: str) -> None:
    verdict = compare(WRITTEN, captured(*steps), first_streamed=1)
    assert getattr(verdict, name)
    assert not verdict.good


def test_rows_that_differ_from_the_table_are_told() -> None:
    steps: list[Step] = [("c", 1), ("u", 2), ("d", None), ("c", 4)]
    assert compare(WRITTEN, captured(*steps, notes=1), first_streamed=1).lost == 1
    assert compare(WRITTEN, captured(*steps, notes=3), first_streamed=1).doubled == 1
    assert compare(WRITTEN, captured(*steps, version=3), first_streamed=1).wrong == 1


def _killed(kind: str, kills: int) -> None:
    words = ["--what", "capture", "--database", kind, "--kills", str(kills), "--seed", str(SEED), "--quiet"]
    done = subprocess.run([sys.executable, "-m", "tests.chaos.run", *words], capture_output=True, text=True, cwd=ROOT)
    if "PeerUnavailable" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1].partition(": ")[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, doubled 0, out of order 0" in done.stdout


@pytest.mark.process
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "kills"), [("sqlite", 4), ("postgres", 6)])
def test_a_capture_that_is_killed_loses_nothing_and_doubles_nothing(kind: str, kills: int) -> None:
    _killed(kind, kills)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_kills_lose_nothing_and_double_nothing(kind: str) -> None:
    _killed(kind, 100)
