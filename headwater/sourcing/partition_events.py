"""The events of one partition by entity: in the index, and behind it in memory. Needs no decider.

Invariants:

- Rows before `_next` are applied here: they are in the index, or in `_recent`.
- The index never has rows that the disk has not confirmed.
- A log that is read only leaves the index's files alone: the rows are indexed in memory.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from headwater.errors import HeadwaterError
from headwater.faults import reach
from headwater.filelock import FileLock
from headwater.log import Log
from headwater.schema import partition_of_text
from headwater.sourcing.errors import HistoryBroken
from headwater.sourcing.event_rows import SUFFIX, EventRow, from_batch
from headwater.sourcing.index import Index

#: Rows kept in memory before they are added to the index in one transaction.
RECENT_MAX = 4096


def index_folder(log: Log, topic: str) -> Path:
    """Where the indexes of a topic of events are; a later topic of the same name has another folder."""
    return log.home / "entities" / f"{topic.removesuffix(SUFFIX)}-{log.topic(topic).id[:12]}"


class PartitionEvents:
    """The events of one partition of a topic of events."""

    def __init__(self, log: Log, topic: str, partition: int, *, folder: Path, partitions: int) -> None:
        self._log, self.topic, self.partition = log, topic, partition
        self._partitions = partitions
        self._memory = threading.RLock()
        self._recent: dict[str, list[EventRow]] = {}
        self._recent_count = 0
        self._snapshots: dict[str, tuple[str, int, bytes]] = {}
        self._path = folder / f"{partition}.sqlite"
        self._lock: FileLock | contextlib.nullcontext[None] = contextlib.nullcontext()
        if log.read_only:
            self._index = Index(":memory:", partitions=partitions)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(folder / f"{partition}.lock", seconds_max=log.config.lock_seconds_max)
            with self._lock:
                self._index = self._open_index()
        self._next = self._durable = self._index.get("next")

    def close(self) -> None:
        """Add the recent rows to the index, and close it."""
        with self._memory:
            if self._recent_count or self._snapshots:
                with contextlib.suppress(HeadwaterError, sqlite3.Error):  # the next process reads them from the topic
                    self._save()
            self._index.close()
        if isinstance(self._lock, FileLock):
            self._lock.close()

    def history(self, entity: str, *, after: int = 0, limit: int | None = None) -> list[EventRow]:
        """The rows of an entity behind a version that are durable by now."""
        with self._memory:
            self.refresh()
            return self.rows(entity, after=after, limit=limit)

    def version(self, entity: str) -> int:
        """The version of an entity by now; 0 if it has no events."""
        with self._memory:
            self.refresh()
            recent = self._recent.get(entity)
            return recent[-1].version if recent else self._index.version(entity)

    def confirm(self, offset_next: int) -> None:
        """Wait until the rows before an offset are durable; threads and processes share a sync."""
        if self._durable < offset_next:
            self._log.flush(self.topic)
            self._durable = max(self._durable, offset_next)

    # -- following the topic ------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Apply the rows that are durable by now; wait for those of this process."""
        with self._memory:
            end = self._log.end_offsets(self.topic)[self.partition]
            if end > self._next:
                self._read_to(end)
            elif end < self._next:
                self.confirm(self._next)

    def catch_up(self) -> bool:
        """Apply all rows, also those that wait for the disk; return whether there were any. The caller holds the lock."""
        self._log.flush(self.topic)
        end = self._log.end_offsets(self.topic)[self.partition]
        if end == self._next:
            return False
        self._read_to(end)
        return True

    def _read_to(self, end: int) -> None:
        """Apply the rows up to `end`, which are durable."""
        for batch in self._log.read_range(self.topic, self.partition, start=self._next, stop=end):
            self._durable = batch.offset_next
            rows = from_batch(batch.data)
            self._check_entities(rows)
            self._apply(rows, batch.offset_next)
        self._durable = max(self._durable, end)
        self._next = end

    def _apply(self, rows: Sequence[EventRow], offset_next: int) -> None:
        """Add rows that other processes have appended."""
        self._add(rows)
        self._has_read(rows)
        self._next = offset_next
        self._save_if_many()

    def _has_read(self, rows: Sequence[EventRow]) -> None:
        """Notice rows that other processes have appended."""

    def _check_entities(self, rows: Sequence[EventRow]) -> None:
        """Raise if an entity is of another partition."""
        if self._partitions > 1:
            for row in rows:
                number = partition_of_text(row.entity, self._partitions)
                if number != self.partition:
                    why = f"its event is in partition {self.partition}, not in {number}"
                    raise HistoryBroken(topic=self.topic, entity=row.entity, offset=row.offset, why=why)

    def _add(self, rows: Sequence[EventRow]) -> None:
        recent = self._recent
        for row in rows:
            known = recent.get(row.entity)
            if known is None:
                recent[row.entity] = [row]
            else:
                known.append(row)
        self._recent_count += len(rows)

    def _save_if_many(self) -> None:
        if self._recent_count >= RECENT_MAX:
            self._save()

    def _save(self) -> None:
        """Add the recent rows and snapshots to the index."""
        self.confirm(self._next)
        # In the order of the index, so that each of its pages is changed once.
        rows = [row for entity in sorted(self._recent) for row in self._recent[entity]]
        reach("sourcing.indexing")
        try:
            self._index.apply(rows, self._next, self._snapshots)
        except sqlite3.IntegrityError as error:
            first = min(rows, key=lambda row: row.offset)
            why = f"or behind it a version is stored twice ({error})"
            raise HistoryBroken(topic=self.topic, entity=first.entity, offset=first.offset, why=why) from error
        self._recent, self._recent_count, self._snapshots = {}, 0, {}

    def _open_index(self) -> Index:
        with contextlib.suppress(sqlite3.DatabaseError):
            index = Index(self._path, partitions=self._partitions)
            try:
                self._log.flush(self.topic)  # rows that are written but not confirmed count
                if index.get("next") <= self._log.end_offsets(self.topic)[self.partition]:
                    if index.get("partitions") == self._partitions:
                        return index
                    why = f"the topic had {index.get('partitions')} partitions, and now has {self._partitions}"
                    raise HistoryBroken(topic=self.topic, entity="", offset=0, why=why)
            except BaseException:
                index.close()
                raise
            index.close()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        return Index(self._path, partitions=self._partitions)

    # -- by entity ----------------------------------------------------------------------------------------------------

    def rows(self, entity: str, *, after: int = 0, limit: int | None = None) -> list[EventRow]:
        """The rows of an entity behind a version, in order."""
        recent = self._recent.get(entity, [])
        if recent and recent[0].version <= after + 1:
            return [row for row in recent if row.version > after][:limit]
        stored = self._index.events(entity, after=after, limit=limit)
        last = stored[-1].version if stored else after
        return (stored + [row for row in recent if row.version > last])[:limit]

    def of_command(self, entity: str, command_id: str) -> list[EventRow]:
        """The rows of a command that was done."""
        recent = [row for row in self._recent.get(entity, ()) if row.command_id == command_id]
        return recent or self._index.of_command(entity, command_id)

    def tagged(self, tags: Sequence[str]) -> list[EventRow]:
        """The rows with any of these tags."""
        wanted = set(tags)
        stored = self._index.tagged(tags)
        last = stored[-1].offset if stored else -1
        recent = [row for rows in self._recent.values() for row in rows if wanted & set(row.tags or ())]
        return stored + sorted((row for row in recent if row.offset > last), key=lambda row: row.offset)

    def entities(self, *, after: str, prefix: str, limit: int) -> list[tuple[str, int]]:
        """Entities and their versions in the order of ids."""
        with self._memory:
            self.refresh()
            if self._recent_count:
                self._save()
            return self._index.entities(after=after, prefix=prefix, limit=limit)
