"""The series that kills a whole app: two queries, a view on a view, PostgreSQL and a lake, under load.

Between the kills at the steps of batches, of the views' store and of the sinks, once each:

- a view is rebuilt, and the app killed just before it serves the new rows;
- the app is killed while a standby process waits, which takes over;
- the tariff changes, and a second version of the view is replayed from the beginning and switched to. The app is killed
  at every step of that switch, and finishes it after the restart.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headwater.faults import APP_CRASH_POINTS, DELIVERY_CRASH_POINTS, REPLAY_CRASH_POINTS, VIEW_CRASH_POINTS
from headwater.log import Log
from headwater.log import open as open_log
from headwater.views import DuckStore
from tests.chaos import single
from tests.chaos.app.app_process import AppProcess
from tests.chaos.app.check import AppVerdict, check
from tests.chaos.app.declaration import tariff_of
from tests.chaos.app.outputs import read_outputs, unread_writes
from tests.chaos.kills import Order
from tests.chaos.process import PROGRESS_SECONDS_MAX, end_producing, producing
from tests.chaos.query import ORDERS, ORDERS_SCHEMA
from tests.chaos.tally import Tally
from tests.servers import PeerUnavailable, postgres_server

#: Points that are only reached with PostgreSQL, or with several sinks of one query.
POSTGRES_POINTS = ("delivery.written", "delivery.between")
#: Points that this app never reaches: no row becomes a dead letter, and it has neither a message sink nor Parquet files.
_ELSEWHERE = ("delivery.letters", "delivery.sent", "parquet.published")
SINK_POINTS = tuple(point for point in DELIVERY_CRASH_POINTS if point not in _ELSEWHERE)
REBUILD_POINT = "view.before_switch"
KEEPER_POINTS = tuple(point for point in VIEW_CRASH_POINTS if point != REBUILD_POINT)
REGULAR = (*single.POINTS, *APP_CRASH_POINTS, *SINK_POINTS, *KEEPER_POINTS)
POINTS = (*REGULAR, REBUILD_POINT, *REPLAY_CRASH_POINTS)
#: Points in the tasks of a batch. All others are in the process that runs the app, which is then the `worker`.
TASKS = ("source", "engine", "side", "run", "manifest", "stage")
#: The kills of a short series, without a rebuild.
FEW = (
    ("run.written", "worker"),
    ("stage.finished", "worker"),
    ("app.topic_written", "driver"),
    ("delivery.between", "jvm"),
    ("replay.switching", "driver"),
)
TARIFFS = (1, 3)
VIEW = "spend"


def plan(*, kills: int, seed: int) -> list[Order]:
    """Choose the kills: all points in turn, and in the middle a rebuild, a hand-over and a replay."""
    if kills < len(POINTS):
        return _few(kills)
    chance = random.Random(seed)
    special = [(REBUILD_POINT, "driver"), *((point, "driver") for point in REPLAY_CRASH_POINTS)]
    regular = _regular(kills - len(special), chance)
    third = len(regular) // 3
    chosen = [
        *regular[:third],
        special[0],
        *regular[third : 2 * third],
        *special[1:],
        *regular[2 * third :],
    ]
    return [
        Order(point=point, victim=victim, visit=_visit(point, chance), number=number)
        for number, (point, victim) in enumerate(chosen)
    ]


def _few(kills: int) -> list[Order]:
    chosen = [FEW[number % len(FEW)] for number in range(kills)]
    return [Order(point=point, victim=victim, number=number) for number, (point, victim) in enumerate(chosen[:kills])]


def _regular(kills: int, chance: random.Random) -> list[tuple[str, str]]:
    places = list(range(len(REGULAR)))
    chosen: list[tuple[str, str]] = []
    for turn in range(-(-kills // len(REGULAR))):
        chance.shuffle(places)
        chosen += [(REGULAR[place], _victim(REGULAR[place], place + turn)) for place in places]
    return chosen[:kills]


def _victim(point: str, turn: int) -> str:
    """The victim at a point: in a task mostly its worker; at the store of the views never the JVM, which has no part."""
    if point in KEEPER_POINTS:
        turns: tuple[str, ...] = ("driver", "worker")
    else:
        turns = ("worker", "jvm", "worker", "driver", "worker") if point.startswith(TASKS) else single.TURNS
    return turns[turn % len(turns)]


def _visit(point: str, chance: random.Random) -> int:
    if point.startswith(("replay", "lake.compacted", "lake.vacuumed", "run.merged")) or point == REBUILD_POINT:
        return 1
    return chance.randrange(1, 7) if point.startswith(single.FREQUENT) else chance.randrange(1, 3)


def run(
    orders: list[Order],
    home: Path,
    tally: Tally,
    *,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
) -> AppVerdict:
    """Carry out all orders under load, let the app catch up, and check all its outputs."""
    (home / "tariff").write_text(str(TARIFFS[0]))
    with _postgres(tally) as url, open_log(home / "log") as log:
        if url is None:
            orders = [order for order in orders if order.point not in POSTGRES_POINTS]
        log.create(ORDERS, ORDERS_SCHEMA, partitions=4, key="user")
        app = AppProcess(home, log, url=url)
        session = _Series(app=app, tally=tally, orders=orders, say=say, chance=random.Random(seed))
        try:
            with producing(log, seed=seed) as producer:
                session.carry_out()
                problems = _finish(app, log, producer)
        finally:
            tally.lives = app.lives
            tally.orphans = app.bury()
            tally.seconds = time.monotonic() - session.began
        return check(
            read_outputs(home, log, url=url), tariff=tariff_of(home), problems=(*problems, *session.problems())
        )


@contextlib.contextmanager
def _postgres(tally: Tally) -> Iterator[str | None]:
    """A database for the sinks; None, with a note in the tally, if this machine has no PostgreSQL."""
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(postgres_server()).new_database()
        except PeerUnavailable as why:
            tally.events.append(f"without PostgreSQL, rows went to the lake alone: {why}")
            tally.left_out = POSTGRES_POINTS
            yield None
            return
        yield url


@dataclass
class _Series:
    """The orders, carried out one after the other."""

    app: AppProcess
    tally: Tally
    orders: list[Order]
    say: Callable[[str], None]
    chance: random.Random
    began: float = field(default_factory=time.monotonic)

    def carry_out(self) -> None:
        handed_over = _hand_over(self.orders)
        for order in self.orders:
            match order.point:
                case _ if order.number == handed_over:
                    self._hand_over(order)
                case point if point == REBUILD_POINT:
                    self._rebuild(order)
                case point if point in REPLAY_CRASH_POINTS:
                    self._replay(order)
                case _:
                    self._kill(order)
            self.tally.kills[order.point, order.victim] += 1
            self._tell(f"kill {self.tally.kills.total()}/{len(self.orders)}: {order}")

    def _kill(self, order: Order) -> None:
        # Most restarts are killed in their first batch, which is the repeated one.
        if self.app.lives and self.chance.random() < 0.25:
            self.app.start()
            self.app.wait_for_batches(1)
        self.app.strike(order)

    def _rebuild(self, order: Order) -> None:
        self.app.strike(order, provoke=lambda: self.app.ask_to_rebuild(VIEW))
        self._event(f"view {VIEW} rebuilt as version {self.app.rebuild(VIEW)}, after a kill just before")

    def _hand_over(self, order: Order) -> None:
        _, held, wrote = self.app.hand_over(order)
        self._event(f"a standby took over {held:.1f} s after the kill, and wrote its first batch after {wrote:.1f} s")
        if not any(one.point == REBUILD_POINT for one in self.orders):
            self._event(f"view {VIEW} rebuilt as version {self.app.rebuild(VIEW)}")

    def _replay(self, order: Order) -> None:
        """Kill the first steps in the requested switch, and the others in the start that finishes it."""
        if tariff_of(self.app.home) == TARIFFS[0]:
            self.app.stop()
            (self.app.home / "tariff").write_text(str(TARIFFS[1]))
        asked = not self.app.app_home.versions(VIEW, topic=VIEW).switching
        self.app.strike(order, provoke=(lambda: self.app.ask_to_switch(VIEW)) if asked else lambda: None)
        last = not any(one.point in REPLAY_CRASH_POINTS and one.number > order.number for one in self.orders)
        if last:
            self.app.start()
            self.app.wait(self._has_switched, "the end of the switch", seconds=PROGRESS_SECONDS_MAX)
            self._event(f"replay switched {VIEW} to version 2; a start finished it after the last kill")

    def _has_switched(self) -> bool:
        known = self.app.app_home.versions(VIEW, topic=VIEW)
        return known.active.number == 2 and known.trial is None and not known.switching

    def problems(self) -> list[str]:
        """Topics and tables that the app should have removed."""
        topics = [name for name in self.app.log.topics() if name.startswith(f"{VIEW}.v")]
        store = DuckStore(self.app.app_home.views, read_only=True)
        views = [one.spec.table for one in store.stored() if not one.active]
        store.close()
        return [f"left behind: {name}" for name in (*topics, *views)]

    def _event(self, what: str) -> None:
        self.tally.events.append(what)
        self._tell(what)

    def _tell(self, what: str) -> None:
        self.say(f"{time.monotonic() - self.began:5.0f} s  {what}")


def _hand_over(orders: list[Order]) -> int | None:
    """The order to carry out while a standby waits: one that kills the driver, next to the middle."""
    fit = [order.number for order in orders if order.victim == "driver" and order.point in REGULAR]
    middle = orders[len(orders) // 2].number if orders else 0
    return min(fit, key=lambda number: abs(number - middle), default=None)


def _finish(app: AppProcess, log: Log, producer: subprocess.Popen[bytes]) -> list[str]:
    """Stop the producer, query the last writes, and let the app process everything."""
    app.start()
    app.wait_for_batches(1)
    end_producing(producer)
    problems = unread_writes(app.home, log)
    app.catch_up()
    app.stop()
    return problems
