"""Malfunction, as its user tests it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import malfunction

from headwater.testing import AppTest


def test_a_machine_that_shakes_and_one_that_grows_hot_are_told() -> None:
    with AppTest(malfunction.app) as test:
        start = test.now

        def reading(machine: str, minute: float, *, vibration: float = 1.0, celsius: float = 60.0) -> dict[str, Any]:
            at = start + timedelta(minutes=minute)
            return {"machine": machine, "vibration": vibration, "celsius": celsius, "at": at}

        rows = []
        for minute in range(30):
            rows.append(reading("press", minute, vibration=1.0 + 0.1 * (minute % 3)))
            rows.append(reading("oven", minute, celsius=60.0 + minute))
        rows.append(reading("press", 30, vibration=4.0))
        test.feed("machines", rows)
        for minute in (60, 90):  # time passes, in every partition
            test.feed("machines", [reading(f"other{number}", minute) for number in range(20)])
            test.drain()
        (alarm,) = test.rows("shaking")
        assert (alarm["machine"], alarm["vibration"], round(alarm["expected"], 1)) == ("press", 4.0, 1.1)
        oven, press = (test.views["heating"].get(machine=name) for name in ("oven", "press"))
        assert oven is not None
        assert press is not None
        assert (oven["too_hot"], round(oven["slope"], 3), round(oven["forecast"])) == (True, 1.0, 119)
        assert press["too_hot"] is False
