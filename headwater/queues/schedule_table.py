"""Messages before the cursor that were never delivered and wait for their time, in the order in which they are due.

Those that are due together stand anywhere in the topic. Here they are neighbours, so that a worker that takes them reads and
writes a few pages of the file, however many are scheduled. The price: a message cannot be found by its offset alone.

Invariants: a message is in a row of one of the tables `scheduled`, `messages` and `ranges`. Here it has the time that its row in the
topic says, and no key that orders it. When it is due it moves to `messages`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

TABLES = """
CREATE TABLE scheduled(
    partition INTEGER NOT NULL, ready_at INTEGER NOT NULL, offset INTEGER NOT NULL,
    PRIMARY KEY (partition, ready_at, offset)
) WITHOUT ROWID;
"""
#: A message that is scheduled: its partition, when it is due, and its offset.
Due = tuple[int, int, int]


class ScheduleTable:
    """The table in the index of one group."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        #: Whether the last call of `move_due` found messages.
        self.moved = False

    def add(self, rows: Iterable[Due]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO scheduled VALUES (?, ?, ?)", sorted(rows))

    def move_due(self, partition: int, *, until_us: int, count: int) -> None:
        """Move the first messages that are due until a time to `messages`."""
        query = (
            "SELECT partition, ready_at, offset FROM scheduled WHERE partition = ? AND ready_at <= ?"
            " ORDER BY ready_at, offset LIMIT ?"
        )
        rows = self._db.execute(query, (partition, until_us, count)).fetchall()
        self.moved = bool(rows)
        if rows:
            self._add_to_messages(rows)
            self._db.execute(
                "DELETE FROM scheduled WHERE partition = ? AND (ready_at, offset) <= (?, ?)", (partition, *rows[-1][1:])
            )

    def following(self, partition: int, count: int) -> list[int]:
        """The offsets of the messages that are due next."""
        query = "SELECT offset FROM scheduled WHERE partition = ? ORDER BY ready_at, offset LIMIT ?"
        return [offset for (offset,) in self._db.execute(query, (partition, count))]

    def move(self, due: Sequence[Due]) -> None:
        """Move messages to `messages`, those of them that are here."""
        found = []
        for row in due:
            query = "DELETE FROM scheduled WHERE partition = ? AND ready_at = ? AND offset = ?"
            if self._db.execute(query, row).rowcount:
                found.append(row)
        self._add_to_messages(found)

    def oldest(self, partition: int, count: int) -> list[Due]:
        """The first messages in the order of offsets, by a look at all."""
        query = "SELECT partition, ready_at, offset FROM scheduled WHERE partition = ? ORDER BY offset LIMIT ?"
        return self._db.execute(query, (partition, count)).fetchall()

    def _add_to_messages(self, rows: Sequence[Due]) -> None:
        self._db.executemany("INSERT INTO messages(partition, ready_at, offset, attempts) VALUES (?, ?, ?, 0)", rows)

    def is_empty(self) -> bool:
        return self._db.execute("SELECT 1 FROM scheduled LIMIT 1").fetchone() is None

    def counts(self, now_us: int) -> tuple[int, int]:
        """How many are due, and how many are not."""
        return self._db.execute(  # type: ignore[no-any-return]  # a row of two numbers
            "SELECT coalesce(sum(ready_at <= ?1), 0), coalesce(sum(ready_at > ?1), 0) FROM scheduled", (now_us,)
        ).fetchone()

    def next_us(self, partition: int, now_us: int) -> int | None:
        """When the next message that is not due yet will be."""
        query = "SELECT min(ready_at) FROM scheduled WHERE partition = ? AND ready_at > ?"
        result: int | None = self._db.execute(query, (partition, now_us)).fetchone()[0]
        return result
