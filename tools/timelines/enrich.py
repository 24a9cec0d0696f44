"""A stream joined with a table, as of a time."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'Enrich(rates, on="country", as_of="sold_at", allowed_lateness="10 s")',
        until=50,
        about="Each sale gets the rate of the time of the sale. The last sale waits: the watermark of the table has not reached "
        "it, and its allowed lateness is not over.",
    )
    rates = drawn.lane("rates of DE")
    rates.span(0, 20, "19 %").span(20, 36, "16 %").span(36, 50, "deleted", kind="retracted")
    sales = drawn.lane("sales")
    sales.event(8, "19 %").event(20, "16 %").event(31, "16 %").event(40, "waits")
    drawn.mark(36, "the table's watermark")
    return drawn
