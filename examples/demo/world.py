"""A small world that never stands still: people pay, look at ads and click, and sensors measure.

All chance comes from one seed, and time is given: the same calls make the same rows. Nothing here is random in a way
that would make an output depend on how rows fall into batches, so that every output can be recomputed exactly:
a row that is late is less than a minute late, which every query waits for, or an hour, which none does.
"""

from __future__ import annotations

import heapq
import math
import random
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog

# Any: values of rows.
Row = dict[str, Any]
Rows = dict[str, list[Row]]

TICK_SECONDS = 0.25
PER_SECOND = {"payments": 120, "impressions": 150, "readings": 100}
COUNTRIES = ("DE", "FR", "IT", "NL", "PL", "US")
ADS = ("boots", "chairs", "lamps", "mugs", "pens", "scarves")
#: Sensors, with what they usually measure.
SENSORS = {"attic": 24.0, "cellar": 12.0, "greenhouse": 31.0, "oven": 205.0, "server room": 27.0}
LIMITS = {"attic": 40.0, "cellar": 20.0, "greenhouse": 45.0, "oven": 220.0, "server room": 30.0}
OVEN_LIMIT_LATER = 240.0
#: Cards whose terminals are without a network now and then: their payments come late.
SLOW_CARDS = range(900, 910)
LATE_SECONDS = (20.0, 50.0)
TOO_LATE = timedelta(hours=1)


@dataclass(kw_only=True)
class World:
    """Makes the rows of each moment."""

    seed: int = 7
    stragglers: bool = False
    """Whether rows come that are an hour late, now that queries have watermarks to tell them by."""
    _count: int = 0
    _waiting: list[tuple[datetime, int, str, Row]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def between(self, start: datetime, end: datetime) -> Rows:
        """What happens from one moment to the next, by topic, in the order of time."""
        made: Rows = {"payments": [], "impressions": [], "clicks": [], "readings": []}
        for topic, per_second in PER_SECOND.items():
            count = round(per_second * (end - start).total_seconds())
            for number in range(count):
                at = start + (end - start) * (number / count)
                for row in getattr(self, f"_{topic}")(at):
                    made[topic].append(row)
        while self._waiting and self._waiting[0][0] < end:
            _, _, topic, row = heapq.heappop(self._waiting)
            made[topic].append(row)
        return made

    def _later(self, at: datetime, topic: str, row: Row) -> None:
        heapq.heappush(self._waiting, (at, self._number(), topic, row))

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _is(self, share: float) -> bool:
        return self._chance.random() < share

    def _slow(self, at: datetime) -> datetime | None:
        """The time of a row that arrives now, but is late; None for one that is not."""
        if self.stragglers and self._is(0.005):
            return at - TOO_LATE
        return at - timedelta(seconds=self._chance.uniform(*LATE_SECONDS)) if self._is(0.02) else None

    # -- payments -----------------------------------------------------------------------------------------------------

    def _payments(self, at: datetime) -> list[Row]:
        late = self._slow(at)
        if late is not None:
            return [self._payment(late, self._chance.choice(SLOW_CARDS), 6, 400)]
        card = self._chance.randrange(1, 121)
        if self._is(0.004):  # somebody tries a stolen card out: twice a little, then a lot
            moments = [at + timedelta(microseconds=step) for step in (1, 2, 3)]
            sums = [(1, 4), (1, 4), (501, 900)]
            return [self._payment(one, card, *span) for one, span in zip(moments, sums, strict=True)]
        row = self._payment(at, card, 6, 90)
        if self._is(0.04):  # a slow network: the terminal sends the same payment again
            self._later(at + timedelta(seconds=self._chance.uniform(0.1, 3)), "payments", row)
        return [row]

    def _payment(self, at: datetime, card: int, least: int, most: int) -> Row:
        amount = self._chance.randrange(least * 100, most * 100) / 100
        country = COUNTRIES[card % len(COUNTRIES)]
        return {"id": self._number(), "card": card, "country": country, "amount": amount, "at": at}

    # -- ads ----------------------------------------------------------------------------------------------------------

    def _impressions(self, at: datetime) -> list[Row]:
        row = {"id": f"i{self._number()}", "ad": self._chance.choice(ADS), "at": at}
        if self._is(0.03 + 0.02 * ADS.index(row["ad"])):
            self._click(row, at + timedelta(seconds=self._chance.uniform(0.5, 3)))
        return [row]

    def _click(self, shown: Row, at: datetime) -> None:
        click = {"impression": shown["id"], "ad": shown["ad"], "at": at}
        late = self._slow(at)
        if late is not None:
            self._later(at, "clicks", {**click, "at": late})
            return
        self._later(at, "clicks", click)
        if self._is(0.25):  # people click twice
            again = at + timedelta(seconds=0.4)
            self._later(again, "clicks", {**click, "at": again})

    # -- sensors ------------------------------------------------------------------------------------------------------

    def _readings(self, at: datetime) -> list[Row]:
        sensor = self._chance.choice(list(SENSORS))
        swing = math.sin(at.timestamp() / 12 * math.tau)
        celsius = SENSORS[sensor] + self._chance.gauss(2.0 * swing, 0.8)
        if sensor == "oven":  # it overheats every now and then
            celsius += 45.0 * max(0.0, swing)
        return [{"sensor": sensor, "celsius": round(celsius, 2), "at": self._slow(at) or at}]


class Feeder:
    """Appends what happens in the world to the log, in a thread of its own."""

    def __init__(self, log: EmbeddedLog, world: World) -> None:
        self._log = log
        self._world = world
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="demo-feeder", daemon=True)
        self.failure: Exception | None = None
        self.appended = 0

    def start(self) -> None:
        self._log.append("limits", [{"sensor": name, "celsius_max": most} for name, most in LIMITS.items()])
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def send_stragglers(self) -> None:
        self._world.stragglers = True

    def raise_limit(self) -> None:
        self._log.append("limits", [{"sensor": "oven", "celsius_max": OVEN_LIMIT_LATER}])

    def _feed(self) -> None:
        try:
            before = datetime.now(UTC)
            while not self._stop.wait(TICK_SECONDS):
                now = datetime.now(UTC)
                for topic, rows in self._world.between(before, now).items():
                    if rows:
                        self._log.append(topic, rows)
                        self.appended += len(rows)
                before = now
        except Exception as error:  # told by the thread that watches
            self.failure = error
