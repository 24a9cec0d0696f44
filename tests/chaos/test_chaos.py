"""A smaller number of what `make chaos` does, and that its tools tell the truth."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peer_servers import PeerUnavailable
from benchmarks.s3a import s3a_jars
from headwater.faults import (
    ALERT_CRASH_POINTS,
    APP_CRASH_POINTS,
    CAPTURE_CRASH_POINTS,
    DELIVERY_CRASH_POINTS,
    ERASURE_CRASH_POINTS,
    QUERY_CRASH_POINTS,
    QUEUE_CRASH_POINTS,
    REPLAY_CRASH_POINTS,
    RESCALE_CRASH_POINTS,
    SAGA_CRASH_POINTS,
    SOURCING_CRASH_POINTS,
    TAIL_CRASH_POINTS,
    TARGET_CRASH_POINTS,
    TWO_PHASE_CRASH_POINTS,
    WEBHOOK_CRASH_POINTS,
)
from tests.chaos.kills import VICTIMS, Control, Order
from tests.chaos.single import POINTS, POINTS_ON_KAFKA, plan
from tests.kafka_server import jars_or_skip
from tests.laws import SEED
from tests.package_files import crash_points

ROOT = Path(__file__).parents[2]


def points_in_source() -> list[str]:
    """Each crash point of production code outside of the log."""
    return [point for path, point in crash_points() if path.parts[0] != "log"]


def test_each_point_of_a_batch_stands_once_in_production_code() -> None:
    found = points_in_source()
    assert sorted(found.count(point) for point in QUERY_CRASH_POINTS) == [1] * len(QUERY_CRASH_POINTS)


def test_production_code_passes_the_points_of_the_lists_and_no_others() -> None:
    lists = (
        QUERY_CRASH_POINTS,
        APP_CRASH_POINTS,
        REPLAY_CRASH_POINTS,
        RESCALE_CRASH_POINTS,
        DELIVERY_CRASH_POINTS,
        ALERT_CRASH_POINTS,
        CAPTURE_CRASH_POINTS,
        QUEUE_CRASH_POINTS,
        SOURCING_CRASH_POINTS,
        SAGA_CRASH_POINTS,
        ERASURE_CRASH_POINTS,
        TAIL_CRASH_POINTS,
        TARGET_CRASH_POINTS,
        TWO_PHASE_CRASH_POINTS,
        WEBHOOK_CRASH_POINTS,
    )
    assert set(points_in_source()) == {point for points in lists for point in points}


@pytest.mark.parametrize("seed", range(3))
def test_fifty_kills_leave_out_no_point_and_no_victim(seed: int) -> None:
    orders = plan(kills=50, seed=seed)
    assert {order.point for order in orders} == set(POINTS)
    assert min(sum(order.victim == victim for order in orders) for victim in VICTIMS) >= 10


def test_a_few_kills_on_kafka_are_where_rows_go_to_it() -> None:
    orders = plan(kills=len(POINTS_ON_KAFKA), seed=SEED, points=POINTS_ON_KAFKA)
    assert {order.point for order in orders} == set(POINTS_ON_KAFKA)
    assert all(order.point.startswith("kafka.") for order in orders[:3])


def test_a_plan_is_made_from_its_seed_alone() -> None:
    assert plan(kills=50, seed=7) == plan(kills=50, seed=7)


def test_an_order_is_taken_at_its_last_visit_and_by_one_process_only(tmp_path: Path) -> None:
    control = Control(tmp_path)
    order = Order(point="run.written", victim="worker", visit=2)
    control.arm(order)
    assert control.take("manifest.before") is None
    assert [control.take("run.written") for _ in range(4)] == [None, order, None, None]


@pytest.mark.process
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("what", "kills"),
    [
        ("query", 3),
        pytest.param("query", 50, marks=pytest.mark.long),
        pytest.param("query-on-kafka", 2, marks=pytest.mark.kafka),
        pytest.param("query-on-kafka", 30, marks=[pytest.mark.kafka, pytest.mark.long]),
    ],
)
def test_a_query_that_is_killed_loses_nothing_and_doubles_nothing(what: str, kills: int) -> None:
    if what == "query-on-kafka":
        jars_or_skip()
    words = [sys.executable, "-m", "tests.chaos.run", "--what", what, "--kills", str(kills)]
    done = subprocess.run([*words, "--seed", str(SEED), "--quiet"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, doubled 0" in done.stdout


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(1800)
def test_a_query_whose_state_and_checkpoint_are_in_an_object_store_loses_nothing_and_doubles_nothing() -> None:
    try:
        s3a_jars()
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    words = [sys.executable, "-m", "tests.chaos.run", "--what", "query", "--store", "s3", "--kills", "12"]
    done = subprocess.run([*words, "--seed", str(SEED), "--quiet"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost 0, doubled 0" in done.stdout
