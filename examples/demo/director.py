"""The course of the demo: apps start while rows come already, a limit changes, a worker is killed, and all is counted."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from demo.checks import INPUTS, TOPICS, VIEWS, Outcome, compare
from demo.killing import kill_a_worker
from demo.screen import Screen
from demo.world import LIMITS, OVEN_LIMIT_LATER, Feeder, World
from headwater.cli.session import Session
from headwater.runtime.loading import load_app
from headwater.runtime.runner import Runner
from headwater.runtime.status import QueryStatus
from headwater.runtime.supervising import Supervised
from headwater.sinks import read_lake

APPS = ("fraud", "clicks", "sensors")
EXAMPLES = Path(__file__).parent.parent
LOOK_SECONDS = 0.5
#: What comes after the last row: queries read to their ends, outputs are recomputed, everything stops.
END_SECONDS = 12.0
LIVE_SECONDS_MIN = 8.0
START_SECONDS_MAX = 300.0
CATCH_UP_SECONDS_MAX = 300.0
KILLS_MAX = 10
#: How long it may take until a query misses the worker that was killed.
NOTICE_SECONDS_MAX = 3.0
STARTING_MAX = 2


class EndedEarly(Exception):
    """Somebody wants to leave before there is anything to check."""


class Director:
    """Leads through one run, in the current folder."""

    def __init__(self, session: Session, *, log: Path, seconds: float) -> None:
        self._seconds = seconds
        self._runners = [Runner(load_app(str(EXAMPLES / f"{name}.py")), log=str(log)) for name in APPS]
        names = {query.name: runner.app.name for runner in self._runners for query in runner.queries}
        self._screen = Screen(session, names)
        self._failure: list[BaseException] = []
        self._leaving = threading.Event()
        self._told_leaving = False
        self._kills: list[int] = []
        self._settled: dict[int, int] = {}

    def leave(self) -> None:
        """Come to the end now; may be called from a signal handler."""
        self._leaving.set()

    @property
    def is_leaving(self) -> bool:
        return self._leaving.is_set()

    @property
    def restarts(self) -> int:
        return sum(status.restarts for status in self._statuses())

    def run(self) -> list[Outcome]:
        with contextlib.ExitStack() as stack:
            for runner in self._runners:
                stack.enter_context(runner.ready())
            self._feeder = Feeder(self._runners[0].log, World())
            stack.callback(self._feeder.stop)
            stack.enter_context(self._screen.shown())
            self._feeder.start()
            self._screen.happened("payments, ads and sensors are appended to the log; Spark starts meanwhile")
            self._start_spark()
            with self._supervised():
                self._live()
                self._catch_up()
                self._screen.happened("recomputing every output from the input topics, with DuckDB")
                outcomes = compare(self._tables(), settled=self._settled)
                self._look()
                self._screen.happened("done; queries stop between two batches")
        self.appended = self._feeder.appended
        if self._runners[0].spark is not None:
            self._runners[0].spark.stop()
        return outcomes

    # -- acts ---------------------------------------------------------------------------------------------------------

    def _start_spark(self) -> None:
        """One session for all three apps."""

        def start() -> None:
            for runner in self._runners:  # the second finds the session of the first
                runner.start_spark()

        with self._in_background(start) as thread:
            while thread.is_alive():
                self._pass_time()
                if self.is_leaving:
                    raise EndedEarly
        self._look()
        self._screen.happened("Spark is up; three apps with ten queries start on it, from the first row on")

    def _live(self) -> None:
        """Let the world go on, and disturb it."""
        places = [checkpoint_of(runner, query.name) for runner in self._runners for query in runner.queries]
        self._wait(lambda: all(batches(place) >= 2 for place in places), "second batches", START_SECONDS_MAX)
        begin = self._screen.seconds
        end = max(self._seconds - END_SECONDS, begin + LIVE_SECONDS_MIN)
        self._screen.happened(
            "all queries are at work; some rows come an hour late from now on, too late for every query"
        )
        self._feeder.send_stragglers()
        steps: list[tuple[float, Callable[[], None]]] = [
            (0.3, self._raise_limit),
            (0.5, self._kill),
            (1.0, lambda: None),
        ]
        for part, act in steps:
            while self._screen.seconds < begin + part * (end - begin) and not self.is_leaving:
                self._pass_time()
            if not self.is_leaving:
                act()

    def _raise_limit(self) -> None:
        sensors = self._runners[APPS.index("sensors")]
        self._settled = committed(checkpoint_of(sensors, "alarms")).get("readings", {})
        self._feeder.raise_limit()
        change = f"{LIMITS['oven']:.0f} °C to {OVEN_LIMIT_LATER:.0f} °C"
        self._screen.happened(f"somebody raises the limit of the oven from {change}: fewer alarms from now on")

    def _kill(self) -> None:
        """Kill workers until it hurts: one that has just done its work is not missed by anybody."""
        self._screen.happened("a worker process of Spark is killed now: watch its query recover")
        before, began = self.restarts, self._screen.seconds
        while self.restarts == before and len(self._kills) < KILLS_MAX and not self.is_leaving:
            pid = kill_a_worker()
            self._kills += [pid] if pid is not None else []
            deadline = time.monotonic() + NOTICE_SECONDS_MAX
            while self.restarts == before and time.monotonic() < deadline:
                self._pass_time()
        hurt = [one.name for one in self._statuses() if one.restarts]
        self._screen.happened(f"kill -9 {' '.join(map(str, self._kills))}: {', '.join(hurt) or 'no query'} had to stop")
        self._wait(self._all_run, "recovery", CATCH_UP_SECONDS_MAX)
        self._screen.happened(
            f"recovered: all ten queries run again, {self._screen.seconds - began:.1f} s after the kill"
        )

    def _all_run(self) -> bool:
        return all(one.state in ("running", "caught up") for one in self._statuses())

    def _catch_up(self) -> None:
        self._feeder.stop()
        self._screen.happened("no more rows come; every query reads to the end of its topics")
        self._wait(lambda: all(map(has_caught_up, self._runners)), "the end of all topics", CATCH_UP_SECONDS_MAX)
        for runner in self._runners:
            runner.keeper.catch_up()

    def _tables(self) -> dict[str, pa.Table]:
        log = self._runners[0].log
        tables = {name: log.read(name).table() for name in (*INPUTS, *TOPICS)}
        tables |= {
            name: view.table() for one in self._runners for name, view in one.keeper.views.items() if name in VIEWS
        }
        return tables | {"lake": read_lake("lake/readings").table()}

    # -- while time passes --------------------------------------------------------------------------------------------

    def _wait(self, holds: Callable[[], bool], what: str, seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the demo has waited {seconds_max:.0f} s for {what}")
            self._pass_time()

    def _pass_time(self) -> None:
        time.sleep(LOOK_SECONDS)
        self._look()

    def _look(self) -> None:
        failures = [*self._failure, *([self._feeder.failure] if self._feeder.failure is not None else [])]
        if failures:
            raise failures[0]
        if self.is_leaving and not self._told_leaving:
            self._told_leaving = True
            self._screen.happened("ending early, with the check; Ctrl-C again leaves at once")
        self._screen.look(self._statuses(), appended=self._feeder.appended)

    def _statuses(self) -> list[QueryStatus]:
        return [status for runner in self._runners for status in runner.statuses()]

    # -- threads ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _supervised(self) -> Iterator[None]:
        """Have each runner keep its queries at work while the block runs."""
        every = [(runner, one) for runner in self._runners for one in runner.supervised.values()]
        for _, one in every:
            one.wanted = False
        with contextlib.ExitStack() as stack:
            for runner in self._runners:
                stack.enter_context(self._in_background(runner.supervise))
            try:
                self._start_queries(every)
                yield
            finally:
                for runner in self._runners:
                    runner.request_stop()

    def _start_queries(self, waiting: list[tuple[Runner, Supervised]]) -> None:
        """Start two at a time: a query brings Python processes of its own, for which Spark waits ten seconds, not more."""
        starting: list[tuple[Runner, Supervised]] = []
        deadline = time.monotonic() + START_SECONDS_MAX
        while waiting or starting:
            while waiting and len(starting) < STARTING_MAX:
                starting.append(waiting.pop(0))
                starting[-1][1].wanted = True
            self._pass_time()
            starting = [(runner, one) for runner, one in starting if batches(checkpoint_of(runner, one.query.name)) < 1]
            if self.is_leaving:
                raise EndedEarly
            if time.monotonic() > deadline:
                raise TimeoutError(f"{starting[0][1].name} has not begun within {START_SECONDS_MAX:.0f} s")

    @contextlib.contextmanager
    def _in_background(self, act: Callable[[], None]) -> Iterator[threading.Thread]:
        def run() -> None:
            try:
                act()
            except BaseException as error:  # told by the thread that looks
                self._failure.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            thread.join()


def checkpoint_of(runner: Runner, query: str) -> Path:
    return runner.home.checkpoint(query, runner.home.versions(query, topic=None).active.number)


def batches(checkpoint: Path) -> int:
    """How many batches a query has committed. Its checkpoint knows at once; Spark's reports come when it has time."""
    return max((int(path.name) + 1 for path in (checkpoint / "commits").glob("*") if path.name.isdecimal()), default=0)


def has_caught_up(runner: Runner) -> bool:
    """Whether every query of an app has committed what its topics hold. Queries stand after those that they read."""
    for query in runner.queries:
        read = committed(checkpoint_of(runner, query.name))
        if any(runner.log.end_offsets(topic) != ends for topic, ends in read.items()) or not read:
            return False
    return True


def committed(checkpoint: Path) -> dict[str, dict[int, int]]:
    """How far a query has come in each of its topics, by the last batch that it has committed."""
    count = batches(checkpoint)
    if count == 0:
        return {}
    _, _, *sources = (checkpoint / "offsets" / str(count - 1)).read_text().splitlines()
    found: dict[str, dict[int, int]] = {}
    for source in sources:
        topics = json.loads(source).get("topics", {}) if source.startswith("{") else {}
        found |= {topic: {int(number): end for number, end in ends.items()} for topic, ends in topics.items()}
    return found
