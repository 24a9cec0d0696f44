"""The process that runs an app: it holds the app's lock, its Spark session, its queries, its views and its local API."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.errors import ArgumentInvalid, HeadwaterError, QueryFailed, SparkLost, TopicNotFound
from headwater.log import EmbeddedLog
from headwater.log import open as open_log
from headwater.runtime.api import served
from headwater.runtime.app import App, found
from headwater.runtime.asking import Answering
from headwater.runtime.declared import Query
from headwater.runtime.graph import ordered, picture
from headwater.runtime.home import Home, Version
from headwater.runtime.home import Runner as Announced
from headwater.runtime.keeping import add_view, kept_views, rebuild
from headwater.runtime.loading import send_by_value
from headwater.runtime.planning import Planned, Planner, schemas_of
from headwater.runtime.replay import Replays
from headwater.runtime.running import Running
from headwater.runtime.session import is_lost, session
from headwater.runtime.status import Graph, QueryStatus
from headwater.runtime.supervising import Supervised
from headwater.runtime.trouble import Trouble, told_of, trouble_of
from headwater.runtime.watching import Watch, listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
#: How the API of a runner is served; a server that has more than that API brings its own.
Served = Callable[..., contextlib.AbstractContextManager[Announced]]
LOOK_SECONDS = 0.2
#: Between the end of the JVM's connections and that of its process.
LOST_SECONDS_MAX = 2.0
#: How long whoever asks may wait: a replay that takes over brings two versions to one offset first.
ASK_SECONDS_MAX = 900.0
#: So many queries come up at a time: each starts processes, and Spark gives up on one that is not there in ten seconds.
STARTS_MAX = 2
#: A job that runs until it has caught up gives up on a query that fails so often in a row.
FAILURES_MAX = 3

# Several queries share the cores; while nothing comes, each looks for rows less often than Spark would.
_CONF = {"spark.scheduler.mode": "FAIR", "spark.sql.streaming.pollingDelay": "25ms"}


class Runner:
    """Runs an app in this process."""

    def __init__(
        self,
        app: App,
        *,
        log: str | None = None,
        master: str | None = None,
        only: Sequence[str] = (),
        start: str | None = None,
        until_caught_up: bool = False,
        standby: bool = False,
        port: int = 0,
        serve: bool = True,
        served: Served = served,
        spark: SparkSession | None = None,
        clock: str = "system",
        plan_first: bool = True,
    ) -> None:
        if log is not None:
            app.log = log
        self.app = app
        self.home = Home(app.home)
        self._master = master or app.master
        self._start = start
        self._until_caught_up = until_caught_up
        self._standby = standby
        self._port = port
        self._serve = serve
        self._served = served
        self._clock = clock
        #: Whether a mistake in any query is told before the first starts; otherwise each starts as soon as it is planned.
        self._plan_first = plan_first
        self._given = spark
        self._stop = threading.Event()
        # Any: what was asked for, and the answer to it.
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._supervisor: int | None = None
        self.spark: SparkSession | None = None
        # Any: a listener of Spark's.
        self._listener: Any = None
        self.queries = [found(app.queries, name) for name in only] if only else list(app.queries)
        self.supervised: dict[str, Supervised] = {}
        self._watches: dict[str, Watch] = {}
        self.replays = Replays(self)
        self._planned = False
        self._prepared: dict[str, Planned] = {}

    # -- from start to end --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until stopped, or until everything that is there has been processed."""
        with self.ready():
            if self._until_caught_up:
                self.catch_up()
            else:
                self.supervise()

    @contextlib.contextmanager
    def ready(self) -> Iterator[Runner]:
        """Hold the app, with its graph checked, its log open and Spark on its way; let go of all at the end."""
        self._supervisor = threading.get_ident()
        if self._standby and self.home.is_held():
            self.start_spark()  # what takes longest is over when the other process dies
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.home.held(self.app.name, wait=self._standby))
            self.log: EmbeddedLog = stack.enter_context(open_log(self.app.log))
            self._declare_inputs()
            self.queries = self._ordered()
            self._check_start()
            self.keeper = stack.enter_context(kept_views(self.app, self.home, self.log))
            for query in self.queries:
                self.supervise_version(query, self.home.versions(query.name, topic=query.output).active)
            stack.callback(self._stop_queries)
            if self._serve:
                self.announced = stack.enter_context(self._served(self, port=self._port))
            yield self

    def _declare_inputs(self) -> None:
        for expected in self.app.expected:
            if expected.name not in self.log.topics():
                self.log.create(expected.name, expected.schema, **expected.settings)

    def _ordered(self) -> list[Query]:
        running = {query.name for query in self.queries}
        every = ordered(self.app.name, self.app.queries, topics=self.log.topics())
        return [query for query in every if query.name in running]

    def _check_start(self) -> None:
        if self._start is None:
            return
        for query in self.queries:
            if self.home.query_id(query.name, self.home.versions(query.name, topic=query.output).active.number):
                expected = (
                    f"nothing, for {query.name!r} has begun already; `headwater replay` runs it anew beside itself"
                )
                raise ArgumentInvalid(name="--from", value=self._start, expected=expected)

    # -- versions -----------------------------------------------------------------------------------------------------

    def supervise_version(self, query: Query, version: Version) -> Supervised:
        """Keep a version of a query at work from now on."""
        status = QueryStatus(
            name=query.name,
            kind=query.kind,
            app=self.app.name,
            version=version.number,
            inputs=query.reads,
            outputs=(*([version.topic] if version.topic is not None else []), *(sink.name for sink in query.sinks)),
            aside=query.aside,
        )
        watch = Watch(status, state=self.home.state)
        one = Supervised(query=query, version=version, watch=watch, start=self.start_version)
        self.supervised[one.name] = one
        self._watches[one.name] = one.watch
        return one

    def forget_version(self, one: Supervised) -> None:
        self.supervised.pop(one.name, None)
        self._watches.pop(one.name, None)

    def active(self, query: Query) -> Supervised:
        return self.version(query, self.home.versions(query.name, topic=query.output).active)

    def version(self, query: Query, version: Version) -> Supervised:
        return self.supervised[f"{query.name}-v{version.number}"]

    def start_version(self, query: Query, version: Version, *, stop: str | None = None) -> Running:
        """Start a version now; with `stop`, up to these offsets of its inputs and no further."""
        version = self._begun(version)
        planned = self._prepared.pop(query.name, None)
        if planned is None or planned.version != version or stop is not None:
            planned = self._planner().plan(query, version, stop=stop)
        if (watch := self._watches.get(f"{query.name}-v{version.number}")) is not None:
            watch.combines = planned.combines
        if version.topic == query.output:
            found = [one.to_json() for one in planned.finders]
            self.home.set_finders(query.name, reads=query.reads, topic=query.output, finders=found)
        running = Running(
            planned,
            log=str(self.log.path),
            state=self.home.state,
            checkpoint=self.home.checkpoint(query.name, version.number),
            available_now=self._until_caught_up or stop is not None,
            answering=self._answering(planned),
        )
        if query.kind == "view" and version.topic == query.output:
            add_view(self.keeper, self.log, query, producer=str(running.query.id))
        return running

    def _answering(self, planned: Planned) -> Answering | None:
        """What makes answers of a query that can be asked; a version on trial is asked nothing."""
        query, version = planned.query, planned.version
        if not query.ask or version.topic != query.output:
            return None
        return Answering(
            app=self.app.name,
            log=str(self.log.path),
            state=self.home.state,
            checkpoint=self.home.checkpoint(query.name, version.number),
            operators=tuple(one.name for one in planned.operators),
        )

    def _begun(self, version: Version) -> Version:
        """A version with the place where it begins, if another was asked for."""
        return version if self._start is None or version.number > 1 else replace(version, start=self._start)

    # -- Spark --------------------------------------------------------------------------------------------------------

    def start_spark(self) -> SparkSession:
        """The session of this app. Everything else works before it is up."""
        if self.spark is None:
            send_by_value(self.app)
            base = self._given or session(
                self.app.name, master=self._master, state=self.home.state, conf={**_CONF, **self.app.conf}
            )
            self._listener = listener(self._watches)
            base.streams.addListener(self._listener)
            self.spark = base
        return self.spark

    def _planner(self) -> Planner:
        views = frozenset(query.name for query in self.app.queries if query.kind == "view")
        spark = self.start_spark()
        return Planner(
            spark=spark,
            log=self.log,
            views=views,
            state=str(self.home.state),
            clock=self._clock,
            app=self.app.name,
        )

    # -- continuous ---------------------------------------------------------------------------------------------------

    def supervise(self) -> None:
        """Keep all queries at work until somebody asks to stop."""
        self._supervisor = threading.get_ident()
        if self._plan_first:
            self._plan_all()
        self.replays.resume()
        while not self._stop.is_set():
            try:
                self._look_at_all()
                self._do_what_was_asked()
            except Exception as error:
                if is_lost(self.spark, seconds=LOST_SECONDS_MAX):
                    raise SparkLost(app=self.app.name) from error
                raise
            if is_lost(self.spark):  # queries that are about to be started would wait for it for ever
                raise SparkLost(app=self.app.name)

    def _look_at_all(self) -> None:
        coming_up = sum(one.running is not None and one.running.is_coming_up for one in self.supervised.values())
        for one in list(self.supervised.values()):
            if one.running is None and one.wanted:
                if coming_up >= STARTS_MAX:
                    continue
                coming_up += 1
            one.look()
            self._follow_schemas(one)

    def ask(self, act: Callable[[], T]) -> T:
        """Have something done by the thread that supervises: only one thread starts and stops queries."""
        if threading.get_ident() == self._supervisor:
            return act()
        answer: Future[T] = Future()
        self._asked.put((act, answer))
        return answer.result(ASK_SECONDS_MAX)

    def _do_what_was_asked(self, *, wait_seconds: float = LOOK_SECONDS) -> None:
        with contextlib.suppress(queue.Empty):
            act, answer = self._asked.get(timeout=wait_seconds)
            try:
                answer.set_result(act())
            except Exception as error:  # told to whoever asked
                answer.set_exception(error)

    def _follow_schemas(self, one: Supervised) -> None:
        """A query whose inputs have other columns now is planned anew; Spark itself never looks again."""
        if one.running is not None and one.running.is_active:
            known = one.running.planned.schemas
            if schemas_of(self.log, known) != known:
                one.restart()

    def _plan_all(self) -> None:
        """Plan every query once before any of them starts: a mistake in one is told before rows move."""
        if self._planned:
            return
        planner = self._planner()
        for query in self.queries:
            version = self._begun(self.home.versions(query.name, topic=query.output).active)
            try:
                self._prepared[query.name] = planner.plan(query, version)
            except HeadwaterError:
                raise
            except Exception as error:  # the user's own function: its line is what people need
                raise QueryFailed(query=query.name, why=told_of(trouble_of(error))) from error
        self._planned = True

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def wait_for_stop(self, seconds: float) -> bool:
        """Sleep until a stop is asked for, or for so long; whether it was."""
        return self._stop.wait(seconds)

    def request_stop(self) -> None:
        """Ask for a stop between two batches; may be called from a signal handler."""
        self._stop.set()

    def _stop_queries(self) -> None:
        if is_lost(self.spark):  # its queries are gone with it
            return
        stoppers = [threading.Thread(target=one.stop) for one in self.supervised.values() if one.running is not None]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join()
        if self.spark is not None and self._listener is not None:
            self.spark.streams.removeListener(self._listener)

    # -- a bounded job ------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Process what is there now, each query after those it reads from."""
        self._plan_all()
        for query in self.queries:
            one = next(each for each in self.supervised.values() if each.query is query)
            one.restart()
            while not one.ended and not self._stop.is_set():
                one.look()
                if one.failures >= FAILURES_MAX and one.trouble is not None:
                    raise QueryFailed(query=query.name, why=told_of(one.trouble))
                self._do_what_was_asked(wait_seconds=0.02)
        self.keeper.catch_up()

    def settle(self) -> None:
        """Process what is there now with queries that stay up afterwards; the first failure is raised."""
        self._plan_all()
        for query in self.queries:
            one = self.active(query)
            one.look()
            if one.running is not None:
                one.running.settle()
                one.look()
            if one.trouble is not None and one.running is None:
                raise QueryFailed(query=query.name, why=told_of(one.trouble))
        self.keeper.catch_up()

    def troubles(self) -> dict[str, Trouble]:
        """What has last gone wrong, by the name of the query."""
        return {one.name: one.trouble for one in list(self.supervised.values()) if one.trouble is not None}

    # -- what others ask ----------------------------------------------------------------------------------------------

    def statuses(self) -> list[QueryStatus]:
        return [one.watch.status() for one in list(self.supervised.values())]

    def graph(self) -> Graph:
        statuses = {one.query.name: one.watch.status() for one in self.supervised.values()}
        return picture(self.app.name, self.app.queries, statuses=statuses, labels=self._columns())

    def _columns(self) -> dict[str, str]:
        """The columns of the topics that the app reads and writes, as far as they are there."""
        names = {name for query in self.app.queries for name in (*query.reads, query.output, *query.aside.values())}
        found = {}
        for name in sorted(name for name in names if name is not None):
            with contextlib.suppress(TopicNotFound):
                found[name] = ", ".join(self.log.topic(name).schema.names)
        return found

    def trouble(self, name: str) -> Trouble | None:
        """What has last gone wrong in a query, in full; None where nothing has."""
        return self._of(name).trouble

    def stop_query(self, name: str) -> None:
        self.ask(lambda: self._of(name).stop())

    def restart_query(self, name: str) -> None:
        self.ask(lambda: self._of(name).restart())

    def explain(self, name: str) -> str:
        """Spark's plan of the last batch of a query."""
        return self.ask(lambda: self._explained(self._of(name)))

    def _explained(self, one: Supervised) -> str:
        if one.running is None:
            return "The query does not run now."
        return str(one.running.query._jsq.explainInternal(False))

    def rebuild_view(self, name: str) -> dict[str, Any]:
        """Make the store's rows of a view anew from its topic, and switch to them when they have caught up."""
        spec = rebuild(self.keeper, name)
        return {"view": name, "version": spec.version, "rows": self.keeper.view(name).describe().get("rows")}

    def drop_view(self, name: str) -> dict[str, Any]:
        """Forget the store's rows of a view that the app no longer declares. Its topic stays."""
        if any(query.name == name and query.kind == "view" for query in self.app.queries):
            expected = "a view that the app no longer declares; take it out of the file first"
            raise ArgumentInvalid(name="view", value=name, expected=expected)
        self.keeper.store.drop(name)
        return {"view": name, "state": "dropped"}

    def _of(self, name: str) -> Supervised:
        return self.active(found(self.queries, name))
