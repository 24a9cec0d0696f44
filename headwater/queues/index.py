"""The index of one group of a queue: a SQLite file that the processes of this machine share.

Invariants:

- A message with an offset at or behind its partition's cursor waits, and takes no room here, unless it is in `done`.
- A message before the cursor is in `messages`, in a row of `ranges` or in `scheduled`, or the group is done with it.
- `journal_next` is the first row of the journal that is not applied yet. The journal is the truth: an index that is
  missing, damaged or ahead of the journal is built again from it, and only leases and acquisitions are lost.

All calls are made under the group's lock and in a transaction of SQLite. `sqlite3` releases no row before `commit`, so
that a process that is killed leaves what was there before.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headwater.errors import HeadwaterError, Locked
from headwater.log.errors import DiskFull, FileCorrupt
from headwater.queues.errors import IndexDamaged
from headwater.queues.message import Place
from headwater.queues.range_table import TABLES as RANGES
from headwater.queues.range_table import RangeTable
from headwater.queues.ranges import LeaseRange, Range, gaps, merged
from headwater.queues.schedule_table import TABLES as SCHEDULE
from headwater.queues.schedule_table import ScheduleTable

FORMAT = 5
#: The format before: it has scheduled messages in `messages` only, where they stay.
FORMAT_BEFORE = 4
#: Pages that stay in memory: the rows that one call adds to a schedule of millions lie on many.
CACHE_KIB = 32 * 1024
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_TABLES = f"""
CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE cursors(partition INTEGER PRIMARY KEY, next INTEGER NOT NULL);
CREATE TABLE messages(
    partition INTEGER NOT NULL, offset INTEGER NOT NULL, ready_at INTEGER NOT NULL, key TEXT, attempts INTEGER NOT NULL,
    blocked INTEGER NOT NULL DEFAULT 0, token INTEGER, owner TEXT, lease_until INTEGER,
    PRIMARY KEY (partition, offset)
) WITHOUT ROWID;
CREATE INDEX ready ON messages(partition, ready_at, offset) WHERE token IS NULL AND blocked = 0;
CREATE INDEX blocked ON messages(partition) WHERE blocked = 1;
CREATE INDEX leased ON messages(lease_until) WHERE token IS NOT NULL;
CREATE INDEX keyed ON messages(partition, key, offset) WHERE key IS NOT NULL;
CREATE TABLE done(
    partition INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, PRIMARY KEY (partition, start)
) WITHOUT ROWID;
CREATE TABLE owners(owner TEXT PRIMARY KEY, taken_at INTEGER NOT NULL) WITHOUT ROWID;
{RANGES}{SCHEDULE}"""


class Entry(NamedTuple):
    """A message in the index."""

    partition: int
    offset: int
    key: str | None
    attempts: int
    owner: str | None


class Index:
    """One open index file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = self._open()
        self._ranges = RangeTable(self._db)
        self.schedule = ScheduleTable(self._db)
        self._file = path.stat().st_ino

    def _open(self) -> sqlite3.Connection:
        try:
            database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=30.0)
        except sqlite3.Error as error:
            raise problem_of(error, self.path) from error
        try:
            # The journal is synced; after a power failure an older state of the index is enough.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                database.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {FORMAT}; COMMIT;")
            elif version == FORMAT_BEFORE:
                database.executescript(f"BEGIN IMMEDIATE; {SCHEDULE} PRAGMA user_version = {FORMAT}; COMMIT;")
            elif version != FORMAT:
                raise IndexDamaged(path=str(self.path), why=f"it has format {version}, not {FORMAT}")
        except sqlite3.Error as error:
            database.close()
            raise problem_of(error, self.path) from error
        except IndexDamaged:
            database.close()
            raise
        return database

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise problem_of(error, self.path) from error
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # SQLite has done it already
            self._db.execute("ROLLBACK")

    def is_current(self) -> bool:
        """Whether the open file still has its name: another process builds a damaged index again under the same name."""
        try:
            return self.path.stat().st_ino == self._file
        except FileNotFoundError:
            return False

    def close(self) -> None:
        self._db.close()

    # -- small values -------------------------------------------------------------------------------------------------

    # Any: a number or text.
    def get(self, name: str, default: Any = 0) -> Any:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return default if row is None else row[0]

    def store(self, name: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def add(self, name: str, count: int) -> None:
        if count:
            self._db.execute(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
                (name, count),
            )

    def cursors(self) -> dict[int, int]:
        return dict(self._db.execute("SELECT partition, next FROM cursors"))

    def set_cursor(self, partition: int, offset: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (partition, offset))

    def reset(self, cursors: dict[int, int]) -> None:
        """Forget all messages; those from the cursors on wait."""
        for table in ("messages", "ranges", "scheduled", "done"):
            self._db.execute(f"DELETE FROM {table}")  # a name of this module
        self._db.executemany("INSERT OR REPLACE INTO cursors VALUES (?, ?)", cursors.items())

    # -- delivery -----------------------------------------------------------------------------------------------------

    def ready(self, partition: int, *, now_us: int, count: int) -> list[Entry]:
        """Messages of a partition that can be delivered again: those without a delay first, in the order of offsets."""
        self.schedule.move_due(partition, until_us=now_us, count=count)
        rows = self._db.execute(
            "SELECT partition, offset, key, attempts, owner FROM messages"
            " WHERE token IS NULL AND blocked = 0 AND partition = ? AND ready_at <= ? ORDER BY ready_at, offset LIMIT ?",
            (partition, now_us, count),
        )
        return [Entry(*row) for row in rows]

    def unleased(self, partition: int, *, count: int) -> list[Place]:
        """Messages that are not leased, the oldest first."""
        query = "SELECT partition, offset FROM messages WHERE token IS NULL AND partition = ? ORDER BY offset LIMIT ?"
        others = [Place(*row) for row in self._db.execute(query, (partition, count))]
        scheduled = {Place(row[0], row[2]): row for row in self.schedule.oldest(partition, count)}
        places = sorted([*others, *scheduled])[:count]
        self.schedule.move([scheduled[place] for place in places if place in scheduled])
        return places

    def lease_new(
        self, rows: Iterable[tuple[int, int, str | None, int]], *, token: int, owner: str, until_us: int
    ) -> None:
        """Lease messages that are not in the index yet: (partition, offset, key, attempts)."""
        self._db.executemany(
            "INSERT INTO messages VALUES (?, ?, 0, ?, ?, 0, ?, ?, ?)", [(*row, token, owner, until_us) for row in rows]
        )

    def lease_ranges(
        self, partition: int, ranges: Iterable[Range], *, attempts: int, token: int, owner: str, until_us: int
    ) -> None:
        """Lease messages without keys that are not in the index yet."""
        self._ranges.add([(partition, *each, attempts, token, owner, until_us) for each in ranges])

    def lease(self, places: Sequence[Place], *, token: int, owner: str, until_us: int, acquired: int) -> None:
        """Lease messages of the index; `acquired` is added to their attempts."""
        self._db.executemany(
            "UPDATE messages SET token = ?, owner = ?, lease_until = ?, attempts = attempts + ?"
            " WHERE partition = ? AND offset = ?",
            [(token, owner, until_us, acquired, *place) for place in places],
        )

    def park(
        self, partition: int, offset: int, *, ready_at_us: int, key: str | None, blocked: bool, attempts: int = 0
    ) -> None:
        """Add a message that is scheduled, or blocked by an earlier message of its key."""
        self._db.execute(
            "INSERT OR REPLACE INTO messages(partition, offset, ready_at, key, attempts, blocked) VALUES (?, ?, ?, ?, ?, ?)",
            (partition, offset, ready_at_us, key, attempts, blocked),
        )

    def has_key(self, partition: int, key: str) -> bool:
        """Whether the group has an unfinished message of a key before the cursor."""
        query = "SELECT 1 FROM messages WHERE partition = ? AND key = ? LIMIT 1"
        return self._db.execute(query, (partition, key)).fetchone() is not None

    def blocked_count(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM messages WHERE blocked = 1").fetchone()[0])

    # -- the end of a delivery ----------------------------------------------------------------------------------------

    def held(self, leases: Sequence[tuple[int, int, int]]) -> list[Entry | None]:
        """The messages of leases (partition, offset, token); None where the lease is gone."""
        query = (
            "SELECT partition, offset, key, attempts, owner FROM messages"
            " WHERE partition = ? AND offset = ? AND token = ?"
        )
        found = []
        for lease in leases:
            self._ranges.move_one(*lease[:2])
            row = self._db.execute(query, lease).fetchone()
            found.append(None if row is None else Entry(*row))
        return found

    def entry(self, place: Place) -> Entry | None:
        self._ranges.move_one(*place)
        query = "SELECT partition, offset, key, attempts, owner FROM messages WHERE partition = ? AND offset = ?"
        row = self._db.execute(query, place).fetchone()
        return None if row is None else Entry(*row)

    def delete(self, partition: int, start: int, stop: int) -> None:
        """Delete messages that the group is done with."""
        self._ranges.cut_all(partition, start, stop)
        self._db.execute(
            "DELETE FROM messages WHERE partition = ? AND offset >= ? AND offset < ?", (partition, start, stop)
        )

    def delete_held(self, lease: LeaseRange) -> list[Range]:
        """Delete the messages of a lease that are still held; return which these were."""
        found = self._ranges.cut(lease)
        if sum(stop - start for start, stop in found) < lease.stop - lease.start:
            where = "FROM messages WHERE partition = ? AND token = ? AND offset >= ? AND offset < ?"
            offsets = self._db.execute(f"SELECT offset {where}", lease).fetchall()
            self._db.execute(f"DELETE {where}", lease)
            found += [(offset, offset + 1) for (offset,) in offsets]
        return merged(sorted(found))

    def keys_between(self, partition: int, start: int, stop: int) -> set[str]:
        """The keys of messages of the index in a range."""
        query = (
            "SELECT DISTINCT key FROM messages WHERE partition = ? AND offset >= ? AND offset < ? AND key IS NOT NULL"
        )
        return {key for (key,) in self._db.execute(query, (partition, start, stop))}

    def unblock(self, partition: int, key: str) -> None:
        """Let the earliest message of a key be delivered, unless it can be already."""
        self._db.execute(
            "UPDATE messages SET blocked = 0 WHERE blocked = 1 AND partition = ? AND offset ="
            " (SELECT min(offset) FROM messages WHERE partition = ? AND key = ?)",
            (partition, partition, key),
        )

    def mark_done(self, partition: int, start: int, stop: int) -> None:
        """Remember messages behind the cursor that the group is done with: the cursor skips them."""
        known = self._done_ranges(partition, start, stop)
        rows = [(partition, *each) for each in gaps(start, stop, known)]
        self._db.executemany("INSERT INTO done VALUES (?, ?, ?)", rows)

    def done_between(self, partition: int, start: int, stop: int) -> set[int]:
        found: set[int] = set()
        for first, behind in self._done_ranges(partition, start, stop):
            found.update(range(max(first, start), min(behind, stop)))
        return found

    def _done_ranges(self, partition: int, start: int, stop: int) -> list[Range]:
        query = "SELECT start, stop FROM done WHERE partition = ? AND start < ? AND stop > ? ORDER BY start"
        return self._db.execute(query, (partition, stop, start)).fetchall()

    def forget_done(self, partition: int, stop: int) -> None:
        """Forget messages before an offset; of a range that contains it, the rest is kept."""
        self._db.execute("DELETE FROM done WHERE partition = ? AND stop <= ?", (partition, stop))
        query = "UPDATE done SET start = ? WHERE partition = ? AND start < ?"
        self._db.execute(query, (stop, partition, stop))

    def give_back(self, place: Place, *, ready_at_us: int, attempts: int) -> None:
        """End the lease of a message, to be delivered again."""
        self._db.execute(
            "UPDATE messages SET token = NULL, owner = NULL, lease_until = NULL, ready_at = ?, attempts = ?"
            " WHERE partition = ? AND offset = ?",
            (ready_at_us, attempts, *place),
        )

    def extend(self, lease: tuple[int, int, int], until_us: int) -> bool:
        self._ranges.move_one(*lease[:2])
        query = "UPDATE messages SET lease_until = ? WHERE partition = ? AND offset = ? AND token = ?"
        return self._db.execute(query, (until_us, *lease)).rowcount == 1

    def expired(self, now_us: int) -> list[Entry]:
        """Messages whose leases have run out."""
        self._ranges.move_expired(now_us)
        query = (  # SQLite would read all messages in the order of offsets, not the few of the index
            "SELECT partition, offset, key, attempts, owner FROM messages INDEXED BY leased"
            " WHERE token IS NOT NULL AND lease_until <= ? ORDER BY partition, offset"
        )
        return [Entry(*row) for row in self._db.execute(query, (now_us,))]

    def owned(self, owner: str) -> list[Entry]:
        self._ranges.move_owned(owner)
        query = (
            "SELECT partition, offset, key, attempts, owner FROM messages"
            " WHERE token IS NOT NULL AND owner = ? ORDER BY partition, offset"
        )
        return [Entry(*row) for row in self._db.execute(query, (owner,))]

    def owned_count(self, owner: str) -> int:
        query = (
            "SELECT (SELECT count(*) FROM messages WHERE token IS NOT NULL AND owner = ?1)"
            " + (SELECT coalesce(sum(stop - start), 0) FROM ranges WHERE owner = ?1)"
        )
        return int(self._db.execute(query, (owner,)).fetchone()[0])

    # -- what the journal has to keep ----------------------------------------------------------------------------------

    def unfinished_count(self) -> int:
        """How many rows `unfinished` has."""
        query = (
            "SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM ranges) + (SELECT count(*) FROM scheduled)"
        )
        return int(self._db.execute(query).fetchone()[0])

    def unfinished(self) -> list[tuple[int, int, int, int, int]]:
        """All messages before the cursors, in order: (partition, offset, attempts, ready_at, length)."""
        query = (
            "SELECT partition, offset, attempts, ready_at, 1 FROM messages"
            " UNION ALL SELECT partition, start, attempts, 0, stop - start FROM ranges"
            " UNION ALL SELECT partition, offset, 0, ready_at, 1 FROM scheduled ORDER BY 1, 2"
        )
        return self._db.execute(query).fetchall()

    def done(self) -> list[tuple[int, int, int]]:
        """The messages behind the cursors that the group is done with: (partition, start, stop)."""
        return self._db.execute("SELECT partition, start, stop FROM done").fetchall()

    def floor(self, partition: int, cursor: int) -> int:
        """The offset before which the group is done with all messages of a partition."""
        firsts = (
            self._db.execute("SELECT min(offset) FROM messages WHERE partition = ?", (partition,)).fetchone()[0],
            self._db.execute("SELECT min(start) FROM ranges WHERE partition = ?", (partition,)).fetchone()[0],
            self._db.execute("SELECT min(offset) FROM scheduled WHERE partition = ?", (partition,)).fetchone()[0],
        )
        result: int = min([cursor, *(first for first in firsts if first is not None)])
        return result

    # -- consumers ----------------------------------------------------------------------------------------------------

    def owners(self) -> dict[str, int]:
        """The consumers, and when each took last."""
        return dict(self._db.execute("SELECT owner, taken_at FROM owners"))

    def holdings(self) -> list[tuple[str, int, int]]:
        """The consumers, each with the messages that it holds and when it took last."""
        query = (
            "SELECT owner, (SELECT count(*) FROM messages WHERE token IS NOT NULL AND messages.owner = owners.owner)"
            " + (SELECT coalesce(sum(stop - start), 0) FROM ranges WHERE ranges.owner = owners.owner),"
            " taken_at FROM owners ORDER BY owner"
        )
        return list(self._db.execute(query))

    def add_owner(self, owner: str, now_us: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (owner, now_us))

    def forget_owner(self, owner: str) -> None:
        self._db.execute("DELETE FROM owners WHERE owner = ?", (owner,))

    # -- numbers ------------------------------------------------------------------------------------------------------

    def next_event_us(self, partitions: Iterable[int], now_us: int) -> int | None:
        """When the next lease runs out, or the next scheduled message is due."""
        leases = "SELECT min(lease_until) FROM messages WHERE token IS NOT NULL AND lease_until > ?"
        schedule = (
            "SELECT min(ready_at) FROM messages WHERE token IS NULL AND blocked = 0 AND partition = ? AND ready_at > ?"
        )
        times = [self._db.execute(leases, (now_us,)).fetchone()[0]]
        times += self._db.execute("SELECT min(lease_until) FROM ranges WHERE lease_until > ?", (now_us,)).fetchone()
        for each in partitions:
            times += [self._db.execute(schedule, (each, now_us)).fetchone()[0], self.schedule.next_us(each, now_us)]
        return min((each for each in times if each is not None), default=None)

    def counts(self, now_us: int) -> tuple[int, int, int, int, int]:
        """How many messages of the index are ready, scheduled, in flight and blocked; and how many are done ahead."""
        row = self._db.execute(
            "SELECT coalesce(sum(token IS NULL AND blocked = 0 AND ready_at <= ?), 0),"
            " coalesce(sum(token IS NULL AND blocked = 0 AND ready_at > ?), 0),"
            " coalesce(sum(token IS NOT NULL), 0), coalesce(sum(blocked), 0) FROM messages",
            (now_us, now_us),
        ).fetchone()
        ready, scheduled, in_flight, blocked = row
        due, later = self.schedule.counts(now_us)
        in_flight += self._db.execute("SELECT coalesce(sum(stop - start), 0) FROM ranges").fetchone()[0]
        ahead = self._db.execute("SELECT coalesce(sum(stop - start), 0) FROM done").fetchone()[0]
        return ready + due, scheduled + later, in_flight, blocked, ahead

    def first_ready(self, now_us: int) -> Place | None:
        row = self._db.execute(
            "SELECT partition, min(offset) FROM (SELECT partition, offset FROM messages WHERE token IS NULL AND ready_at <= ?1"
            " UNION ALL SELECT partition, offset FROM scheduled WHERE ready_at <= ?1) GROUP BY partition ORDER BY 2 LIMIT 1",
            (now_us,),
        ).fetchone()
        return None if row is None else Place(*row)


def problem_of(error: sqlite3.Error, path: Path) -> HeadwaterError:
    """The error of Headwater for one of SQLite."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGE:
        return IndexDamaged(path=str(path), why=str(error))
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(path=str(path))
    if code in _BUSY:
        return Locked(what=str(path), waited=30.0, holder="another process")
    return FileCorrupt(path=str(path), why=str(error))
