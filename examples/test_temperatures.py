"""Temperatures, as their user tests them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import temperatures

from headwater.testing import AppTest


def test_late_readings_correct_their_minute_and_those_that_are_too_late_are_put_aside() -> None:
    with AppTest(temperatures.app) as test:
        start = test.now

        def measured(machine: str, celsius: float, *, second: int, slow: int = 0, sent: int = 0) -> None:
            """A reading, sent some seconds after it was measured, by a clock that is slow."""
            clock = {"occurred_at": second - slow, "sent_at": second + sent - slow, "received_at": second + sent}
            times = {name: start + timedelta(seconds=value) for name, value in clock.items()}
            test.feed("measured", [{"machine": machine, "celsius": celsius, **times}])

        def minute(number: int) -> dict[str, Any]:
            found = test.views["temperatures"].get(machine="press", minute=start + timedelta(minutes=number))
            assert found is not None
            return dict(found)

        measured("press", 60.0, second=10)
        measured("press", 80.0, second=50, slow=40 * 86_400)  # a clock that is forty days slow
        assert (minute(0)["mean"], minute(0)["readings"]) == (70.0, 2)
        assert 0 < minute(0)["completeness"] < 1
        measured("press", 50.0, second=300)
        measured("press", 100.0, second=30, sent=400)  # the network was away
        assert (minute(0)["mean"], minute(0)["highest"]) == (80.0, 100.0)
        measured("press", 55.0, second=2 * 3600)
        test.drain()  # the watermark follows from what earlier batches saw
        measured("press", 55.0, second=2 * 3600 + 1)
        assert minute(0)["completeness"] == 1
        measured("press", 999.0, second=40, sent=2 * 3600)
        (late,) = test.rows("readings.late")
        assert (late["machine"], late["celsius"]) == ("press", 999.0)
        assert minute(0)["highest"] == 100.0
