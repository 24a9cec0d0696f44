"""The process that runs an app: it holds the app's lock, its Spark session, its queries, its views and its server."""

from __future__ import annotations

import contextlib
import importlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.apps.app import App, found
from headwater.apps.app_file import send_by_value
from headwater.apps.capture_supervision import CaptureMode, SupervisedCapture, prepared_captures
from headwater.apps.captures import with_captured_inputs
from headwater.apps.declaration import Query
from headwater.apps.errors import AppLeaseLost, QueryFailed, SparkLost
from headwater.apps.execution import RunningQuery
from headwater.apps.failure import Trouble, told_of, trouble_of
from headwater.apps.graph import ordered, picture_of
from headwater.apps.home import DeclaredQuery, Home, Version
from headwater.apps.home import Runner as Announced
from headwater.apps.interactive_query import AnswerWriter
from headwater.apps.plan import Planner, QueryPlan, schemas_of
from headwater.apps.query_progress import QueryProgress, listener
from headwater.apps.replay import Replays
from headwater.apps.status import Graph, QueryStatus
from headwater.apps.stopped_apps import stopped_query
from headwater.apps.supervision import SupervisedQuery
from headwater.apps.view_maintenance import keep_output, kept_views, rebuild
from headwater.engine.analyzed_plan import require_java
from headwater.engine.event_time import EVER
from headwater.errors import ArgumentInvalid, HeadwaterError, InUse
from headwater.gateways import GatewayRunner
from headwater.gateways.port import Direction
from headwater.log import Log
from headwater.log.errors import UNREACHABLE
from headwater.log.lease import Lease, holder_name
from headwater.log.port import Offsets
from headwater.spark.java_process import is_starting
from headwater.spark.session import is_lost, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.sourcing import Entities

logger = logging.getLogger("headwater.apps")
T = TypeVar("T")
#: Serves an app while it runs.
Served = Callable[..., contextlib.AbstractContextManager[Announced]]
LOOK_SECONDS = 0.2
#: The same while all queries run: the end of one of them, a request and a stop are told.
STEADY_SECONDS = 1.0
#: Between the end of the JVM's connections and that of its process.
LOST_SECONDS_MAX = 2.0
#: How long a caller waits: a switch to a trial brings two versions to one offset first.
ASK_SECONDS_MAX = 900.0
#: How many queries start at a time: each starts processes, and Spark gives up on one that is not up in ten seconds.
STARTS_MAX = 2
#: After how many failures in a row of a query a bounded run fails.
FAILURES_MAX = 3

#: How long an app waits before it asks a log again that cannot be reached.
UNREACHABLE_SECONDS = 1.0

_PARTITIONS = "spark.sql.shuffle.partitions"
# Several queries share the cores; while no rows come, each polls less often than Spark's default.
_CONF = {"spark.scheduler.mode": "FAIR", "spark.sql.streaming.pollingDelay": "25ms"}


def _served_app(runner: Runner, *, port: int) -> contextlib.AbstractContextManager[Announced]:
    """Serve an app and its log. The server is a layer above the apps, so it is imported by its name."""
    served: Served = importlib.import_module("headwater.http.server").served_app
    return served(runner, port=port)


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
        end_of_input: bool = False,
        standby: bool = False,
        port: int = 0,
        serve: bool = True,
        served: Served | None = None,
        spark: SparkSession | None = None,
        clock: str = "system",
        plan_first: bool = True,
        captures: CaptureMode = "real",
    ) -> None:
        if log is not None:
            app.log = log
        self.app = app
        self.home = Home(app.home)
        self._master = master or app.master
        self._start = start
        self._until_caught_up = until_caught_up
        self._end_of_input = end_of_input
        #: How many windows of each query were still open when it had caught up.
        self.open_windows: dict[str, int] = {}
        #: How many rows each capture has appended in a bounded run.
        self.captured_rows: dict[str, int] = {}
        self._standby = standby
        self._port = port
        self._serve = serve
        self._served = served or _served_app
        self._clock = clock
        #: Whether all queries are planned before the first starts; otherwise each starts as soon as it is planned.
        self._plan_first = plan_first
        self._given = spark
        self._capture_mode = captures
        self.captures: list[SupervisedCapture] = []
        #: The gateways of the app; a bounded run runs none of them, for they have no end.
        self.gateways: list[GatewayRunner] = []
        # Any: the user's state, command and event classes.
        self.entities: list[Entities[Any, Any, Any]] = []
        self.lease: Lease | None = None
        self._stop = threading.Event()
        # Any: a function, and its result.
        self._requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._supervisor: int | None = None
        self.spark: SparkSession | None = None
        self._spark_lock = threading.Lock()
        # Any: a listener of Spark's.
        self._listener: Any = None
        self.queries = [found(app.queries, name) for name in only] if only else list(app.queries)
        self.supervised: dict[str, SupervisedQuery] = {}
        self._progress: dict[str, QueryProgress] = {}
        self.replays = Replays(self)
        self._planned = False
        self._prepared: dict[str, QueryPlan] = {}

    # -- from start to end --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until stopped, or until all input is processed."""
        with self.ready():
            if self._until_caught_up:
                self.catch_up()
            else:
                self.supervise()

    @contextlib.contextmanager
    def ready(self) -> Iterator[Runner]:
        """Hold the app's lock, with its graph checked and its log open; release everything at the end."""
        self._supervisor = threading.get_ident()
        leased = self.app.lease_seconds is not None
        if self._standby and (leased or self.home.is_held()):
            self.start_spark()  # what takes longest is over when the other process dies
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.home.held(self.app.name, wait=self._standby, of_host=leased))
            self.log: Log = stack.enter_context(self.app.open_log())
            stack.enter_context(self._leased())
            self._declare_inputs()
            self.gateways = [GatewayRunner(self.log, one, app=self.app.name, standby=True) for one in self.app.gateways]
            stack.callback(self._stop_gateways)
            self.entities = [stack.enter_context(each.on(self.log)) for each in self.app.entities]
            stack.enter_context(self._captured())
            self.queries = self._ordered()
            self._check_start()
            self.home.set_queries([DeclaredQuery.of(query) for query in self.app.queries])
            self.keeper = stack.enter_context(kept_views(self.app, self.home, self.log))
            for query in self.queries:
                self.supervise_version(query, self.home.versions(query.name, topic=query.output).active)
            stack.callback(self._stop_queries)
            if self._serve:
                self.announced = stack.enter_context(self._served(self, port=self._port))
            yield self

    @contextlib.contextmanager
    def _leased(self) -> Iterator[None]:
        """Hold the lease of the app, if it has one; nothing of the app is done before."""
        seconds = self.app.lease_seconds
        if seconds is None:
            yield
            return
        name = f"app.{self.app.name}"
        self.lease = Lease(self.log, name, holder=holder_name(), seconds=seconds, lost=self.request_stop)
        if not self.lease.acquire(wait=self._standby, stopped=self._stop.is_set):
            instead = (
                "Stop that one first, or start this one with `--standby`: it takes over when the other falls silent"
            )
            raise InUse(what=f"App {self.app.name!r}", by=self.lease.held_by() or "another process", instead=instead)
        try:
            yield
            self._check_lease()
        finally:
            self.lease.release()

    def _check_lease(self) -> None:
        """Raise if another process may run the app by now."""
        if self.lease is not None and not self.lease.is_mine:
            raise AppLeaseLost(app=self.app.name, seconds=self.lease.seconds)

    def _declare_inputs(self) -> None:
        for topic in self.app.inputs:
            if topic.name not in self.log.topics():
                self.log.create(topic.name, topic.schema, **topic.settings)
        for gateway in self.app.gateways:
            gateway.create_topics(self.log)

    @contextlib.contextmanager
    def _captured(self) -> Iterator[None]:
        """Prepare the captures, and let the queries read their topics; the app's own declarations are restored at the end."""
        declared = self.app.queries
        with prepared_captures(self.app.captures, self.log, app=self.app.name, mode=self._capture_mode) as (
            self.captures,
            tables,
        ):
            self.app.queries = with_captured_inputs(declared, tables, inputs=[one.name for one in self.app.inputs])
            chosen = {query.name for query in self.queries}
            self.queries = [query for query in self.app.queries if query.name in chosen]
            try:
                yield
            finally:
                self.app.queries = declared

    def _ordered(self) -> list[Query]:
        running = {query.name for query in self.queries}
        captures = [one.name for one in self.app.captures]
        every = ordered(self.app.name, self.app.queries, topics=self.log.topics(), captures=captures)
        return [query for query in every if query.name in running]

    def _check_start(self) -> None:
        if self._start is None:
            return
        for query in self.queries:
            if self.home.query_id(query.name, self.home.versions(query.name, topic=query.output).active.number):
                expected = (
                    f"nothing, for {query.name!r} has begun already; `headwater replay` runs a second version beside it"
                )
                raise ArgumentInvalid(name="--from", value=self._start, expected=expected)

    # -- versions -----------------------------------------------------------------------------------------------------

    def supervise_version(self, query: Query, version: Version) -> SupervisedQuery:
        """Supervise a version of a query from now on."""
        status = QueryStatus(
            name=query.name,
            kind=query.kind,
            app=self.app.name,
            version=version.number,
            inputs=query.reads,
            outputs=(*([version.topic] if version.topic is not None else []), *(sink.name for sink in query.sinks)),
            side_outputs=query.side_outputs,
        )
        progress = QueryProgress(status, home=self.home, log=self.log, start=self._begun(version).start)
        one = SupervisedQuery(query=query, version=version, progress=progress, start=self.start_version)
        self.supervised[one.name] = one
        self._progress[one.name] = one.progress
        return one

    def forget_version(self, one: SupervisedQuery) -> None:
        self.supervised.pop(one.name, None)
        self._progress.pop(one.name, None)

    def active(self, query: Query) -> SupervisedQuery:
        return self.version(query, self.home.versions(query.name, topic=query.output).active)

    def version(self, query: Query, version: Version) -> SupervisedQuery:
        return self.supervised[f"{query.name}-v{version.number}"]

    def start_version(self, query: Query, version: Version, *, stop: str | None = None) -> RunningQuery:
        """Start a version now; with `stop`, only up to these offsets of its inputs."""
        version = self._begun(version)
        planned = self._prepared.pop(query.name, None)
        partitions = self._partitions(query, version)
        if planned is None or planned.version != version or planned.partitions != partitions or stop is not None:
            planned = self._planner().plan(query, version, stop=stop, partitions=partitions)
        if version.topic == query.output:
            found = [one.to_json() for one in planned.finders]
            self.home.set_finders(query.name, reads=query.reads, topic=query.output, finders=found)
        running = RunningQuery(
            planned,
            log=self.log.address,
            state=self.home.state,
            checkpoint=self.home.checkpoint(query.name, version.number),
            available_now=self._until_caught_up or stop is not None,
            answering=self._answering(planned),
            admit=self._check_lease,
        )
        if version.topic == query.output:
            keep_output(self.keeper, self.log, query, producer=str(running.query.id))
        return running

    def _partitions(self, query: Query, version: Version) -> int:
        """Into how many partitions the state of a version is cut."""
        default = self.start_spark().conf.get(_PARTITIONS)
        given = self.app.conf.get(_PARTITIONS)
        setting = None if given is None else int(given)
        return self.home.partitions(query.name, version.number, setting=setting, default=int(default or 2))

    def _answering(self, planned: QueryPlan) -> AnswerWriter | None:
        """Return the writer of answers, if the query answers interactive queries; a trial does not."""
        query, version = planned.query, planned.version
        if not query.ask or version.topic != query.output:
            return None
        return AnswerWriter(
            app=self.app.name,
            log=self.log.address,
            state=self.home.state,
            checkpoint=self.home.checkpoint(query.name, version.number),
            operators=tuple(one.name for one in planned.operators),
        )

    def _begun(self, version: Version) -> Version:
        """Return the version with the start position of this run, if one is given."""
        return version if self._start is None or version.number > 1 else replace(version, start=self._start)

    # -- Spark --------------------------------------------------------------------------------------------------------

    def start_spark(self) -> SparkSession:
        """Start the Spark session of this app. Everything else works before it is up."""
        with self._spark_lock:
            if self.spark is None:
                send_by_value(self.app)
                base = self._given or session(
                    self.app.name, master=self._master, state=self.home.state, conf={**_CONF, **self.app.conf}
                )
                require_java(base, "An app")
                self._listener = listener(self._progress, ended=self._wake)
                base.streams.addListener(self._listener)
                self.spark = base
            return self.spark

    def start_spark_early(self) -> None:
        """Begin to start the session, in a thread, if its JVM is starting already and no other process runs the app."""
        if not is_starting() or self.home.is_held():
            return

        def start() -> None:
            with contextlib.suppress(Exception):  # raised where the session is needed, which starts it once more
                self.start_spark()

        threading.Thread(target=start, name="headwater-spark-early", daemon=True).start()

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
            bounded=self._bounded_topics(),
            end_of_input=self._end_of_input,
        )

    def _bounded_topics(self) -> frozenset[str]:
        """The topics to which nothing is appended any more when a query begins to read them.

        In a bounded run each query ends before those that read its output begin, so what is made of bounded topics alone
        is bounded, too.
        """
        bounded = {topic.name for topic in self.app.inputs if topic.bounded}
        if self._until_caught_up:
            for query in self.queries:
                if query.output is not None and bounded.issuperset(query.reads):
                    bounded.add(query.output)
        return frozenset(bounded)

    # -- continuous ---------------------------------------------------------------------------------------------------

    def supervise(self) -> None:
        """Run all queries until a stop is requested."""
        self._supervisor = threading.get_ident()
        for capture in self.captures:
            capture.start()
        self._start_gateways("in")
        if self._plan_first:
            self._plan_all()
        self._start_gateways("out")  # the topics that they read may be outputs of queries
        self.replays.resume()
        while not self._stop.is_set():
            try:
                self._look_at_all()
                self._run_requests(wait_seconds=self._look_seconds())
            except UNREACHABLE as error:
                # Queries that fail meanwhile start again by themselves; nothing of theirs is lost.
                logger.warning("app %s waits for its log: %s", self.app.name, error)
                self._stop.wait(UNREACHABLE_SECONDS)
            except Exception as error:
                if is_lost(self.spark, seconds=LOST_SECONDS_MAX):
                    raise SparkLost(app=self.app.name) from error
                raise
            if is_lost(self.spark):  # queries that are about to be started would wait for it for ever
                raise SparkLost(app=self.app.name)

    def _start_gateways(self, direction: Direction) -> None:
        for one in self.gateways:
            if one.gateway.direction == direction:
                one.start()

    def _stop_gateways(self) -> None:
        for one in self.gateways:
            one.request_stop()
        for one in self.gateways:
            one.stop()

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
        """Call a function in the supervising thread: only one thread starts and stops queries."""
        if threading.get_ident() == self._supervisor:
            return act()
        answer: Future[T] = Future()
        self._requests.put((act, answer))
        return answer.result(ASK_SECONDS_MAX)

    def _wake(self) -> None:
        """Let the supervising thread look at the queries now."""
        self._requests.put((lambda: None, Future()))

    def _look_seconds(self) -> float:
        return STEADY_SECONDS if all(one.is_steady for one in self.supervised.values()) else LOOK_SECONDS

    def _run_requests(self, *, wait_seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            act, answer = self._requests.get(timeout=wait_seconds)
            try:
                answer.set_result(act())
            except Exception as error:  # raised in the caller
                answer.set_exception(error)

    def _follow_schemas(self, one: SupervisedQuery) -> None:
        """Restart a query whose inputs have a new schema version; Spark itself reads schemas only at the start."""
        if one.running is not None and one.running.is_active:
            known = one.running.planned.schemas
            if schemas_of(self.log, known) != known:
                one.restart()

    def _plan_all(self) -> None:
        """Plan every query once before any of them starts, so that a mistake in one is raised before rows are read."""
        if self._planned:
            return
        planner = self._planner()
        for query in self.queries:
            version = self._begun(self.home.versions(query.name, topic=query.output).active)
            try:
                partitions = self._partitions(query, version)
                self._prepared[query.name] = planner.plan(query, version, partitions=partitions)
            except HeadwaterError:
                raise
            except Exception as error:  # the user's own function: its line is what people need
                raise QueryFailed(query=query.name, why=told_of(trouble_of(error))) from error
        self._planned = True

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def wait_for_stop(self, seconds: float) -> bool:
        """Wait until a stop is requested or the time is over; return whether it was requested."""
        return self._stop.wait(seconds)

    def request_stop(self) -> None:
        """Request a stop between two batches; may be called from a signal handler."""
        self._stop.set()
        self._wake()

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
        """Capture and process all input that exists now, each query after those it reads from."""
        for capture in self.captures:
            self.captured_rows[capture.name] = capture.catch_up()
        self._plan_all()
        for query in self.queries:
            one = next(each for each in self.supervised.values() if each.query is query)
            one.restart()
            running: RunningQuery | None = None
            while not one.ended and not self._stop.is_set():
                one.look()
                running = one.running or running
                if one.failures >= FAILURES_MAX and one.trouble is not None:
                    raise QueryFailed(query=query.name, why=told_of(one.trouble))
                self._run_requests(wait_seconds=0.02)
            if running is not None:
                self.open_windows[query.name] = running.open_windows()
        self.keeper.catch_up()

    def finish(self) -> None:
        """Process all input, and let every query know that nothing follows, each after those it reads from."""
        self.drain()
        for query in self.queries:
            for topic in query.reads:
                self.log.punctuate(topic, EVER)
            self._drain(self.active(query))
        self.drain()

    def drain(self) -> None:
        """Process all input that exists now with queries that go on afterwards, until no topic grows; raise the first failure."""
        for capture in self.captures:
            capture.catch_up()
        if self.queries:
            self._plan_all()
        before, ends = None, self._ends()
        while before != ends:
            for query in self.queries:
                self._look_at_all()  # starts the next queries, so that their processes come up while this one works
                self._drain(self.active(query))
            before, ends = ends, self._ends()
        self.keeper.catch_up()

    def _drain(self, one: SupervisedQuery) -> None:
        one.look()
        if one.running is not None:
            one.running.drain()
            one.look()
        if one.trouble is not None and one.running is None:
            raise QueryFailed(query=one.query.name, why=told_of(one.trouble))

    def _ends(self) -> dict[str, Offsets]:
        return {name: self.log.end_offsets(name) for name in self.log.topics()}

    def troubles(self) -> dict[str, Trouble]:
        """Return the last failure of each query that had one."""
        return {one.name: one.trouble for one in list(self.supervised.values()) if one.trouble is not None}

    # -- for the API ----------------------------------------------------------------------------------------------

    def statuses(self) -> list[QueryStatus]:
        """Return the status of each query of the app; those that were not chosen to run are stopped."""
        running = [one.progress.status() for one in list(self.supervised.values())]
        others = [one for one in self.home.queries() if one.name not in {status.name for status in running}]
        return [*running, *(stopped_query(one, self.home, self.log) for one in others)]

    def graph(self) -> Graph:
        return picture_of(self.home, self.log, self.statuses())

    def trouble(self, name: str) -> Trouble | None:
        """Return the last failure of a query; None if it had none."""
        return self._of(name).trouble

    def stop_query(self, name: str) -> None:
        self.ask(lambda: self._of(name).stop())

    def restart_query(self, name: str) -> None:
        self.ask(lambda: self._of(name).restart())

    def rescale_query(self, name: str, partitions: int) -> None:
        """Cut the state of a query into another number of partitions: between two batches, if it runs."""
        self.ask(lambda: self._rescale(self._of(name), partitions))

    def _rescale(self, one: SupervisedQuery, partitions: int) -> None:
        self.home.rescale(one.query.name, one.version.number, partitions)
        if one.wanted:
            one.restart()

    def explain(self, name: str) -> str:
        """Return Spark's plan of the last batch of a query."""
        return self.ask(lambda: self._explained(self._of(name)))

    def _explained(self, one: SupervisedQuery) -> str:
        if one.running is None:
            return "The query does not run now."
        return str(one.running.query._jsq.explainInternal(False))

    def rebuild_view(self, name: str) -> None:
        """Rebuild the store's rows of a view from its topic, and switch to them when they have caught up."""
        rebuild(self.keeper, name)

    def drop_view(self, name: str) -> None:
        """Drop the store's rows of a view that the app no longer declares. Its topic stays."""
        if any(query.name == name and query.kind == "view" for query in self.app.queries):
            expected = "a view that the app no longer declares; take it out of the file first"
            raise ArgumentInvalid(name="view", value=name, expected=expected)
        self.keeper.store.drop(name)

    def _of(self, name: str) -> SupervisedQuery:
        return self.active(found(self.queries, name))
