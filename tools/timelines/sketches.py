"""Sketches of minutes, merged to sketches of half hours and of the hour."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'agg.sketch.hll("user"), then agg.merge_sketches("users")',
        until=60,
        step=10,
        unit="minutes",
        about="The rows of each ten minutes become one sketch. These sketches are merged to one for each half hour, and those to "
        "one for the hour. A user who appears in several sketches counts once; plain counts would count the user twice.",
    )
    rows = drawn.lane("users")
    for at, user in ((2, "A"), (6, "B"), (13, "A"), (18, "C"), (24, "B"), (33, "A"), (38, "D"), (47, "D"), (56, "E")):
        rows.event(at, user)
    minutes = drawn.lane("ten minutes")
    for start, text in enumerate(("A B: 2", "A C: 2", "B: 1", "A D: 2", "D: 1", "E: 1")):
        minutes.span(10 * start, 10 * start + 10, text)
    drawn.lane("half hours").span(0, 30, "A B C: 3, and not 5").span(30, 60, "A D E: 3, and not 4")
    drawn.lane("the hour").span(0, 60, "A B C D E: 5, and not 9")
    return drawn
