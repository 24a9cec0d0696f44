"""All parts of the world together, moved by one seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

from headwater.demo.world.friends import Friends
from headwater.demo.world.happening import Happening, Part, Row, Rows
from headwater.demo.world.machines import END_OF_DAY, Machines
from headwater.demo.world.news import News
from headwater.demo.world.paying import Paying
from headwater.demo.world.searching import Searching
from headwater.demo.world.visitors import Visitors


class World:
    """Makes the rows of each moment, by topic, in the order in which they reach the log."""

    def __init__(self, *, seed: int = 7) -> None:
        self._happening = Happening(chance=random.Random(seed))
        kinds: tuple[Callable[[Happening], Part], ...] = (Visitors, Searching, Paying, Machines, News, Friends)
        self._parts = [kind(self._happening) for kind in kinds]
        self._due = [0.0] * len(self._parts)

    def begin(self, now: datetime) -> Rows:
        """What was there before: cards, stored searches, who follows whom, and the last hour of the machines."""
        made: Rows = {}
        for part in self._parts:
            made |= part.begin(now)
        return made

    def between(self, start: datetime, end: datetime) -> Rows:
        """What happens from one moment to the next."""
        for number, part in enumerate(self._parts):
            self._due[number] += part.per_second * (end - start).total_seconds()
            count = int(self._due[number])
            self._due[number] -= count
            for step in range(count):
                part.happens(start + (end - start) * (step / count))
        made: Rows = {}
        for topic, row in self._happening.until(end):
            made.setdefault(topic, []).append(row)
        return made

    @staticmethod
    def closing(now: datetime) -> Rows:
        """Rows that say that the day is over, for the topics whose queries wait for time to pass."""
        at = now + timedelta(hours=2)
        reading: Row = {"machine": END_OF_DAY, "celsius": 20.0, "at": at}
        payment: Row = {"payment": 0, "card": 0, "shop": END_OF_DAY, "amount": 10.0, "at": at}
        return {"readings": [reading], "payments": [payment]}
