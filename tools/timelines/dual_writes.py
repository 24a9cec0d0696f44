"""The race of dual writes."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        "Dual writes: two clients set a price",
        until=40,
        axis="time",
        unit="milliseconds",
        about="Client A writes the price 2 to the database, then client B writes 3 to the database and to the cache. Only then does A's write reach the cache. "
        "The database has 3 and the cache has 2, for ever.",
    )
    drawn.lane("client A").event(5, "database: 2").event(28, "cache: 2", late=True)
    drawn.lane("client B").event(12, "database: 3").event(19, "cache: 3")
    drawn.lane("database").span(0, 5, "1", kind="open").span(5, 12, "2").span(12, 40, "3")
    drawn.lane("cache").span(0, 19, "1", kind="open").span(19, 28, "3").span(28, 40, "2: wrong", kind="retracted")
    return drawn
