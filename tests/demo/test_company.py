"""The company as a bounded job over a minute and a half of the world: every output equals its recomputation."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import headwater
from headwater.demo.checking import EXPECTED, LATE, compare
from headwater.demo.company import app
from headwater.demo.feeding import Feeder
from headwater.demo.topics import INPUTS, make_topics
from headwater.demo.world import World
from headwater.log import EmbeddedLog
from headwater.runtime.runner import Runner

SECONDS = 90
CLOSINGS = 3


def feed(log: EmbeddedLog, world: World) -> None:
    start = datetime.now(UTC) - timedelta(seconds=SECONDS)
    moments = [start + timedelta(seconds=second) for second in range(SECONDS + 1)]
    made = [world.begin(start), *(world.between(*pair) for pair in itertools.pairwise(moments))]
    for rows in made:
        for topic, some in rows.items():
            log.append(topic, some)


def catch_up(folder: Path) -> dict[str, pa.Table]:
    """Process what is there, each query after those that it reads; the views."""
    runner = Runner(app, log=str(folder), until_caught_up=True, serve=False)
    with runner.ready():
        runner.catch_up()
        return {name: runner.keeper.view(name).table() for name, one in EXPECTED.items() if one.kind == "view"}


@pytest.mark.slow
def test_every_output_of_a_bounded_run_equals_its_recomputation(tmp_path: Path) -> None:
    with headwater.open(tmp_path) as log:
        make_topics(log)
        world = World()
        feed(log, world)
        for _ in range(CLOSINGS):
            catch_up(tmp_path)
            Feeder(log, world).close_the_day()
        found = catch_up(tmp_path)
        for name, output in EXPECTED.items():
            if output.kind != "view":
                found[name] = log.read(name if output.kind == "topic" else f"{name}.dlq").table()
        inputs = {name: log.read(name).table() for name in INPUTS}
        late = {name: log.read(f"{name}.late").table() for name in LATE}
        outcomes = [one for one in compare(inputs, found, late=late) if one.kind != "late rows"]
    assert [one for one in outcomes if not one.holds] == []
    assert len(outcomes) == len(EXPECTED)
