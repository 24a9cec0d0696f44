"""Cards that pay, limits that change, and thieves who try a card out before they use it."""

from __future__ import annotations

from datetime import datetime, timedelta

from headwater.demo.world.happening import Happening, Row, Rows
from headwater.demo.world.names import PEOPLE, SHOPS

CARDS = 120
LIMITS = (50.0, 100.0, 200.0, 400.0)
#: A bank tells a new limit before it holds, so that every payment finds the limit of its own time.
ANNOUNCED_SECONDS = 20.0


class Paying:
    per_second = 30.0

    def __init__(self, happening: Happening) -> None:
        self._happening = happening

    def begin(self, now: datetime) -> Rows:
        yesterday = now - timedelta(days=1)
        return {"cards": [self._card(card, since=yesterday) for card in range(1, CARDS + 1)]}

    def happens(self, at: datetime) -> None:
        world = self._happening
        card = world.chance.randrange(1, CARDS + 1)
        if world.is_so(0.012):
            self._try_out(card, at)
            return
        amount = round(min(6 + world.chance.expovariate(1 / 60), 480.0), 2)
        world.comes("payments", self._payment(card, amount, at), at=at)
        if world.is_so(0.02):
            row = self._card(world.chance.randrange(1, CARDS + 1), since=at + timedelta(seconds=ANNOUNCED_SECONDS))
            world.comes("cards", row, at=at)

    def _try_out(self, card: int, at: datetime) -> None:
        """Two to four small payments, and mostly a large one: some thieves lose their nerve."""
        world = self._happening
        amounts = [round(world.seconds(1, 4), 2) for _ in range(world.chance.randrange(2, 5))]
        if world.is_so(0.8):
            amounts.append(round(world.seconds(510, 900), 2))
        for number, amount in enumerate(amounts):
            moment = at + timedelta(seconds=0.2 * number)
            world.comes("payments", self._payment(card, amount, moment), at=moment)

    def _payment(self, card: int, amount: float, at: datetime) -> Row:
        world = self._happening
        return {"payment": world.number(), "card": card, "shop": world.one_of(SHOPS), "amount": amount, "at": at}

    def _card(self, card: int, *, since: datetime) -> Row:
        holder = f"{PEOPLE[card % len(PEOPLE)]} {chr(65 + card % 7)}."
        limit = self._happening.one_of(LIMITS)
        return {"card": card, "holder": holder, "spending_limit": limit, "since": since}
