"""Values that were seen before, and Bloom filters that are deleted one after the other."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'SeenBefore(of="device", time="at", period="20 minutes")',
        until=50,
        unit="minutes",
        about="A device that comes a second time within twenty minutes is seen. A device that comes again later is new. One Bloom "
        "filter holds the devices of five minutes, and is deleted as a whole twenty minutes after its end.",
    )
    drawn.lane("device A").event(3, "new").event(12, "seen").event(41, "new")
    drawn.lane("device B").event(8, "new").event(26, "seen").event(44, "seen")
    filters = drawn.lane("filters")
    for start, held in ((0, "A"), (5, "B"), (10, "A"), (25, "B"), (40, "A B")):
        filters.span(start, min(start + 25, 50), held, kind="closed" if start + 25 <= 50 else "open")
    return drawn
