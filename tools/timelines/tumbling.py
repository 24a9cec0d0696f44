"""Tumbling windows."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'Tumbling(size="10 seconds"), time=EventTime("at", delay="5 seconds")',
        until=40,
        about="The rows of one card belong to windows of ten seconds. A window emits its result when the watermark passes its "
        "end. A row for a window that is complete is late.",
    )
    rows = drawn.lane("payments")
    for at, amount in ((2, "5"), (7, "3"), (12, "8"), (19, "2"), (24, "4"), (33, "9")):
        rows.event(at, amount)
    rows.event(16, "7", late=True)
    windows = drawn.lane("total")
    windows.span(0, 10, "8").span(10, 20, "10").span(20, 30, "4 so far", kind="open")
    windows.span(30, 40, "9 so far", kind="open")
    drawn.mark(28, "watermark: 33 − 5")
    return drawn
