"""Events of another library's aggregates: rows of a topic with one partition, and an index of them in SQLite.

Invariants:

- A writer holds the write lock of the index from its look at the end of the topic until it has added its own rows. So the
  writers of all processes follow one another, and the index has only rows that are durable in the topic.
- The topic is the truth. Rows that a writer did not add to the index before it died are added by the next program that
  looks; an index that is missing, damaged or ahead of the topic is built again.
- The numbers of events are 1, 2, 3, … in the order of their rows, also after the index was built again.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.errors import NotPossible
from headwater.home import is_remote
from headwater.log import Log
from headwater.schema import parse_schema
from headwater.sourcing.errors import HistoryBroken

SCHEMA: pa.Schema = parse_schema(
    "number int64, originator string, version int64, event string, state bytes, application string, position int64"
)
_TABLES = """
CREATE TABLE meta(next INTEGER NOT NULL);
CREATE TABLE events(number INTEGER PRIMARY KEY, originator TEXT NOT NULL, version INTEGER NOT NULL, event TEXT NOT NULL,
    state BLOB NOT NULL, UNIQUE (originator, version));
CREATE TABLE positions(application TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES (0);
"""
_FORMAT = 1
_LOCK_SECONDS_MAX = 60.0


class Stored(NamedTuple):
    """One event, as it is stored."""

    originator: str
    version: int
    event: str
    state: bytes
    #: 0 until it is stored.
    number: int = 0


class StoredEvents:
    """The events of one sequence."""

    def __init__(self, log: Log, topic: str) -> None:
        if is_remote(log.address):
            raise NotPossible(why="The index of stored events is a file", instead="Open the log's folder")
        self._log, self._topic = log, topic
        log.create(topic, SCHEMA, partitions=1, exist_ok=True)
        folder = log.home / "stored_events"
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{topic}-{log.topic(topic).id[:12]}.sqlite"
        self._memory = threading.RLock()
        self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        with suppress(sqlite3.DatabaseError):
            return _opened(self._path)
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        return _opened(self._path)

    def insert(self, events: Sequence[Stored], position: tuple[str, int] | None = None) -> list[int]:
        """Store events and the position of an application, all or none; return the events' numbers.

        Raises `sqlite3.IntegrityError`, and stores nothing, if one of the events exists or the position is not behind
        the last one.
        """
        with self._writing() as offset:
            last = self._db.execute("SELECT max(number) FROM events").fetchone()[0] or 0
            rows = [each._replace(number=last + place) for place, each in enumerate(events, start=1)]
            self._index(rows, [] if position is None else [position])
            batch = _to_batch(rows, position)
            if batch.num_rows:
                self._log.append(self._topic, batch, partition=0, expected_offset=offset)
                self._db.execute("UPDATE meta SET next = ?", (offset + batch.num_rows,))
        return [row.number for row in rows]

    def of_originator(
        self, originator: str, *, after: int | None, up_to: int | None, descending: bool, limit: int | None
    ) -> list[Stored]:
        """The events of an originator with versions in a range, in order."""
        query = (
            "SELECT originator, version, event, state, number FROM events WHERE originator = ? AND version > ? "
            f"AND version <= ? ORDER BY version {'DESC' if descending else 'ASC'} LIMIT ?"
        )
        bounds = (-(2**63) if after is None else after, 2**63 - 1 if up_to is None else up_to)
        return [Stored(*row) for row in self._read(query, (originator, *bounds, -1 if limit is None else limit))]

    def numbered(self, *, start: int, stop: int | None, events: Sequence[str], limit: int) -> list[Stored]:
        """The events with numbers from `start` up to and with `stop`, in order; only those of some names, if any are given."""
        query = "SELECT originator, version, event, state, number FROM events WHERE number >= ? AND number <= ? "
        if events:
            query += f"AND event IN ({','.join('?' * len(events))}) "
        words = (start, 2**63 - 1 if stop is None else stop, *events, limit)
        return [Stored(*row) for row in self._read(query + "ORDER BY number LIMIT ?", words)]

    def last_number(self) -> int | None:
        """The number of the newest event."""
        [(number,)] = self._read("SELECT max(number) FROM events", ())
        return None if number is None else int(number)

    def position(self, application: str) -> int | None:
        """The last position of an application."""
        found = self._read("SELECT position FROM positions WHERE application = ?", (application,))
        return int(found[0][0]) if found else None

    def wait(self, *, seconds: float) -> None:
        """Return when there are new rows, or after a time."""
        with self._memory:
            known = self._next()
        self._log.wait({self._topic: {0: known}}, seconds=seconds)

    def close(self) -> None:
        with self._memory:
            self._db.close()

    # Any: a row of SQLite.
    def _read(self, query: str, words: tuple[object, ...]) -> list[Any]:
        with self._memory:
            if self._log.end_offsets(self._topic)[0] != self._next():
                with self._writing():
                    pass
            return self._db.execute(query, words).fetchall()

    def _next(self) -> int:
        return int(self._db.execute("SELECT next FROM meta").fetchone()[0])

    @contextmanager
    def _writing(self) -> Iterator[int]:
        """A transaction of the index, which has all rows of the topic; gives the topic's end."""
        with self._memory:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._catch_up()
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _catch_up(self) -> int:
        end, known = self._log.end_offsets(self._topic)[0], self._next()
        if known > end:  # after a power failure: the index was ahead, and what it had is gone
            for statement in ("DELETE FROM events", "DELETE FROM positions", "UPDATE meta SET next = 0"):
                self._db.execute(statement)
            known = 0
        if known != end:
            for batch in self._log.read_range(self._topic, 0, start=known, stop=end):
                columns = [batch.data.column(name).to_pylist() for name in SCHEMA.names]
                rows = list(zip(*columns, strict=True))
                events = [Stored._make((*row[1:5], row[0])) for row in rows if row[0] is not None]
                positions = [row[5:] for row in rows if row[5] is not None]
                try:
                    self._index(events, positions)
                except sqlite3.IntegrityError as error:
                    entity = events[0].originator if events else ""
                    raise HistoryBroken(
                        topic=self._topic, entity=entity, offset=batch.offset, why=str(error)
                    ) from error
            self._db.execute("UPDATE meta SET next = ?", (end,))
        return end

    def _index(self, events: Sequence[Stored], positions: Sequence[tuple[str, int]]) -> None:
        self._db.executemany(
            "INSERT INTO events(originator, version, event, state, number) VALUES (?, ?, ?, ?, ?)", events
        )
        for position in positions:
            query = (
                "INSERT INTO positions VALUES (?, ?) ON CONFLICT (application) "
                "DO UPDATE SET position = excluded.position WHERE positions.position < excluded.position"
            )
            if self._db.execute(query, position).rowcount == 0:
                raise sqlite3.IntegrityError(f"the position of {position[0]} is {position[1]} or later")


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_LOCK_SECONDS_MAX)
    try:
        # The topic is synced; after a power failure an older state of the index is enough.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("BEGIN IMMEDIATE")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in _TABLES.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {_FORMAT}")
        database.execute("COMMIT")
        if version not in (0, _FORMAT):
            raise sqlite3.DatabaseError(f"index format {version}")
    except sqlite3.Error:
        database.close()
        raise
    return database


def _to_batch(events: Sequence[Stored], position: tuple[str, int] | None) -> pa.RecordBatch:
    rows = [(each.number, each.originator, each.version, each.event, each.state, None, None) for each in events]
    if position is not None:
        rows.append((None, None, None, None, None, *position))  # type: ignore[arg-type]
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
