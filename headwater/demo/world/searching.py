"""People who search, and some who click on what they found: seconds later, or a while, or when they are online again."""

from __future__ import annotations

from datetime import datetime, timedelta

from headwater.demo.world.happening import Happening, Rows
from headwater.demo.world.names import PEOPLE, RESULTS

CLICK_SECONDS_MEAN = 8.0
CLICK_SECONDS_MAX = 60.0
OFFLINE_SECONDS = (5.0, 20.0)


class Searching:
    per_second = 25.0

    def __init__(self, happening: Happening) -> None:
        self._happening = happening

    def begin(self, _: datetime) -> Rows:
        return {}

    def happens(self, at: datetime) -> None:
        world = self._happening
        words, url, share = world.one_of(RESULTS)
        search = world.number()
        visitor = f"{world.one_of(PEOPLE).lower()}{world.chance.randrange(400)}"
        row = {"search": search, "visitor": visitor, "words": words, "url": url, "at": at}
        world.comes("searches", row, at=at)
        if world.is_so(share):
            seconds = min(world.chance.expovariate(1 / CLICK_SECONDS_MEAN), CLICK_SECONDS_MAX)
            clicked_at = at + timedelta(seconds=round(seconds, 6))
            offline = world.seconds(*OFFLINE_SECONDS) if world.is_so(0.05) else 0.0
            world.comes("clicks", {"search": search, "at": clicked_at}, at=clicked_at, after=offline)
