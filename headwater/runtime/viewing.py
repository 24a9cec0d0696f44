"""Where the views of a log can be read now: asked of the app that runs, or read from what it left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headwater.errors import ArgumentInvalid, Locked, RunnerNotFound, ViewNotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import EmbeddedLog
    from headwater.runtime.client import Client
    from headwater.runtime.home import Runner
    from headwater.views import RemoteView, View, ViewKeeper

# Any: what there is to know of a view, as JSON.
Record = dict[str, Any]


class Place(Protocol):
    """Where the views of one app can be read."""

    def names(self) -> list[str]: ...
    def view(self, name: str) -> View | RemoteView: ...
    def describe(self, name: str) -> Record: ...
    # Any: parameters of a statement are of any type.
    def query(self, statement: str, parameters: Any) -> pa.Table: ...


class Views:
    """The views of all apps of a log, or of one."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places
        self._owners: dict[str, str] = {}
        for app, place in places.items():
            for name in place.names():
                if name in self._owners:
                    expected = f"one of {self._owners[name]}, {app}: both have a view {name!r}"
                    raise ArgumentInvalid(name="--app", value=None, expected=expected)
                self._owners[name] = app

    def names(self) -> list[str]:
        return sorted(self._owners)

    @property
    def apps(self) -> set[str]:
        """The apps that have any."""
        return set(self._owners.values())

    def owner(self, name: str) -> str:
        """The app that a view belongs to."""
        from headwater.schema.notation import nearest

        if name not in self._owners:
            raise ViewNotFound(view=name, near=nearest(name, self.names()))
        return self._owners[name]

    def view(self, name: str) -> View | RemoteView:
        """A view, to be asked."""
        return self._places[self.owner(name)].view(name)

    def table(self, name: str) -> pa.Table:
        return self.view(name).table()

    def describe(self, name: str) -> Record:
        app = self.owner(name)
        return {"app": app, **self._places[app].describe(name)}

    # Any: parameters of a statement are of any type.
    def query(self, statement: str, parameters: Any = None) -> pa.Table:
        apps = self.apps
        if len(apps) > 1:
            raise ArgumentInvalid(name="--app", value=None, expected=f"one of {', '.join(sorted(apps))}")
        return self._places[apps.pop()].query(statement, parameters)


class RunningViews:
    """Views that an app keeps now, over its API."""

    def __init__(self, client: Client, runner: Runner) -> None:
        from headwater.views import RemoteView

        self._described = {one["name"]: one for one in client.get("/views")}
        self._views = {name: RemoteView(name, address=runner.address, token=runner.token) for name in self._described}

    def names(self) -> list[str]:
        return list(self._described)

    def view(self, name: str) -> RemoteView:
        return self._views[name]

    def describe(self, name: str) -> Record:
        return {**self._views[name].describe(), "running": True}

    def query(self, statement: str, parameters: Any) -> pa.Table:
        return next(iter(self._views.values())).sql(statement, parameters)

    def close(self) -> None:
        for view in self._views.values():
            view.close()


class StoredViews:
    """Views as their app has left them, or as it keeps them in this process."""

    def __init__(self, keeper: ViewKeeper, *, running: bool = False) -> None:
        self._keeper = keeper
        self._running = running

    def names(self) -> list[str]:
        return self._keeper.names()

    def view(self, name: str) -> View:
        return self._keeper.view(name)

    def describe(self, name: str) -> Record:
        return {**self._keeper.view(name).describe(), "running": self._running}

    def query(self, statement: str, parameters: Any) -> pa.Table:
        return self._keeper.store.query(statement, parameters)

    def close(self) -> None:
        self._keeper.store.close()


@contextlib.contextmanager
def views_of(
    log: EmbeddedLog, app: str | None = None, *, kept: Mapping[str, ViewKeeper] | None = None
) -> Iterator[Views]:
    """The views of the log's apps, or of one of them, while the block runs; `kept` are those that this process keeps."""
    folder = log.path / "apps"
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if app is not None:
        if app not in names:
            raise RunnerNotFound(app=app)
        names = [app]
    with contextlib.ExitStack() as stack:
        places: dict[str, RunningViews | StoredViews] = {}
        for name in names:
            if kept is not None and name in kept:
                places[name] = StoredViews(kept[name])
                continue
            place = _place(name, folder / name, log)
            if place is not None:
                stack.callback(place.close)
                places[name] = place
        yield Views(places)


def _place(app: str, home: Path, log: EmbeddedLog) -> RunningViews | StoredViews | None:
    from headwater.runtime.client import Client, find_runner
    from headwater.views import stored_views

    runner = find_runner(home)
    if runner is not None:
        return RunningViews(Client(app, home), runner)
    if not (home / "views.duckdb").exists():
        return None
    try:
        return StoredViews(stored_views(log=log, path=home / "views.duckdb"))
    except Locked:
        runner = find_runner(home)  # it began in this moment
        if runner is None:
            raise
        return RunningViews(Client(app, home), runner)
