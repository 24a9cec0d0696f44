"""Visitors of a web shop: they come, look at pages for a minute, and go. Some phones are offline, some trackers broken."""

from __future__ import annotations

from datetime import datetime, timedelta

from headwater.demo.world.happening import Happening, Row, Rows
from headwater.demo.world.names import CITIES, PAGES, PEOPLE

VISITORS = 400
#: So many visitors are on the site at a time; each second one of them leaves, and another comes.
PRESENT = 40
#: Out of order, which every query waits for; and hours late, which none does.
LATE_SECONDS = (4.0, 20.0)
TOO_LATE = timedelta(hours=3)


class Visitors:
    per_second = 40.0

    def __init__(self, happening: Happening) -> None:
        self._happening = happening
        self._weights = [1.0 / (place + 2) for place in range(len(PAGES))]

    def begin(self, _: datetime) -> Rows:
        return {}

    def happens(self, at: datetime) -> None:
        world = self._happening
        number = (int(at.timestamp()) + world.chance.randrange(PRESENT)) % VISITORS
        row: Row = {
            "visitor": f"{PEOPLE[number % len(PEOPLE)].lower()}{number}",
            "city": CITIES[number % len(CITIES)],
            "page": world.one_of(PAGES, self._weights),
            "at": at,
        }
        if world.is_so(0.005):  # a browser that blocks the tracker: nobody can say whose session this is
            row["visitor"] = None
        late = 0.0
        if world.is_so(0.02):
            late = world.seconds(*LATE_SECONDS)
        elif world.is_so(0.008):  # a phone that was switched off in a pocket
            row["at"] = at - TOO_LATE
        world.comes("page_views", row, at=at, after=late)
