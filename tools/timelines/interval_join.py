"""Two streams joined within bounds of event time."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'IntervalJoin(clicks, before="0 s", after="10 s", how="left"), delay="2 s"',
        until=50,
        about="An impression is joined with the clicks of the ten seconds after it, bounds included. An impression without a "
        "click is emitted alone, when the watermark has passed the end of its interval.",
    )
    shown = drawn.lane("impressions")
    shown.event(5, "A").event(20, "B").event(38, "C")
    clicks = drawn.lane("clicks")
    clicks.event(8, "1").event(15, "2").event(33, "3").event(44, "4")
    intervals = drawn.lane("intervals")
    intervals.span(5, 15, "A 1, A 2").span(20, 30, "B alone: closed").span(38, 48, "C 4, still open", kind="open")
    drawn.link(0, 5, 1, 8)
    drawn.link(0, 5, 1, 15)
    drawn.link(0, 38, 1, 44)
    drawn.mark(36, "watermark: min(38, 44) − 2")
    return drawn
