"""Sliding windows."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'Sliding(size="10 seconds")',
        since=-5,
        until=25,
        about="Three rows make five windows of ten seconds. One window ends with each row. One window begins just after each row "
        "that another row follows within ten seconds.",
    )
    rows = drawn.lane("payments")
    for at, amount in ((8, "5"), (11, "3"), (17, "8")):
        rows.event(at, amount)
    ending = drawn.lane("end with a row")
    ending.span(-2, 8, "5").span(1, 11, "8").span(7, 17, "16")
    after = drawn.lane("begin after one")
    after.span(8.1, 18.1, "11").span(11.1, 21.1, "8")
    return drawn
