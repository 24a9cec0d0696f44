"""Direct the demo: the world begins at once, the company starts beside it, is perhaps killed, and is checked.

Import it after `make_company_importable()`: `company` is the package in `examples/company`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from company.alerts import Alerts
from company.database import TABLES, Database
from company.topics import INPUTS, make_topics
from company.world import World

from headwater.apps.errors import QueryFailed
from headwater.cli.demo.process import Company, Follower, Progress, database_of
from headwater.console import PATH
from headwater.log import open as open_log

if TYPE_CHECKING:
    from company.check import Outcome
    from company.world import Rows

    from headwater.cli.demo.display import Stage
    from headwater.log import Log

#: How often the company is looked at while something is waited for, and while it just works: its queries have batches every two seconds.
LOOK_SECONDS, WORK_SECONDS = 0.5, 1.0
START_SECONDS_MAX = 600.0
CATCH_UP_SECONDS_MAX = 600.0
#: Rows go on for so long after the last query has begun: what is not seen at work is not proven.
LIVE_SECONDS_MIN = 10.0
#: A batch goes by what batches before it have seen of time; so the end of the day is told more than once.
CLOSINGS = 3
TICK_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of a run. Without `seconds` it goes on until it is interrupted."""

    folder: Path
    #: The address of the log; a folder in `folder` by default.
    log: str = ""
    port: int = 0
    seconds: float | None = None
    check: bool = False
    crash: bool = False
    seed: int = 7

    @property
    def address(self) -> str:
        """The address of the log."""
        return self.log or str(self.folder / "log")


class EndedEarly(Exception):
    """The demo was interrupted before there is anything to check."""


class Director:
    """Leads through one run."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self._plan = plan
        self._stage = stage
        self._company = Company(plan.folder, log=plan.address, port=plan.port, output=plan.folder / "spark.log")
        self._leaving = threading.Event()
        self._began = time.monotonic()
        self._told: set[str] = set()
        self._progress = Progress()
        self.appended = 0

    def leave(self) -> None:
        """Stop now; may be called from a signal handler."""
        self._leaving.set()

    def abandon(self) -> None:
        """End the process of the company at once; what it had committed stays."""
        self._company.kill()

    @property
    def is_leaving(self) -> bool:
        return self._leaving.is_set()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def run(self) -> list[Outcome]:
        """Run the demo; return the outcomes of the check, if there was one."""
        self._plan.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            log: Log = stack.enter_context(open_log(self._plan.address))
            make_topics(log)
            database = stack.enter_context(contextlib.closing(Database(database_of(self._plan.folder))))
            self._company.start()
            stack.callback(self._company.stop)
            self._follower = Follower(log)
            self._feeder = Feeder(log, database, World(seed=self._plan.seed))
            stack.callback(self._feeder.stop)
            self._feeder.start()
            self._alerts = Alerts(log)
            self._stage.happened("rows come in: page views, searches, payments, temperatures, articles, tweets")
            self._stage.happened("who follows whom is a table of a database, people.db, and is captured from there")
            if self._plan.port:
                self._stage.happened(f"http://127.0.0.1:{self._plan.port} is on its way")
            self._live()
            if not self._plan.check:
                self._stage.happened("stopping after the batches at work")
                return []
            self._catch_up()
            return self._checked()

    # -- acts ---------------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        """Let the world go on for as long as was asked for; with a check, until every query was seen at work."""
        if self._plan.check:
            self._await_queries()
            self._pass(LIVE_SECONDS_MIN)
        if self._plan.crash:
            self._crash()
            self._pass(LIVE_SECONDS_MIN)
        while not self.is_leaving and (self._plan.seconds is None or self.seconds < self._plan.seconds):
            self._pass_time(WORK_SECONDS if self._all_work() else LOOK_SECONDS)

    def _crash(self) -> None:
        """Kill the company in the middle of its work, and start it again. The world does not notice."""
        appended, began = self._feeder.appended, self.seconds
        self._wait(self._is_held_in_a_batch, "a query to begin a batch", START_SECONDS_MAX)
        pid = self._company.kill()
        cut = ", ".join(self._follower.in_a_batch(self._queries))
        self._stage.happened(f"kill -9 {pid}: the company and its Spark are gone, in the middle of a batch of {cut}")
        before = {one: self._follower.batches(one) for one in self._queries}
        self._told = set()
        pid = self._company.start()
        self._stage.happened(f"started again as {pid}; rows have come all the time")
        self._wait(
            lambda: all(self._follower.batches(one) > count for one, count in before.items()),
            "every query to go on after the crash",
            START_SECONDS_MAX,
        )
        rows = self._feeder.appended - appended
        self._stage.happened(f"all queries go on, {self.seconds - began:.0f} s and {rows:,} rows after the crash")

    def _is_held_in_a_batch(self) -> bool:
        """Suspend the company; keep it suspended if some query has begun a batch and not committed it.

        It is suspended while we check: otherwise that batch could end between the check and the kill.
        """
        self._company.suspend()
        is_in_a_batch = False
        try:
            is_in_a_batch = bool(self._follower.in_a_batch(self._queries))
        finally:
            if not is_in_a_batch:
                self._company.resume()
        return is_in_a_batch

    def _catch_up(self) -> None:
        self._feeder.stop()
        self._stage.happened("no more rows; every query reads to the end of its topics, and the day is closed")
        self._wait(lambda: self._follower.has_captured("people"), "the end of the database", CATCH_UP_SECONDS_MAX)
        for _ in range(CLOSINGS):
            self._feeder.close_the_day()
            self._wait(
                lambda: self._follower.has_caught_up(self._queries), "the end of all topics", CATCH_UP_SECONDS_MAX
            )

    def _checked(self) -> list[Outcome]:
        from company.check import EXPECTED, LATE, compare

        views = [name for name, output in EXPECTED.items() if output.kind == "view"]
        self._wait(lambda: self._follower.views_are_fresh(views), "the views", CATCH_UP_SECONDS_MAX)
        self._stage.happened("recomputing every output from the input topics alone, with DuckDB")
        inputs = {name: self._follower.rows(name) for name in INPUTS}
        outputs = {name: self._follower.output(name, output.kind) for name, output in EXPECTED.items()}
        late = {name: self._follower.rows(f"{name}.late") for name in LATE}
        return compare(inputs, outputs, late=late)

    # -- while time passes --------------------------------------------------------------------------------------------

    def _await_queries(self) -> None:
        def all_work() -> bool:
            if self.is_leaving:
                raise EndedEarly
            return bool(self._queries) and all(self._follower.batches(one) >= 2 for one in self._queries)

        self._wait(all_work, "every query to begin", START_SECONDS_MAX)
        self._stage.happened(f"all {len(self._queries)} queries are at work, {self.seconds:.0f} s after the start")

    def _all_work(self) -> bool:
        """Whether each query has committed a batch."""
        return bool(self._progress.statuses) and all(one.batch is not None for one in self._progress.statuses)

    def _wait(self, holds: Callable[[], bool], what: str, seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while not holds():
            if time.monotonic() > deadline:
                self._fail(f"it has waited {seconds_max:.0f} s for {what}")
            self._pass_time()

    def _pass(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.is_leaving:
            self._pass_time()

    def _pass_time(self, seconds: float = LOOK_SECONDS) -> None:
        if self.is_leaving:
            time.sleep(seconds)
        else:
            self._leaving.wait(seconds)
        if self._feeder.failure is not None:
            raise self._feeder.failure
        if self._company.has_ended:
            self._fail("the process that runs the company has ended")
        progress = self._follower.look()
        if progress.address is not None:
            self._progress = progress
        self.appended = self._feeder.appended
        self._alerts.set_for(one.name for one in progress.statuses if one.batch is not None)
        self._tell(progress)
        self._stage.look(progress, appended=self.appended)

    def _tell(self, progress: Progress) -> None:
        """Report each start once."""
        if progress.address is not None and "page" not in self._told:
            self._told.add("page")
            self._stage.opened(f"{progress.address}{PATH}")
            self._stage.happened("Spark starts meanwhile")
        if progress.spark and "spark" not in self._told:
            self._told.add("spark")
            self._stage.happened("Spark is up; queries are planned, and start one after the other")
        for one in progress.statuses:
            if one.batch is not None and one.name not in self._told:
                self._told.add(one.name)
                self._stage.happened(f"{one.name} has its first results")
        if "all" not in self._told and self._queries and self._told.issuperset(self._queries):
            self._told.add("all")
            self._stage.happened(f"all {len(self._queries)} queries have had results")

    @property
    def _queries(self) -> list[str]:
        """In the order of the runner: each after those that it reads."""
        return [one.name for one in self._progress.statuses]

    def _fail(self, why: str) -> NoReturn:
        rest = f"The rest is in {self._company.output}; `headwater demo --dir FOLDER` keeps that file."
        raise QueryFailed(query="demo", why=f"{why}. It printed last: {self._company.last_words()}\n{rest}")


class Feeder:
    """Appends the rows of a world, as time passes; those of the database's tables are written there."""

    def __init__(self, log: Log, database: Database, world: World) -> None:
        self._log = log
        self._database = database
        self._world = world
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="demo-feeder", daemon=True)
        self.failure: Exception | None = None
        self.appended = 0

    def start(self) -> None:
        """Append what was there before, and begin."""
        self._append(self._world.begin(datetime.now(UTC)))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def close_the_day(self) -> None:
        """Let time pass for the queries that wait for it: rows that are far ahead, in every partition."""
        for topic, rows in self._world.closing(datetime.now(UTC)).items():
            for partition in range(self._log.topic(topic).partitions):
                self._log.append(topic, rows, partition=partition)
                self.appended += len(rows)

    def _feed(self) -> None:
        try:
            before = datetime.now(UTC)
            while not self._stop.wait(TICK_SECONDS):
                now = datetime.now(UTC)
                self._append(self._world.between(before, now))
                before = now
        except Exception as error:  # told by the thread that watches
            self.failure = error

    def _append(self, made: Rows) -> None:
        for topic, rows in made.items():
            if topic in TABLES:
                self._database.write(topic, rows)
            else:
                self._log.append(topic, rows)
            self.appended += len(rows)
