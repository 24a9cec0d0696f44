"""Messages that a worker has taken in one call and that follow each other: one row of the index for all of them.

Invariant: a message is in a row of this table or in `messages`, never in both. What concerns one message of a range, such as
a failure, moves it to `messages` first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from headwater.queues.ranges import LeaseRange, Range

TABLES = """
CREATE TABLE ranges(
    partition INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, attempts INTEGER NOT NULL,
    token INTEGER NOT NULL, owner TEXT NOT NULL, lease_until INTEGER NOT NULL, PRIMARY KEY (partition, start)
) WITHOUT ROWID;
CREATE INDEX ranges_leased ON ranges(lease_until);
"""
_COLUMNS = "partition, start, stop, attempts, token, owner, lease_until"
_Row = tuple[int, int, int, int, int, str, int]


class RangeTable:
    """The table in the index of one group."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    def add(self, rows: Sequence[_Row]) -> None:
        """Lease messages that are not in the index yet."""
        self._db.executemany("INSERT INTO ranges VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def cut(self, lease: LeaseRange) -> list[Range]:
        """Take the messages of a lease out of the table; return those that were there."""
        rows = self._select(
            "partition = ? AND token = ? AND start < ? AND stop > ? ORDER BY start",
            (lease.partition, lease.token, lease.stop, lease.start),
        )
        return [self._cut(row, lease.start, lease.stop) for row in rows]

    def _cut(self, row: _Row, start: int, stop: int) -> Range:
        partition, first, behind, *rest = row
        start, stop = max(start, first), min(stop, behind)
        if start == first:
            self._db.execute("DELETE FROM ranges WHERE partition = ? AND start = ?", (partition, first))
        else:
            query = "UPDATE ranges SET stop = ? WHERE partition = ? AND start = ?"
            self._db.execute(query, (start, partition, first))
        if stop < behind:
            self._db.execute("INSERT INTO ranges VALUES (?, ?, ?, ?, ?, ?, ?)", (partition, stop, behind, *rest))
        return start, stop

    def cut_all(self, partition: int, start: int, stop: int) -> None:
        """Take messages out of the table, whichever worker holds them."""
        for row in self._select("partition = ? AND start < ? AND stop > ?", (partition, stop, start)):
            self._cut(row, start, stop)

    def move_one(self, partition: int, offset: int) -> None:
        """Move a message to `messages`, if it is here."""
        rows = self._select("partition = ? AND start <= ? ORDER BY start DESC LIMIT 1", (partition, offset))
        for row in rows:
            if offset < row[2]:
                self._move(row, *self._cut(row, offset, offset + 1))

    def move_expired(self, now_us: int) -> None:
        """Move messages whose leases have run out to `messages`."""
        for row in self._select("lease_until <= ?", (now_us,)):
            self._move(row, *self._cut(row, row[1], row[2]))

    def move_owned(self, owner: str) -> None:
        """Move what a consumer holds to `messages`."""
        for row in self._select("owner = ?", (owner,)):
            self._move(row, *self._cut(row, row[1], row[2]))

    def _move(self, row: _Row, start: int, stop: int) -> None:
        partition, _, _, attempts, token, owner, lease_until = row
        self._db.executemany(
            "INSERT INTO messages VALUES (?, ?, 0, NULL, ?, 0, ?, ?, ?)",
            [(partition, offset, attempts, token, owner, lease_until) for offset in range(start, stop)],
        )

    def _select(self, where: str, values: tuple[int | str, ...]) -> list[_Row]:
        query = f"SELECT {_COLUMNS} FROM ranges WHERE {where}"  # of names of this module
        return self._db.execute(query, values).fetchall()
