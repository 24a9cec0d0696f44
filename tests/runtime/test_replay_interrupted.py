"""A switch that was interrupted at any of its steps is finished by the next start, with one version at work."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.faults import REPLAY_CRASH_POINTS, install
from headwater.runtime.home import Home
from tests.runtime.test_apps import as_dict, expected_spend, payments, running, shop, spend_of
from tests.waiting import until


class Interrupted(Exception):
    """In place of a kill: what has been written stays, and nothing more happens."""


@pytest.mark.parametrize("point", REPLAY_CRASH_POINTS)
def test_the_next_start_finishes_the_switch(spark: SparkSession, tmp_path: Path, point: str) -> None:
    app = shop(tmp_path)
    spend_of(app)
    rows = payments(30)

    def hook(reached: str) -> None:
        if reached == point:
            raise Interrupted

    with running(app, spark) as runner:
        runner.log.append("payments", rows)
        runner.replays.begin("spend")
        until(lambda: runner.replays.report("spend").same == 3, "the second version has caught up")
        install(hook)
        try:
            with pytest.raises(Interrupted):
                runner.replays.switch("spend")
        finally:
            install(None)
    asked = point in ("replay.stopped", "replay.met")
    with running(app, spark) as runner:
        if asked:
            until(lambda: "spend-v2" in runner.supervised, "the trial goes on")
            runner.replays.switch("spend")
        until(
            lambda: Home(app.home).versions("spend", topic="spend").active.number == 2, "the second version is in use"
        )
        runner.log.append("payments", rows)
        until(lambda: "spend" in runner.keeper.views, "the view is kept")
        view = runner.keeper.views["spend"]
        until(lambda: sum(row["n"] for row in view.rows()) == 60, "the second version goes on")
        assert list(runner.supervised) == ["spend-v2"]
        assert "spend.v2" not in runner.log.topics()
        assert as_dict(view.rows()) == expected_spend(rows * 2)
