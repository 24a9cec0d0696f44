"""A small world that never stands still: people read, search, pay and write; machines get warm; newspapers appear.

All chance comes from one seed, and time is given: the same calls make the same rows.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

PEOPLE = (
    "Ada", "Ben", "Chloe", "Dilan", "Emma", "Farid", "Greta", "Hugo", "Ines", "Jonas",
    "Kaya", "Leo", "Mira", "Nils", "Olga", "Pablo", "Quinn", "Rosa", "Sami", "Tara",
)  # fmt: skip
CITIES = ("Amsterdam", "Berlin", "Copenhagen", "Lisbon", "Lyon", "Milan", "Porto", "Vienna")
PAGES = (
    "/", "/shoes", "/coats", "/lamps", "/chairs", "/tables", "/mugs", "/pens", "/scarves", "/bags",
    "/bikes", "/tents", "/books", "/games", "/plants", "/sale", "/cart", "/checkout", "/help", "/jobs",
)  # fmt: skip
SHOPS = ("Corner Bakery", "City Books", "Harbour Hotel", "Green Grocer", "Night Bar", "Phone House", "Rail Tickets")
#: What people search for, the address that is shown first, and how many of them click on it.
RESULTS = (
    ("running shoes", "example.com/shoes", 0.32),
    ("winter coat", "example.com/coats", 0.21),
    ("desk lamp", "example.com/lamps", 0.16),
    ("oak table", "example.com/tables", 0.12),
    ("camping tent", "example.com/tents", 0.27),
    ("city bike", "example.com/bikes", 0.24),
    ("coffee mug", "example.com/mugs", 0.09),
    ("board game", "example.com/games", 0.18),
)


# Any: values of rows.
Row = dict[str, Any]
Rows = dict[str, list[Row]]


@dataclass(kw_only=True)
class Timeline:
    """One source of chance and numbers for all parts of the world, and the rows that have not reached the log yet."""

    chance: random.Random
    _count: int = 0
    _waiting: list[tuple[datetime, int, str, Row]] = field(default_factory=list)

    def number(self) -> int:
        self._count += 1
        return self._count

    def comes(self, topic: str, row: Row, *, at: datetime, after: float = 0.0) -> None:
        """Let a row reach the log at a moment, or so many seconds after it."""
        heapq.heappush(self._waiting, (at + timedelta(seconds=after), self.number(), topic, row))

    def until(self, end: datetime) -> Iterator[tuple[str, Row]]:
        """What reaches the log before a moment, in that order."""
        while self._waiting and self._waiting[0][0] < end:
            _, _, topic, row = heapq.heappop(self._waiting)
            yield topic, row

    def is_so(self, share: float) -> bool:
        return self.chance.random() < share

    def seconds(self, least: float, most: float) -> float:
        return self.chance.uniform(least, most)

    # Any: one of whatever is given.
    def one_of(self, several: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        return self.chance.choice(several) if weights is None else self.chance.choices(several, weights)[0]


class Part(Protocol):
    """A part of the world: so often per second something happens in it."""

    per_second: float

    def begin(self, now: datetime, /) -> Rows:
        """What was there before anything happened."""
        ...

    def happens(self, at: datetime) -> None: ...


VISITORS = 400
#: So many visitors are on the site at a time; each second one of them leaves, and another comes.
PRESENT = 40
#: Out of order, which every query waits for; and hours late, which none does.
LATE_SECONDS = (4.0, 20.0)
TOO_LATE = timedelta(hours=3)


class Visitors:
    per_second = 40.0

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._weights = [1.0 / (place + 2) for place in range(len(PAGES))]

    def begin(self, _: datetime) -> Rows:
        return {}

    def happens(self, at: datetime) -> None:
        timeline = self._timeline
        number = (int(at.timestamp()) + timeline.chance.randrange(PRESENT)) % VISITORS
        row: Row = {
            "visitor": f"{PEOPLE[number % len(PEOPLE)].lower()}{number}",
            "city": CITIES[number % len(CITIES)],
            "page": timeline.one_of(PAGES, self._weights),
            "at": at,
        }
        if timeline.is_so(0.005):  # a browser that blocks the tracker: the row belongs to no session
            row["visitor"] = None
        late = 0.0
        if timeline.is_so(0.02):
            late = timeline.seconds(*LATE_SECONDS)
        elif timeline.is_so(0.008):  # a phone that was switched off in a pocket
            row["at"] = at - TOO_LATE
        timeline.comes("page_views", row, at=at, after=late)


CLICK_SECONDS_MEAN = 8.0
CLICK_SECONDS_MAX = 60.0
OFFLINE_SECONDS = (5.0, 20.0)


class Searches:
    per_second = 25.0

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def begin(self, _: datetime) -> Rows:
        return {}

    def happens(self, at: datetime) -> None:
        timeline = self._timeline
        words, url, share = timeline.one_of(RESULTS)
        search = timeline.number()
        visitor = f"{timeline.one_of(PEOPLE).lower()}{timeline.chance.randrange(400)}"
        row = {"search": search, "visitor": visitor, "words": words, "url": url, "at": at}
        timeline.comes("searches", row, at=at)
        if timeline.is_so(share):
            seconds = min(timeline.chance.expovariate(1 / CLICK_SECONDS_MEAN), CLICK_SECONDS_MAX)
            clicked_at = at + timedelta(seconds=round(seconds, 6))
            offline = timeline.seconds(*OFFLINE_SECONDS) if timeline.is_so(0.05) else 0.0
            timeline.comes("clicks", {"search": search, "at": clicked_at}, at=clicked_at, after=offline)


CARDS = 120
LIMITS = (50.0, 100.0, 200.0, 400.0)
#: A bank tells a new limit before it holds, so that every payment finds the limit of its own time.
ANNOUNCED_SECONDS = 20.0


class Payments:
    per_second = 30.0

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def begin(self, now: datetime) -> Rows:
        yesterday = now - timedelta(days=1)
        return {"cards": [self._card(card, since=yesterday) for card in range(1, CARDS + 1)]}

    def happens(self, at: datetime) -> None:
        timeline = self._timeline
        card = timeline.chance.randrange(1, CARDS + 1)
        if timeline.is_so(0.012):
            self._try_out(card, at)
            return
        amount = round(min(6 + timeline.chance.expovariate(1 / 60), 480.0), 2)
        timeline.comes("payments", self._payment(card, amount, at), at=at)
        if timeline.is_so(0.02):
            row = self._card(timeline.chance.randrange(1, CARDS + 1), since=at + timedelta(seconds=ANNOUNCED_SECONDS))
            timeline.comes("cards", row, at=at)

    def _try_out(self, card: int, at: datetime) -> None:
        """Two to four small payments, and mostly a large one: some thieves lose their nerve."""
        timeline = self._timeline
        amounts = [round(timeline.seconds(1, 4), 2) for _ in range(timeline.chance.randrange(2, 5))]
        if timeline.is_so(0.8):
            amounts.append(round(timeline.seconds(510, 900), 2))
        for number, amount in enumerate(amounts):
            moment = at + timedelta(seconds=0.2 * number)
            timeline.comes("payments", self._payment(card, amount, moment), at=moment)

    def _payment(self, card: int, amount: float, at: datetime) -> Row:
        timeline = self._timeline
        return {"payment": timeline.number(), "card": card, "shop": timeline.one_of(SHOPS), "amount": amount, "at": at}

    def _card(self, card: int, *, since: datetime) -> Row:
        holder = f"{PEOPLE[card % len(PEOPLE)]} {chr(65 + card % 7)}."
        limit = self._timeline.one_of(LIMITS)
        return {"card": card, "holder": holder, "spending_limit": limit, "since": since}


#: What each machine usually measures.
MACHINES = {
    "compressor": 61.0,
    "conveyor": 34.0,
    "lathe": 47.0,
    "mixer": 38.0,
    "oven": 182.0,
    "press": 55.0,
    "robot arm": 41.0,
    "welder": 74.0,
}
#: Not a machine: its readings say that the day is over, and let everything before them leave.
END_OF_DAY = "end of day"
HISTORY = timedelta(minutes=66)
HISTORY_STEP = timedelta(seconds=15)


class Machines:
    per_second = 20.0

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def begin(self, now: datetime) -> Rows:
        rows = []
        moment = now - HISTORY
        while moment < now - HISTORY_STEP:
            for place, machine in enumerate(MACHINES):
                rows.append(self._reading(machine, moment + timedelta(milliseconds=7 * place)))
            moment += HISTORY_STEP
        return {"readings": rows}

    def happens(self, at: datetime) -> None:
        timeline = self._timeline
        machine = timeline.one_of(list(MACHINES))
        # A slow network: rows come a little out of order.
        timeline.comes("readings", self._reading(machine, at), at=at, after=timeline.seconds(0, 0.4))

    def _reading(self, machine: str, at: datetime) -> Row:
        timeline = self._timeline
        swing = math.sin(at.timestamp() / 600 * math.tau)
        celsius = MACHINES[machine] + 2.0 * swing + timeline.chance.gauss(0, 0.7)
        if timeline.is_so(0.004):  # a bearing runs dry
            celsius += timeline.seconds(15, 30)
        return {"machine": machine, "celsius": round(celsius, 2), "at": at}


SUBJECTS = (
    (
        "Storm closes the harbour",
        "A storm has closed the harbour since Monday.",
        "Ships wait outside until it is over.",
    ),
    ("Bread gets dearer", "Prices of bread have risen by a tenth.", "Bakers blame the price of energy."),
    ("Milk gets cheaper", "Prices of milk fall for the third month.", "Farmers are not amused."),
    ("Rocket launch delayed", "The rocket launch was put off again.", "A valve did not close in time."),
    ("Football final sold out", "The sport sees its largest football final.", "Tickets were gone within minutes."),
    ("Chess is back", "The oldest sport of the mind fills halls.", "A girl of twelve won the open tournament."),
    ("New tram line", "The council has opened a new tram line.", "It runs every five minutes."),
    ("Storm spares the vineyards", "The storm has passed without damage.", "Growers expect a good year."),
    ("Museum finds a painting", "A painting lay in the cellar for a century.", "Its painter is unknown."),
    ("Sport for everybody", "The city pays for sport in its parks.", "Courses are free and begin in May."),
)
#: By the id of a search: who has stored it, and what is asked for.
SEARCHES = {
    "harbour in a storm": ("Ines", "storm AND harbour"),
    "cost of breakfast": ("Hugo", "prices AND (bread OR milk)"),
    "sport, but no football": ("Mira", "+sport -football"),
    "to the stars": ("Leo", '"rocket launch"'),
    "news from Lisbon": ("Rosa", "title:lisbon"),
}
BROKEN = {"left open": ("Nils", '"tram line')}


class News:
    per_second = 1.5

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def begin(self, _: datetime) -> Rows:
        rows: list[Row] = [
            {"id": name, "query": query, "metadata": {"reader": reader}}
            for name, (reader, query) in (SEARCHES | BROKEN).items()
        ]
        return {"stored_searches": rows}

    def happens(self, at: datetime) -> None:
        timeline = self._timeline
        title, first, second = timeline.one_of(SUBJECTS)
        row = {
            "article": timeline.number(),
            "title": f"{timeline.one_of(CITIES)}: {title}",
            "body": f"{first} {second}",
            "published": at,
        }
        timeline.comes("articles", row, at=at)


FOLLOWED = 4
TEXTS = (
    "Good morning from {city}!",
    "Anybody in {city} tonight?",
    "The coffee in {city} is better than I thought.",
    "Missed my train to {city}. Again.",
    "{city} in the rain is still {city}.",
)


class Friends:
    per_second = 2.0

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._follows: list[tuple[str, str]] = []
        self._tweets: list[int] = []

    def begin(self, _: datetime) -> Rows:
        for reader in PEOPLE:
            others = [name for name in PEOPLE if name != reader]
            self._follows += [(reader, author) for author in self._timeline.chance.sample(others, FOLLOWED)]
        return {"follows": [{"reader": reader, "author": author} for reader, author in self._follows]}

    def happens(self, at: datetime) -> None:
        timeline = self._timeline
        tweet, author = timeline.number(), timeline.one_of(PEOPLE)
        text = timeline.one_of(TEXTS).format(city=timeline.one_of(CITIES))
        timeline.comes("tweets", {"tweet": tweet, "author": author, "text": text, "at": at}, at=at)
        self._tweets.append(tweet)
        if timeline.is_so(0.15):
            self._change_mind(at)
        if timeline.is_so(0.05):
            regretted = self._tweets.pop(timeline.chance.randrange(len(self._tweets)))
            timeline.comes("tweets", {"tweet": regretted, "_tombstone": True}, at=at)

    def _change_mind(self, at: datetime) -> None:
        """A reader unfollows one person, and follows another."""
        timeline = self._timeline
        reader, author = self._follows.pop(timeline.chance.randrange(len(self._follows)))
        timeline.comes("follows", {"reader": reader, "author": author, "_tombstone": True}, at=at)
        known = {one for each, one in self._follows if each == reader}
        chosen = timeline.one_of([name for name in PEOPLE if name != reader and name not in known])
        self._follows.append((reader, chosen))
        timeline.comes("follows", {"reader": reader, "author": chosen}, at=at)


class World:
    """Makes the rows of each moment, by topic, in the order in which they reach the log."""

    def __init__(self, *, seed: int = 7) -> None:
        self._timeline = Timeline(chance=random.Random(seed))
        kinds: tuple[Callable[[Timeline], Part], ...] = (Visitors, Searches, Payments, Machines, News, Friends)
        self._parts = [kind(self._timeline) for kind in kinds]
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
        for topic, row in self._timeline.until(end):
            made.setdefault(topic, []).append(row)
        return made

    @staticmethod
    def closing(now: datetime) -> Rows:
        """Rows that say that the day is over, for the topics whose queries wait for time to pass."""
        at = now + timedelta(hours=2)
        reading: Row = {"machine": END_OF_DAY, "celsius": 20.0, "at": at}
        payment: Row = {"payment": 0, "card": 0, "shop": END_OF_DAY, "amount": 10.0, "at": at}
        return {"readings": [reading], "payments": [payment]}
