"""A guard in front of Spark's own operators."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'Guard(time=EventTime("at", delay=5, future_max=10))',
        until=60,
        about="Rows between the watermark and ten seconds ahead of the clock pass, and Spark drops none of them. A row "
        "behind the watermark goes to the side output late, and a row too far in the future to the side output early. Neither "
        "moves the watermark.",
    )
    drawn.lane("batch 1").event(12).event(20).event(25)
    later = drawn.lane("batch 2").event(22).event(28).event(34)
    later.event(14, "late", late=True).event(55, "early", late=True)
    drawn.lane("passes").span(20, 45, "in time")
    drawn.mark(20, "watermark: 25 − 5")
    drawn.mark(45, "clock + 10")
    return drawn
