"""Windows by count."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'CountWindow(size=3), time=EventTime("at", delay="5 seconds")',
        until=40,
        about="Every three readings of a sensor are one window, however long that takes. A reading is counted once the "
        "watermark has passed it. A reading behind the watermark is late.",
    )
    rows = drawn.lane("readings")
    for at, celsius in ((2, "20"), (5, "21"), (14, "22"), (17, "24"), (20, "25"), (29, "26"), (33, "27")):
        rows.event(at, celsius)
    rows.event(24, "19", late=True)
    windows = drawn.lane("mean")
    windows.span(2, 14, "21").span(17, 29, "25 once 29 is passed", kind="open")
    drawn.mark(28, "watermark: 33 − 5")
    return drawn
