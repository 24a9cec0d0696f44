"""Where the views of a log can be read now: asked of the app that runs, or read from what it left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from headwater.errors import AppSilent, Locked, RunnerNotFound, TopicNotFound, ViewAmbiguous, ViewNotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import EmbeddedLog
    from headwater.runtime.client import Client
    from headwater.runtime.home import Runner
    from headwater.views import RemoteView, View, ViewKeeper
    from headwater.views.bounds import Bounds, Stoppable

#: How long an app may take to say which views it has; one that hangs must not hold up those who ask.
ASK_SECONDS_MAX = 5.0
# Any: what there is to know of a view, as JSON.
Record = dict[str, Any]


class Place(Protocol):
    """Where the views of one app can be read."""

    def names(self) -> list[str]: ...
    def view(self, name: str) -> View | RemoteView: ...
    def describe(self, name: str) -> Record: ...
    # Any: parameters of a statement are of any type.
    def query(self, statement: str, parameters: Any, *, stoppable: Stoppable | None = None) -> pa.Table | None: ...


class Views:
    """The views of all apps of a log, or of one.

    Two apps may have a view of the same name. That is no matter until somebody asks for it and does not say whose.
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
        """The apps that run, but did not answer; whoever asks for one of their views gets `AppSilent`."""
        return tuple(app for app, place in self._places.items() if isinstance(place, SilentViews))

    @property
    def apps(self) -> set[str]:
        """The apps that have any."""
        return {app for apps in self._owners.values() for app in apps}

    def owner(self, name: str) -> str:
        """The app that a view belongs to."""
        from headwater.schema.notation import nearest

        apps = self._owners.get(name)
        if apps is None:
            raise ViewNotFound(view=name, near=nearest(name, self.names()))
        if len(apps) > 1:
            raise ViewAmbiguous(view=name, apps=", ".join(sorted(apps)))
        return apps[0]

    def view(self, name: str) -> View | RemoteView:
        """A view, to be asked."""
        return self._places[self.owner(name)].view(name)

    def table(self, name: str) -> pa.Table:
        return self.view(name).table()

    def describe(self, name: str) -> Record:
        return self._described(self.owner(name), name)

    def described(self) -> list[Record]:
        """All views, also those of the same name, each with its app; without those of apps that are silent."""
        owners = [(app, name) for name in self.names() for app in self._owners[name]]
        return [self._described(app, name) for app, name in owners if app not in self.silent]

    def _described(self, app: str, name: str) -> Record:
        return {"app": app, **self._places[app].describe(name)}

    # Any: parameters of a statement are of any type.
    def query(
        self, statement: str, parameters: Any = None, *, over: Sequence[str], stoppable: Stoppable | None = None
    ) -> pa.Table | None:
        """The result of a statement over these views, run by the app that has them; None where they are of several."""
        apps = {self.owner(name) for name in over}
        if len(apps) != 1:
            return None
        return self._places[apps.pop()].query(statement, parameters, stoppable=stoppable)


class RunningViews:
    """Views that an app keeps now, over its API."""

    def __init__(self, client: Client, runner: Runner, *, plain: bool = False) -> None:
        from headwater.views import RemoteView

        self._plain = plain

        self._described = {one["name"]: one for one in client.get("/views")}
        self._views = {name: RemoteView(name, address=runner.address, token=runner.token) for name in self._described}

    def names(self) -> list[str]:
        return list(self._described)

    def view(self, name: str) -> RemoteView:
        return self._views[name]

    def describe(self, name: str) -> Record:
        return {**self._views[name].describe(), "running": True}

    def query(self, statement: str, parameters: Any, *, stoppable: Stoppable | None = None) -> pa.Table | None:  # noqa: ARG002
        from headwater.views.conditions import parser
        from headwater.views.parsing import is_plain

        if self._plain and not is_plain(parser(), statement):
            return None
        # The app ends what takes too long for its own bounds.
        return next(iter(self._views.values())).sql(statement, parameters)

    def close(self) -> None:
        for view in self._views.values():
            view.close()


class SilentViews:
    """Views of an app that runs, but does not answer: their names are known, and nothing else."""

    def __init__(self, app: str, home: Path, log: EmbeddedLog) -> None:
        self._app = app
        folder = home / "queries"
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

    def close(self) -> None:
        """Nothing is open."""


class StoredViews:
    """Views as their app has left them, or as it keeps them in this process."""

    def __init__(self, keeper: ViewKeeper, *, running: bool = False, bounds: Bounds | None = None) -> None:
        from headwater.views.bounds import UNBOUNDED

        self._keeper = keeper
        self._running = running
        self._bounds = bounds or UNBOUNDED

    def names(self) -> list[str]:
        return self._keeper.names()

    def view(self, name: str) -> View:
        # How many rows there may be is for answers; a view may be far larger than what a statement makes of it.
        return self._keeper.view(name).within(replace(self._bounds, rows_max=None, bytes_max=None))

    def describe(self, name: str) -> Record:
        return {**self._keeper.view(name).describe(), "running": self._running}

    def query(self, statement: str, parameters: Any, *, stoppable: Stoppable | None = None) -> pa.Table:
        return self._keeper.store.query(statement, parameters, bounds=self._bounds, stoppable=stoppable)

    def close(self) -> None:
        self._keeper.store.close()


@contextlib.contextmanager
def views_of(
    log: EmbeddedLog,
    app: str | None = None,
    *,
    kept: Mapping[str, ViewKeeper] | None = None,
    bounds: Bounds | None = None,
    plain: bool = False,
) -> Iterator[Views]:
    """The views of the log's apps, or of one of them, while the block runs; `kept` are those that this process keeps.

    `bounds` are for statements over what an app has left; one that runs has its own. An app that does not answer is in
    nobody's way, unless it is the one that is asked for. With `plain` an app that runs is asked to run only statements
    that take little; for others it gives its rows.
    """
    folder = log.path / "apps"
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if app is not None:
        if app not in names:
            raise RunnerNotFound(app=app)
        names = [app]
    with contextlib.ExitStack() as stack:
        places: dict[str, Place] = {}
        for name in names:
            if kept is not None and name in kept:
                places[name] = StoredViews(kept[name], bounds=bounds)
                continue
            place = _place(name, folder / name, log, bounds, plain=plain)
            if isinstance(place, SilentViews) and name == app:
                raise AppSilent(app=name)
            if place is not None:
                stack.callback(place.close)
                places[name] = place
        yield Views(places)


def _place(
    app: str, home: Path, log: EmbeddedLog, bounds: Bounds | None, *, plain: bool
) -> RunningViews | SilentViews | StoredViews | None:
    from headwater.views import stored_views

    running = _running(app, home, log, plain=plain)
    if running is not None:
        return running
    if not (home / "views.duckdb").exists():
        return None
    try:
        return StoredViews(stored_views(log=log, path=home / "views.duckdb"), bounds=bounds)
    except Locked:
        running = _running(app, home, log, plain=plain)  # it began in this moment
        if running is None:
            raise
        return running


def _running(app: str, home: Path, log: EmbeddedLog, *, plain: bool) -> RunningViews | SilentViews | None:
    """The views of an app that some process runs now."""
    from headwater.runtime.client import Client, find_runner

    runner = find_runner(home)
    if runner is None:
        return None
    try:
        return RunningViews(Client(app, home, seconds_max=ASK_SECONDS_MAX), runner, plain=plain)
    except RunnerNotFound:
        return None if find_runner(home) is None else SilentViews(app, home, log)


def _is_compact(log: EmbeddedLog, topic: str) -> bool:
    """Whether a query keeps its last rows, as all do that are views."""
    try:
        return log.topic(topic).compact
    except TopicNotFound:
        return False
