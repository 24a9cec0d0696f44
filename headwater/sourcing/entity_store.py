"""The entities of one partition: loads them through the index, and appends what their commands decide.

Invariants:

- Rows before `_next` are applied here: they are in the index, or in `_recent`. The cache has states after some of them.
- A writer holds the lock, so that commands of all processes are decided one after the other. Rows are appended on the
  condition that the partition ends at `_next`; otherwise the rows in between are applied, and the batch is decided again.
- The lock is released before the disk confirms the rows, so that threads share a sync. No caller is told of rows that are
  not confirmed, and the index never has them.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.faults import reach
from headwater.filelock import FileLock
from headwater.log import Log
from headwater.log.errors import OffsetConflict
from headwater.schema import partition_of
from headwater.sourcing.codec import Misfit
from headwater.sourcing.draft import Draft, Known, Rules
from headwater.sourcing.errors import HistoryBroken
from headwater.sourcing.event_rows import EventRow, from_batch, to_batch
from headwater.sourcing.index import Index
from headwater.sourcing.keys import KeyStore
from headwater.sourcing.request import CommandRequest, Decision

#: Rows kept in memory before they are added to the index in one transaction.
RECENT_MAX = 4096
#: Commands that are decided under one lock.
BATCH_MAX = 8192


class _Job:
    """Commands of one caller, decided by the thread that holds the lock."""

    def __init__(self, requests: Sequence[CommandRequest]) -> None:
        self.requests = requests
        self.decisions: list[Decision] | None = None
        self.error: BaseException | None = None


class EntityStore:
    """The entities of one partition of a topic of events."""

    def __init__(
        self,
        log: Log,
        topic: str,
        partition: int,
        *,
        rules: Rules,
        folder: Path,
        partitions: int,
        entities_cached_max: int,
        snapshot_events: int | None,
        keys: KeyStore | None,
    ) -> None:
        self._log, self.topic, self.partition = log, topic, partition
        self.rules = rules
        self._types, self._form = rules.decider.event_types, rules.decider.state_form
        self._partitions = partitions
        self._keys = keys
        self._generation = 0 if keys is None else keys.generation()
        is_hidden = bool(self._types.personal) and keys is None
        self._cached_max, self._snapshot_events = entities_cached_max, None if is_hidden else snapshot_events
        self._path = folder / f"{partition}.sqlite"
        self._lock = FileLock(folder / f"{partition}.lock", seconds_max=log.config.lock_seconds_max)
        self._memory = threading.RLock()
        self._jobs: list[_Job] = []
        self._jobs_lock = threading.Lock()
        self._recent: dict[str, list[EventRow]] = {}
        self._recent_count = 0
        self._snapshots: dict[str, tuple[str, int, bytes]] = {}
        self._cache: dict[str, Known] = {}
        self._stale: set[str] = set()
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
        self._lock.close()

    # -- writing ------------------------------------------------------------------------------------------------------

    def submit(self, requests: Sequence[CommandRequest]) -> list[Decision]:
        """Decide commands and append their events. They are durable after `confirm`."""
        job = _Job(requests)
        with self._jobs_lock:
            self._jobs.append(job)
        with self._memory:
            if job.decisions is None and job.error is None:
                with self._jobs_lock:
                    jobs, self._jobs = self._jobs, []
                self._work(jobs)
        if job.error is not None:
            raise job.error
        assert job.decisions is not None
        return job.decisions

    def confirm(self, offset_next: int) -> None:
        """Wait until the rows before an offset are durable; threads and processes share a sync."""
        if self._durable < offset_next:
            self._log.flush(self.topic)
            self._durable = max(self._durable, offset_next)

    def _work(self, jobs: list[_Job]) -> None:
        """Decide the commands of all waiting threads in one batch. If that fails, each in one of its own."""
        try:
            decisions = iter(self._run([request for job in jobs for request in job.requests]))
            for job in jobs:
                job.decisions = [next(decisions) for _ in job.requests]
        except BaseException as error:
            if len(jobs) == 1 or not isinstance(error, HeadwaterError):
                for job in jobs:
                    job.error = error
                return
            for job in jobs:
                self._work([job])

    def _run(self, requests: Sequence[CommandRequest]) -> list[Decision]:
        decisions = []
        with self._lock:
            self._forget_erased()
            for start in range(0, len(requests), BATCH_MAX):
                decisions += self._decide(requests[start : start + BATCH_MAX])
        return decisions

    def _decide(self, requests: Sequence[CommandRequest]) -> list[Decision]:
        while True:
            draft = self.draft()
            for request in requests:
                draft.add(request)
            if not draft.rows:
                if self.catch_up():
                    continue
                return draft.decisions
            self.save_keys()
            try:
                self._log.append(
                    self.topic,
                    to_batch(draft.rows),
                    partition=self.partition,
                    expected_offset=self._next,
                    durable=False,
                )
            except OffsetConflict as conflict:
                self._read_to(conflict.actual)
                continue
            reach("sourcing.appended")
            self.applied(draft)
            return draft.decisions

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the partition for a transaction: no other process decides commands meanwhile."""
        with self._memory, self._lock:
            self._forget_erased()
            self.catch_up()
            yield

    def save_keys(self) -> None:
        """Store the keys of new subjects, before what is encrypted with them."""
        if self._keys is not None:
            self._keys.save()

    def _forget_erased(self) -> None:
        """Forget states if keys have been destroyed: they may hold what was erased."""
        if self._keys is not None and (generation := self._keys.generation()) != self._generation:
            self._generation = generation
            self._cache.clear()
            self._stale.clear()
            self._snapshots.clear()

    def draft(self) -> Draft:
        """A new batch behind the rows that are known; the caller holds the partition."""
        return Draft(self.rules, self, partition=self.partition, offset=self._next, now_us=self._log.clock.now_us())

    def applied(self, draft: Draft, *, durable: bool = False) -> None:
        """Remember the rows and states of a draft that was appended."""
        for entity, known in draft.changed.items():
            self._stale.discard(entity)
            self._remember(entity, known)
        self._add(draft.rows)
        self._next = draft.offset_next
        if durable:
            self._durable = self._next
        if self._recent_count >= RECENT_MAX:
            self._save()

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
            self._check_partition(batch.data)
            rows = from_batch(batch.data)
            self._add(rows)
            self._stale.update(self._cache.keys() & {row.entity for row in rows})
            self._next = self._durable = batch.offset_next
            if self._recent_count >= RECENT_MAX:
                self._save()
        self._durable = max(self._durable, end)
        self._next = end

    def _check_partition(self, batch: pa.RecordBatch) -> None:
        if self._partitions > 1 and batch.num_rows:
            numbers = partition_of([batch.column("entity")], self._partitions)
            wrong = np.flatnonzero(numbers != self.partition)
            if len(wrong):
                entity = batch.column("entity")[int(wrong[0])].as_py()
                offset = batch.column("_offset")[int(wrong[0])].as_py()
                why = f"its event is in partition {self.partition}, not in {numbers[wrong[0]]}"
                raise HistoryBroken(topic=self.topic, entity=entity, offset=offset, why=why)

    def _add(self, rows: Sequence[EventRow]) -> None:
        recent = self._recent
        for row in rows:
            known = recent.get(row.entity)
            if known is None:
                recent[row.entity] = [row]
            else:
                known.append(row)
        self._recent_count += len(rows)

    def _save(self) -> None:
        """Add the recent rows and snapshots to the index."""
        self.confirm(self._next)
        self.save_keys()
        rows = sorted((row for rows in self._recent.values() for row in rows), key=lambda row: row.offset)
        reach("sourcing.indexing")
        try:
            self._index.apply(rows, self._next, self._snapshots)
        except sqlite3.IntegrityError as error:
            first = rows[0]
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

    # -- entities -----------------------------------------------------------------------------------------------------

    def known(self, entity: str) -> Known:
        """The state and version after all rows that are applied."""
        cache = self._cache
        known = cache.get(entity)
        if known is None:
            known = self._loaded(entity)
        elif entity in self._stale:
            known = self.fold(entity, self.rows(entity, after=known.version), onto=known)
            self._stale.discard(entity)
        else:
            return known
        self._remember(entity, known)
        return known

    def rows(self, entity: str, *, after: int = 0) -> list[EventRow]:
        """The rows of an entity behind a version, in order."""
        recent = self._recent.get(entity, [])
        if recent and recent[0].version <= after + 1:
            return [row for row in recent if row.version > after]
        stored = self._index.events(entity, after=after)
        last = stored[-1].version if stored else after
        return stored + [row for row in recent if row.version > last]

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

    # Any: events and states of the user's classes.
    def read(self, row: EventRow) -> Any:
        """The event of a row."""
        return self._types.read(self.rules.entities, row.event, row.schema, row.data, self._keys)

    def write(self, entity: str, event: Any) -> tuple[str, int, str]:
        """The name, schema version and JSON of a new event."""
        return self._types.write(event, entity, self._keys)

    def fold(self, entity: str, rows: Sequence[EventRow], *, onto: Known | None = None) -> Known:
        """An entity after these rows, which must be numbered one after the other."""
        state, version, snapshot = onto or Known(self.rules.decider.initial, 0)
        for row in rows:
            version += 1
            if row.version != version:
                why = f"version {row.version} follows {version - 1}"
                raise HistoryBroken(topic=self.topic, entity=entity, offset=row.offset, why=why)
            state = self.rules.evolve(entity, state, self.read(row))
        return Known(state, version, snapshot)

    def read_only(self, act: Callable[[], Any]) -> Any:
        """The result of a function that reads entities, after the rows that are durable by now."""
        with self._memory:
            self._forget_erased()
            self.refresh()
            return act()

    def _loaded(self, entity: str) -> Known:
        start = Known(self.rules.decider.initial, 0)
        if self._snapshot_events is not None and not self._form.problem:
            stored = self._index.snapshot(entity, self._form.fingerprint)
            if stored is not None:
                state = stored[1] if self._keys is None else self._keys.open_snapshot(stored[1])
                with contextlib.suppress(Misfit, ValueError):  # of other fields, or erased: fold all events
                    start = Known(self._form.read(state), stored[0], stored[0])
        return self.fold(entity, self.rows(entity, after=start.version), onto=start)

    def _remember(self, entity: str, known: Known) -> None:
        if self._snapshot_events is not None and known.version - known.snapshot >= self._snapshot_events:
            state = None if self._form.problem else self._form.write(known.state)
            if state is not None:
                state = state if self._keys is None else self._keys.seal_snapshot(state)
                self._snapshots[entity] = (self._form.fingerprint, known.version, state)
            known = known._replace(snapshot=known.version)
        cache = self._cache
        cache.pop(entity, None)
        cache[entity] = known
        if len(cache) > self._cached_max:
            oldest = next(iter(cache))
            del cache[oldest]
            self._stale.discard(oldest)
