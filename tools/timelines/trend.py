"""The regression line of a period, and its forecast."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'Trend(of="celsius", period="15 minutes", per="1 minute", horizon="10 minutes")',
        until=35,
        unit="minutes",
        about="Readings of a machine rise from 60 by one degree a minute. The reading of minute 15 leaves with slope 1 and the "
        "forecast 85 for minute 25; the direction is up since the third reading.",
    )
    rows = drawn.lane("celsius")
    for at in range(0, 20, 5):
        rows.event(at, f"{60 + at}")
    drawn.lane("the period").span(0, 15, "slope 1.0 per minute, r2 1.0")
    drawn.lane("direction").span(10, 15, "up", kind="open")
    drawn.lane("forecast").event(25, "85")
    return drawn
