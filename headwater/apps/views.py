"""Where the views of a log can be read: through the API of the app that runs, or from the store that it left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from headwater.apps.errors import AppSilent, RunnerNotFound
from headwater.apps.home import Home, homes
from headwater.errors import Locked, NotFound, NotPossible, did_you_mean
from headwater.log.errors import ServerUnreachable

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.apps.app import App
    from headwater.log import Log
    from headwater.log.remote.connection import Connection
    from headwater.views import RemoteView, Subscription, View, ViewKeeper
    from headwater.views.statement import Bounds, Stoppable

#: How long to wait for the list of an app's views.
ASK_SECONDS_MAX = 5.0
# Any: what there is to know of a view, as JSON.
Record = dict[str, Any]
#: The keeper of each app that runs in this process, by the app's home.
LOCAL: dict[str, ViewKeeper] = {}


class Place(Protocol):
    """Where the views of one app can be read."""

    def names(self) -> list[str]: ...
    def view(self, name: str) -> View | RemoteView: ...
    def describe(self, name: str) -> Record: ...
    # Any: parameters of a statement are of any type.
    def query(self, statement: str, parameters: Any, *, stoppable: Stoppable | None = None) -> pa.Table | None: ...


class LogViews:
    """The views of all apps of a log, or of one.

    Two apps may have a view of the same name. `owner` raises `NotPossible` for it.
    """

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places
        self._owners: dict[str, list[str]] = {}
        for app, place in places.items():
            for name in place.names():
                self._owners.setdefault(name, []).append(app)

    def names(self) -> list[str]:
        return sorted(self._owners)

    @property
    def silent(self) -> tuple[str, ...]:
        """The apps that run, but did not answer; access to one of their views raises `AppSilent`."""
        return tuple(app for app, place in self._places.items() if isinstance(place, SilentViews))

    @property
    def apps(self) -> set[str]:
        """The apps that have a view."""
        return {app for apps in self._owners.values() for app in apps}

    def owner(self, name: str) -> str:
        """Return the app that a view belongs to."""

        apps = self._owners.get(name)
        if apps is None:
            raise NotFound(kind="view", name=name, near=did_you_mean(name, self.names()))
        if len(apps) > 1:
            raise NotPossible(
                why=f"Several apps have a view {name!r}: {', '.join(sorted(apps))}",
                instead="Say whose: `--app` on the command line, `?app=…` over HTTP. In SQL, "
                f"`log.{name}` is the topic of this name",
            )
        return apps[0]

    def view(self, name: str) -> View | RemoteView:
        """Return a view to query."""
        return self._places[self.owner(name)].view(name)

    def table(self, name: str) -> pa.Table:
        return self.view(name).table()

    def describe(self, name: str) -> Record:
        return self._described(self.owner(name), name)

    def described(self) -> list[Record]:
        """Describe all views with their apps, without those of apps that did not answer."""
        owners = [(app, name) for name in self.names() for app in self._owners[name]]
        return [self._described(app, name) for app, name in owners if app not in self.silent]

    def _described(self, app: str, name: str) -> Record:
        return {"app": app, **self._places[app].describe(name)}

    # Any: parameters of a statement are of any type.
    def query(
        self, statement: str, parameters: Any = None, *, over: Sequence[str], stoppable: Stoppable | None = None
    ) -> pa.Table | None:
        """Run a statement over these views in the app that has them; None if they belong to several apps."""
        apps = {self.owner(name) for name in over}
        if len(apps) != 1:
            return None
        return self._places[apps.pop()].query(statement, parameters, stoppable=stoppable)


class RunningViews:
    """The views of an app that another process runs, over a server."""

    def __init__(self, connection: Connection, app: str, described: Sequence[Record], *, plain: bool = False) -> None:
        from headwater.views import RemoteView

        self._plain = plain
        self._described = {one["name"]: one for one in described}
        self._views = {name: RemoteView(name, connection=connection, app=app) for name in self._described}

    def names(self) -> list[str]:
        return list(self._described)

    def view(self, name: str) -> RemoteView:
        return self._views[name]

    def describe(self, name: str) -> Record:
        return self._described[name]

    def query(self, statement: str, parameters: Any, *, stoppable: Stoppable | None = None) -> pa.Table | None:  # noqa: ARG002
        from headwater.views.conditions import parser
        from headwater.views.sql_parser import is_plain

        if self._plain and not is_plain(parser(), statement):
            return None
        # The app ends statements that exceed its own bounds.
        return next(iter(self._views.values())).sql(statement, parameters)


class SilentViews:
    """The views of an app that runs, but does not answer: only their names are known."""

    def __init__(self, app: str, home: Home, log: Log) -> None:
        self._app = app
        folder = home.path / "queries"
        queries = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        self._names = [name for name in queries if _is_compact(log, name)]

    def names(self) -> list[str]:
        return self._names

    def view(self, name: str) -> NoReturn:  # noqa: ARG002
        raise AppSilent(app=self._app)

    def describe(self, name: str) -> NoReturn:
        self.view(name)

    def query(self, statement: str, parameters: Any, *, stoppable: Stoppable | None = None) -> NoReturn:  # noqa: ARG002
        raise AppSilent(app=self._app)


class StoredViews:
    """Views as their app has left them, or as this process maintains them."""

    def __init__(self, keeper: ViewKeeper, *, running: bool = False, bounds: Bounds | None = None) -> None:
        from headwater.views.statement import UNBOUNDED

        self._keeper = keeper
        self._running = running
        self._bounds = bounds or UNBOUNDED

    def names(self) -> list[str]:
        return self._keeper.names()

    def view(self, name: str) -> View:
        # The bounds on rows are for results; a view may be far larger than the result of a statement over it.
        return self._keeper.view(name).within(replace(self._bounds, rows_max=None, bytes_max=None))

    def describe(self, name: str) -> Record:
        return {**self._keeper.view(name).describe(), "running": self._running}

    def query(self, statement: str, parameters: Any, *, stoppable: Stoppable | None = None) -> pa.Table:
        return self._keeper.store.query(statement, parameters, bounds=self._bounds, stoppable=stoppable)


@contextlib.contextmanager
def views_of(
    log: Log,
    app: str | None = None,
    *,
    kept: Mapping[str, ViewKeeper] | None = None,
    bounds: Bounds | None = None,
    plain: bool = False,
) -> Iterator[LogViews]:
    """Open the views of the log's apps, or of one app; `kept` are those that this process maintains.

    `bounds` are for statements over the store of a stopped app; a running app has its own. An app that does not answer is
    an error only if it is the one that is named. With `plain` a running app runs only statements that are cheap; for
    others it sends its rows.
    """
    found = homes(log.home)
    if app is not None:
        if app not in found and app not in (kept or {}):
            raise RunnerNotFound(name=app)
        found = {name: home for name, home in found.items() if name == app}
    with contextlib.ExitStack() as stack:
        places: dict[str, Place] = {
            name: StoredViews(keeper, running=True, bounds=bounds)
            for name, keeper in (kept or {}).items()
            if app in (None, name)
        }
        for name, home in found.items():
            if name in places:
                continue
            place = _place(name, home, log, bounds, plain=plain, stack=stack)
            if isinstance(place, SilentViews) and name == app:
                raise AppSilent(app=name)
            if place is not None:
                places[name] = place
        yield LogViews(places)


def _place(
    app: str, home: Home, log: Log, bounds: Bounds | None, *, plain: bool, stack: contextlib.ExitStack
) -> Place | None:
    from headwater.views import stored_views

    running = _running(app, home, log, plain=plain, stack=stack)
    if running is not None:
        return running
    if not home.views.exists():
        return None
    try:
        keeper = stored_views(log=log, path=home.views)
    except Locked:
        running = _running(app, home, log, plain=plain, stack=stack)  # the app has started in the meantime
        if running is None:
            raise
        return running
    stack.callback(keeper.store.close)
    return StoredViews(keeper, bounds=bounds)


def _running(
    app: str, home: Home, log: Log, *, plain: bool, stack: contextlib.ExitStack
) -> RunningViews | SilentViews | None:
    """Return the views of an app that another process runs."""
    try:
        connection = home.connect(seconds_max=ASK_SECONDS_MAX)
    except RunnerNotFound:
        return None
    stack.callback(connection.close)
    try:
        described = connection.get("/views", app=app)["views"]
    except ServerUnreachable:
        return SilentViews(app, home, log) if home.is_held() else None
    return RunningViews(connection, app, described, plain=plain)


def _is_compact(log: Log, topic: str) -> bool:
    """Whether the topic of a query is compacted, as that of a view is."""
    try:
        return log.topic(topic).compact
    except NotFound:
        return False


class AppViews(Mapping[str, "View | RemoteView | StoppedView"]):
    """`app.views["spend"]`: look-ups, SQL and subscriptions. If the app does not run, its last state is read."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __getitem__(self, name: str) -> View | RemoteView | StoppedView:
        if name not in list(self):
            raise NotFound(kind="query", name=name, near=did_you_mean(name, self))
        here = LOCAL.get(str(self._app.home))
        if here is not None:
            return here.view(name)
        runner = Home(self._app.home).active_runner()
        if runner is not None:
            from headwater.views import RemoteView

            return RemoteView(name, address=runner.address, token=runner.token, app=self._app.name)
        return StoppedView(self._app, name)

    def __iter__(self) -> Iterator[str]:
        return iter([query.name for query in self._app.queries if query.kind == "view"])

    def __len__(self) -> int:
        return sum(query.kind == "view" for query in self._app.queries)

    def _repr_html_(self) -> str:
        from headwater.apps.notebook import views_html

        return views_html(self._app)


class StoppedView:
    """A view of an app that does not run, as it was left. The store is open only while it is read."""

    def __init__(self, app: App, name: str) -> None:
        self._app = app
        self.name = name

    def __repr__(self) -> str:
        return f"StoppedView({self.name!r})"

    # Any, here and below: whatever the methods of `View` take.
    def get(self, *arguments: Any, **key: Any) -> dict[str, Any] | None:
        """Return the row of a key; None if there is none."""
        with self._opened() as view:
            return view.get(*arguments, **key)

    def rows(self, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        with self._opened() as view:
            return view.rows(*arguments, **options)

    def table(self, *arguments: Any, **options: Any) -> pa.Table:
        with self._opened() as view:
            return view.table(*arguments, **options)

    def sql(self, *arguments: Any, **options: Any) -> pa.Table:
        with self._opened() as view:
            return view.sql(*arguments, **options)

    def describe(self) -> dict[str, Any]:
        with self._opened() as view:
            return view.describe()

    def subscribe(self, *_: Any, **__: Any) -> Subscription:
        """Raise `RunnerNotFound`: there are no changes while the app does not run."""
        raise RunnerNotFound(name=self._app.name)

    def live(self, **_: Any) -> None:
        """Raise `RunnerNotFound`: there are no changes while the app does not run."""
        raise RunnerNotFound(name=self._app.name)

    def _repr_html_(self) -> str:
        from headwater.views.notebook_card import view_html

        return view_html(self)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[View]:
        from headwater.views import PostgresStore, ViewKeeper, stored_view

        with contextlib.ExitStack() as stack:
            log = stack.enter_context(self._app.open_log())
            if self._app.view_store is not None:
                store = PostgresStore(self._app.view_store, app=self._app.name)
                view = ViewKeeper(log, store, read_only=True).view(self.name)
            else:
                view = stored_view(self.name, log=log, path=self._app.home / "views.duckdb")
            stack.callback(view.keeper.store.close)
            yield view
