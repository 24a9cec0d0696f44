"""Captures: databases whose tables are topics, how far each has come, and what can be done with them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Literal

import orjson

from headwater.capture import CaptureConfig, CaptureStore, SnapshotProgress
from headwater.capture.envelope import EnvelopeName
from headwater.capture.report import current_report, remove_report
from headwater.errors import NotFound, NotPossible
from headwater.log.dead_letters import dead_letter_topic
from headwater.services.route import Service, route

State = Literal["new", "snapshot", "streaming", "paused", "restarting", "at risk", "unreachable"]


@dataclass(frozen=True, kw_only=True)
class CapturedTable:
    """One table of a capture: its topic, its rate, and how far its snapshot is."""

    table: str
    topic: str
    rows_per_second: float = 0.0
    """In the last ten seconds, if a process runs the capture."""
    dead_letters: int = 0
    snapshot_rows: int = 0
    snapshot_rows_expected: int | None = None
    snapshot_complete: bool = False
    snapshot_seconds_left: float | None = None
    """How long the rest of the snapshot takes at the present rate; None if that is not known."""

    @property
    def snapshot_share(self) -> float | None:
        """How much of the snapshot is read, from 0 to 1; None if that is not known."""
        if self.snapshot_complete:
            return 1.0
        expected = self.snapshot_rows_expected
        return min(self.snapshot_rows / expected, 1.0) if expected else None


@dataclass(frozen=True, kw_only=True)
class CaptureStatus:
    """A capture and how far it has come. `pending` changes of the database are not in the log yet."""

    name: str
    url: str
    state: State
    envelope: EnvelopeName
    paused: bool = False
    running: bool = False
    """Whether a process of this machine runs it now."""
    app: str = ""
    """The app that runs it, or ran it last; empty for `headwater capture run`."""
    pid: int | None = None
    """The process that runs it."""
    rows: int = 0
    rows_per_second: float = 0.0
    pending: int | None = None
    pending_unit: Literal["change", "byte"] = "change"
    delay_seconds: float | None = None
    retained_bytes: int | None = None
    """What the database keeps on its disk for the capture, where it can tell."""
    position: str = ""
    """The position in the database's changes, as JSON: each kind of database has its own."""
    captured_us: int | None = None
    """When rows were last appended."""
    restarts: int = 0
    error: str = ""
    """The last error; empty after rows were captured again."""
    danger: str = ""
    """Why the database may soon delete changes that are not captured, and what to do; then the state is `at risk`."""
    warnings: list[str] = field(default_factory=list)
    """What needs an operator's attention, while the capture goes on."""
    details: dict[str, str] = field(default_factory=dict)
    """Facts of the database's own, such as the state of a replication slot."""
    tables: list[CapturedTable] = field(default_factory=list)


class Captures(Service):
    """What can be done with captures. They belong to the whole log, so only callers who see all of it see them."""

    @route("GET", "/captures", scope="read:*")
    def list_captures(self) -> list[CaptureStatus]:
        """List all captures with their status."""
        return [self._status(config) for config in self._store.configs().values()]

    @route("GET", "/captures/{name}", scope="read:*")
    def status(self, name: str) -> CaptureStatus:
        """Measure how far a capture has come."""
        return self._status(self._store.config(name))

    @route("PUT", "/captures/{name}", scope="admin:*")
    def create(
        self,
        name: str,
        url: str,
        *,
        tables: list[str] | None = None,
        prefix: str | None = None,
        envelope: EnvelopeName = "flat",
        partitions: int = 1,
        password_env: str | None = None,
        password_file: str | None = None,
        transactions: bool = False,
        outbox: str | None = None,
        where: dict[str, str] | None = None,
        columns: dict[str, list[str]] | None = None,
        mask: dict[str, str] | None = None,
        salt_env: str = "HEADWATER_CAPTURE_SALT",
    ) -> CaptureStatus:
        """Create a capture, and what it needs in its database. `headwater capture run` runs it.

        The password comes from an environment variable or a file of the process that serves or runs the capture, and so
        does the salt of hashes. `where` has conditions by table, `columns` the captured columns by table, and `mask` how values of
        `table.column` are hidden: `hash`, `null`, or a text.
        """
        config = CaptureConfig(
            name=name,
            url=url,
            tables=tuple(tables or ("*",)),
            prefix=prefix,
            envelope=envelope,
            partitions=partitions,
            password_env=password_env,
            password_file=password_file,
            transactions=transactions,
            outbox=outbox,
            where=where or {},
            columns=columns or {},
            mask=mask or {},
            salt_env=salt_env,
        )
        self._store.create(config)
        return self.status(name)

    @route("POST", "/captures/{name}/pause", scope="admin:*")
    def pause(self, name: str) -> CaptureStatus:
        """Pause a capture. Its database keeps the changes until it goes on.

        Refused while the database is about to delete changes that are not captured.
        """
        if danger := self.status(name).danger:
            raise NotPossible(
                why=f"Capture {name!r} cannot be paused: {danger[:1].lower()}{danger[1:]}",
                instead="Pause it when it has caught up",
            )
        return self._status(self._store.set_paused(name, True))

    @route("POST", "/captures/{name}/resume", scope="admin:*")
    def resume(self, name: str) -> CaptureStatus:
        """Let a paused capture go on."""
        return self._status(self._store.set_paused(name, False))

    @route("POST", "/captures/{name}/snapshot", scope="admin:*")
    def snapshot(self, name: str, table: str, *, where: str | None = None) -> CaptureStatus:
        """Read a table, or its rows that meet a condition in SQL, by a new snapshot beside the changes that go on."""
        self._store.restart_snapshot(name, table, where=where)
        return self.status(name)

    @route("DELETE", "/captures/{name}", scope="admin:*")
    def drop(self, name: str) -> None:
        """Remove a capture, and what it created in its database. Its topics stay."""
        self._store.remove(name)
        remove_report(self.log, name)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _store(self) -> CaptureStore:
        return CaptureStore(self.log)

    def _status(self, config: CaptureConfig) -> CaptureStatus:
        progress = self._store.progress(config.name)
        report, running, unreachable = current_report(self.log, config)
        tables = [
            self._table(
                config, table, one, report.rows_per_second.get(table, 0.0) if running and not config.paused else 0.0
            )
            for table, one in progress.snapshot.items()
        ]
        is_complete = bool(tables) and all(one.snapshot_complete for one in tables)
        state: State = "paused" if config.paused else "streaming" if is_complete else "snapshot" if tables else "new"
        if unreachable:
            state = "unreachable"
        elif report.danger:
            state = "at risk"
        elif running and report.error:
            state = "restarting"
        return CaptureStatus(
            name=config.name,
            url=config.url,
            state=state,
            envelope=config.envelope,
            paused=config.paused,
            running=running,
            app=report.app,
            pid=report.pid if running else None,
            rows=progress.rows,
            rows_per_second=sum(one.rows_per_second for one in tables),
            pending=report.pending,
            pending_unit=report.unit,
            delay_seconds=report.delay_seconds,
            retained_bytes=report.retained_bytes,
            position="" if progress.position is None else orjson.dumps(progress.position).decode(),
            captured_us=progress.at_us,
            restarts=report.restarts if running else 0,
            error=unreachable or report.error,
            danger=report.danger,
            warnings=list(report.warnings),
            details=dict(report.details),
            tables=tables,
        )

    def _table(self, config: CaptureConfig, table: str, one: SnapshotProgress, rate: float) -> CapturedTable:
        left = None
        if not one.complete and one.rows_expected is not None and rate > 0:
            left = max(0, one.rows_expected - one.rows) / rate
        topic = config.topic_of(table)
        letters = 0
        with contextlib.suppress(NotFound):  # there have been none
            letters = sum(one.offset_next for one in self.log.describe(dead_letter_topic(topic)).partitions)
        return CapturedTable(
            table=table,
            topic=topic,
            rows_per_second=rate,
            dead_letters=letters,
            snapshot_rows=one.rows,
            snapshot_rows_expected=one.rows_expected,
            snapshot_complete=one.complete,
            snapshot_seconds_left=left,
        )
