"""The entities of one partition: loads them through the index, and appends what their commands decide.

Invariants:

- The cache has states after rows that are applied; an entity in `_stale` has further ones.
- A writer holds the lock, so that commands of all processes are decided one after the other. Rows are appended on the
  condition that the partition ends at `_next`; otherwise the rows in between are applied, and the batch is decided again.
- The lock is released before the disk confirms the rows, so that processes share a sync: a command is decided on rows that
  wait for the disk, and its own rows are confirmed with them. Of the threads of a process one leads: it decides the
  commands of all that wait, and waits for the disk for all of them. No caller is told of rows that are not confirmed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError
from headwater.faults import reach
from headwater.log import Log
from headwater.log.embedded import local_log
from headwater.log.errors import OffsetConflict
from headwater.sourcing.codec import Misfit
from headwater.sourcing.draft import Draft, Known, Rules
from headwater.sourcing.errors import HistoryBroken
from headwater.sourcing.event_payload import ROWS_MAX, to_payload
from headwater.sourcing.event_rows import EventRow, to_batch
from headwater.sourcing.keys import KeyStore
from headwater.sourcing.partition_events import PartitionEvents
from headwater.sourcing.request import CommandRequest, Decision
from headwater.sourcing.written_events import WrittenEvents

#: Commands that are decided under one lock.
BATCH_MAX = 8192


class _Job:
    """A command of one thread, decided by the thread that leads."""

    def __init__(self, request: CommandRequest) -> None:
        self.request = request
        self.decision: Decision | None = None
        self.error: BaseException | None = None
        #: Released when the job is done, or when its thread is to lead.
        self.wake = threading.Lock()
        self.wake.acquire()
        self.leads = False


class EntityStore(PartitionEvents):
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
        super().__init__(log, topic, partition, folder=folder, partitions=partitions)
        self.rules = rules
        self._types, self._form = rules.decider.event_types, rules.decider.state_form
        self._keys = keys
        self._generation = 0 if keys is None else keys.generation()
        is_hidden = bool(self._types.personal) and keys is None
        self._cached_max, self._snapshot_events = entities_cached_max, None if is_hidden else snapshot_events
        self._jobs: list[_Job] = []
        self._jobs_lock = threading.Lock()
        #: Whether a thread leads: others leave their jobs to it.
        self._is_led = False
        self._files = local_log(log)
        self._written = WrittenEvents(self._files, topic, partition)
        self._schema_version = log.topic(topic).schema_version
        self._cache: dict[str, Known] = {}
        self._stale: set[str] = set()

    # -- writing ------------------------------------------------------------------------------------------------------

    def send(self, request: CommandRequest) -> Decision:
        """Decide a command and append its events; they are durable on return.

        Commands of threads that come while another thread waits for the disk are decided together.
        """
        job = _Job(request)
        with self._jobs_lock:
            self._jobs.append(job)
            if not self._is_led:
                self._pass_on()
        try:
            job.wake.acquire()
            if job.leads:
                self._lead(job)
        except BaseException:
            self._abandon(job)
            raise
        if job.error is not None:
            raise job.error
        assert job.decision is not None
        return job.decision

    def submit(self, requests: Sequence[CommandRequest]) -> list[Decision]:
        """Decide commands and append their events. They are durable after `confirm`."""
        with self._memory:
            return self._run(requests)

    def confirm(self, offset_next: int) -> None:
        if self._durable < offset_next:
            self._files.sync_to(self.topic, self.partition, offset_next)
            self._durable = max(self._durable, offset_next)

    def _lead(self, leader: _Job) -> None:
        """Do the jobs of all threads, and let a thread lead that has come meanwhile."""
        with self._jobs_lock:
            jobs, self._jobs = self._jobs, []
        try:
            with self._memory:
                self._work(jobs)
                end = self._next
            self.confirm(end)
        except BaseException as error:
            for job in jobs:
                job.error = job.error or error
        finally:
            with self._jobs_lock:
                leader.leads = False
                self._pass_on()
            for job in jobs:
                if job is not leader:
                    job.wake.release()

    def _pass_on(self) -> None:
        """Let the thread lead that has waited longest. The caller holds the lock of the jobs."""
        heir = self._jobs[0] if self._jobs else None
        self._is_led = heir is not None
        if heir is not None:
            heir.leads = True
            heir.wake.release()

    def _abandon(self, job: _Job) -> None:
        """The thread of a job was interrupted: another one leads in its place."""
        with self._jobs_lock:
            if job in self._jobs:
                self._jobs.remove(job)
            if job.leads:
                job.leads = False
                self._pass_on()

    def _work(self, jobs: Sequence[_Job]) -> None:
        """Decide commands in one batch. If that fails, each in one of its own."""
        try:
            decisions = self._run([job.request for job in jobs])
        except HeadwaterError as error:
            if len(jobs) == 1:
                jobs[0].error = error
                return
            for job in jobs:
                self._work([job])
        else:
            for job, decision in zip(jobs, decisions, strict=True):
                job.decision = decision

    def _run(self, requests: Sequence[CommandRequest]) -> list[Decision]:
        decisions = []
        with self._lock:
            self._forget_erased()
            for start in range(0, len(requests), BATCH_MAX):
                decisions += self._decide(requests[start : start + BATCH_MAX])
        return decisions

    def _decide(self, requests: Sequence[CommandRequest]) -> list[Decision]:
        while True:
            self._follow()
            draft = self.draft()
            for request in requests:
                draft.add(request)
            if not draft.rows:
                return draft.decisions
            self.save_keys()
            try:
                self._append(draft.rows)
            except OffsetConflict as conflict:
                self._read_to(conflict.actual)
                continue
            reach("sourcing.appended")
            self.applied(draft)
            return draft.decisions

    def _follow(self) -> None:
        """Apply the rows of other processes, also those that wait for the disk. The caller holds the lock."""
        if self._written.end() == self._next:
            return
        rows = self._written.rows(self._next)
        if rows is None:
            self.catch_up()
        elif rows:
            self._check_entities(rows)
            self._apply(rows, rows[-1].offset + 1)

    def _append(self, rows: Sequence[EventRow]) -> None:
        """Append rows behind those that are known; raise `OffsetConflict` if others follow those."""
        if len(rows) <= ROWS_MAX:
            payload = to_payload(rows)
            if len(payload) <= self._log.config.frame_bytes_max // 2:
                self._files.append_payload(
                    self.topic,
                    self.partition,
                    payload,
                    rows=len(rows),
                    times=(rows[0].at_us, rows[-1].at_us),
                    schema_version=self._schema_version,
                    expected_offset=self._next,
                )
                return
        self._log.append(
            self.topic, to_batch(rows), partition=self.partition, expected_offset=self._next, durable=False
        )

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
        self._save_if_many()

    def _save(self) -> None:
        self.save_keys()
        super()._save()

    def _has_read(self, rows: Sequence[EventRow]) -> None:
        self._stale.update(self._cache.keys() & {row.entity for row in rows})

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
