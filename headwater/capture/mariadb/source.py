"""The tables of a MariaDB database that one capture reads: parts of snapshots, and the transactions of the binary log.

A position is the last transaction of each GTID domain, how many changes were captured in all, and the number of the
server. A piece has whole transactions; one that is larger than memory waits in a file. Nothing is created in the database.
The server keeps its binary log as long as its own settings say: a position that it no longer has is refused.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import pyarrow as pa

from headwater.capture.errors import SourceInvalid, SourceReplaced, SourceUnreachable
from headwater.capture.mariadb import binlog, gtid, statements, table_map
from headwater.capture.mariadb.binlog import Binlog, BinlogRefused, Event
from headwater.capture.mariadb.rows import ImageIncomplete, TableRows, truncation
from headwater.capture.mariadb.server import Server, Session, check
from headwater.capture.mariadb.spool import Spool
from headwater.capture.mariadb.table_map import TableMap, TypeUnknown
from headwater.capture.mariadb.tables import SnapshotPart, SourceTable, describe, read_part
from headwater.capture.port import Changes, Piece, Position, SnapshotProgress, SourceHealth, Table

#: The rows of a table that are read at once, where no piece is to be made of them.
ROWS_MAX = 65_536
#: How long one read waits for events that the server has committed and not sent yet.
ARRIVAL_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where the capture is in the binary log."""

    gtids: Mapping[int, tuple[int, int]]
    changes: int = 0
    server: int = 0

    @classmethod
    def of(cls, position: Position) -> _Place:
        return cls(gtids=gtid.parse(position["gtid"]), changes=position["changes"], server=position["server"])

    def position(self) -> Position:
        return {"gtid": gtid.shown(self.gtids), "changes": self.changes, "server": self.server}


@dataclass
class _Transaction:
    """The transaction that is being read."""

    domain: int
    server: int
    number: int
    is_standalone: bool

    @property
    def name(self) -> str:
        return f"{self.domain}-{self.server}-{self.number}"


@dataclass
class _Reading:
    """What one read has collected."""

    place: _Place
    changes: Spool = field(default_factory=Spool)
    open: dict[int, TableRows] = field(default_factory=dict)
    """Rows that are not in `changes` yet, by the identity of their table's description."""
    count: int = 0
    open_count: int = 0
    is_full: bool = False

    def close_rows(self) -> None:
        for rows in self.open.values():
            self.changes.add(rows.changes())
        self.open.clear()
        self.open_count = 0


class MariadbSource:
    """The tables of a MariaDB database that one capture reads."""

    def __init__(self, server: Server, *, capture: str, tables: Sequence[str]) -> None:
        self._server = server
        self._capture = capture
        self._wanted = tuple(tables)
        self._session = Session(server)
        self._binlog: Binlog | None = None
        self._place: _Place | None = None
        self._transaction: _Transaction | None = None
        self._tables: dict[str, SourceTable] = {}
        self._charsets: dict[int, str] = {}
        self._maps: dict[int, TableMap | None] = {}
        self._described: dict[bytes, TableMap | None] = {}
        self._part: SnapshotPart | None = None
        self._spool = Spool()

    # -- set-up -------------------------------------------------------------------------------------------------------

    def tables(self) -> list[Table]:
        return [one.table for one in describe(self._session, self._wanted)]

    def prepare(self) -> list[Table]:
        """Check the server's settings and the user's privileges, and describe the tables."""
        variables = self._session.variables()
        check(self._server, variables)
        self._session.rows("SHOW MASTER STATUS")  # needs the privilege that reading the binary log's end needs
        with contextlib.closing(self._open_binlog(variables["gtid_binlog_pos"] or "")) as stream:
            self._first_event(stream)  # the privilege to read the binary log shows only now
        self._describe()
        return [one.table for one in self._tables.values()]

    def _describe(self) -> None:
        self._tables = {one.table.name: one for one in describe(self._session, self._wanted)}
        self._described.clear()
        self._maps.clear()

    def first_position(self) -> Position:
        variables = self._session.variables()
        place = _Place(gtids=gtid.parse(variables["gtid_binlog_pos"] or ""), server=int(variables["server_id"]))
        return place.position()

    def drop(self) -> None:
        """Nothing was created in the database."""

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, position: Position, snapshot: Mapping[str, SnapshotProgress], *, rows_max: int) -> Piece:
        place = _Place.of(position)
        try:
            if self._binlog is None or place != self._place:
                self._restart(place)
            return self._piece(place, snapshot, rows_max=rows_max)
        except BinlogRefused as error:
            self._stop()
            raise self._refused(error) from error
        except BaseException:
            self._stop()  # events may have been taken and not captured
            raise

    def _piece(self, place: _Place, snapshot: Mapping[str, SnapshotProgress], *, rows_max: int) -> Piece:
        incomplete = self._incomplete(snapshot)
        if self._part is None and incomplete is not None:
            progress = snapshot.get(incomplete.table.name)
            self._part = read_part(self._session, incomplete, progress, rows_max=rows_max)
        self._spool.close()  # what was read before is appended
        reading = _Reading(place=place)
        self._spool = reading.changes
        more = self._read_events(reading, snapshot, rows_max=rows_max)
        progress_after: dict[str, SnapshotProgress] = {}
        if self._part is not None and self._is_reached(reading.place, self._part.gtid):
            reading.close_rows()
            progress_after[self._part.table.name] = self._part.progress
            for changes in _snapshot_changes(self._part, order=reading.place.changes):
                reading.changes.add(changes)
            self._part = None
            more = True
        reading.close_rows()
        self._place = reading.place
        more = more or self._part is not None or self._incomplete({**snapshot, **progress_after}) is not None
        return Piece(position=reading.place.position(), changes=reading.changes, snapshot=progress_after, more=more)

    def _read_events(self, reading: _Reading, snapshot: Mapping[str, SnapshotProgress], *, rows_max: int) -> bool:
        """Collect changes; whether there are more now."""
        assert self._binlog is not None
        keyless = {name for name, one in self._tables.items() if not one.table.key and not _is_complete(snapshot, one)}
        end: str | None = None
        while True:
            if self._part is not None and self._is_reached(reading.place, self._part.gtid):
                return True
            event = self._binlog.next()
            if event is None:
                if reading.count and self._transaction is None:
                    return True
                if end is None:
                    end = self._session.variables()["gtid_binlog_pos"] or ""
                if self._is_reached(reading.place, end):
                    return False
                event = self._binlog.next(ARRIVAL_SECONDS)
                if event is None:
                    if self._transaction is None:
                        return True
                    continue  # a transaction is sent whole
            self._take(event, reading, keyless)
            if reading.open_count >= rows_max:
                reading.close_rows()
            if self._transaction is None and (reading.count >= rows_max or reading.is_full):
                return True

    def _take(self, event: Event, reading: _Reading, keyless: set[str]) -> None:
        kind, body = event.type, event.body
        if kind in binlog.ROWS:
            self._take_rows(event, reading, keyless)
        elif kind == binlog.TABLE_MAP:
            self._maps[int.from_bytes(body[:6], "little")] = self._described_table(body)
        elif kind == binlog.GTID:
            self._begin(event)
        elif kind == binlog.XID:
            self._commit(reading)
        elif kind in (binlog.QUERY, binlog.QUERY_COMPRESSED):
            self._take_statement(event, reading)
        elif kind == binlog.FORMAT:
            self._maps.clear()

    def _begin(self, event: Event) -> None:
        number = int.from_bytes(event.body[:8], "little")
        domain = int.from_bytes(event.body[8:12], "little")
        flags = event.body[12]
        if flags & binlog.PREPARED_XA:
            raise SourceInvalid(
                source=str(self._server),
                why=f"transaction {domain}-{event.server}-{number} is an XA transaction, whose rows are in the binary log before it is committed",
                instead="Write the captured tables without XA; drop the capture and create it again to go on behind this transaction",
            )
        self._transaction = _Transaction(
            domain=domain, server=event.server, number=number, is_standalone=bool(flags & binlog.STANDALONE)
        )

    def _commit(self, reading: _Reading) -> None:
        transaction = self._transaction
        if transaction is None:
            return
        self._transaction = None
        gtids = {**reading.place.gtids, transaction.domain: (transaction.server, transaction.number)}
        reading.place = replace(reading.place, gtids=gtids)

    def _take_rows(self, event: Event, reading: _Reading, keyless: set[str]) -> None:
        transaction = self._transaction
        assert transaction is not None
        described = self._maps.get(int.from_bytes(event.body[:6], "little"))
        captured = 0
        if described is not None and described.table.name not in keyless:
            rows = reading.open.get(id(described))
            if rows is None:
                rows = reading.open[id(described)] = TableRows(described)
            try:
                captured = rows.add(event, transaction=transaction.name, order=reading.place.changes)
            except ImageIncomplete:
                raise SourceInvalid(
                    source=f"Table {described.table.name!r} of {self._server}",
                    why="a program has written rows without all their columns into the binary log",
                    instead="Set binlog_row_image=FULL for all programs that write, then drop the capture and create it again",
                ) from None
        reading.count += captured
        reading.open_count += captured
        reading.place = replace(reading.place, changes=reading.place.changes + captured)

    def _take_statement(self, event: Event, reading: _Reading) -> None:
        body = event.body
        name_size, status_size = body[8], int.from_bytes(body[11:13], "little")
        at = 13 + status_size
        database = body[at : at + name_size].decode(errors="replace")
        raw = body[at + name_size + 1 :]
        text = (binlog.inflated(raw) if event.type == binlog.QUERY_COMPRESSED else raw).decode(errors="replace")
        statement = statements.parse(text, database)
        if statement.act == "rows" and database == self._server.database:
            raise SourceInvalid(
                source=str(self._server),
                why=f"a program has written with binlog_format=STATEMENT: {text[:80]!r}",
                instead="Set binlog_format=ROW for all programs that write, then drop the capture and create it again",
            )
        if statement.act in ("truncate", "drop"):
            self._empty(statement, event, reading)
        if statement.act in ("truncate", "drop", "definition"):
            self._described.clear()
            reading.is_full = True  # the next rows may have other columns: they are another piece
        if statement.act in ("drop", "definition"):
            with contextlib.suppress(SourceInvalid):  # a table that is gone has no more rows
                self._describe()
        is_end = statement.act in ("commit", "rollback")
        if is_end or (self._transaction is not None and self._transaction.is_standalone):
            self._commit(reading)

    def _empty(self, statement: statements.Statement, event: Event, reading: _Reading) -> None:
        """Delete all rows of tables that were truncated or dropped."""
        reading.close_rows()
        for database, name in statement.tables:
            source = self._tables.get(name)
            if database == self._server.database and source is not None:
                order = reading.place.changes + 1
                transaction = self._transaction.name if self._transaction is not None else ""
                reading.changes.add(
                    truncation(source.table, seconds=event.seconds, order=order, transaction=transaction)
                )
                reading.place = replace(reading.place, changes=order)
                reading.count += 1

    def _described_table(self, body: bytes) -> TableMap | None:
        """The table of rows; None if it is not captured."""
        key = body[8:]  # behind the number of the table, which is another after each restart
        if key in self._described:
            return self._described[key]
        database, name = table_map.database_and_name(body)
        described = None
        if database == self._server.database and any(fnmatchcase(name, pattern) for pattern in self._wanted):
            source = self._tables.get(name)
            try:
                described = table_map.parse(body, self._collations(), source.kinds if source is not None else {})
            except TypeUnknown as error:
                raise SourceInvalid(
                    source=f"Table {name!r} of {self._server}",
                    why=str(error),
                    instead=f"Set binlog_row_metadata=FULL for all programs that write, and renew the table with ALTER TABLE `{name}` FORCE",
                ) from error
        self._described[key] = described
        return described

    def _collations(self) -> dict[int, str]:
        if not self._charsets:
            self._charsets = self._session.charsets()
        return self._charsets

    def _incomplete(self, snapshot: Mapping[str, SnapshotProgress]) -> SourceTable | None:
        return next((one for one in self._tables.values() if not _is_complete(snapshot, one)), None)

    def _is_reached(self, place: _Place, text: str) -> bool:
        return self._transaction is None and gtid.contains(place.gtids, gtid.parse(text))

    # -- the stream ---------------------------------------------------------------------------------------------------

    def _restart(self, place: _Place) -> None:
        """Read the binary log from a place, after it was checked that this is the server of the capture."""
        self._stop()
        variables = self._session.variables()
        check(self._server, variables)
        if int(variables["server_id"]) != place.server:
            raise self._replaced(
                f"its server_id is {variables['server_id']}, and the capture has read server {place.server}"
            )
        end = gtid.parse(variables["gtid_binlog_pos"] or "")
        if not gtid.contains(end, place.gtids):
            raise self._replaced(
                f"its binary log ends at GTID {gtid.shown(end) or 'none'}, and the capture has read up to {gtid.shown(place.gtids)}"
            )
        self._describe()
        self._binlog = self._open_binlog(gtid.shown(place.gtids))
        self._place = place

    def _open_binlog(self, at: str) -> Binlog:
        return Binlog(self._session, at)

    def _first_event(self, stream: Binlog) -> None:
        try:
            stream.next(ARRIVAL_SECONDS)
        except BinlogRefused as error:
            raise self._refused(error) from error

    def _refused(self, error: BinlogRefused) -> SourceInvalid | SourceReplaced | SourceUnreachable:
        if error.code == binlog.POSITION_LOST:
            return self._replaced(error.said.rstrip("."))
        if error.code in (1227, 1045):
            return SourceInvalid(
                source=str(self._server),
                why=error.said.rstrip("."),
                instead=f"Allow it as an administrator: {self._server.grants}",
            )
        return SourceUnreachable(source=str(self._server), why=error.said.rstrip("."))

    def _replaced(self, why: str) -> SourceReplaced:
        return SourceReplaced(source=str(self._server), capture=self._capture, why=why)

    def _stop(self) -> None:
        if self._binlog is not None:
            self._binlog.close()
        self._binlog = self._place = self._transaction = self._part = None
        self._maps.clear()
        self._spool.close()
        self._session.close()

    # -- the rest of the port -----------------------------------------------------------------------------------------

    def rows(self, table: Table) -> Iterator[pa.RecordBatch]:
        [found] = [one for one in describe(self._session, self._wanted) if one.table.name == table.name]
        progress: SnapshotProgress | None = None
        while progress is None or not progress.complete:
            part = read_part(self._session, found, progress, rows_max=ROWS_MAX)
            yield from part.batches
            progress = part.progress

    def acknowledge(self, position: Position) -> None:
        """The server keeps its binary log by its own settings."""

    def wait(self, seconds: float) -> None:
        if self._binlog is not None:
            self._binlog.wait(seconds)
        else:
            time.sleep(seconds)

    def health(self, position: Position) -> SourceHealth:
        place = _Place.of(position)
        end = gtid.parse(self._session.variables()["gtid_binlog_pos"] or "")
        pending = gtid.missing(place.gtids, end)
        delay = 0.0
        if pending:
            delay = max(0.0, time.time() - (self._oldest(place) or time.time()))
        details = {"gtid": gtid.shown(place.gtids), "gtid of the server": gtid.shown(end)}
        return SourceHealth(pending=pending, delay_seconds=delay, details=details)

    def _oldest(self, place: _Place) -> int | None:
        """When the oldest transaction that is not captured was committed."""
        try:
            with contextlib.closing(self._open_binlog(gtid.shown(place.gtids))) as stream:
                for event in iter(lambda: stream.next(ARRIVAL_SECONDS), None):
                    if event.type == binlog.GTID:
                        return event.seconds
        except BinlogRefused as error:
            raise self._refused(error) from error
        return None

    def close(self) -> None:
        self._stop()


def _is_complete(snapshot: Mapping[str, SnapshotProgress], source: SourceTable) -> bool:
    progress = snapshot.get(source.table.name)
    # A table without a key is read once: a second snapshot would repeat its rows.
    is_current = progress is not None and (progress.version == source.version or not source.table.key)
    return progress is not None and progress.complete and is_current


def _snapshot_changes(part: SnapshotPart, *, order: int) -> Iterator[Changes]:
    now_us = time.time_ns() // 1000
    for batch in part.batches:
        yield Changes(
            table=part.table,
            operations=pa.repeat(pa.scalar("r"), batch.num_rows),
            rows=batch,
            at_us=pa.repeat(pa.scalar(now_us, pa.int64()), batch.num_rows),
            order=pa.repeat(pa.scalar(order, pa.int64()), batch.num_rows),
        )
