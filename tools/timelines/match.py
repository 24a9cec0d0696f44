"""A match of a pattern, and a partial match that times out."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        "Match: PATTERN (small{2,} big) WITHIN INTERVAL '20' MINUTE",
        until=50,
        unit="minutes",
        about="Card A has two small payments and then a large one within twenty minutes: a match. Card B has two small ones, "
        "and no large one comes in time: the partial match times out, and needs no further event for it.",
    )
    drawn.lane("card A").event(3, "2").event(8, "3").event(14, "900").event(30, "40")
    drawn.lane("matches of A").span(3, 14, "match", kind="closed")
    drawn.lane("card B").event(6, "1").event(12, "4")
    drawn.lane("partial match of B").span(6, 26, "small small, and no big", kind="open")
    drawn.lane("timed out").event(26, "B", late=True)
    return drawn
