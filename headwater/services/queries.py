"""Queries of apps: their statuses, interactive queries, stops, restarts and replays, and graphs; wherever the app runs.

An app runs in this process, in another process of this machine, or not at all. Another process is called over its own
server, with the token in the app's home; the caller's scopes are checked here first.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.apps.errors import AppSilent, NoAppRuns, RunnerNotFound
from headwater.apps.failure import Trouble
from headwater.apps.graph import picture_of
from headwater.apps.home import Home, home_of, homes
from headwater.apps.replay import Comparison
from headwater.apps.status import Graph, QueryStatus
from headwater.apps.stopped_apps import stopped_queries
from headwater.errors import ArgumentInvalid, NotFound
from headwater.services.callers import EVERY, Caller
from headwater.services.remote import remote
from headwater.services.route import Service, route

if TYPE_CHECKING:
    from headwater.apps.runner import Runner

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
#: How long an app of another process may take to answer with its statuses. One that hangs must not delay the others.
ASK_SECONDS_MAX = 5.0
#: A plan or a comparison is computed when it is asked for.
WORK_SECONDS_MAX = 60.0
#: A stop ends the batch first; a switch brings two versions to one offset.
TELL_SECONDS_MAX = 900.0

#: Each partition of state is a task of every batch, and a folder.
PARTITIONS_MAX = 10_000

logger = logging.getLogger("headwater.queries")


@dataclass(frozen=True, kw_only=True)
class AppStatus:
    """An app of the log, and whether a process runs it now."""

    name: str
    running: bool
    spark: bool | None = None
    """Whether its Spark session is up; None unless the process that answers runs the app itself."""


@dataclass(frozen=True, kw_only=True)
class QueryList:
    """The queries of a log's apps, and the apps that run: those that answered, and those that did not."""

    queries: list[QueryStatus] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class QueryPlan:
    """Spark's plan of a query's last batch."""

    query: str
    plan: str


@dataclass(frozen=True, kw_only=True)
class QueryAnswer:
    """The answer to an interactive query: rows of the state after one batch."""

    query: str
    operator: str
    batch: int
    offsets: dict[str, dict[int, int]]
    """For each topic that the query reads, the first offset of each partition that the answer does not reflect."""
    complete: bool
    """Whether these are all rows: an answer has `rows_max` of them at most."""
    # Any: JSON values of any type.
    rows: list[dict[str, Any]] = field(default_factory=list)


def is_visible(status: QueryStatus, caller: Caller) -> bool:
    """Whether a caller may see a query: if it may see a topic that the query reads or writes."""
    return any(caller.sees(name) for name in (status.name, *status.inputs))


def is_open(status: QueryStatus, caller: Caller) -> bool:
    """Whether a caller may see a query's plan and its errors: if it may read all topics that the query reads."""
    return caller.may("read", EVERY) or (
        bool(status.inputs) and all(caller.may("read", name) for name in status.inputs)
    )


def in_its_app(*, seconds_max: Callable[[], float] = lambda: TELL_SECONDS_MAX, reads: bool = False) -> Callable[[F], F]:
    """Run a method about a query in the process that runs its app: here, or over the server of that process.

    `seconds_max` is how long that process may take to answer. With `reads`, the caller must be allowed to read all topics that the query reads.
    """

    def decorate(method: F) -> F:
        signature = inspect.signature(method)

        # Any: arguments and answers of the method.
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = dict(bound.arguments)
            queries: Queries = given.pop("self")
            query, app = given.pop("query"), given.pop("app")
            if reads:
                queries.require_readable(query, app)
            owner = app or queries.owner(query)
            if queries.runs_here(owner):
                return method(queries, query, app=owner, **given)
            seconds = seconds_max() + given.get("seconds", 0.0)
            with home_of(queries.host.log.home, owner).connected(seconds_max=seconds) as connection:
                return getattr(remote(Queries)(connection), method.__name__)(query, app=owner, **given)

        return call  # type: ignore[return-value]  # of the same signature

    return decorate


class Queries(Service):
    """What can be done with the queries of a log's apps. `app` is needed where several apps have a query of one name."""

    # -- statuses -----------------------------------------------------------------------------------------------------

    @route("GET", "/apps", scope="read:*")
    def apps(self) -> list[AppStatus]:
        """List the apps of the log."""
        found = {name: AppStatus(name=name, running=home.is_held()) for name, home in self._homes(None).items()}
        if (runner := self.host.runner) is not None:
            name = runner.app.name
            found[name] = AppStatus(name=name, running=True, spark=runner.spark is not None)
        return [found[name] for name in sorted(found)]

    @route("GET", "/queries")
    def statuses(self, *, app: str | None = None) -> QueryList:
        """List the queries that the caller may see, with state, rate, lag and watermark; those that are stopped, too."""
        answers = self._answers(app, lambda runner: runner.statuses(), lambda one, name: one.statuses(app=name).queries)
        found = [replace(one, app=one.app or name) for name, answer in answers.items() for one in answer or ()]
        for name, home in self._homes(app).items():
            if name not in answers:
                found += stopped_queries(home, self.host.log)
        caller = self.caller
        seen = [one if is_open(one, caller) else replace(one, error=None) for one in found if is_visible(one, caller)]
        running = [name for name, answer in answers.items() if answer is not None]
        silent = [name for name, answer in answers.items() if answer is None]
        if not caller.may("read", EVERY):
            running, silent = [name for name in running if name in {one.app for one in seen}], []
        return QueryList(queries=seen, running=running, silent=silent)

    @route("GET", "/queries/{query}")
    def status(self, query: str, *, app: str | None = None) -> list[QueryStatus]:
        """Show all that is known of a query: one status for each of its versions."""
        known = self.statuses(app=app).queries
        found = [one for one in known if one.name == query]
        if not found:
            raise NotFound(kind="query", name=query, near=_near(query, known))
        return found

    @route("GET", "/queries/{query}/explain")
    @in_its_app(seconds_max=lambda: WORK_SECONDS_MAX, reads=True)
    def explain(self, query: str, *, app: str | None = None) -> QueryPlan:
        """Show Spark's plan of the last batch of a query. It needs `read` on all topics that the query reads."""
        return QueryPlan(query=query, plan=self._running(app).explain(query))

    @route("GET", "/queries/{query}/failure")
    @in_its_app(seconds_max=lambda: ASK_SECONDS_MAX, reads=True)
    def failure(self, query: str, *, app: str | None = None) -> Trouble | None:
        """Show the last failure of a query; null if it had none. It needs `read` on all topics that the query reads."""
        return self._running(app).trouble(query)

    @route("POST", "/queries/{query}/ask", scope="admin:*")
    @in_its_app(seconds_max=lambda: WORK_SECONDS_MAX)
    def ask(
        self,
        query: str,
        *,
        # Any: the value of a key, or its columns with their values.
        key: Any = None,
        compute: dict[str, str] | None = None,
        operator: str | None = None,
        rows_max: int = 10_000,
        seconds: float = 30.0,
        app: str | None = None,
    ) -> QueryAnswer:
        """Run an interactive query: read the state of a query's operator, of one key, of all keys, or aggregated."""
        answer = self._running(app).app.ask(
            query, key=key, compute=compute, operator=operator, rows_max=rows_max, seconds=seconds
        )
        return QueryAnswer(**answer.as_json())

    # -- changes of a query -------------------------------------------------------------------------------------------

    @route("POST", "/queries/{query}/stop", scope="admin:*")
    @in_its_app()
    def stop(self, query: str, *, app: str | None = None) -> None:
        """Stop a query between two batches. It stays stopped until it is restarted, or the app starts again."""
        self._running(app).stop_query(query)

    @route("POST", "/queries/{query}/restart", scope="admin:*")
    @in_its_app()
    def restart(self, query: str, *, app: str | None = None) -> None:
        """Stop a query if it runs, and start it from its checkpoint."""
        self._running(app).restart_query(query)

    @route("POST", "/queries/{query}/rescale", scope="admin:*")
    def rescale(self, query: str, partitions: int, *, app: str | None = None) -> None:
        """Cut the state of a query's operators into another number of partitions, between two batches.

        A query that runs is restarted for it; one that is stopped goes on so at its next start. Operators that say
        themselves how many partitions they have, and Spark's own, keep their number.
        """
        if not 1 <= partitions <= PARTITIONS_MAX:
            expected = f"a number from 1 to {PARTITIONS_MAX}"
            raise ArgumentInvalid(name="partitions", value=partitions, expected=expected)
        owner = app or self.owner(query)
        if self.runs_here(owner):
            self._running(owner).rescale_query(query, partitions)
            return
        home = home_of(self.host.log.home, owner)
        if home.is_held():
            with home.connected(seconds_max=TELL_SECONDS_MAX) as connection:
                remote(Queries)(connection).rescale(query, partitions, app=owner)
        else:
            [status, *_] = self.status(query, app=owner)
            home.rescale(query, status.version, partitions)

    @route("POST", "/queries/{query}/replay", scope="admin:*")
    @in_its_app()
    def replay(
        self,
        query: str,
        *,
        start: str = "earliest",
        version: str | None = None,
        app: str | None = None,
    ) -> Comparison:
        """Run a second version of a query beside the one in use."""
        return _as_json(self._running(app).replays.begin(query, start=start, version=version))

    @route("GET", "/queries/{query}/replay", scope="read:*")
    @in_its_app(seconds_max=lambda: WORK_SECONDS_MAX)
    def compare(self, query: str, *, app: str | None = None) -> Comparison:
        """Compare the version on trial with the one in use."""
        return _as_json(self._running(app).replays.report(query))

    @route("POST", "/queries/{query}/switch", scope="admin:*")
    @in_its_app()
    def switch(self, query: str, *, app: str | None = None) -> Comparison:
        """Replace the version in use by the one on trial. Readers see corrections, and no gap."""
        return _as_json(self._running(app).replays.switch(query))

    @route("DELETE", "/queries/{query}/replay", scope="admin:*")
    @in_its_app()
    def drop(self, query: str, *, app: str | None = None) -> Comparison:
        """Drop the version on trial: its query and its topic."""
        return _as_json(self._running(app).replays.drop(query))

    # -- apps ---------------------------------------------------------------------------------------------------------

    @route("GET", "/graphs", scope="read:*")
    def graphs(self, *, app: str | None = None) -> list[Graph]:
        """Show which topics, views and sinks the queries read and write: one graph for each app, also if it is stopped."""
        answers = self._answers(app, lambda runner: [runner.graph()], lambda queries, name: queries.graphs(app=name))
        found = [graph for answer in answers.values() for graph in answer or ()]
        for name, home in self._homes(app).items():
            if name not in answers and home.queries():
                found.append(picture_of(home, self.host.log, stopped_queries(home, self.host.log)))
        return found

    @route("GET", "/apps/{app}/graph.txt", scope="read:*", media="text/plain")
    def graph_text(self, app: str) -> str:
        """Draw the graph of an app as text."""
        from headwater.apps.diagram import as_text

        return as_text(self.graph(app))

    @route("GET", "/apps/{app}/graph.svg", scope="read:*", media="image/svg+xml")
    def graph_svg(self, app: str) -> str:
        """Draw the graph of an app as a picture."""
        from headwater.apps.diagram import as_svg

        return as_svg(self.graph(app))

    def graph(self, app: str | None = None) -> Graph:
        """Show the graph of an app, or of the only app of the log."""
        found = self.graphs(app=app)
        if not found:
            raise NoAppRuns() if app is None else RunnerNotFound(name=app)
        if len(found) > 1:
            expected = f"one of {', '.join(one.app for one in found)}"
            raise ArgumentInvalid(name="app", value=None, expected=expected)
        return found[0]

    @route("POST", "/apps/{app}/stop", scope="admin:*")
    def stop_app(self, app: str) -> None:
        """Stop an app as Ctrl-C does: the batches at work come to their end first."""
        if self.runs_here(app):
            self._running(app).request_stop()
            return
        with home_of(self.host.log.home, app).connected(seconds_max=ASK_SECONDS_MAX) as connection:
            remote(Queries)(connection).stop_app(app)

    # -- where an app runs --------------------------------------------------------------------------------------------

    def runs_here(self, app: str) -> bool:
        """Whether this process runs the app."""
        return self.host.runner is not None and self.host.runner.app.name == app

    def _homes(self, app: str | None) -> dict[str, Home]:
        return {name: home for name, home in homes(self.host.log.home).items() if app in (None, name)}

    def _running(self, app: str | None) -> Runner:
        """The runner of this process, for methods that run `in_its_app`."""
        assert self.host.runner is not None
        assert app == self.host.runner.app.name
        return self.host.runner

    def owner(self, query: str) -> str:
        """The app that has a query of this name, if one app has it; one that runs comes before those that do not."""
        found = self.statuses()
        known = {one.app for one in found.queries if one.name == query}
        apps = sorted(known & set(found.running) or known)
        if len(apps) == 1:
            return apps[0]
        if apps:
            raise ArgumentInvalid(name="app", value=None, expected=f"one of {', '.join(apps)}")
        if found.queries:
            raise NotFound(kind="query", name=query, near=_near(query, found.queries))
        if found.silent:
            raise AppSilent(app=found.silent[0])
        names = list(self._homes(None))
        raise RunnerNotFound(name=names[0]) if len(names) == 1 else NoAppRuns()

    def require_readable(self, query: str, app: str | None) -> None:
        """Raise unless the caller may read all topics that a query reads."""
        if not self.caller.may("read", EVERY):
            [status, *_] = self.status(query, app=app)
            for name in status.inputs or (EVERY,):
                self.caller.require("read", name)

    def _answers(
        self, app: str | None, here: Callable[[Runner], T], elsewhere: Callable[[Queries, str], T]
    ) -> dict[str, T | None]:
        """What each running app answers, all asked at once; None for an app that runs but does not answer."""
        runner = self.host.runner
        others = {name: home for name, home in self._homes(app).items() if home.active_runner() is not None}
        answers: dict[str, T | None] = {}
        if runner is not None and app in (None, runner.app.name):
            others.pop(runner.app.name, None)
            answers[runner.app.name] = here(runner)

        def ask(name: str) -> T | None:
            try:
                with others[name].connected(seconds_max=ASK_SECONDS_MAX) as connection:
                    return elsewhere(remote(Queries)(connection), name)
            except (AppSilent, RunnerNotFound):
                return None
            # An app of another version may answer in a way that is not known here; the others are shown all the same.
            except Exception:
                logger.exception("the answer of app %r cannot be understood", name)
                return None

        if others:
            with ThreadPoolExecutor(len(others), thread_name_prefix="headwater-apps") as pool:
                asked = dict(zip(others, pool.map(ask, others), strict=True))
            answers |= {name: got for name, got in asked.items() if got is not None or others[name].is_held()}
        return answers


def _near(query: str, known: list[QueryStatus]) -> str:
    near = difflib.get_close_matches(query, [one.name for one in known], n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _as_json(comparison: Comparison) -> Comparison:
    """A comparison whose samples are JSON: times and decimals as text."""
    return replace(comparison, samples=json.loads(json.dumps(list(comparison.samples), default=str)))
