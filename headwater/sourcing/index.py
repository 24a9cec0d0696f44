"""The index of one partition of events: a SQLite file in which the events of an entity are beside each other.

Invariants:

- `next` is the first offset of the partition that is not applied yet. The topic is the truth: an index that is missing,
  damaged or ahead of the topic is built again from it.
- Rows are applied in one transaction with `next`, by any process.

Loading an entity reads its own rows alone, at a cost that grows with the logarithm of the number of entities.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import orjson

from headwater.sourcing.event_rows import EventRow

FORMAT = 1
#: With many entities a transaction changes thousands of pages: fewer would be written and read again within it.
CACHE_KIB_MAX = 32 * 1024
#: Pages that are collected in the write-ahead log. Those that change again meanwhile are copied once.
WAL_PAGES = 8_000
_TABLES = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE events(
    entity TEXT NOT NULL, version INTEGER NOT NULL, offset INTEGER NOT NULL, event TEXT NOT NULL,
    schema INTEGER NOT NULL, data TEXT NOT NULL, at INTEGER NOT NULL, command_id TEXT, about TEXT,
    PRIMARY KEY (entity, version)
) WITHOUT ROWID;
CREATE INDEX commands ON events(entity, command_id) WHERE command_id IS NOT NULL;
CREATE TABLE tags(tag TEXT NOT NULL, offset INTEGER NOT NULL, entity TEXT NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (tag, offset)) WITHOUT ROWID;
CREATE TABLE snapshots(entity TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, version INTEGER NOT NULL, state BLOB NOT NULL)
    WITHOUT ROWID;
"""
_COLUMNS = "entity, version, event, schema, data, at, command_id, about, offset"
_Stored = tuple[str, int, str, int, str, int, str | None, str | None, int]


#: Who, why, correlation, causation and tags of an event that has none of them.
_NOTHING = (None,) * 5


class Index:
    """One open index file."""

    def __init__(self, path: Path | str, *, partitions: int) -> None:
        self.path = path
        self._db = self._open(partitions)

    def _open(self, partitions: int) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=30.0)
        try:
            # The topic is synced; after a power failure an older state of the index is enough.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(f"PRAGMA cache_size = -{CACHE_KIB_MAX}")
            database.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                database.executescript(
                    f"BEGIN IMMEDIATE; {_TABLES} INSERT INTO meta VALUES ('next', 0), ('partitions', {partitions});"
                    f" PRAGMA user_version = {FORMAT}; COMMIT;"
                )
            elif version != FORMAT:
                raise sqlite3.DatabaseError(f"index format {version}")
        except sqlite3.Error:
            database.close()
            raise
        return database

    def close(self) -> None:
        self._db.close()

    def get(self, name: str) -> int:
        return int(self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0])

    def apply(
        self, rows: Sequence[EventRow], offset_next: int, snapshots: Mapping[str, tuple[str, int, bytes]]
    ) -> None:
        """Add rows and snapshots (fingerprint, version and state by entity), unless another process has."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            applied = self.get("next")
            new = [row for row in rows if row.offset >= applied]
            self._db.executemany(
                f"INSERT INTO events({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [_stored(row) for row in new]
            )
            tagged = [(tag, row.offset, row.entity, row.version) for row in new for tag in row.tags or ()]
            self._db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?, ?, ?)", tagged)
            self._db.executemany(
                "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)",
                [(entity, *snapshot) for entity, snapshot in snapshots.items()],
            )
            self._db.execute("UPDATE meta SET value = max(value, ?) WHERE name = 'next'", (offset_next,))
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def events(self, entity: str, *, after: int = 0, limit: int | None = None) -> list[EventRow]:
        """The events of an entity behind a version, in order."""
        query = f"SELECT {_COLUMNS} FROM events WHERE entity = ? AND version > ? ORDER BY version LIMIT ?"
        return [_row(stored) for stored in self._db.execute(query, (entity, after, -1 if limit is None else limit))]

    def version(self, entity: str) -> int:
        """The version of an entity; 0 if it has no events."""
        query = "SELECT coalesce(max(version), 0) FROM events WHERE entity = ?"
        return int(self._db.execute(query, (entity,)).fetchone()[0])

    def of_command(self, entity: str, command_id: str) -> list[EventRow]:
        """The events of a command, in order."""
        query = f"SELECT {_COLUMNS} FROM events WHERE entity = ? AND command_id = ? ORDER BY version"
        return [_row(stored) for stored in self._db.execute(query, (entity, command_id))]

    def tagged(self, tags: Iterable[str]) -> list[EventRow]:
        """The events with any of these tags, in the order of offsets."""
        found: dict[int, EventRow] = {}
        columns = ", ".join(f"events.{name}" for name in _COLUMNS.split(", "))
        query = f"SELECT {columns} FROM tags JOIN events USING (entity, version) WHERE tag = ?"
        for tag in tags:
            found |= {stored[-1]: _row(stored) for stored in self._db.execute(query, (tag,))}
        return [found[offset] for offset in sorted(found)]

    def snapshot(self, entity: str, fingerprint: str) -> tuple[int, bytes] | None:
        """The version and state of an entity's snapshot."""
        query = "SELECT version, state FROM snapshots WHERE entity = ? AND fingerprint = ?"
        row: tuple[int, bytes] | None = self._db.execute(query, (entity, fingerprint)).fetchone()
        return row

    def entities(self, *, after: str, prefix: str, limit: int) -> list[tuple[str, int]]:
        """Entities and their versions in the order of ids."""
        query = "SELECT entity, max(version) FROM events WHERE entity > ? AND entity >= ? AND entity < ? GROUP BY entity LIMIT ?"
        return list(self._db.execute(query, (after, prefix, prefix + "\U0010ffff", limit)))


def _stored(row: EventRow) -> _Stored:
    notes = row[7:12]
    about = None if notes == _NOTHING else orjson.dumps(notes).decode()
    return (*row[:7], about, row.offset)


def _row(stored: _Stored) -> EventRow:
    entity, version, event, schema, data, at_us, command_id, about, offset = stored
    by, why, correlation, causation, tags = (None,) * 5 if about is None else orjson.loads(about)
    return EventRow(
        entity, version, event, schema, data, at_us, command_id, by, why, correlation, causation, tags, offset
    )
