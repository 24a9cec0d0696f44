"""Hopping windows."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'Hopping(size="20 seconds", every="10 seconds")',
        until=50,
        about="A row belongs to each window that contains its event time. Here these are two windows, since a window is twice as "
        "long as the time between the starts of two windows.",
    )
    rows = drawn.lane("payments")
    for at, amount in ((3, "5"), (14, "8"), (18, "2"), (26, "4"), (37, "9")):
        rows.event(at, amount)
    windows = drawn.lane("total")
    windows.span(0, 20, "15").span(10, 30, "14").span(20, 40, "13 so far", kind="open").span(
        30, 50, "9 so far", kind="open"
    )
    drawn.mark(37, "watermark")
    return drawn
