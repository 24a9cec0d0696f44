"""Syncs: targets that are kept in step with topics, how far each is, and what can be done with them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import Literal

from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.services.route import Service, route
from headwater.sinks.retry import RetryLater
from headwater.sync import Sync, SyncConfig, SyncStore, TableComparison
from headwater.sync.config import Mode
from headwater.sync.report import (
    RecordedComparison,
    SyncedTable,
    SyncReport,
    last_comparison,
    record_comparison,
    remove_report,
    report_of,
    synced_table,
)
from headwater.sync.tables import topic_tables
from headwater.sync.targets import open_target

State = Literal["new", "in sync", "behind", "paused", "failed", "unreachable"]


@dataclass(frozen=True, kw_only=True)
class SyncStatus:
    """A sync and how far it is. `pending` rows of its topics are not in the target yet."""

    name: str
    url: str
    mode: Mode
    state: State
    topics: list[str]
    pending: int | None = None
    delay_seconds: float | None = None
    """How long the oldest row that is not applied has waited; None if the target does not answer."""
    paused: bool = False
    running: bool = False
    """Whether a process of this machine runs it now."""
    pid: int | None = None
    """The process that runs it."""
    rows: int = 0
    """Rows that this process has applied."""
    rows_per_second: float = 0.0
    dead_letters: bool = False
    transactions: bool = False
    error: str = ""
    """Why the target cannot be asked, or the error that ended the last process."""
    compared: RecordedComparison | None = None
    """The last comparison of the target."""
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
        at_us = self.log.clock.now_us()
        with contextlib.closing(open_target(config)) as target:
            sync = Sync(self.log, config, target)
            found = sync.compare_with_source() if source else sync.compare(repair=repair)
        record_comparison(self.log, name, RecordedComparison(at_us=at_us, source=source, repaired=repair, tables=found))
        return found

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
        remove_report(self.log, name)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _store(self) -> SyncStore:
        return SyncStore(self.log)

    def _status(self, config: SyncConfig) -> SyncStatus:
        report, running = report_of(self.log, config.name)
        tables: list[SyncedTable] = []
        pending, delay, error = None, None, "" if running else report.error
        state: State = "unreachable"
        try:
            tables, is_new = (
                (_at(report, self.log.clock.now_us()), False) if running and report.tables else self._tables(config)
            )
            pending = sum(one.pending for one in tables)
            delay = max((one.delay_seconds for one in tables), default=0.0)
            state = "new" if is_new else "behind" if pending else "in sync"
            state = "failed" if error else "paused" if config.paused else state
        except (HeadwaterError, RetryLater) as failure:
            error = str(failure)
        return SyncStatus(
            name=config.name,
            url=config.url,
            mode=config.mode,
            state=state,
            topics=list(config.topics),
            pending=pending,
            delay_seconds=delay,
            paused=config.paused,
            running=running,
            pid=report.pid if running else None,
            rows=report.rows if running else 0,
            rows_per_second=report.rows_per_second if running else 0.0,
            dead_letters=config.dead_letters,
            transactions=config.transactions,
            error=error,
            compared=last_comparison(self.log, config.name),
            tables=tables,
        )

    def _tables(self, config: SyncConfig) -> tuple[list[SyncedTable], bool]:
        """What the target lacks now, by the positions that it has, and whether it has none yet."""
        with contextlib.closing(open_target(config)) as target:
            positions = {table: target.position(table) for table in topic_tables(self.log, config)}
        tables = [
            synced_table(self.log, table, {} if position is None else position.offsets)
            for table, position in positions.items()
        ]
        return tables, all(one is None for one in positions.values())


def _at(report: SyncReport, now_us: int) -> list[SyncedTable]:
    """The tables of a report: rows that were not applied when it was written have waited since then, too."""
    since = max(0.0, (now_us - report.at_us) / 1e6)
    return [replace(one, delay_seconds=one.delay_seconds + since) if one.pending else one for one in report.tables]
