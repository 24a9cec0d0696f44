"""Windows compared with the windows of earlier periods."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'ComparedTo(every="1 day", period="1 week", compute={"orders": agg.count()})',
        until=21,
        step=7,
        unit="days",
        about="Orders per day over three weeks. The Monday of the third week has 90, and is compared with the Mondays before "
        "it: 30 a week earlier, 32 two weeks earlier.",
    )
    days = drawn.lane("Monday's orders")
    days.span(0, 1, "32").span(7, 8, "30").span(14, 15, "90")
    drawn.lane("with the last one").event(15, "before 30, difference 60, ratio 3")
    drawn.lane("with the last two").event(15, "mean 31, zscore 41.7")
    return drawn
