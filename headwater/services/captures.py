"""Captures: databases whose tables are topics, how far each has come, and what can be done with them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Literal

from headwater.capture import CaptureConfig, CaptureStore
from headwater.capture.connectors import open_source
from headwater.capture.envelope import EnvelopeName
from headwater.errors import HeadwaterError
from headwater.services.route import Service, route

State = Literal["snapshot", "streaming", "new", "paused", "unreachable"]


@dataclass(frozen=True, kw_only=True)
class CapturedTable:
    """One table of a capture: its topic, and how far its snapshot is."""

    table: str
    topic: str
    snapshot_rows: int = 0
    snapshot_rows_expected: int | None = None
    snapshot_complete: bool = False


@dataclass(frozen=True, kw_only=True)
class CaptureStatus:
    """A capture and how far it has come. `pending` changes of the database are not in the log yet."""

    name: str
    url: str
    state: State
    envelope: EnvelopeName
    rows: int = 0
    pending: int | None = None
    pending_unit: Literal["change", "byte"] = "change"
    delay_seconds: float | None = None
    captured_us: int | None = None
    """When rows were last appended."""
    error: str = ""
    warnings: list[str] = field(default_factory=list)
    """What needs an operator's attention, while the capture goes on."""
    details: dict[str, str] = field(default_factory=dict)
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
        """Pause a capture. Its database keeps the changes until it goes on."""
        return self._status(self._store.set_paused(name, True))

    @route("POST", "/captures/{name}/resume", scope="admin:*")
    def resume(self, name: str) -> CaptureStatus:
        """Let a paused capture go on."""
        return self._status(self._store.set_paused(name, False))

    @route("POST", "/captures/{name}/snapshot", scope="admin:*")
    def snapshot(self, name: str, table: str) -> CaptureStatus:
        """Read a table by a new snapshot, beside the changes that go on."""
        self._store.restart_snapshot(name, table)
        return self.status(name)

    @route("DELETE", "/captures/{name}", scope="admin:*")
    def drop(self, name: str) -> None:
        """Remove a capture, and what it created in its database. Its topics stay."""
        self._store.remove(name)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _store(self) -> CaptureStore:
        return CaptureStore(self.log)

    def _status(self, config: CaptureConfig) -> CaptureStatus:
        progress = self._store.progress(config.name)
        tables = [
            CapturedTable(
                table=table,
                topic=config.topic_of(table),
                snapshot_rows=one.rows,
                snapshot_rows_expected=one.rows_expected,
                snapshot_complete=one.complete,
            )
            for table, one in progress.snapshot.items()
        ]
        is_complete = bool(tables) and all(one.snapshot_complete for one in tables)
        state: State = "paused" if config.paused else "streaming" if is_complete else "snapshot" if tables else "new"
        health = None
        error = ""
        try:
            with contextlib.closing(open_source(config)) as source:
                health = source.health(progress.position or source.first_position())
        except HeadwaterError as failure:
            state, error = "unreachable", str(failure)
        return CaptureStatus(
            name=config.name,
            url=config.url,
            state=state,
            envelope=config.envelope,
            rows=progress.rows,
            pending=health.pending if health is not None else None,
            pending_unit=health.unit if health is not None else "change",
            delay_seconds=health.delay_seconds if health is not None else None,
            captured_us=progress.at_us,
            error=error,
            warnings=list(health.warnings) if health is not None else [],
            details=dict(health.details) if health is not None else {},
            tables=tables,
        )
