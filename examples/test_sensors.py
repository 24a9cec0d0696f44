"""Sensors, as their user tests them."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater.testing import AppTest


def test_a_limit_that_changes_changes_the_alarms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the app's lake lies in the folder in which it is loaded
    monkeypatch.delitem(sys.modules, "sensors", raising=False)
    import sensors

    with AppTest(sensors.app, sinks="real") as test:
        start = test.now

        def read(sensor: str, celsius: float, second: int) -> None:
            test.feed("readings", [{"sensor": sensor, "celsius": celsius, "at": start + timedelta(seconds=second)}])

        test.feed("limits", [{"sensor": "oven", "celsius_max": 200.0}])
        read("oven", 190.0, 0)
        read("oven", 210.0, 1)
        assert [row["celsius"] for row in test.rows("alarms")] == [210.0]
        test.feed("limits", [{"sensor": "oven", "celsius_max": 250.0}])
        read("oven", 220.0, 2)
        assert [row["celsius"] for row in test.rows("alarms")] == [210.0]
        (minute,) = test.views["climate"].rows()
        assert (minute["sensor"], minute["minute"], minute["highest"]) == ("oven", start, 220.0)
        assert minute["mean"] == pytest.approx(620 / 3)
        assert DeltaTable("lake/readings").count() == 3
