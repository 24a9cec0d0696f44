"""Rows with aggregates of the period before them."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'Rolling(period="10 seconds", compute={"total": agg.sum("amount")})',
        until=25,
        about="Four payments. Each is emitted with the sum of the ten seconds that end with it: 5, 8, 16 and 13.",
    )
    rows = drawn.lane("payments")
    for at, amount in ((3, "5"), (8, "3"), (12, "8"), (20, "5")):
        rows.event(at, amount)
    drawn.lane("their periods").span(-7, 3, "5").span(-2, 8, "5 + 3").span(2, 12, "5 + 3 + 8").span(10, 20, "8 + 5")
    out = drawn.lane("out")
    for at, text in ((3, "5, total 5"), (8, "3, total 8"), (12, "8, total 16"), (20, "5, total 13")):
        out.event(at, text)
    return drawn
