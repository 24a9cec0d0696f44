"""Ids of messages that were put lately, so that an id is put once. An index file that follows the queue's topic."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from headwater.filelock import FileLock
from headwater.log import Log
from headwater.queues.message import Outgoing


class Identifiers:
    """The ids of one queue; putting messages with ids is ordered by a lock between processes."""

    def __init__(self, log: Log, queue: str, folder: Path) -> None:
        self._log, self._queue = log, queue
        self._lock = FileLock(folder / "ids.lock", seconds_max=log.config.lock_seconds_max)
        self._path = folder / "ids.sqlite"
        with self._lock:
            try:
                self._db = self._open()
            except sqlite3.DatabaseError:
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self._path}{suffix}").unlink(missing_ok=True)
                self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30.0)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("CREATE TABLE IF NOT EXISTS ids(id TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID")
        database.execute("CREATE INDEX IF NOT EXISTS ids_at ON ids(at)")
        database.execute("CREATE TABLE IF NOT EXISTS cursors(partition INTEGER PRIMARY KEY, next INTEGER NOT NULL)")
        return database

    @contextlib.contextmanager
    def new(self, messages: Sequence[Outgoing], *, window: float) -> Iterator[list[int]]:
        """The numbers of those messages whose ids were not put before; the caller appends them inside the block."""
        with self._lock:
            # Rows of a process that died before it made them visible become so with the next append: they count.
            self._log.recover(self._queue)
            self._log.flush(self._queue)
            since_us = self._log.clock.now_us() - round(window * 1_000_000)
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._catch_up(since_us)
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
            seen: set[str] = set()
            fresh = []
            for number, message in enumerate(messages):
                if message.id is not None:
                    row = self._db.execute("SELECT 1 FROM ids WHERE id = ? AND at >= ?", (message.id, since_us))
                    if message.id in seen or row.fetchone() is not None:
                        continue
                    seen.add(message.id)
                fresh.append(number)
            yield fresh  # the rows that the caller appends are found in the topic by the next call

    def _catch_up(self, since_us: int) -> None:
        """Read the ids of rows that were appended since the last call, by any process."""
        known = dict(self._db.execute("SELECT partition, next FROM cursors"))
        starts = self._log.offset_at(self._queue, since_us)
        for partition, end in self._log.end_offsets(self._queue).items():
            start = max(known.get(partition, 0), starts[partition])
            if start < end:
                columns = ["id", "_appended_at"]
                for batch in self._log.read_range(self._queue, partition, start=start, stop=end):
                    data = batch.data.select(columns)
                    times = data.column(1).cast("int64").to_pylist()
                    rows = [(each, at) for each, at in zip(data.column(0).to_pylist(), times, strict=True) if each]
                    self._db.executemany("INSERT OR REPLACE INTO ids VALUES (?, ?)", rows)
                self._db.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (partition, end))
        self._db.execute("DELETE FROM ids WHERE at < ?", (since_us,))

    def close(self) -> None:
        self._db.close()
        self._lock.close()
