"""How long queries look at the clock while no rows come: for ever only where a timer waits for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.apps.plan import _ticks
from headwater.operators import Dedupe, Panes, Session, Tumbling, agg
from headwater.operators.trigger import every
from tests.apps.fixtures import running
from tests.conditions import until

ROWS = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", "UTC"))])
COUNT = {"n": agg.count()}
WINDOW = Tumbling(size="1 minute", time="at", by="user", compute=COUNT)
ONCE = Dedupe(by="user", time=hw.EventTime("at", idle_timeout="30 seconds"), within="1 minute")
PANES = Panes(window=Tumbling(size="1 hour", time="at"), by="user", compute=COUNT)


# Any: an operator of any kind.
@pytest.mark.parametrize("operator", [WINDOW, Session(gap="1 minute", time="at", by="user", compute=COUNT), PANES])
def test_a_query_whose_timers_wait_for_the_watermark_rests_after_the_last_row(operator: Any) -> None:
    assert _ticks([operator.contract(ROWS)]) == {"tick": "1 second", "ticks_max": "2", "tick_rest": "0 us"}


def test_each_operator_behind_another_takes_a_batch_and_a_silent_partition_its_time() -> None:
    ticks = _ticks([ONCE.contract(ROWS), WINDOW.contract(ROWS)])
    assert ticks == {"tick": "1 second", "ticks_max": "3", "tick_rest": "30000000 us"}


@pytest.mark.parametrize(
    "operator",
    [
        Tumbling(size="1 minute", clock="processing", by="user", compute=COUNT),
        Panes(window=Tumbling(size="1 hour", time="at"), by="user", compute=COUNT, early=every("5 seconds")),
    ],
)
def test_a_timer_of_processing_time_needs_the_clock_for_ever(operator: Any) -> None:
    assert _ticks([WINDOW.contract(ROWS), operator.contract(ROWS)]) == {"tick": "1 second"}


def test_a_window_closes_without_a_further_row(spark: SparkSession, tmp_path: Path) -> None:
    app = hw.App("visits", log=tmp_path / "data")
    app.input("visits", {"user": "string", "at": "timestamp"}, key="user", time="at")

    @app.view(key=["user", "window_start"])
    def per_minute(visits: DataFrame) -> DataFrame:
        return visits.transform(WINDOW)

    before = datetime.now(UTC) - timedelta(minutes=10)
    with running(app, spark) as runner:
        runner.log.append("visits", [{"user": "ada", "at": before + timedelta(minutes=late)} for late in (0, 5)])
        until(lambda: "per_minute" in runner.keeper.views, "the view is kept")
        until(lambda: len(app.views["per_minute"].rows()) == 1, "the first window is closed")
