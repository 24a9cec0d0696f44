"""Syncs: targets that are kept in step with topics, how far each is, and what can be done with them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Literal

from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.services.route import Service, route
from headwater.sinks.retry import RetryLater
from headwater.sync import Sync, SyncConfig, SyncStore, TableComparison, TargetTable
from headwater.sync.config import Mode
from headwater.sync.tables import topic_tables
from headwater.sync.targets import open_target

State = Literal["new", "in sync", "behind", "paused", "unreachable"]


@dataclass(frozen=True, kw_only=True)
class SyncedTable:
    """One table of a sync: its topic, and how many offsets of the topic are not applied yet."""

    topic: str
    table: str
    pending: int


@dataclass(frozen=True, kw_only=True)
class SyncStatus:
    """A sync and how far it is. `pending` rows of its topics are not in the target yet."""

    name: str
    url: str
    mode: Mode
    state: State
    topics: list[str]
    pending: int | None = None
    dead_letters: bool = False
    error: str = ""
    tables: list[SyncedTable] = field(default_factory=list)


class Syncs(Service):
    """What can be done with syncs. They belong to the whole log, so only callers who see all of it see them."""

    @route("GET", "/syncs", scope="read:*")
    def list_syncs(self) -> list[SyncStatus]:
        """List all syncs with their status."""
        return [self._status(config) for config in self._store.configs().values()]

    @route("GET", "/syncs/{name}", scope="read:*")
    def status(self, name: str) -> SyncStatus:
        """Measure how far a sync is."""
        return self._status(self._store.config(name))

    @route("PUT", "/syncs/{name}", scope="admin:*")
    def create(
        self,
        name: str,
        url: str,
        *,
        topics: list[str] | None = None,
        table: str = "{table}",
        mode: Mode = "current",
        dead_letters: bool = False,
        transactions: bool = False,
        options: dict[str, str] | None = None,
        password_env: str | None = None,
        password_file: str | None = None,
    ) -> SyncStatus:
        """Create a sync. `headwater sync run` runs it."""
        config = SyncConfig(
            name=name,
            url=url,
            topics=tuple(topics or ("*",)),
            table=table,
            mode=mode,
            dead_letters=dead_letters,
            transactions=transactions,
            options=options or {},
            password_env=password_env,
            password_file=password_file,
        )
        return self._status(self._store.create(config))

    @route("POST", "/syncs/{name}/pause", scope="admin:*")
    def pause(self, name: str) -> SyncStatus:
        """Pause a sync. Its topics keep the changes until it goes on."""
        return self._status(self._store.set_paused(name, True))

    @route("POST", "/syncs/{name}/resume", scope="admin:*")
    def resume(self, name: str) -> SyncStatus:
        """Let a paused sync go on."""
        return self._status(self._store.set_paused(name, False))

    @route("POST", "/syncs/{name}/compare", scope="admin:*")
    def compare(self, name: str, *, repair: bool = False, source: bool = False) -> list[TableComparison]:
        """Compare the target with its topics, key by key; with `repair`, correct the rows that differ.

        With `source`, compare it with the tables of the databases that the topics capture.
        """
        if repair and source:
            raise ArgumentInvalid(
                name="repair",
                value=repair,
                expected="false with `source`: repair from the topics, and take a new snapshot of a table that its topic lacks",
            )
        config = self._store.config(name)
        with contextlib.closing(open_target(config)) as target:
            sync = Sync(self.log, config, target)
            return sync.compare_with_source() if source else sync.compare(repair=repair)

    @route("POST", "/syncs/{name}/rebuild", scope="admin:*")
    def rebuild(self, name: str, *, topic: str | None = None) -> int:
        """Make the tables of a target again from the whole topics, and return the number of rows.

        A process that runs the sync stops: run it again afterwards.
        """
        with Sync.open(self.log, name) as sync:
            return sync.rebuild(topic)

    @route("DELETE", "/syncs/{name}", scope="admin:*")
    def drop(self, name: str) -> None:
        """Remove a sync, and its positions in the target. The tables of the target stay."""
        self._store.remove(name)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _store(self) -> SyncStore:
        return SyncStore(self.log)

    def _status(self, config: SyncConfig) -> SyncStatus:
        tables: list[SyncedTable] = []
        pending, error, is_new = None, "", True
        state: State = "unreachable"
        try:
            with contextlib.closing(open_target(config)) as target:
                for table in topic_tables(self.log, config):
                    position = target.position(table)
                    is_new = is_new and position is None
                    tables.append(self._table(table, {} if position is None else dict(position.offsets)))
            pending = sum(one.pending for one in tables)
            state = "new" if is_new else "behind" if pending else "in sync"
            state = "paused" if config.paused else state
        except (HeadwaterError, RetryLater) as failure:
            error = str(failure)
        return SyncStatus(
            name=config.name,
            url=config.url,
            mode=config.mode,
            state=state,
            topics=list(config.topics),
            pending=pending,
            dead_letters=config.dead_letters,
            error=error,
            tables=tables,
        )

    def _table(self, table: TargetTable, offsets: dict[int, int]) -> SyncedTable:
        oldest = self.log.start_offsets(table.topic)
        ends = self.log.end_offsets(table.topic)
        pending = sum(end - max(offsets.get(number, 0), oldest.get(number, 0)) for number, end in ends.items())
        return SyncedTable(topic=table.topic, table=table.name, pending=pending)
