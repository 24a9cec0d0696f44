"""Queries of apps: their statuses, what they may be told, replays, graphs; wherever the app runs.

An app runs in this process, in another process of this machine, or not at all. Another process is asked over its own
server, with the token in the app's home.
"""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.apps.errors import AppSilent, RunnerNotFound
from headwater.apps.failure import Trouble
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
#: How long an app that another process runs may take to tell its statuses. One that hangs must not hold up the others.
ASK_SECONDS_MAX = 5.0
#: A plan or a comparison is computed when it is asked for.
WORK_SECONDS_MAX = 60.0
#: A query that is told to stop ends its batch first; a switch brings two versions to one offset.
TELL_SECONDS_MAX = 900.0

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
    """The queries of a log's apps, and the apps that run but did not answer."""

    queries: list[QueryStatus] = field(default_factory=list)
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
    """Whether a caller may know of a query: who may see any topic that it reads or writes."""
    return any(caller.sees(name) for name in (status.name, *status.inputs))


def is_open(status: QueryStatus, caller: Caller) -> bool:
    """Whether a caller may see a query's plan and its errors: who may read all topics that it reads."""
    return caller.may("read", EVERY) or (
        bool(status.inputs) and all(caller.may("read", name) for name in status.inputs)
    )


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
    def statuses(self, *, app: str | None = None, stopped: bool = False) -> QueryList:
        """List the queries that the caller may see, with state, rate, lag and watermark.

        Those of apps that no process runs are listed with `stopped`, as their last run left them.
        """
        answers = self._answers(app, lambda runner: runner.statuses(), lambda one, name: one.statuses(app=name).queries)
        found = [replace(one, app=one.app or name) for name, answer in answers.items() for one in answer or ()]
        for name, home in self._homes(app).items() if stopped else ():
            if name not in answers:
                found += [replace(one, app=name) for one in stopped_queries(home, self.host.log)]
        caller = self.caller
        seen = [one if is_open(one, caller) else replace(one, error=None) for one in found if is_visible(one, caller)]
        silent = [name for name, answer in answers.items() if answer is None]
        return QueryList(queries=seen, silent=silent if caller.may("read", EVERY) else [])

    @route("GET", "/queries/{query}")
    def status(self, query: str, *, app: str | None = None) -> list[QueryStatus]:
        """Show all that is known of a query: one status for each of its versions."""
        known = self.statuses(app=app, stopped=True).queries
        found = [one for one in known if one.name == query]
        if not found:
            raise NotFound(kind="query", name=query, near=_near(query, known))
        return found

    @route("GET", "/queries/{query}/explain")
    def explain(self, query: str, *, app: str | None = None) -> QueryPlan:
        """Show Spark's plan of the last batch of a query. It needs `read` on all topics that the query reads."""
        return self._run(
            query,
            self._readable(query, app),
            lambda runner: QueryPlan(query=query, plan=runner.explain(query)),
            lambda queries, name: queries.explain(query, app=name),
            seconds_max=WORK_SECONDS_MAX,
        )

    @route("GET", "/queries/{query}/failure")
    def failure(self, query: str, *, app: str | None = None) -> Trouble | None:
        """Show the last failure of a query; null if it had none. It needs `read` on all topics that the query reads."""
        return self._run(
            query,
            self._readable(query, app),
            lambda runner: runner.trouble(query),
            lambda queries, name: queries.failure(query, app=name),
            seconds_max=ASK_SECONDS_MAX,
        )

    @route("POST", "/queries/{query}/ask", scope="admin:*")
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
        # Any: arguments of several types.
        given: dict[str, Any] = {"key": key, "compute": compute, "operator": operator}
        given |= {"rows_max": rows_max, "seconds": seconds}
        return self._run(
            query,
            app,
            lambda runner: QueryAnswer(**runner.app.ask(query, **given).as_json()),
            lambda queries, name: queries.ask(query, app=name, **given),
            seconds_max=seconds + WORK_SECONDS_MAX,
        )

    # -- what a query is told -----------------------------------------------------------------------------------------

    @route("POST", "/queries/{query}/stop", scope="admin:*")
    def stop(self, query: str, *, app: str | None = None) -> None:
        """Stop a query between two batches. It stays stopped until it is restarted, or the app starts again."""
        self._run(
            query, app, lambda runner: runner.stop_query(query), lambda queries, name: queries.stop(query, app=name)
        )

    @route("POST", "/queries/{query}/restart", scope="admin:*")
    def restart(self, query: str, *, app: str | None = None) -> None:
        """Stop a query if it runs, and start it from its checkpoint."""
        self._run(
            query,
            app,
            lambda runner: runner.restart_query(query),
            lambda queries, name: queries.restart(query, app=name),
        )

    @route("POST", "/queries/{query}/replay", scope="admin:*")
    def replay(
        self, query: str, *, start: str = "earliest", version: str | None = None, app: str | None = None
    ) -> Comparison:
        """Run a second version of a query beside the one in use."""
        return self._run(
            query,
            app,
            lambda runner: _as_json(runner.replays.begin(query, start=start, version=version)),
            lambda queries, name: queries.replay(query, start=start, version=version, app=name),
        )

    @route("GET", "/queries/{query}/replay", scope="read:*")
    def compare(self, query: str, *, app: str | None = None) -> Comparison:
        """Compare the version on trial with the one in use."""
        return self._run(
            query,
            app,
            lambda runner: _as_json(runner.replays.report(query)),
            lambda queries, name: queries.compare(query, app=name),
            seconds_max=WORK_SECONDS_MAX,
        )

    @route("POST", "/queries/{query}/switch", scope="admin:*")
    def switch(self, query: str, *, app: str | None = None) -> Comparison:
        """Replace the version in use by the one on trial. Readers see corrections, and no gap."""
        return self._run(
            query,
            app,
            lambda runner: _as_json(runner.replays.switch(query)),
            lambda queries, name: queries.switch(query, app=name),
        )

    @route("DELETE", "/queries/{query}/replay", scope="admin:*")
    def drop(self, query: str, *, app: str | None = None) -> Comparison:
        """Drop the version on trial: its query and its topic."""
        return self._run(
            query,
            app,
            lambda runner: _as_json(runner.replays.drop(query)),
            lambda queries, name: queries.drop(query, app=name),
        )

    # -- apps ---------------------------------------------------------------------------------------------------------

    @route("GET", "/graphs", scope="read:*")
    def graphs(self, *, app: str | None = None) -> list[Graph]:
        """Show which topics, views and sinks the queries read and write: one graph for each app that runs."""
        answers = self._answers(app, lambda runner: [runner.graph()], lambda queries, name: queries.graphs(app=name))
        return [graph for answer in answers.values() for graph in answer or ()]

    @route("GET", "/apps/{app}/graph.txt", scope="read:*", media="text/plain")
    def graph_text(self, app: str) -> str:
        """Draw the graph of a running app as text."""
        from headwater.apps.diagram import as_text

        return as_text(self.graph(app))

    @route("GET", "/apps/{app}/graph.svg", scope="read:*", media="image/svg+xml")
    def graph_svg(self, app: str) -> str:
        """Draw the graph of a running app as a picture."""
        from headwater.apps.diagram import as_svg

        return as_svg(self.graph(app))

    def graph(self, app: str | None = None) -> Graph:
        """Show the graph of an app, or of the only app that runs."""
        found = self.graphs(app=app)
        if not found:
            raise RunnerNotFound(name=app or "(any)")
        if len(found) > 1:
            expected = f"one of {', '.join(one.app for one in found)}"
            raise ArgumentInvalid(name="app", value=None, expected=expected)
        return found[0]

    @route("POST", "/apps/{app}/stop", scope="admin:*")
    def stop_app(self, app: str) -> None:
        """Stop an app as Ctrl-C does: the batches at work come to their end first."""
        if (runner := self._here(app)) is not None:
            runner.request_stop()
            return
        with home_of(self.host.log.home, app).connected(seconds_max=ASK_SECONDS_MAX) as connection:
            remote(Queries)(connection).stop_app(app)

    # -- where an app runs --------------------------------------------------------------------------------------------

    def _here(self, app: str) -> Runner | None:
        """The runner of this process, if it runs this app."""
        runner = self.host.runner
        return runner if runner is not None and runner.app.name == app else None

    def _homes(self, app: str | None) -> dict[str, Home]:
        return {name: home for name, home in homes(self.host.log.home).items() if app in (None, name)}

    def _run(
        self,
        query: str,
        app: str | None,
        here: Callable[[Runner], T],
        elsewhere: Callable[[Queries, str], T],
        *,
        seconds_max: float = TELL_SECONDS_MAX,
    ) -> T:
        """Call the process that runs the app of a query: this one, or another one over its server."""
        owner = app or self._owner(query)
        if (runner := self._here(owner)) is not None:
            return here(runner)
        with home_of(self.host.log.home, owner).connected(seconds_max=seconds_max) as connection:
            return elsewhere(remote(Queries)(connection), owner)

    def _owner(self, query: str) -> str:
        """The app that has a query of this name, if one app has it."""
        found = self.statuses()
        apps = sorted({one.app for one in found.queries if one.name == query})
        if len(apps) == 1:
            return apps[0]
        if apps:
            raise ArgumentInvalid(name="app", value=None, expected=f"one of {', '.join(apps)}")
        if found.queries:
            raise NotFound(kind="query", name=query, near=_near(query, found.queries))
        if found.silent:
            raise AppSilent(app=found.silent[0])
        names = list(self._homes(None))
        raise RunnerNotFound(name=names[0] if len(names) == 1 else "(any)")

    def _readable(self, query: str, app: str | None) -> str | None:
        """Raise unless the caller may read all topics that a query reads; answer with the app that was given."""
        if not self.caller.may("read", EVERY):
            [status, *_] = self.status(query, app=app)
            for name in status.inputs or (EVERY,):
                self.caller.require("read", name)
        return app

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
