"""Views: listed, read, subscribed to, rebuilt and dropped; wherever their app runs.

A view is maintained by this process, by another process of this machine, or by none; then its rows are those of the
last run. Another process is called over its own server, with the token in the app's home. Conditions of callers may
take any time and memory, so they run in bounded processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwater.apps.errors import RunnerNotFound
from headwater.apps.home import home_of, homes
from headwater.apps.views import LogViews, RunningViews, views_of
from headwater.errors import ArgumentInvalid, NotFound
from headwater.services.json_form import from_json, to_json
from headwater.services.remote import remote
from headwater.services.route import Service, Table, route
from headwater.services.statements import StatementRequest, run_here
from headwater.views.errors import StatementExceeded

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.apps.runner import Runner
    from headwater.views import RemoteView, Subscription, View, ViewKeeper
    from headwater.views.statement import Bounds

#: A rebuild reads the whole topic of a view.
REBUILD_SECONDS_MAX = 900.0


@dataclass(frozen=True, kw_only=True)
class ViewDescription:
    """The declaration of a view, its position, and whether a process maintains it."""

    name: str
    app: str
    running: bool = True
    version: int
    versions: list[int] = field(default_factory=list)
    topic: str
    key: list[str]
    schema: str
    producers: list[str] = field(default_factory=list)
    topic_id: str = ""
    offsets: dict[str, int] = field(default_factory=dict)
    """The first offset of each partition of its topic that is not applied yet."""
    sources: dict[str, dict[str, int]] = field(default_factory=dict)
    """The first offsets of the topics that its query reads which it does not reflect yet."""
    applied_at_us: int = 0
    freshness: float = 0.0
    """For how many seconds the oldest change that is not applied yet has been waiting."""
    lag_rows: int | None = None
    """Rows of the topics that its query reads which it does not reflect yet; null before its first change."""
    lag_seconds: float | None = None
    """How long the oldest of these rows has waited."""
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class ViewList:
    """The views of a log's apps, and the apps that run but did not answer."""

    views: list[ViewDescription] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of a read: rows that reflect at least these offsets of topics, within so many seconds.

    `app` is needed if several apps have a view of one name. An answer in Arrow is not bounded in rows. `reveal` decrypts
    personal values of events, for callers with `admin` of the view; without it they are encrypted.
    """

    at_least: dict[str, dict[int, int]] | None = None
    timeout: float | None = None
    app: str | None = None
    arrow: bool = True
    reveal: bool = False


DEFAULTS = ReadOptions()


class Views(Service):
    """What can be done with views. Without `app`, those of the app of this process are meant, or of all apps."""

    @route("GET", "/views")
    def all(self, *, app: str | None = None) -> ViewList:
        """List the views that the caller may see, with how far behind each is."""
        with self._opened(app) as views:
            found = [from_json(ViewDescription, one) for one in views.described()]
            silent = list(views.silent) if self.caller.may("read", "*") else []
        return ViewList(views=[one for one in found if self.caller.sees(one.topic)], silent=silent)

    @route("GET", "/views/{view}", scope="read:{view}")
    def describe(self, view: str, *, app: str | None = None) -> ViewDescription:
        """Describe a view."""
        with self._opened(app) as views:
            found: ViewDescription = from_json(ViewDescription, views.describe(view))
        return found

    @route("POST", "/views/{view}/rebuild", scope="admin:*")
    def rebuild(self, view: str, *, app: str | None = None, dry_run: bool = False) -> ViewDescription:
        """Rebuild the stored rows of a view from its topic beside those in use, and switch to them. The app must run."""
        found = self.describe(view, app=app)
        if (runner := self.runner(found.app)) is None:
            with home_of(self.host.log.home, found.app).connected(seconds_max=REBUILD_SECONDS_MAX) as connection:
                return found if dry_run else remote(Views)(connection).rebuild(view, app=found.app)
        if not dry_run:
            runner.rebuild_view(view)
        return self.describe(view, app=found.app)

    @route("DELETE", "/views/{view}", scope="admin:*")
    def drop(self, view: str, *, app: str | None = None, dry_run: bool = False) -> str:
        """Drop the stored rows of a view that its app no longer declares. Its topic stays. The app must run."""
        owner = app or self._owner(view)
        if (runner := self.runner(owner)) is not None:
            if not dry_run:
                runner.drop_view(view)
            return owner
        with home_of(self.host.log.home, owner).connected(seconds_max=REBUILD_SECONDS_MAX) as connection:
            return owner if dry_run else remote(Views)(connection).drop(view, app=owner)

    # -- reading ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def open(self, view: str, *, app: str | None = None) -> Iterator[View | RemoteView]:
        """Open a view to read it while the block runs."""
        self.caller.require("read", view)
        with self._opened(app) as views:
            yield views.view(view)

    @contextlib.contextmanager
    def tables(self, *, app: str | None = None) -> Iterator[LogViews]:
        """Open all views, as tables for SQL, while the block runs."""
        self.caller.require("read", "*")
        with self._opened(app) as views:
            yield views

    # Any, here and below: values of any type, as JSON.
    @route("POST", "/views/{view}/get", scope="read:{view}", audited=False, at_hand="get_at_hand")
    def get(self, view: str, key: dict[str, Any], options: ReadOptions = DEFAULTS) -> Table:
        """Look a row up by its key; null if there is none."""
        from headwater.views.wire import unpacked

        self._check_reveal(view, options)
        return Table(self._revealed(self._look_up(view, unpacked(key) or {}, options), options), is_row=True)

    def get_at_hand(self, view: str, key: dict[str, Any], options: ReadOptions = DEFAULTS) -> Table | None:
        """Look up a row of which this process has the place in memory: a thread would take longer than the look-up."""
        from headwater.views.wire import unpacked

        self.caller.require("read", view)
        runner = self.runner(options.app)
        if runner is None or options.at_least or options.reveal:
            return None
        found = runner.keeper.view(view).glance(unpacked(key) or {})
        return None if found is None else Table(found, is_row=True)

    def _look_up(self, view: str, key: Mapping[str, Any], options: ReadOptions) -> pa.Table:
        if (runner := self.runner(options.app)) is not None:
            with self.waited(view, options):
                return runner.keeper.view(view).lookup(key)
        with self._opened(options.app, bounds=self.host.settings.statement_bounds) as views:
            return views.view(view).table(key, limit=1, at_least=options.at_least, timeout=options.timeout)

    @route("POST", "/views/{view}/rows", scope="read:{view}", audited=False)
    def rows(
        self,
        view: str,
        where: str | dict[str, Any] | None = None,
        parameters: Any = None,
        limit: int | None = None,
        options: ReadOptions = DEFAULTS,
    ) -> Table:
        """Read the rows of a view, or those that meet a condition. More rows than an answer may have are an error (422)."""
        self._check_reveal(view, options)
        found = self._revealed(self._rows(view, where, parameters, limit, options), options)
        return self.bounded(found, view, options)

    def _rows(
        self, view: str, where: str | dict[str, Any] | None, parameters: Any, limit: int | None, options: ReadOptions
    ) -> pa.Table:
        from headwater.views.duckdb_types import restored
        from headwater.views.wire import unpacked

        bounds, given = self.bounds(options), unpacked(parameters)
        with self.waited(view, options) as elsewhere:
            if elsewhere is not None:
                return elsewhere.table(
                    where, parameters=given, limit=limit, at_least=options.at_least, timeout=options.timeout
                )
        if (runner := self.runner(options.app)) is None:
            # One row more than an answer may have tells that there are too many.
            most = None if bounds.rows_max is None else bounds.rows_max + 1
            limit = most if limit is None else limit if most is None else min(limit, most)
            return self.run(
                StatementRequest(
                    view=view, where=where, parameters=parameters, limit=limit, app=options.app, bounds=bounds
                )
            )
        reader = runner.keeper.view(view).within(bounds)
        statement = None
        if self.host.statements is not None and isinstance(where, str):
            statement = _costly_statement(reader, where, limit)
        if statement is None:
            return reader.table(where, parameters=given, limit=limit)
        request = StatementRequest(statement=statement, parameters=parameters, app=runner.app.name, bounds=bounds)
        return restored(self.run(request), reader.spec.schema)

    def _check_reveal(self, view: str, options: ReadOptions) -> None:
        if options.reveal:
            self.caller.require("admin", view)

    def _revealed(self, rows: pa.Table, options: ReadOptions) -> pa.Table:
        from headwater.sourcing import reveal

        return reveal(self.host.log, rows) if options.reveal else rows

    def subscribe(self, view: str, start: str | None, *, app: str | None = None) -> Subscription:
        """Subscribe to a view that this process maintains: all rows, then each change; from a position, only changes."""
        from headwater.views import Subscription

        self.caller.require("read", view)
        if (runner := self.runner(app)) is None:
            owner = self.describe(view, app=app).app
            active = home_of(self.host.log.home, owner).active_runner()
            if active is None:
                raise RunnerNotFound(name=owner)
            expected = f"an app that this server runs; {owner!r} is served at {active.address}"
            raise ArgumentInvalid(name="app", value=owner, expected=expected)
        return Subscription(runner.keeper, view, start)

    # -- where a view is ----------------------------------------------------------------------------------------------

    def runner(self, app: str | None) -> Runner | None:
        """The runner of this process, if it runs the app."""
        runner = self.host.runner
        return runner if runner is not None and app in (None, runner.app.name) else None

    @contextlib.contextmanager
    def waited(self, view: str, options: ReadOptions) -> Iterator[RemoteView | None]:
        """Wait until a view reflects the offsets that a reader asks for.

        If another process maintains the view, that process has to wait: its view is yielded, to be read there.
        """
        from headwater.views import RemoteView
        from headwater.views.view import wait_for_offsets

        if not options.at_least:
            yield None
            return
        with self._opened(options.app) as views:
            found = views.view(view)
            if not isinstance(found, RemoteView):
                wait_for_offsets(found.keeper, view, options.at_least, options.timeout)
            yield found if isinstance(found, RemoteView) else None

    def run(self, request: StatementRequest) -> pa.Table:
        """Run a statement of a caller in a bounded process; in this process if the host has none."""
        if self.host.statements is not None:
            return self.host.statements.query(request)
        return run_here(self.host.log, request, kept=self.kept)

    def bounded(self, table: pa.Table, statement: str, options: ReadOptions) -> Table:
        """The answer, unless JSON would have more rows than it may: an app of another process has bounds of its own."""
        rows_max = self.host.settings.answer_rows_max
        if not options.arrow and table.num_rows > rows_max:
            raise StatementExceeded(statement=statement[:200], bound=f"{rows_max:,} rows")
        return Table(table)

    def bounds(self, options: ReadOptions) -> Bounds:
        """The bounds of a statement whose answer has this form."""
        bounds = self.host.settings.statement_bounds
        if self.runner(options.app) is not None:
            # The process of a statement over large views needs all of their rows, and bounds what it makes of them.
            bounds = replace(bounds, bytes_max=None)
        return replace(bounds, rows_max=None) if options.arrow else bounds

    @property
    def kept(self) -> dict[str, ViewKeeper]:
        """The views that this process maintains, by app."""
        runner = self.host.runner
        return {} if runner is None else {runner.app.name: runner.keeper}

    @contextlib.contextmanager
    def _opened(self, app: str | None, *, bounds: Bounds | None = None) -> Iterator[LogViews]:
        runner = self.host.runner
        own = app or (None if runner is None else runner.app.name)
        with views_of(self.host.log, own, kept=self.kept, bounds=bounds) as views:
            yield views

    def _owner(self, view: str) -> str:
        """The app of a view; of one that is declared no longer, the only app of the log."""
        try:
            with self._opened(None) as views:
                return views.owner(view)
        except NotFound:
            names = [*self.kept] or [*homes(self.host.log.home)]
            if len(names) != 1:
                raise
            return names[0]


def _costly_statement(view: View, where: str, limit: int | None) -> str | None:
    """The statement of a condition that may take more than one pass over the rows; None for a plain condition.

    Another store than DuckDB runs statements in a server of its own, and in its own language.
    """
    from headwater.views.conditions import check_condition, parser
    from headwater.views.duckdb_store import DuckStore
    from headwater.views.duckdb_types import quoted, selected
    from headwater.views.sql_parser import is_plain

    if not isinstance(view.keeper.store, DuckStore):
        return None
    condition = check_condition(view.name, where)
    bound = f" LIMIT {int(limit)}" if limit is not None else ""
    statement = f"SELECT {selected(list(view.spec.schema))} FROM {quoted(view.name)} WHERE {condition}{bound}"
    return None if is_plain(parser(), statement) else statement


# Any: the remote form of `Views`, which has a connection.
@contextlib.contextmanager
def _open_remote(self: Any, view: str, *, app: str | None = None) -> Iterator[RemoteView]:
    from headwater.views import RemoteView

    yield RemoteView(view, connection=self.connection, app=app)


@contextlib.contextmanager
def _remote_tables(self: Any, *, app: str | None = None) -> Iterator[LogViews]:
    by_app: dict[str, list[dict[str, Any]]] = {} if app is None else {app: []}
    for one in self.all(app=app).views:
        by_app.setdefault(one.app, []).append(to_json(one))
    yield LogViews({name: RunningViews(self.connection, name, found) for name, found in by_app.items()})


Views.remote_methods = {"open": _open_remote, "tables": _remote_tables}
