"""Aggregates of a table that changes."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'AggregateTable(by="country", compute={"n": agg.count()}, key="id")',
        until=50,
        about="A customer that moves leaves the count of one country and enters that of another; a country without "
        "customers has no row.",
    )
    drawn.lane("customer 1").span(5, 50, "DE")
    drawn.lane("customer 2").span(14, 28, "DE").span(28, 42, "FR").span(42, 50, "deleted", kind="retracted")
    germany = drawn.lane("count of DE")
    germany.span(5, 14, "1", kind="retracted").span(14, 28, "2", kind="retracted").span(28, 50, "1")
    drawn.lane("count of FR").span(28, 42, "1", kind="retracted")
    return drawn
