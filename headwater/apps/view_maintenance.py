"""Maintain the views of an app in the process that runs it: their store, and the thread that applies their topics."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.apps.declaration import Query
from headwater.apps.home import Home
from headwater.apps.views import LOCAL
from headwater.errors import Locked
from headwater.log import Log
from headwater.views import DuckStore, PostgresStore, ViewKeeper, ViewSpec

if TYPE_CHECKING:
    from headwater.apps.app import App
    from headwater.views import ViewStore

#: How long the start of an app waits for a reader of the store.
LOCKED_SECONDS_MAX = 5.0


@contextlib.contextmanager
def kept_views(app: App, home: Home, log: Log) -> Iterator[ViewKeeper]:
    """Maintain the views of an app while the block runs."""
    with contextlib.ExitStack() as stack:
        store = _store(app, home)
        stack.callback(store.close)
        _drop_unfinished(store)
        keeper = ViewKeeper(log, store)
        for query in app.queries:
            identity = home.query_id(query.name, home.versions(query.name, topic=query.output).active.number)
            keep_output(keeper, log, query, producer=identity)
        keeper.start()
        stack.callback(keeper.stop)
        LOCAL[str(home.path)] = keeper
        stack.callback(LOCAL.pop, str(home.path), None)
        yield keeper


def keep_output(keeper: ViewKeeper, log: Log, query: Query, *, producer: str | None) -> None:
    """Maintain the view of a query as its topic is declared now, and follow writes through the topics that it writes."""
    producers = (producer,) if producer is not None else ()
    for name in (*([query.output] if query.kind == "topic" else []), *query.side_outputs.values()):
        keeper.derived[str(name)] = producers
    if query.kind != "view" or query.name not in log.topics():
        return
    topic = log.topic(query.name)
    spec = ViewSpec(
        name=query.name,
        topic=topic.name,
        key=topic.key,
        schema=topic.schema,
        version=_version(keeper, query.name),
        producers=producers,
    )
    keeper.add(spec)


def rebuild(keeper: ViewKeeper, name: str) -> ViewSpec:
    """Rebuild the rows of a view from its topic beside those that are served, and switch to them when they are complete."""
    old = keeper.view(name).spec
    new = replace(old, version=old.version + 1)
    keeper.add(new)
    keeper.catch_up()
    keeper.switch(name, new.version)
    keeper.remove(name, version=old.version, drop=True)
    return new


def _drop_unfinished(store: ViewStore) -> None:
    """Drop the rows of interrupted rebuilds: not served yet, or no longer."""
    for one in store.stored():
        if not one.active:
            store.drop(one.spec.name, one.spec.version)


def _version(keeper: ViewKeeper, name: str) -> int:
    """Return the version of a view that is served; 1 for a new one."""
    return max((one.spec.version for one in keeper.store.stored() if one.spec.name == name and one.active), default=1)


def _store(app: App, home: Home) -> ViewStore:
    if app.view_store is None:
        return _free_store(home.views)
    return PostgresStore(app.view_store, app=app.name)


def _free_store(path: Path) -> DuckStore:
    """Open the store in a file. Retry while another process reads what the last run has left."""
    deadline = time.monotonic() + LOCKED_SECONDS_MAX
    while True:
        try:
            return DuckStore(path)
        except Locked:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
