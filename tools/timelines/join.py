"""Two streams joined without a time bound."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        "Join(parcels, rows_max_per_key=2)",
        until=50,
        about="An order is joined with the parcels in the state: the last two that arrived. Parcel 1 left the state when parcel 3 "
        "arrived.",
    )
    drawn.lane("orders").event(5, "A").event(40, "B")
    drawn.lane("parcels").event(10, "1").event(20, "2").event(30, "3")
    drawn.lane("state").span(10, 30, "1").span(20, 50, "2", kind="open").span(30, 50, "3", kind="open")
    for parcel in (10, 20, 30):
        drawn.link(0, 5, 1, parcel)
    for parcel in (20, 30):
        drawn.link(0, 40, 1, parcel)
    return drawn
