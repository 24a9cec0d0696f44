"""The events of Nexmark: people who register, auctions that they open, and bids on these, from a seed.

Nexmark is a public benchmark of stream processing. Of fifty events one is a person, three are auctions and 46 are bids, in
this order. Half of the bids go to a hot auction, three quarters of them come from a hot bidder, and three quarters of the
auctions have a hot seller. Every value follows from the seed and the number of its event alone, so that any range of
events can be made, in any process, and is always the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import Log
from headwater.units import Duration, parse_seconds

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

#: Of each epoch of fifty events the first is a person, the next three are auctions, and the others bids.
PEOPLE, AUCTIONS, BIDS = 1, 3, 46
EPOCH = PEOPLE + AUCTIONS + BIDS
#: The first number of people and of auctions, and the first of the five categories.
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
#: Auctions that take bids at a time, people who bid and sell, and how far ahead of those that exist a number may be.
AUCTIONS_OPEN, PEOPLE_ACTIVE, LEAD = 100, 1000, 10
#: Of each hundred auctions and people, one is hot.
HOT_EVERY = 100
#: One of so many is not hot.
BIDS_ASIDE, BIDDERS_ASIDE, SELLERS_ASIDE, CHANNELS_ASIDE = 2, 4, 4, 2
#: Channels that are not hot; of ten of their addresses nine say which channel it is.
CHANNELS = 10_000
EXTRA_BYTES = {"person": 100, "auction": 300, "bid": 40}

FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

SCHEMAS: Mapping[str, Mapping[str, str]] = {
    "person": {
        "id": "int64",
        "name": "string",
        "email": "string",
        "credit_card": "string",
        "city": "string",
        "state": "string",
        "at": "timestamp",
        "extra": "string",
    },
    "auction": {
        "id": "int64",
        "item": "string",
        "description": "string",
        "initial_bid": "int64",
        "reserve": "int64",
        "at": "timestamp",
        "expires": "timestamp",
        "seller": "int64",
        "category": "int64",
        "extra": "string",
    },
    "bid": {
        "auction": "int64",
        "bidder": "int64",
        "price": "int64",
        "channel": "string",
        "url": "string",
        "at": "timestamp",
        "extra": "string",
    },
}
"""The columns of the three topics. `at` is the event time."""


class NexmarkEvents(NamedTuple):
    """People, auctions and bids, each in the order of time."""

    person: pa.Table
    auction: pa.Table
    bid: pa.Table


@dataclass(frozen=True, kw_only=True)
class Nexmark:
    """The events of Nexmark from a seed: `between` happens from each event to the next, in event time.

    >>> events = Nexmark(seed=7).events(first=0, count=1_000)
    >>> [table.num_rows for table in events]
    [20, 60, 920]
    """

    seed: int = 0
    start: datetime = field(default=datetime(2015, 7, 15, tzinfo=UTC))
    between: Duration = "10 ms"

    def events(self, *, first: int, count: int) -> NexmarkEvents:
        """The events with these numbers. A million take about a second and half a gigabyte: make more of them in parts."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        place = numbers % EPOCH
        return NexmarkEvents(
            person=self._people(numbers[place < PEOPLE]),
            auction=self._auctions(numbers[(place >= PEOPLE) & (place < PEOPLE + AUCTIONS)]),
            bid=self._bids(numbers[place >= PEOPLE + AUCTIONS]),
        )

    def create(self, log: Log, *, partitions: int = 1) -> None:
        """Create the topics `person`, `auction` and `bid`, where they do not exist."""
        for name, schema in SCHEMAS.items():
            log.create(name, dict(schema), partitions=partitions, time="at", exist_ok=True)

    def append(self, log: Log, *, first: int = 0, count: int, rows_max: int = 500_000) -> None:
        """Append the events with these numbers to their topics, so many at a time."""
        for begin in range(first, first + count, rows_max):
            events = self.events(first=begin, count=min(rows_max, first + count - begin))
            for name, rows in zip(events._fields, events, strict=True):
                if rows.num_rows:
                    log.append(name, rows)

    # -- the three kinds of events ------------------------------------------------------------------------------------

    def _people(self, numbers: Int64s) -> pa.Table:
        chance = Chance(self.seed, numbers)
        first, last = chance.below(len(FIRST_NAMES)), chance.below(len(LAST_NAMES))
        names = _texts(tuple(f"{one} {other}" for one in FIRST_NAMES for other in LAST_NAMES))
        mails = _texts(tuple(f"{one}.{other}@nexmark.example".lower() for one in FIRST_NAMES for other in LAST_NAMES))
        full = pa.array(first * len(LAST_NAMES) + last)
        card = pa.array(chance.below(10**8) * 10**8 + chance.below(10**8)).cast(pa.string())
        return self._table(
            "person",
            id=FIRST_ID + last_person(numbers),
            name=names.take(full),
            email=mails.take(full),
            credit_card=pc.utf8_lpad(card, width=16, padding="0"),
            city=_texts(CITIES).take(pa.array(chance.below(len(CITIES)))),
            state=_texts(STATES).take(pa.array(chance.below(len(STATES)))),
            at=self._times(numbers),
            extra=_extra("person").take(pa.array(chance.below(len(_extra("person"))))),
        )

    def _auctions(self, numbers: Int64s) -> pa.Table:
        chance = Chance(self.seed, numbers)
        number = last_auction(numbers)
        initial = chance.price()
        # So many events pass while the auctions that are open at a time are opened, and an auction is open for up to two
        # times that: on average as many are open as should be.
        open_us = AUCTIONS_OPEN * EPOCH / AUCTIONS * self._between_us
        at = self._times(numbers)
        return self._table(
            "auction",
            id=FIRST_ID + number,
            item=pc.binary_join_element_wise("item", pa.array(number % 1_000).cast(pa.string()), "-"),
            description=_extra("auction").take(pa.array(chance.below(len(_extra("auction"))))),
            initial_bid=initial,
            reserve=initial + chance.price(),
            at=at,
            expires=at + 1 + (chance.share() * 2 * open_us).astype(np.int64),
            seller=self._person(numbers, chance, aside=SELLERS_ASIDE, hot=0),
            category=FIRST_CATEGORY + chance.below(CATEGORIES),
            extra=_extra("auction").take(pa.array(chance.below(len(_extra("auction"))))),
        )

    def _bids(self, numbers: Int64s) -> pa.Table:
        chance = Chance(self.seed, numbers)
        last = last_auction(numbers)
        oldest = np.maximum(last - AUCTIONS_OPEN, 0)
        cold = oldest + chance.below(last - oldest + 1 + LEAD)
        is_hot = chance.below(BIDS_ASIDE) > 0
        channels, urls = _channels()
        channel = np.where(
            chance.below(CHANNELS_ASIDE) > 0,
            chance.below(len(HOT_CHANNELS)),
            len(HOT_CHANNELS) + chance.below(CHANNELS),
        )
        return self._table(
            "bid",
            auction=FIRST_ID + np.where(is_hot, last // HOT_EVERY * HOT_EVERY, cold),
            bidder=self._person(numbers, chance, aside=BIDDERS_ASIDE, hot=1),
            price=chance.price(),
            channel=channels.take(pa.array(channel)),
            url=urls.take(pa.array(channel)),
            at=self._times(numbers),
            extra=_extra("bid").take(pa.array(chance.below(len(_extra("bid"))))),
        )

    def _person(self, numbers: Int64s, chance: Chance, *, aside: int, hot: int) -> Int64s:
        """Who bids or sells: a hot one, or any of those that are active."""
        last = last_person(numbers)
        oldest = np.maximum(last - PEOPLE_ACTIVE, 0)
        cold = oldest + chance.below(last - oldest + 1 + LEAD)
        chosen: Int64s = np.where(chance.below(aside) > 0, last // HOT_EVERY * HOT_EVERY + hot, cold)
        return FIRST_ID + chosen

    def _times(self, numbers: Int64s) -> Int64s:
        return round(self.start.timestamp() * 1e6) + (numbers * self._between_us).astype(np.int64)

    @property
    def _between_us(self) -> float:
        return parse_seconds(self.between, name="between") * 1e6

    def _table(self, topic: str, /, **columns: pa.Array | Int64s) -> pa.Table:
        kinds = {"int64": pa.int64(), "string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}
        made = {
            column: pa.array(values, pa.int64()).cast(kinds[SCHEMAS[topic][column]])
            if isinstance(values, np.ndarray)
            else values
            for column, values in columns.items()
        }
        return pa.table(made).select(list(SCHEMAS[topic]))


def last_person(numbers: Int64s) -> Int64s:
    """The number, from 0, of the last person up to each event.

    >>> last_person(np.array([0, 49, 50])).tolist()
    [0, 0, 1]
    """
    return numbers // EPOCH


def last_auction(numbers: Int64s) -> Int64s:
    """The number, from 0, of the last auction up to each event; 0 also before there is one.

    >>> last_auction(np.array([0, 1, 2, 3, 4, 49, 50, 51])).tolist()
    [0, 0, 1, 2, 2, 2, 2, 3]
    """
    epoch, place = np.divmod(numbers, EPOCH)
    found: Int64s = np.maximum(epoch * AUCTIONS + np.clip(place - PEOPLE, -1, AUCTIONS - 1), 0)
    return found


class Chance:
    """Random numbers for events: each call gives one for each event, which follows from the seed, the event, and how many
    calls came before."""

    def __init__(self, seed: int, numbers: Int64s) -> None:
        self._state = mixed(numbers.astype(np.uint64) + mixed(np.array([seed], np.uint64)))

    def _next(self) -> UInt64s:
        self._state = mixed(self._state)
        return self._state

    def below(self, bound: int | Int64s) -> Int64s:
        """Whole numbers from 0 to less than a bound, all alike."""
        high = self._next() >> np.uint64(32)
        return ((high * np.asarray(bound).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)

    def share(self) -> npt.NDArray[np.float64]:
        """Numbers from 0 to less than 1."""
        return (self._next() >> np.uint64(11)).astype(np.float64) / 2**53

    def price(self) -> Int64s:
        """Prices in cents from 1 to 1,000,000 dollars, with as many from 10 to 100 as from 100 to 1,000."""
        return np.rint(10 ** (self.share() * 6) * 100).astype(np.int64)


def mixed(numbers: UInt64s) -> UInt64s:
    """Numbers of which each bit depends on all bits of the number before (SplitMix64)."""
    found = numbers + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


@cache
def _texts(values: tuple[str, ...]) -> pa.Array:
    return pa.array(values, pa.string())


@cache
def _extra(name: str) -> pa.Array:
    """Text that makes events as large as those of the benchmark; there are a thousand of them."""
    chance = Chance(0, np.arange(1_000 * EXTRA_BYTES[name]))
    letters = (ord("a") + chance.below(26)).astype(np.uint8).tobytes().decode()
    return pa.array([letters[begin : begin + EXTRA_BYTES[name]] for begin in range(0, len(letters), EXTRA_BYTES[name])])


@cache
def _channels() -> tuple[pa.Array, pa.Array]:
    """The names of the channels, the hot ones first, and the address of each."""
    chance = Chance(1, np.arange(len(HOT_CHANNELS) + CHANNELS))
    folders = zip(*(chance.below(1_000).tolist() for _ in range(3)), strict=True)
    says = (chance.below(10) > 0).tolist()
    names = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]
    urls = []
    for place, (one, two, three) in enumerate(folders):
        number = place - len(HOT_CHANNELS)
        channel = f"&channel_id={number}" if number >= 0 and says[place] else ""
        urls.append(f"https://www.nexmark.com/{one:03}/{two:03}/{three:03}/item.htm?query=1{channel}")
    return pa.array(names), pa.array(urls)
