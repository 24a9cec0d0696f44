"""One group of a queue: decides which message is delivered next, and what follows from the end of each delivery.

A call takes the group's lock, applies what other processes wrote to the journal, changes the index, and appends its own
events to the journal before the index commits. So a process that is killed at any point leaves either both, or an event
that the next call applies. The lock is released before the disk confirms the journal: calls of many processes share a sync.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.errors import NotFound
from headwater.faults import reach
from headwater.filelock import FileLock, is_locked
from headwater.log import Log, Offsets
from headwater.log.errors import OffsetExpired
from headwater.queues.config import QueueConfig
from headwater.queues.dead_letters import DeadMessage, write_dead_letters
from headwater.queues.delivery import Delivery, Idle, ranges_in
from headwater.queues.effects import Effects
from headwater.queues.errors import IndexDamaged, LeaseLost
from headwater.queues.index import Entry, Index
from headwater.queues.journal import SNAPSHOT, Event, Journal
from headwater.queues.message import Message, Place, Stored, decode, decode_plain
from headwater.queues.ranges import Range, gaps, lease_ranges, merged
from headwater.queues.rows import QueueRows
from headwater.queues.work_queue import QueueConsumer

#: Rows that one call looks through at most; the next call continues.
SCAN_ROWS_MAX = 65_536
#: Messages that wait for an earlier one of their key; then the cursor stops.
BLOCKED_MAX = 100_000
#: Rows of the journal after which a group writes a snapshot, so that earlier rows can be deleted.
SNAPSHOT_ROWS = 50_000
#: The name of a consumer that is held by the lease's time only begins with this.
EXTERNAL = "@"

Lease = tuple[int, int, int]


class Group:
    """The state of one group, shared by all processes of this machine."""

    def __init__(self, log: Log, queue: str, group: str, *, config: Callable[[], QueueConfig], folder: Path) -> None:
        self._log, self._queue, self.name = log, queue, group
        self._config = config
        self._consumers = folder.parent / "consumers"
        folder.mkdir(parents=True, exist_ok=True)
        self._consumers.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{group}.sqlite"
        self._lock = FileLock(folder / f"{group}.lock", seconds_max=log.config.lock_seconds_max)
        self.journal = Journal(log, queue, group)
        self._rows = QueueRows(log, queue, config)
        self._effects = Effects(self._rows, config)
        self._maintained = 0
        #: Whether `claim_maintenance` should be called.
        self.maintenance_due = False
        with self._lock:
            self._index = self._open_index()

    def close(self) -> None:
        with self._lock:
            self._index.close()
        self._lock.close()

    def remove(self) -> None:
        """Delete the index file."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    # -- the index and the journal ------------------------------------------------------------------------------------

    def _open_index(self) -> Index:
        self.journal.flush()  # rows that are written but not confirmed count
        with contextlib.suppress(IndexDamaged):
            index = Index(self._path)
            journal_next, ends = index.get("journal_next"), self._log.end_offsets(self._queue)
            # After a power failure or a restored copy, the index may be ahead of its topics, or the journal of the index.
            if (not journal_next or self.journal.start() <= journal_next <= self.journal.end()) and all(
                cursor <= ends.get(partition, 0) for partition, cursor in index.cursors().items()
            ):
                return index
            index.close()
        return self._rebuilt()

    def _rebuilt(self) -> Index:
        self.remove()
        return Index(self._path)

    @contextlib.contextmanager
    def changes(self) -> Iterator[Index]:
        """The index, in a transaction, up to date with the journal."""
        with self._lock:
            if not self._index.is_current():  # built again by another process, or the queue was deleted
                self._index.close()
                if not self._path.parent.is_dir():
                    raise NotFound(kind="queue", name=self._queue)
                self._index = self._open_index()
            try:
                with self._index.transaction():
                    self._catch_up()
            except IndexDamaged:
                self._index.close()
                self._index = self._rebuilt()
                with self._index.transaction():
                    self._catch_up()
            try:
                with self._index.transaction():
                    yield self._index
            except IndexDamaged:
                self._index.close()
                self._index = self._rebuilt()
                raise

    def _catch_up(self) -> None:
        index = self._index
        # The process that had the lock may have died in a commit, whose locks it still holds for a moment.
        self._log.recover(self.journal.topic, appends=False)
        known, starts = index.cursors(), self._log.start_offsets(self._queue)
        for partition, start in starts.items():
            cursor = known.get(partition)
            if cursor is None or cursor < start:
                if cursor is not None:  # retention has deleted messages that the group did not take
                    index.add("expired", start - cursor - len(index.done_between(partition, cursor, start)))
                    index.forget_done(partition, start)
                index.set_cursor(partition, start)
        known_to = index.get("journal_next")
        for events, journal_next in self.journal.since(known_to):
            for kind, some in itertools.groupby(events, key=lambda event: event.event):
                if not known_to or kind not in SNAPSHOT:  # an index that is not new knows what the snapshot says
                    self._effects.apply(self._index, kind, list(some), starts)
            index.store("journal_next", journal_next)

    # -- what the journal has to keep ---------------------------------------------------------------------------------

    def claim_maintenance(self) -> bool:
        """Whether the journal has grown so much that this process should call `snapshot` for all groups."""
        if not self.maintenance_due:
            return False
        self.maintenance_due = False
        with self.changes() as index:
            journal_next = index.get("journal_next")
            due = journal_next - index.get("maintained") >= SNAPSHOT_ROWS
            self._maintained = journal_next if due else index.get("maintained")
            index.store("maintained", self._maintained)
        return bool(due)

    def snapshot(self, *, force: bool) -> tuple[int, Offsets]:
        """The first row of the journal that the group needs, and the first message of each partition.

        If it needs many rows, and more than twice as many as it has unfinished messages, what the index knows is appended
        to the journal first, so that an index that is lost is built from there.
        """
        with self.changes() as index:
            needed, cursors = index.get("snapshot"), index.cursors()
            rows_min = 1 if force else max(SNAPSHOT_ROWS, 2 * index.unfinished_count())
            if index.get("journal_next") - needed >= rows_min:
                events = [Event("cursor", partition, cursor) for partition, cursor in cursors.items()]
                events += [
                    Event("done", partition, start, length=stop - start) for partition, start, stop in index.done()
                ]
                events += [Event("kept", *row) for row in index.unfinished()]
                events.append(Event("pause" if index.get("paused") else "resume"))
                # Durable before the index says so: the rows before it will be deleted.
                journal_next = self.journal.append(events, durable=True)
                needed = journal_next - len(events)
                index.store("snapshot", needed)
                index.store("journal_next", journal_next)
            floors = {partition: index.floor(partition, cursor) for partition, cursor in cursors.items()}
        return needed, floors

    def _record(self, events: Sequence[Event]) -> None:
        """Append events that the index has already; the rows of the journal before them are those of other groups."""
        if events:
            journal_next = self.journal.append(events)
            reach("queue.journal_written")
            self._index.store("journal_next", journal_next)
            if journal_next - self._maintained >= SNAPSHOT_ROWS:
                self.maintenance_due = True

    def _write_dead(self, dead: Sequence[DeadMessage]) -> None:
        """Write dead letters and their events in one transaction of the log."""
        if dead:
            journal_next = write_dead_letters(self._log, self._queue, self.name, dead, self.journal)
            reach("queue.dead_letters_written")
            self._index.store("journal_next", journal_next)

    # -- take ---------------------------------------------------------------------------------------------------------

    def take(self, n: int, *, lease_us: int, owner: str, queue: Any) -> tuple[list[Message], Idle]:
        """Lease up to `n` messages, those of the highest priority first."""
        config = self._config()
        with self.changes() as index:
            delivery = Delivery(self._log.clock.now_us())
            self._return_lost(delivery, owner)
            ends = self._log.end_offsets(self._queue)
            wanted = self._allowed(n, owner, config)
            if owner not in index.owners() or wanted:
                index.add_owner(owner, delivery.now_us)
            token = secrets.randbits(62) | 1
            until = delivery.now_us + lease_us
            for partition in sorted(ends, reverse=True):
                if delivery.count < wanted:
                    self._pick_again(partition, wanted, delivery, (token, owner, until))
                if delivery.count < wanted:
                    self._pick_new(partition, wanted, ends[partition], delivery, (token, owner, until))
            self._record(delivery.events)
            self._write_dead(delivery.dead)
            index.add("delivered", delivery.count)
            index.add("redelivered", delivery.redelivered)
            others = any(name != owner and not name.startswith(EXTERNAL) for name in index.owners())
            event_us = None if delivery.picked else index.next_event_us(ends, delivery.now_us)
            idle = Idle(ends, index.get("journal_next"), event_us, others, delivery.unread)
        if delivery.events:
            self.journal.flush()
        messages: list[Message] = []
        for part in delivery.picked:  # rows are decoded without the lock
            if isinstance(part, tuple):
                message, attempt = part
                message.attempt = attempt
                message.token, message.lease_until_us, message.queue = token, until, queue
                messages.append(message)
            else:
                messages += decode_plain(part, config, token=token, lease_until_us=until, queue=queue)
        return messages, idle

    def _allowed(self, n: int, owner: str, config: QueueConfig) -> int:
        """How many messages a consumer may take now."""
        index = self._index
        if index.get("paused"):
            return 0
        if config.single_active:
            active = index.get("active", "")
            if active != owner and active in index.owners():
                return 0
            index.store("active", owner)
        return n if config.prefetch is None else max(0, min(n, config.prefetch - index.owned_count(owner)))

    def _return_lost(self, delivery: Delivery, owner: str) -> None:
        """Return the messages of leases that ran out, and of processes that died."""
        index, config = self._index, self._config()
        for entry in index.expired(delivery.now_us):
            self._fail(entry, delivery, error="LeaseExpired", reason="the lease ran out", delay_us=0)
        idle_us = delivery.now_us - 2 * config.lease_us
        for other, taken_at in index.owners().items():
            if other == owner:
                continue
            external = other.startswith(EXTERNAL)
            if external and taken_at > idle_us:
                continue
            path = self._consumers / f"{other}.lock"
            if not external and is_locked(path):
                continue
            held = index.owned(other)
            if external and held:
                continue
            for entry in held:
                self._fail(entry, delivery, error="WorkerDied", reason=f"worker {other} died", delay_us=0)
            index.forget_owner(other)
            path.unlink(missing_ok=True)

    def _fail(
        self, entry: Entry, delivery: Delivery, *, error: str, reason: str, delay_us: int, trace: str = ""
    ) -> Event | None:
        """Return a message after a failure, or make it a dead letter after its last attempt; the event of a return."""
        config = self._config()
        attempts = entry.attempts + (config.count == "failures")
        if config.attempts_max is not None and attempts >= config.attempts_max:
            self._effects.finish(self._index, "dead", entry.partition, [(entry.offset, entry.offset + 1)])
            delivery.dead.append(DeadMessage(Place(entry.partition, entry.offset), error, reason, trace, attempts))
            return None
        ready = delivery.now_us + delay_us if delay_us else 0
        self._index.give_back(Place(entry.partition, entry.offset), ready_at_us=ready, attempts=attempts)
        return Event("return", entry.partition, entry.offset, attempts, ready)

    def _pick_again(self, partition: int, wanted: int, delivery: Delivery, lease: tuple[int, str, int]) -> None:
        """Lease messages before the cursor: returned ones, and scheduled ones that are due."""
        index = self._index
        acquired = int(self._config().count == "acquisitions")
        token, owner, until = lease
        while delivery.count < wanted:
            entries = index.ready(partition, now_us=delivery.now_us, count=wanted - delivery.count)
            if not entries:
                self._rows.forget_unused()
                return
            rows = self._rows.read(
                [Place(entry.partition, entry.offset) for entry in entries],
                following=partial(index.schedule.following, partition) if index.schedule.moved else None,
            )
            leased = []
            for entry in entries:
                place = Place(entry.partition, entry.offset)
                stored = rows.get(place)
                if stored is None:  # retention has deleted it
                    self._effects.finish_places(self._index, "drop", [place])
                    delivery.events.append(Event("drop", *place))
                elif self._is_expired(stored, delivery.now_us):
                    self._expire(place, delivery)
                else:
                    leased.append(place)
                    delivery.add(stored.message, entry.attempts + 1)
            index.lease(leased, token=token, owner=owner, until_us=until, acquired=acquired)

    def _pick_new(self, partition: int, wanted: int, end: int, delivery: Delivery, lease: tuple[int, str, int]) -> None:
        """Lease messages from the cursor on; index those that are scheduled, or blocked by their key."""
        index, config = self._index, self._config()
        start = cursor = index.cursors()[partition]
        token, owner, until = lease
        chunk = 16
        fresh: list[tuple[int, int, str | None, int]] = []
        runs: list[Range] = []
        attempts = int(config.count == "acquisitions")
        keys: set[str] = set()  # leased by this call
        room = BLOCKED_MAX - index.blocked_count() if config.ordered else 1
        while delivery.count < wanted and cursor < end and cursor - start < SCAN_ROWS_MAX and room > 0:
            missing = wanted - delivery.count
            chunk = min(max(chunk * 4, missing), SCAN_ROWS_MAX)
            position, done = cursor, index.done_between(partition, cursor, cursor + chunk)
            later: list[tuple[int, int, int]] = []
            try:
                batches = self._rows.at(partition, cursor, chunk)
            except OffsetExpired:  # retention was quicker; the next call begins at the new start
                delivery.unread = True
                break
            for data, offset_next in batches:
                if not done and self._is_plain(data, config):
                    rows = data.slice(0, missing)
                    delivery.add_rows(rows)
                    found = ranges_in(rows)
                    runs += found
                    position = offset_next if data.num_rows <= missing else found[-1][1]
                    missing -= rows.num_rows
                    if missing <= 0:
                        break
                    continue
                for stored in decode(data, config, None):
                    message = stored.message
                    if delivery.count >= wanted:
                        break
                    position = message.offset + 1
                    key = message.key
                    if message.offset in done or stored.only_group not in (None, self.name):
                        continue
                    if self._is_expired(stored, delivery.now_us):
                        self._expire(message.place, delivery)
                    elif config.ordered and key is not None and (key in keys or index.has_key(partition, key)):
                        index.park(*message.place, ready_at_us=stored.deliver_at_us, key=key, blocked=True)
                        room -= 1
                    elif stored.deliver_at_us > delivery.now_us:
                        if config.ordered and key is not None:
                            index.park(*message.place, ready_at_us=stored.deliver_at_us, key=key, blocked=False)
                        else:
                            later.append((message.partition, stored.deliver_at_us, message.offset))
                    else:
                        delivery.add(message, 1)
                        if config.ordered and key is not None:
                            fresh.append((*message.place, key, attempts))
                            keys.add(key)
                        else:
                            runs.append((message.offset, message.offset + 1))
                else:
                    position = max(position, offset_next)
                missing = wanted - delivery.count
                if missing <= 0:
                    break
            index.schedule.add(later)
            if position == cursor:  # nothing is visible here
                break
            cursor = position
        delivery.unread |= cursor - start >= SCAN_ROWS_MAX
        if cursor != start:
            index.lease_new(fresh, token=token, owner=owner, until_us=until)
            index.lease_ranges(partition, merged(runs), attempts=attempts, token=token, owner=owner, until_us=until)
            index.set_cursor(partition, cursor)
            index.forget_done(partition, cursor)

    def _is_plain(self, data: pa.RecordBatch, config: QueueConfig) -> bool:
        """Whether all rows of a batch can be delivered as they come."""
        names = ["deliver_at", "expires_at", "_headers", *(["key"] if config.ordered else [])]
        return all(data.column(name).null_count == data.num_rows for name in names)

    def _is_expired(self, stored: Stored, now_us: int) -> bool:
        return stored.expires_at_us is not None and stored.expires_at_us <= now_us

    def _expire(self, place: Place, delivery: Delivery) -> None:
        keep = self._config().expired == "dead_letter"
        # A message at the cursor is not in the index yet.
        self._effects.finish_places(self._index, "dead" if keep else "expire", [place])
        if keep:
            delivery.dead.append(DeadMessage(place, "MessageExpired", "its time to live ended", "", 0))
        else:
            delivery.events.append(Event("expire", *place))

    # -- the end of a delivery ----------------------------------------------------------------------------------------

    def ack(self, leases: Sequence[Lease]) -> None:
        """Acknowledge messages; raise `LeaseLost` for those that are not held, after the others are acknowledged."""
        with self.changes():
            lost = self.ack_within(leases, record=self._record)
        self.journal.flush()
        self.raise_if_lost(lost)

    def ack_within(self, leases: Sequence[Lease], *, record: Callable[[Sequence[Event]], None]) -> list[Lease]:
        """Acknowledge messages inside `changes`; return the leases that are lost."""
        index, ordered = self._index, self._config().ordered
        events: list[Event] = []
        lost: list[Lease] = []
        for lease in lease_ranges(leases):
            partition, token, start, stop = lease
            keys = index.keys_between(partition, start, stop) if ordered else ()
            held = index.delete_held(lease)
            for key in keys:
                index.unblock(partition, key)
            events += [Event("ack", partition, first, length=behind - first) for first, behind in held]
            lost += [
                (partition, offset, token)
                for first, behind in gaps(start, stop, held)
                for offset in range(first, behind)
            ]
        index.add("acknowledged", sum(event.length for event in events))
        record(events)
        return lost

    def recorded(self, journal_next: int) -> None:
        """Note that a transaction of the log has appended this group's events up to an offset."""
        self._index.store("journal_next", journal_next)

    def give_back(
        self, leases: Sequence[Lease], *, delay_us: int, error: str, reason: str, trace: str, failed: bool
    ) -> None:
        """Return messages: after a failure, or unprocessed, which takes the acquisition back."""
        with self.changes() as index:
            delivery = Delivery(self._log.clock.now_us())
            held, lost = self._split(leases)
            for entry in held:
                if failed:
                    event = self._fail(entry, delivery, error=error, reason=reason, delay_us=delay_us, trace=trace)
                    delivery.events += [] if event is None else [event]
                else:
                    delivery.events.append(self._unprocessed(entry, index))
            self._record(delivery.events)
            self._write_dead(delivery.dead)
        self.journal.flush()
        self.raise_if_lost(lost)

    def reject(self, leases: Sequence[Lease], *, reason: str, trace: str) -> None:
        """Make messages dead letters now."""
        with self.changes():
            held, lost = self._split(leases)
            failed = self._config().count == "failures"
            dead = [
                DeadMessage(
                    Place(entry.partition, entry.offset),
                    "MessageRejected",
                    reason or "a worker rejected it",
                    trace,
                    entry.attempts + failed,
                )
                for entry in held
            ]
            self._effects.finish_places(self._index, "dead", [each.place for each in dead])
            self._write_dead(dead)
        self.raise_if_lost(lost)

    def extend(self, leases: Sequence[Lease], until_us: int) -> None:
        with self.changes() as index:
            lost = [lease for lease in leases if not index.extend(lease, until_us)]
        self.raise_if_lost(lost)

    def _split(self, leases: Sequence[Lease]) -> tuple[list[Entry], list[Lease]]:
        """The messages whose leases are held, and the leases that are lost."""
        leases = list(dict.fromkeys(leases))
        entries = self._index.held(leases)
        lost = [lease for lease, entry in zip(leases, entries, strict=True) if entry is None]
        return [entry for entry in entries if entry is not None], lost

    def _unprocessed(self, entry: Entry, index: Index) -> Event:
        """Return a message whose delivery does not count."""
        attempts = max(0, entry.attempts - (self._config().count == "acquisitions"))
        index.give_back(Place(entry.partition, entry.offset), ready_at_us=0, attempts=attempts)
        return Event("return", entry.partition, entry.offset, attempts, 0)

    def raise_if_lost(self, lost: Sequence[Lease]) -> None:
        if lost:
            receipts = ", ".join(".".join(map(str, lease)) for lease in lost)
            raise LeaseLost(queue=self._queue, group=self.name, receipts=receipts)

    def drop_oldest(self, count: int) -> None:
        """Drop messages that no worker holds: those that wait, the oldest of the lowest priority first, then scheduled ones."""
        with self.changes() as index:
            delivery = Delivery(self._log.clock.now_us())
            lease = (1, f"{EXTERNAL}overflow", delivery.now_us)  # no process sees it: all is one change of the index
            dropped = 0
            for partition, end in sorted(self._log.end_offsets(self._queue).items()):
                while dropped < count:
                    wanted = count - dropped
                    self._pick_again(partition, wanted, delivery, lease)
                    if delivery.count < wanted:
                        self._pick_new(partition, wanted, end, delivery, lease)
                    places = delivery.places() or index.unleased(partition, count=wanted)
                    if not places:
                        break
                    delivery.picked.clear()
                    delivery.count = 0
                    self._effects.finish_places(self._index, "drop", places)
                    delivery.events += [Event("drop", *place) for place in places]
                    dropped += len(places)
            self._record(delivery.events)
            self._write_dead(delivery.dead)
        self.journal.flush()

    def announce(self, events: Sequence[Event]) -> None:
        """Append events such as `pause` and `reset`, and apply them."""
        with self.changes():
            starts = self._log.start_offsets(self._queue)
            for kind, some in itertools.groupby(events, key=lambda event: event.event):
                self._effects.apply(self._index, kind, list(some), starts)
            self._record(events)
        self.journal.flush()

    def consumers(self, index: Index) -> list[QueueConsumer]:
        """The consumers that have taken and not ended, without processes that died."""
        return [
            QueueConsumer(
                name=owner.removeprefix(EXTERNAL), held=held, taken_us=taken_at, remote=owner.startswith(EXTERNAL)
            )
            for owner, held, taken_at in index.holdings()
            if owner.startswith(EXTERNAL) or is_locked(self._consumers / f"{owner}.lock")
        ]

    def forget_owner(self, owner: str) -> None:
        """Return what a consumer that ends still holds, unprocessed."""
        with self.changes() as index:
            events = [self._unprocessed(entry, index) for entry in index.owned(owner)]
            index.forget_owner(owner)
            self._record(events)
        if events:
            self.journal.flush()
