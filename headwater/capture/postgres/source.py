"""PostgreSQL as a source of captures.

The first read creates the slot and reads all tables as of its position. Then changes follow from the stream, and snapshots that
are not complete go on in chunks beside them. A position is the end of a commit in the database's log: `lsn`, with the `system` and
`timeline` that it belongs to, the `order` of the last change, and the `last` transaction: where its commit begins, and its time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.capture.config import CaptureConfig
from headwater.capture.errors import SourceInvalid, SourceUnreachable
from headwater.capture.port import Changes, Misfit, Piece, Position, SnapshotProgress, SourceHealth, Table
from headwater.capture.postgres.catalogue import Catalogue, CatalogueTable
from headwater.capture.postgres.changes import (
    ChangeReader,
    TableChanges,
    kept_changes,
    read_changes,
    renamed,
    truncation,
)
from headwater.capture.postgres.chunks import ChunkReader
from headwater.capture.postgres.connection import Address, Connection, checked_address
from headwater.capture.postgres.messages import parse_lsn
from headwater.capture.postgres.shape import Shape
from headwater.capture.postgres.slot import Slot, SlotState
from headwater.capture.postgres.snapshot import (
    InitialSnapshot,
    RangeRows,
    Worker,
    cursor_behind,
    expected_rows,
    next_range,
)
from headwater.capture.postgres.stream import Stream
from headwater.capture.postgres.transactions import Batch, LastCommit
from headwater.capture.postgres.visibility import XidSnapshot
from headwater.optional import require
from headwater.units import MIB, format_bytes

#: The most changes of one piece: one transaction of the log, with one sync.
ROWS_MAX = 65_536
#: An idle capture stores its position after so many bytes of WAL, or so many seconds.
IDLE_BYTES_MAX = 16 * MIB
IDLE_SECONDS_MAX = 10.0
#: How long a database that cannot be reached is tried again.
AWAY_SECONDS_MAX = 60.0
RETRY_SECONDS = 0.3
#: How often rows of a table are tried to be read: its columns may have changed since they were listed.
SNAPSHOT_FAILURES_MAX = 3
#: How often the catalogue is read for tables that were added, dropped or created again.
TABLES_SECONDS = 10.0


class PostgresConnector:
    """PostgreSQL 14 and newer: postgresql://user@host:port/database."""

    @classmethod
    def address(cls, url: str) -> str:
        return checked_address(url)

    @classmethod
    def open(cls, config: CaptureConfig) -> PostgresSource:
        return PostgresSource(config)


@dataclass
class _Session:
    """Connections of an open source, and what reads by them."""

    connection: Connection
    catalogue: Catalogue
    slot: Slot


class PostgresSource:
    """The tables of a PostgreSQL database that one capture reads."""

    def __init__(self, config: CaptureConfig) -> None:
        self._config = config
        self._address = Address(config)
        self._session: _Session | None = None
        self._shapes: dict[str, Shape] = {}
        self._tables: dict[str, CatalogueTable] = {}
        self._tables_at = 0.0
        self._stream: Stream | None = None
        self._reader: ChangeReader | None = None
        self._chunks: ChunkReader | None = None
        self._initial: tuple[InitialSnapshot, Iterator[Piece]] | None = None
        self._replication: Any = None  # a connection of libpq's
        self._away_since: float | None = None
        self._failures = 0
        self._stored_at = time.monotonic()
        self._unheard: dict[str, set[int]] = {}

    # -- set-up -------------------------------------------------------------------------------------------------------

    def tables(self) -> list[Table]:
        session = self._open()
        return [session.catalogue.shape(one).table for one in session.catalogue.tables(self._config.tables)]

    def prepare(self) -> list[Table]:
        """Create the publication, or add tables to it. The slot is created by the first read."""
        session = self._open()
        session.slot.check_server()
        self._refresh(session)
        return [shape.table for shape in self._shapes.values()]

    def _open(self) -> _Session:
        if self._session is None:
            connection = self._address.connect()
            name = f"headwater_{_plain(self._config.name)}"[:50] + (f"_{self._config.id}" if self._config.id else "")
            slot = Slot(connection, capture=self._config.name, name=name, publication=self._address.publication)
            self._session = _Session(connection, Catalogue(connection), slot)
        return self._session

    def _refresh(self, session: _Session) -> None:
        """Read the tables from the catalogue, and publish them."""
        tables = session.catalogue.tables(self._config.tables)
        shapes = {one.full_name: session.catalogue.shape(one) for one in tables}
        for one in tables:
            self._check_identity(one, shapes[one.full_name])
        session.slot.publish(tables)
        self._shapes = shapes
        self._tables = {one.full_name: one for one in tables}
        self._tables_at = time.monotonic()
        if self._reader is not None:
            self._reader.names = {one.number: one.full_name for one in tables}

    def _check_identity(self, table: CatalogueTable, shape: Shape) -> None:
        """Refuse a table whose updates PostgreSQL would forbid once it is published."""
        if table.identity == "n" or (table.identity == "d" and not shape.table.key):
            raise SourceInvalid(
                source=f"Table {table.full_name!r} of {self._address.place}",
                why="it has no primary key and no replica identity: PostgreSQL would refuse its updates and deletions once it is published",
                instead=f"Run `ALTER TABLE {table.quoted} REPLICA IDENTITY FULL`, add a primary key, or leave the table out",
            )

    def drop(self) -> None:
        self._close_stream()
        self._open().slot.drop()

    # -- reading ------------------------------------------------------------------------------------------------------

    def first_position(self) -> Position:
        return {"lsn": 0, "order": 0}

    def read(self, position: Position, snapshot: Mapping[str, SnapshotProgress], *, rows_max: int) -> Piece:
        adbc = require("adbc_driver_manager", extra="postgres")
        try:
            piece = self._piece(position, snapshot, rows_max=max(rows_max, ROWS_MAX))
        except (SourceUnreachable, adbc.Error) as error:
            self._disconnect()
            self._failures += isinstance(error, adbc.Error) and self._is_reachable()
            if self._away_since is None:
                self._away_since = time.monotonic()
            if self._failures > SNAPSHOT_FAILURES_MAX:
                raise SourceInvalid(
                    source=self._address.place,
                    why=f"its tables cannot be read: {' '.join(str(error).split())}",
                    instead="Grant SELECT on the tables to the user of the capture, or correct the tables; the capture goes on where it was",
                ) from error
            if time.monotonic() - self._away_since > AWAY_SECONDS_MAX:
                raise
            time.sleep(RETRY_SECONDS)
            return Piece(position=position, more=True)
        self._away_since = None
        self._failures = 0
        return piece

    def _is_reachable(self) -> bool:
        try:
            self._address.connect().close()
        except SourceUnreachable:
            return False
        return True

    def _piece(self, position: Position, snapshot: Mapping[str, SnapshotProgress], *, rows_max: int) -> Piece:
        session = self._open()
        if not self._tables_at or time.monotonic() - self._tables_at > TABLES_SECONDS:
            self._refresh(session)
        self._check_names(snapshot)
        if not position["lsn"]:
            position = self._begin(session)
        if self._initial is not None:
            if (piece := next(self._initial[1], None)) is not None:
                return piece
            self._end_initial()
        if self._stream is None:
            state = session.slot.check(position)
            self._start_stream(session, position, confirmed=state.confirmed or 0)
        return self._streamed(session, position, snapshot, rows_max=rows_max)

    def _check_names(self, snapshot: Mapping[str, SnapshotProgress]) -> None:
        """Refuse to go on if a captured table has another name now: its topic would stay as it is, unnoticed."""
        now = {one.number: one.full_name for one in self._tables.values()}
        for name, progress in snapshot.items():
            if now.get(progress.version, name) != name:
                raise renamed(self._address.place, name, now[progress.version])

    # -- the initial snapshot -----------------------------------------------------------------------------------------

    def _begin(self, session: _Session) -> Position:
        """Create the slot, and begin the snapshot that belongs to its position."""
        self._end_initial()
        self._replication = self._address.replication()
        lsn, exported = session.slot.create(self._replication)
        system = session.slot.system()
        position = {"lsn": lsn, "order": 0, "at_us": 0, "system": system["system"], "timeline": system["timeline"]}
        initial = InitialSnapshot(self._address, exported, self._shapes)
        self._initial = initial, self._initial_pieces(initial, position)
        return position

    def _initial_pieces(self, initial: InitialSnapshot, position: dict[str, Any]) -> Iterator[Piece]:
        order = 0
        for name, shape in self._shapes.items():
            leaves = initial.leaves[name]
            if not shape.table.key:  # its rows cannot be told apart: all of them are one transaction of the log
                piece = self._whole_table(shape, initial, position)
                position, order = dict(piece.position), piece.position["order"]
                yield piece
                continue
            read = 0
            for place, found in initial.ranges(shape):
                read += found.rows.num_rows
                is_last = next_range(leaves, cursor_behind(place), 1) is None
                progress = SnapshotProgress(
                    version=shape.number,
                    rows=read,
                    rows_expected=expected_rows(leaves, place, read),
                    cursor=None if is_last else cursor_behind(place),
                    complete=is_last,
                )
                changes = [read_changes(shape.table, found.rows, order)] if found.rows.num_rows else []
                order += found.rows.num_rows
                position = {**position, "order": order}
                yield Piece(
                    position=position, changes=changes, misfits=found.misfits, snapshot={name: progress}, more=True
                )
            if not leaves:
                yield Piece(position=position, snapshot={name: _complete(shape, 0)}, more=True)

    def _whole_table(self, shape: Shape, initial: InitialSnapshot, position: Position) -> Piece:
        """A table of any size as one piece, whose rows are read while they are appended."""
        rows = initial.count(shape)
        misfits: list[Misfit] = []
        ranges = (found for _, found in initial.ranges(shape))
        return Piece(
            position={**position, "order": position["order"] + rows},
            changes=_read_rows(shape, ranges, position["order"], misfits),
            misfits=misfits,
            snapshot={shape.table.name: _complete(shape, rows)},
            more=True,
            rows=rows,
        )

    def _end_initial(self) -> None:
        if self._initial is not None:
            self._initial[0].close()
            self._initial = None
        if self._replication is not None:
            with contextlib.suppress(Exception):
                self._replication.finish()
            self._replication = None

    # -- changes ------------------------------------------------------------------------------------------------------

    def _start_stream(self, session: _Session, position: Position, *, confirmed: int) -> None:
        self._reader = ChangeReader(session.connection, session.catalogue, with_before=self._config.envelope != "flat")
        self._reader.names = {one.number: one.full_name for one in self._tables.values()}
        self._chunks = ChunkReader(self._address, session.connection, session.slot.name)
        last = None if position.get("last") is None else LastCommit(*position["last"])
        self._stream = Stream(self._address, session.slot, position["lsn"], last=last, confirmed=confirmed)

    def _streamed(
        self, session: _Session, position: Position, snapshot: Mapping[str, SnapshotProgress], *, rows_max: int
    ) -> Piece:
        stream, chunks = self._stream, self._chunks
        assert stream is not None
        assert chunks is not None
        unread = [shape for name, shape in self._shapes.items() if not _is_complete(snapshot.get(name), shape)]
        for shape in unread:
            chunks.track(shape.table.name)
        if unread and chunks.waiting is None:
            shape = unread[0]
            if not shape.table.key:
                piece = self._keyless(session, shape, position, is_again=shape.table.name in snapshot)
                if piece is not None:
                    return piece
            else:
                known = snapshot.get(shape.table.name)
                is_same = known is not None and known.version == shape.number
                chunks.read(shape, known if known is not None and is_same else SnapshotProgress(version=shape.number))
        mark = chunks.waiting.mark if chunks.waiting is not None else None
        until = parse_lsn(session.connection.query("SELECT pg_current_wal_flush_lsn()::text")[0][0])
        batch = stream.receive(rows_max=rows_max, until=until, mark=mark)
        return self._made(batch, position, snapshot, until=until, mark=mark)

    def _made(
        self,
        batch: Batch,
        position: Position,
        snapshot: Mapping[str, SnapshotProgress],
        *,
        until: int,
        mark: bytes | None,
    ) -> Piece:
        stream, chunks = self._stream, self._chunks
        assert stream is not None
        assert chunks is not None
        misfits: list[Misfit] = []
        rows = batch.rows
        changes: Iterator[Changes] = self._changes(batch, position, snapshot, misfits)
        after = {
            **position,
            "lsn": batch.lsn,
            "order": position["order"] + rows,
            "at_us": batch.at_us or position["at_us"],
        }
        if batch.last is not None:
            after["last"] = [batch.last.lsn, batch.last.at_us]
        progress: dict[str, SnapshotProgress] = {}
        if mark is not None and mark in stream.assembler.marks:
            stream.assembler.marks.clear()
            waiting = chunks.waiting
            assert waiting is not None
            name = waiting.shape.table.name
            progress[name] = waiting.progress
            after["order"] += waiting.rows.num_rows
            changes = chain(changes, self._chunk(position["order"] + rows, misfits, snapshot.get(name)))
        elif not rows:
            after["lsn"] = self._idle(position, stream)
        is_behind = stream.reached < until or chunks.waiting is not None
        unread = any(
            not _is_complete(progress.get(name, snapshot.get(name)), shape) for name, shape in self._shapes.items()
        )
        return Piece(
            position=after,
            changes=changes if batch.is_stored else list(changes),
            misfits=misfits,
            snapshot=progress,
            more=is_behind or unread,
            rows=rows if batch.is_stored else None,
        )

    def _changes(
        self, batch: Batch, position: Position, snapshot: Mapping[str, SnapshotProgress], misfits: list[Misfit]
    ) -> Iterator[Changes]:
        assert self._reader is not None
        assert self._chunks is not None
        for one in self._reader.read(batch, position["order"]):
            kept = self._of_keyless(one, position, snapshot)
            if kept is None:
                continue
            self._chunks.note(kept)
            misfits += kept.misfits
            yield kept.changes

    def _chunk(self, order: int, misfits: list[Misfit], before: SnapshotProgress | None) -> Iterator[Changes]:
        assert self._chunks is not None
        chunk, rows = self._chunks.arrived()
        misfits += chunk.misfits
        if before is not None and before.version != chunk.shape.number:
            yield truncation(chunk.shape.table, order)  # the table was dropped and created again
        if rows.num_rows:
            yield read_changes(chunk.shape.table, rows, order)

    def _idle(self, position: Position, stream: Stream) -> int:
        """The position of a piece without changes: it moves now and then, so that an idle slot keeps no WAL."""
        behind = stream.reached - position["lsn"]
        is_late = time.monotonic() - self._stored_at > IDLE_SECONDS_MAX
        is_due = behind > IDLE_BYTES_MAX or is_late or stream.is_awaited
        return max(stream.reached, position["lsn"]) if is_due else int(position["lsn"])

    # -- tables without a key -----------------------------------------------------------------------------------------

    def _keyless(self, session: _Session, shape: Shape, position: Position, *, is_again: bool) -> Piece | None:
        """Read a whole table without a key. Its changes were left out until now; those that the snapshot sees stay left out."""
        assert self._chunks is not None
        name = shape.table.name
        worker = self._chunks.worker()
        worker.begin()
        visible = worker.visible()
        unheard = np.array(sorted(self._unheard.get(name, ())), np.int64)
        if not self._chunks.may_read(name, visible) or not visible.sees(unheard).all():
            worker.end()
            return None
        rows, leaves = worker.count(shape), worker.leaves(shape.number)
        end = parse_lsn(session.connection.query("SELECT pg_current_wal_insert_lsn()::text")[0][0])
        seen = {"seen": f"{visible.xmin}:{visible.xmax}:{','.join(map(str, visible.running))}", "until": end}
        misfits: list[Misfit] = []

        def changes() -> Iterator[Changes]:
            if is_again:  # rows that the topic has already cannot be told apart from those that follow
                yield truncation(shape.table, position["order"])
            yield from _read_rows(shape, worker.whole(shape, leaves), position["order"], misfits)
            worker.end()

        return Piece(
            position={**position, "order": position["order"] + rows},
            changes=changes(),
            misfits=misfits,
            snapshot={name: replace(_complete(shape, rows), cursor=seen)},
            more=True,
            rows=rows,
        )

    def _of_keyless(
        self, one: TableChanges, position: Position, snapshot: Mapping[str, SnapshotProgress]
    ) -> TableChanges | None:
        """Leave out changes of a table without a key that its snapshot holds, or will hold."""
        table = one.changes.table
        if table.key or table.name not in self._shapes:
            return one
        progress = snapshot.get(table.name)
        if progress is None or not progress.complete:
            self._unheard.setdefault(table.name, set()).update(one.xids.tolist())
            return None
        if progress.cursor is None or position["lsn"] >= progress.cursor["until"]:
            return one
        mask = ~XidSnapshot.parse(progress.cursor["seen"]).sees(one.xids)
        return None if not mask.any() else kept_changes(one, mask)

    # -- the rest of the port -----------------------------------------------------------------------------------------

    def rows(self, table: Table) -> Iterator[pa.RecordBatch]:
        catalogue = self._open().catalogue
        [found] = [one for one in catalogue.tables(self._config.tables) if one.full_name == table.name]
        shape = catalogue.shape(found)
        with contextlib.closing(Worker(self._address)) as worker:
            worker.begin()
            for some in worker.whole(shape, worker.leaves(shape.number)):
                yield some.rows

    def acknowledge(self, position: Position) -> None:
        self._stored_at = time.monotonic()
        if self._stream is not None:
            try:
                self._stream.acknowledge(position["lsn"])
            except SourceUnreachable:
                self._close_stream()  # the next read connects again; the log has the position

    def wait(self, seconds: float) -> None:
        if self._stream is not None:
            try:
                self._stream.wait(seconds)
            except SourceUnreachable:
                self._close_stream()
        else:
            time.sleep(min(seconds, 0.1))

    def health(self, position: Position) -> SourceHealth:
        session = self._open()
        details = {"slot": session.slot.name, "publication": session.slot.publication}
        if not position["lsn"]:
            return SourceHealth(pending=0, delay_seconds=0.0, unit="byte", details=details)
        state = session.slot.check(position)
        end = session.slot.system()["lsn"]
        done = max(position["lsn"], state.written or 0)
        pending = max(0, end - done)
        delay = max(0.0, time.time() - position["at_us"] / 1e6) if pending and position.get("at_us") else 0.0
        details["wal status"] = state.wal_status or "?"
        retained = None if state.restart is None else max(0, end - state.restart)
        if state.safe_bytes is not None:
            details["wal left"] = format_bytes(max(0, state.safe_bytes))
        warnings = []
        if state.wal_status == "extended" and not state.is_endangered:
            warnings.append(
                "the slot keeps more WAL than max_wal_size: let the capture run, or drop it if it is not needed any more"
            )
        warnings += self._type_notes(session)
        return SourceHealth(
            pending=pending,
            delay_seconds=delay,
            unit="byte",
            details=details,
            warnings=warnings,
            retained_bytes=retained,
            danger=_danger(state),
        )

    def _type_notes(self, session: _Session) -> Sequence[str]:
        if not self._shapes:
            with contextlib.suppress(SourceInvalid):
                tables = session.catalogue.tables(self._config.tables)
                self._shapes = {one.full_name: session.catalogue.shape(one) for one in tables}
        return [
            f"{name}.{column.name}: {kind.note}"
            for name, shape in self._shapes.items()
            for column, kind in zip(shape.table.columns, shape.types, strict=True)
            if kind.note
        ]

    def close(self) -> None:
        self._disconnect()

    def _close_stream(self) -> None:
        if self._chunks is not None:
            self._chunks.close()
            self._chunks = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _disconnect(self) -> None:
        self._tables_at = 0.0
        self._close_stream()
        self._end_initial()
        if self._session is not None:
            self._session.connection.close()
            self._session = None


def _danger(state: SlotState) -> str:
    """What an operator must know before the server deletes WAL of a slot; empty if that is far away."""
    if not state.is_endangered:
        return ""
    return (
        f"PostgreSQL deletes changes that are not captured when it has written {format_bytes(max(0, state.safe_bytes or 0))} more "
        f"(max_slot_wal_keep_size is {format_bytes(state.keep_bytes_max)}). Let the capture run; if it does not catch up, run "
        "`ALTER SYSTEM SET max_slot_wal_keep_size = …` with a larger value and `SELECT pg_reload_conf()`; or drop the capture if "
        "it is not needed"
    )


def _read_rows(shape: Shape, ranges: Iterable[RangeRows], order: int, misfits: list[Misfit]) -> Iterator[Changes]:
    for found in ranges:
        misfits += found.misfits
        if found.rows.num_rows:
            yield read_changes(shape.table, found.rows, order)
        order += found.rows.num_rows


def _complete(shape: Shape, rows: int) -> SnapshotProgress:
    return SnapshotProgress(version=shape.number, rows=rows, rows_expected=rows, complete=True)


def _is_complete(progress: SnapshotProgress | None, shape: Shape) -> bool:
    return progress is not None and progress.complete and progress.version == shape.number


def _plain(name: str) -> str:
    """The characters that a slot's name may have."""
    return "".join(one if one.isascii() and (one.islower() or one.isdigit()) else "_" for one in name.lower())
