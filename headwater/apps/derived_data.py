"""What apps and syncs derive from topics, for an erasure: it is built again and searched, or listed with what to do.

Stores of views and targets are searched by their rows, since many compress their pages. The store of a stopped app is
always built again, in a new file, so that no freed page is left. State and checkpoints are files of the log's folder,
which the erasure itself searches.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from headwater.apps.home import DeclaredQuery, Home, homes
from headwater.apps.views import LogViews, StoredViews, views_of
from headwater.errors import HeadwaterError, NotPossible
from headwater.filelock import LeaderLock
from headwater.log import Log
from headwater.sinks.retry import RetryLater
from headwater.sourcing.erasure import Place, Traces
from headwater.sourcing.personal_values import PersonalValues
from headwater.sync import Sync, SyncConfig, SyncStore
from headwater.sync.port import Target, TargetTable
from headwater.sync.tables import topic_tables
from headwater.sync.targets import open_target
from headwater.views import DuckStore, ViewKeeper, stored_views

_FILE_KINDS = ("sqlite", "duckdb", "delta", "parquet")


def derived_places(log: Log) -> list[Place]:
    """The apps and the syncs of a log."""
    apps: list[Place] = [AppPlace(log, name, home) for name, home in homes(log.home).items()]
    return [*apps, *(SyncPlace(log, config) for config in SyncStore(log).configs().values())]


class AppPlace:
    """The views of an app, and the sinks of its queries."""

    def __init__(self, log: Log, app: str, home: Home) -> None:
        self._log, self._app, self._home = log, app, home
        self._name = f"views of app {app}"

    def erase(self, values: PersonalValues, topics: set[str], traces: Traces) -> None:
        """Build the store of a stopped app again, and search the views; list the sinks that got values' rows."""
        with self._stopped() as is_stopped:
            try:
                if is_stopped and self._home.views.exists():
                    rebuild_store(self._log, self._home.views)
                    traces.rewritten.append(self._name)
                found = self._search(values, is_stopped=is_stopped)
            except HeadwaterError as error:
                remedy = f"They cannot be searched ({error}): correct that, or start the app, and erase again."
                traces.leave(values.subjects, self._name, remedy)
            else:
                for subject, topic in found:
                    remedy = f"Stop the app, and erase again with `--rewrite {topic}`, the topic of one of its views."
                    traces.leave([subject], self._name, remedy)
                traces.searched.append(self._name)
        for query in _readers(self._home.queries(), topics):
            traces.queries.append(self._home.path / "queries" / query.name)
            for sink in query.sinks:
                remedy = "Delete what the sink has of the subject, and erase again with `--accept` and this name."
                traces.leave(values.subjects, f"sink {sink} of query {query.name} of app {self._app}", remedy)

    @contextlib.contextmanager
    def _stopped(self) -> Iterator[bool]:
        """Keep the app from being started meanwhile; false if it runs."""
        lock = LeaderLock(self._home.path / "runner.lock")
        is_stopped = lock.acquire()
        try:
            yield is_stopped
        finally:
            if is_stopped:
                lock.release()

    def _search(self, values: PersonalValues, *, is_stopped: bool) -> list[tuple[str, str]]:
        """The subjects whose values are in views, and the topics of these."""
        with self._views(is_stopped=is_stopped) as views:
            declared = {query.name for query in self._home.queries() if query.kind == "view"}
            missing = sorted(declared & set(self._log.topics()) - set(views.names()))
            if missing:
                why = f"the store of {', '.join(missing)} is not on this machine, or does not answer"
                raise NotPossible(why=why, instead="Start the app")
            return [
                (subject, views.describe(name)["topic"])
                for name in views.names()
                for subject in sorted(values.search.find_in_table(views.view(name).table()))
            ]

    @contextlib.contextmanager
    def _views(self, *, is_stopped: bool) -> Iterator[LogViews | StoredViews]:
        """The views of the app, as it has left them or as it maintains them."""
        if not is_stopped:
            with views_of(self._log, self._app) as views:
                yield views
        elif self._home.views.exists():
            keeper = stored_views(log=self._log, path=self._home.views)
            with contextlib.closing(keeper.store):
                yield StoredViews(keeper)
        else:
            yield LogViews({})


def rebuild_store(log: Log, path: Path) -> None:
    """Build the store of views in a file again from their topics, in a new file. The app must not run."""
    fresh = path.with_name(f"{path.name}.rebuild")
    for leftover in (fresh, Path(f"{fresh}.wal")):
        leftover.unlink(missing_ok=True)
    with contextlib.closing(DuckStore(path, read_only=True)) as old:
        specs = [one.spec for one in old.stored() if one.active]
    with contextlib.closing(DuckStore(fresh)) as store:
        keeper = ViewKeeper(log, store)
        for spec in specs:
            keeper.add(spec)
        keeper.catch_up()
    # What the old file's log has is in the topics, too.
    Path(f"{path}.wal").unlink(missing_ok=True)
    os.replace(fresh, path)


def _readers(queries: Iterable[DeclaredQuery], topics: set[str]) -> list[DeclaredQuery]:
    """The queries that read these topics, or what other queries have made of them."""
    known, found = set(topics), []
    rest = list(queries)
    while readers := [query for query in rest if known & set(query.inputs)]:
        rest = [query for query in rest if query not in readers]
        found += readers
        for query in readers:
            known |= {str(query.output or query.name), *query.side_outputs.values()}
    return found


class SyncPlace:
    """The target of a sync."""

    def __init__(self, log: Log, config: SyncConfig) -> None:
        self._log, self._config = log, config

    def erase(self, values: PersonalValues, topics: set[str], traces: Traces) -> None:  # noqa: ARG002
        """Search the tables of the target; build those again that hold values."""
        name = f"sync {self._config.name}"
        if self._config.kind in _FILE_KINDS:
            traces.files.append(Path(self._config.url.partition(":///")[2]))
        try:
            with contextlib.closing(open_target(self._config)) as target:
                tables = topic_tables(self._log, self._config)
                dirty = [table for table in tables if _found(target, table, values)]
            if dirty and not self._config.transactions:
                with Sync.open(self._log, self._config.name) as sync:
                    for table in dirty:
                        sync.rebuild(table.topic)
                traces.rewritten += [f"{name}, table {table.name}" for table in dirty]
            self._vacuum()
            with contextlib.closing(open_target(self._config)) as target:
                for table in dirty:
                    remedy = f"Its topic has them: erase again with `--rewrite {table.topic}`, or correct the target by hand."
                    traces.leave(_found(target, table, values), f"{name}, table {table.name}", remedy)
            traces.searched.append(name)
        except (HeadwaterError, RetryLater, sqlite3.Error) as error:
            remedy = f"The target cannot be searched ({error}): start it and erase again, or accept it."
            traces.leave(values.subjects, name, remedy)

    def _vacuum(self) -> None:
        """Rewrite the file of a SQLite target: its free pages hold what was there."""
        path = Path(self._config.url.partition(":///")[2])
        if self._config.kind == "sqlite" and path.exists():
            with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=30.0)) as database:
                database.execute("VACUUM")
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _found(target: Target, table: TargetTable, values: PersonalValues) -> set[str]:
    """The subjects whose values are in a table."""
    if target.position(table) is None:
        return set()
    _, pieces = target.scan(table)
    return {subject for rows in pieces for subject in values.search.find_in_table(rows)}
