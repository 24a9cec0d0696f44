"""A smaller number of what `make chaos` does to a whole App, and that its plan leaves nothing out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.faults import REPLAY_CRASH_POINTS
from tests.chaos.app.series import POINTS, plan
from tests.chaos.kills import VICTIMS
from tests.chaos.tally import Tally, missed
from tests.laws import SEED

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(3))
def test_fifty_kills_leave_out_no_point_and_no_victim(seed: int) -> None:
    orders = plan(kills=50, seed=seed)
    assert len(orders) == 50
    assert [order.number for order in orders] == list(range(50))
    assert {order.point for order in orders} == set(POINTS)
    assert min(sum(order.victim == victim for order in orders) for victim in VICTIMS) >= 7


def test_a_switch_is_killed_at_each_of_its_steps_in_turn() -> None:
    points = [order.point for order in plan(kills=50, seed=1)]
    first = points.index(REPLAY_CRASH_POINTS[0])
    assert tuple(points[first : first + len(REPLAY_CRASH_POINTS)]) == REPLAY_CRASH_POINTS


def test_a_plan_is_made_from_its_seed_alone() -> None:
    assert plan(kills=50, seed=7) == plan(kills=50, seed=7)


def test_a_point_without_a_kill_is_told() -> None:
    orders = plan(kills=50, seed=1)
    tally = Tally()
    tally.kills.update((order.point, order.victim) for order in orders if order.point != "lake.staged")
    assert missed(tally, orders, POINTS) == ["lake.staged"]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(3600)
def test_an_app_that_is_killed_loses_nothing_and_doubles_nothing() -> None:
    words = [sys.executable, "-m", "tests.chaos.run", "--what", "app", "--kills", "50"]
    done = subprocess.run([*words, "--seed", str(SEED), "--quiet"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    for happened in ("rebuilt as version 2", "a standby took over", "replay switched"):
        assert happened in done.stdout
