"""Rates over a period, and with a half-life."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'Rate(per="1 second", period="10 seconds")',
        until=25,
        about="Six requests. Each is emitted with the number of requests in the ten seconds up to it, divided by ten: 0.1, 0.2, "
        "0.3, 0.4, 0.4 and 0.2 a second.",
    )
    rows = drawn.lane("requests")
    for at in (2, 5, 7, 11, 14, 22):
        rows.event(at)
    drawn.lane("their periods").span(1, 11, "4 in 10 seconds").span(4, 14, "4 in 10 seconds").span(
        12, 22, "2 in 10 seconds"
    )
    out = drawn.lane("rate")
    for at, text in ((2, "0.1"), (5, "0.2"), (7, "0.3"), (11, "0.4"), (14, "0.4"), (22, "0.2")):
        out.event(at, text)
    return drawn
