"""The consumer: reads topics continuously, alone or as a member of a group that shares their partitions."""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self

from headwater.errors import ArgumentInvalid, Closed, NotFound
from headwater.log.client_config import ConsumerConfig, Start
from headwater.log.clients.groups import Membership, Sign, by_topic, lag_of, resolve
from headwater.log.errors import MemberFenced, OffsetExpired, ReadOnly
from headwater.log.port import Batch, Cursor, Lag, Log, Offsets, Place
from headwater.log.topic_rules import check_name

#: The longest wait between two checks: a killed writer sends no signal.
CHECK_SECONDS_MAX = 1.0
#: A dying process closes its files just before its locks are released: pauses before the checks of its members.
MEMBER_CHECK_PAUSES = (0.0, 0.001, 0.005, 0.02, 0.1)
#: The fraction of its retention from which on the oldest segment counts as near its expiry.
NEAR_EXPIRY = 0.8
_WILDCARDS = frozenset("*?[")


class NearExpiry(UserWarning):
    """Retention will soon delete a reader's next row: speed the reader up, or raise the retention."""


class Consumer:
    """Reads topics from the committed offsets of its group, and waits for more rows. Created by `Log.consumer`.

    Rows of a partition come in offset order; partitions are read in turn. Delivery is at least once: with `auto_commit`
    a poll commits the rows of the poll before it, so a process that dies between two polls gets its last rows again.
    A consumer is used by one thread at a time. A background thread sends heartbeats, for `poll_seconds_max` after a poll.
    """

    def __init__(self, log: Log, topics: str | Sequence[str], group: str | None, config: ConsumerConfig) -> None:
        self.group = group
        self.skipped = 0
        self._log = log
        self._names = (topics,) if isinstance(topics, str) else tuple(topics)
        self._start = config.start
        self._columns = None if config.columns is None else tuple(config.columns)
        self._auto_commit = config.auto_commit and group is not None
        self._auto_commit_us = round(config.auto_commit_seconds * 1e6)
        self._rows_max = config.rows_max
        self._poll_seconds_max = config.poll_seconds_max
        self._on_expired = config.on_expired
        self._on_revoke = config.on_revoke
        self._cursors: dict[Place, Cursor] = {}
        self._positions: dict[Place, int] = {}
        self._committed: dict[Place, int] = {}
        self._ready: deque[Batch] = deque()
        self._error: OffsetExpired | None = None
        self._turn = 0
        self._commit_at_us = 0
        self._near_at_us = 0
        self._warned: set[tuple[Place, int]] = set()
        self._member_checks: deque[float] = deque()
        self._closed = False
        self._check(group, config.member)
        self._watch = log.watch()
        self._catalogue: list[str] | None = None
        self._polled = time.monotonic()
        self._beating = threading.Event()
        self._membership: Membership | None = None
        try:
            self._join(config)
        except BaseException:
            self.close(commit=False)
            raise

    def __repr__(self) -> str:
        return f"Consumer({', '.join(self._names)}, group={self.group!r})"

    # -- reading ------------------------------------------------------------------------------------------------------

    def poll(self, *, seconds: float | None = 1.0) -> list[Batch]:
        """The next rows of the assigned partitions; wait up to `seconds` for them, or without limit (None).

        At most `rows_max` rows are returned. Punctuations are batches without rows, in order.
        """
        batches = self._next(seconds)
        self._ready.clear()
        for batch in batches:
            self._hand_out(batch, batch.offset_next)
        return batches

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, *, seconds: float | None = None) -> Iterator[Batch]:
        """Batches one by one, without end or until none came for so many seconds."""
        while not self._closed:
            if not self._next(seconds):
                return
            batch = self._ready.popleft()
            self._hand_out(batch, batch.offset_next)
            yield batch

    def rows(self, *, seconds: float | None = None) -> Iterator[dict[str, Any]]:
        """Rows one by one, without end or until none came for so many seconds. A commit includes the rows yielded."""
        while not self._closed:
            if not self._next(seconds):
                return
            yield from self._rows_of(self._ready.popleft())

    def _rows_of(self, batch: Batch) -> Iterator[dict[str, Any]]:
        dense = batch.offset_next - batch.offset == batch.data.num_rows
        done = 0
        try:
            for row in batch.rows():
                done += 1
                if done < batch.data.num_rows:
                    # After compaction, offsets have gaps: the position moves with the last row of the batch only.
                    self._hand_out(batch, batch.offset + done if dense else batch.offset)
                else:
                    self._hand_out(batch, batch.offset_next)
                yield row
            if not batch.data.num_rows:
                self._hand_out(batch, batch.offset_next)
        finally:
            # A caller that stops early gets the rest at its next call, unless it seeks in between.
            position = batch.offset + done if dense else batch.offset
            if done < batch.data.num_rows and self._positions.get(Place(batch.topic, batch.partition)) == position:
                self._ready.appendleft(replace(batch, offset=position, data=batch.data.slice(done)))

    def _next(self, seconds: float | None) -> list[Batch]:
        """The batches to return next, in order; fetch them, or wait for them, if there are none."""
        self._check_open()
        self._polled = time.monotonic()
        deadline = None if seconds is None else self._polled + seconds
        self._commit_if_due()
        self._notice(self._watch.wait(seconds=0, cursors=self._cursors))
        while True:
            self._refresh()
            if not self._ready:
                self._fetch()
            if self._ready:
                return list(self._ready)
            left = CHECK_SECONDS_MAX if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return []
            self._wait(left)

    def _fetch(self) -> None:
        self._raise_expired()
        places = sorted(self._cursors)
        if not places:
            return
        # Each partition may fill its share, then those with more rows may use the rest; the first one rotates.
        self._turn = (self._turn + 1) % len(places)
        left = self._rows_max
        share = max(1, left // len(places))
        hungry = places[self._turn :] + places[: self._turn]
        while hungry and left > 0:
            full = []
            for place in hungry:
                rows = self._read(place, min(share, left)) if left > 0 else 0
                left -= rows
                if rows >= share:
                    full.append(place)
            hungry, share = full, left
        if not self._ready:
            self._raise_expired()
            self._pass_gaps()

    def _raise_expired(self) -> None:
        """Raise that rows have expired, after the rows of other partitions were returned."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _pass_gaps(self) -> None:
        """Move positions behind offsets whose rows compaction has removed."""
        for place, cursor in self._cursors.items():
            self._positions[place] = max(self._positions[place], cursor.offset)

    def _read(self, place: Place, rows_max: int) -> int:
        try:
            batches = self._cursors[place].read(rows_max=rows_max)
        except OffsetExpired as error:
            if self._on_expired == "fail":
                self._error = error
                return 0
            self.skipped += error.oldest - self._cursors[place].offset
            self._place(place, error.oldest)
            batches = self._cursors[place].read(rows_max=rows_max)
        self._ready.extend(batches)
        return sum(batch.data.num_rows for batch in batches)

    def _hand_out(self, batch: Batch, offset_next: int) -> None:
        place = Place(batch.topic, batch.partition)
        if place in self._positions:
            self._positions[place] = max(offset_next, self._positions[place])

    def _wait(self, left: float) -> None:
        seconds = min(left, CHECK_SECONDS_MAX)
        if self._member_checks:
            seconds = min(seconds, self._member_checks.popleft())
        self._log.resolve_transactions()
        self._notice(self._watch.wait(seconds=seconds, cursors=self._cursors))

    def _notice(self, signs: set[Sign]) -> None:
        if "topics" in signs:
            self._catalogue = None
        if self._membership is not None and signs & {"topics", "state"}:
            self._membership.notice()
        if "members" in signs:
            self._member_checks = deque(MEMBER_CHECK_PAUSES)

    # -- positions ----------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> dict[str, list[int]]:
        """The partitions that are assigned to this consumer."""
        return by_topic(self._positions)

    @property
    def positions(self) -> dict[str, Offsets]:
        """The offset behind the last row returned, in each assigned partition."""
        return _by_topic(self._positions)

    def commit(self, offsets: Mapping[str, Mapping[int, int]] | Batch | None = None) -> None:
        """Commit offsets for the group: up to the rows returned, up to a batch, or the given ones.

        Raise `MemberFenced`, and commit nothing, if one of the partitions is assigned to another member.
        """
        self._check_open()
        if self._membership is None or self.group is None:
            raise ArgumentInvalid(name="group", value=None, expected="a group when the consumer is created")
        self._commit(self._to_commit(offsets))

    def _to_commit(self, offsets: Mapping[str, Mapping[int, int]] | Batch | None) -> dict[Place, int]:
        if offsets is None:
            return {place: at for place, at in self._positions.items() if self._committed.get(place) != at}
        if isinstance(offsets, Batch):
            return {Place(offsets.topic, offsets.partition): offsets.offset_next}
        return {Place(topic, number): at for topic, numbers in offsets.items() for number, at in numbers.items()}

    def _commit(self, offsets: Mapping[Place, int]) -> None:
        membership, group = self._membership, self.group
        if not offsets or membership is None or group is None:
            return

        def record() -> None:
            for topic, numbers in _by_topic(offsets).items():
                self._log.commit_offsets(group, topic, numbers)

        try:
            membership.commit(offsets, record)
        except MemberFenced:
            self._refresh()
            raise
        self._committed.update(offsets)

    def _commit_if_due(self) -> None:
        if not self._auto_commit:
            return
        now_us = self._log.clock.now_us()
        if now_us >= self._commit_at_us:
            self._commit_own()
            self._commit_at_us = now_us + self._auto_commit_us

    def _commit_own(self) -> None:
        """Commit the rows returned, without partitions that a rebalance has assigned to other members."""
        try:
            self._commit(self._to_commit(None))
        except MemberFenced:
            self._commit(self._to_commit(None))

    def seek(self, topic: str, to: Start) -> None:
        """Continue from other offsets in the assigned partitions of a topic; the next commit includes them."""
        self._check_open()
        self._refresh()
        own = {place.partition for place in self._positions if place.topic == topic}
        offsets = resolve(self._log, topic, to)
        if isinstance(to, Mapping):
            offsets = {number: offsets[number] for number in to}
            if not own >= offsets.keys():
                raise ArgumentInvalid(name="to", value=dict(to), expected=f"partitions assigned here: {sorted(own)}")
        for number in own & offsets.keys():
            self._place(Place(topic, number), offsets[number])

    def replay(self, *, since: datetime | Literal["earliest"] = "earliest") -> None:
        """Read all topics again from a time on."""
        for topic in self.assignment:
            self.seek(topic, since)

    def lag(self) -> list[Lag]:
        """The lag of this consumer in each assigned partition."""
        self._check_open()
        owners = {} if self._membership is None else dict.fromkeys(self._positions, self._membership.id)
        return [
            lag
            for topic, positions in self.positions.items()
            for lag in lag_of(self._log, self.group or "", topic, positions, owners=owners)
            if lag.partition in positions
        ]

    # -- the group ----------------------------------------------------------------------------------------------------

    @property
    def member(self) -> str | None:
        """The name of this member in its group."""
        return None if self._membership is None else self._membership.id

    def close(self, *, commit: bool = True) -> None:
        """Leave the group. With `auto_commit`, commit the rows returned first, unless `commit=False`."""
        if self._closed:
            return
        try:
            if commit and self._auto_commit and not self._log.closed:
                self._commit_own()
        finally:
            self._closed = True
            self._beating.set()
            if self._membership is not None:
                self._membership.leave()
            self._watch.close()
            self._cursors.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error it is not known whether the last rows were processed: they are delivered again.
        self.close(commit=kind is None)

    def _check(self, group: str | None, member: str | None) -> None:
        if not self._names:
            raise ArgumentInvalid(name="topics", value=[], expected="a topic, a pattern such as 'orders.*', or several")
        if group is not None:
            check_name("group", group)
            if self._log.read_only:
                raise ReadOnly(path=self._log.address)
        if member is not None:
            check_name("member", member)
            if group is None:
                raise ArgumentInvalid(name="member", value=member, expected="a group along with it")

    def _join(self, config: ConsumerConfig) -> None:
        self._watch.add_topics()
        if self.group is None:
            self._begin_alone()
            return
        self._membership = self._log.membership(
            self.group,
            member=config.member,
            topics=self._names,
            partitions=self._partitions,
            start=self._start,
            session_seconds_max=config.session_seconds_max,
            heartbeat_seconds=config.heartbeat_seconds,
        )
        self._membership.join(self._begin, self._release)
        self._watch.add_group(self.group)
        self._adopt(self._membership.owned)
        if config.heartbeat_in_background:
            beat = _beats(weakref.ref(self), self._beating, config.heartbeat_seconds)
            threading.Thread(target=beat, name="headwater-heartbeat", daemon=True).start()

    def _begin_alone(self) -> None:
        for topic, count in self._partitions(True).items():
            offsets = resolve(self._log, topic, self._start)
            for number in range(count):
                self._place(Place(topic, number), offsets[number])

    def _begin(self, topics: set[str]) -> None:
        """Commit the first offsets in topics that are new to the group, for all partitions at once.

        Otherwise a row that is appended before a member's first read could be skipped by "latest".
        """
        if self._start == "earliest" or self.group is None:
            return
        for topic in sorted(topics):
            offsets, committed = resolve(self._log, topic, self._start), self._log.committed(self.group, topic)
            fresh = {number: offset for number, offset in offsets.items() if number not in committed}
            self._log.commit_offsets(self.group, topic, fresh)

    def _refresh(self) -> None:
        """Follow changes of the group, new partitions and new topics."""
        if self._membership is None:
            self._adopt({Place(topic, n) for topic, count in self._partitions(False).items() for n in range(count)})
        else:
            self._membership.refresh(check_members=bool(self._member_checks))
            self._adopt(self._membership.owned)
            if self._membership.releasing:
                self._release()
        self._warn_if_near_expiry()

    def _release(self) -> None:
        membership = self._membership
        if membership is None:
            return
        places = membership.releasing & self._positions.keys()
        if self._on_revoke is not None and places:
            self._on_revoke(sorted(places))
        if self._auto_commit:
            self._commit_own()
        membership.release(membership.releasing)
        self._adopt(membership.owned)

    def _adopt(self, owned: set[Place]) -> None:
        """Start to read newly assigned partitions, and stop reading revoked ones."""
        for place in self._cursors.keys() - owned:
            del self._cursors[place], self._positions[place]
            self._committed.pop(place, None)
            self._ready = deque(batch for batch in self._ready if Place(batch.topic, batch.partition) != place)
        for place in list(self._cursors):
            if self._cursors[place].deleted:  # and there is a new topic of the same name
                self._watch.forget_rows(place.topic)
                self._place(place, 0)
        fresh = owned - self._cursors.keys()
        for topic in sorted({place.topic for place in fresh}):
            committed = {} if self.group is None else self._log.committed(self.group, topic)
            starts = self._log.start_offsets(topic)
            for place in sorted(place for place in fresh if place.topic == topic):
                self._place(place, committed.get(place.partition, starts[place.partition]))
                self._committed[place] = self._positions[place]

    def _place(self, place: Place, offset: int) -> None:
        self._cursors[place] = self._log.cursor(place.topic, place.partition, offset, columns=self._columns)
        self._positions[place] = offset
        self._ready = deque(batch for batch in self._ready if Place(batch.topic, batch.partition) != place)
        self._watch.add_rows(place.topic)

    def _partitions(self, list_topics: bool) -> dict[str, int]:
        """The subscribed topics and their numbers of partitions; patterns are matched again with `list_topics`."""
        if self._catalogue is None or list_topics:
            self._catalogue = sorted({topic for name in self._names for topic in self._named(name)})
        try:
            return {name: self._log.partitions_of(name) for name in self._catalogue}
        except NotFound:
            if not any(_is_pattern(name) for name in self._names):
                raise
            return self._partitions(True)  # a matching topic has been deleted

    def _named(self, name: str) -> list[str]:
        if _is_pattern(name):
            return self._log.topics(name)
        self._log.topic(name)
        return [name]

    def _warn_if_near_expiry(self) -> None:
        now_us = self._log.clock.now_us()
        if now_us < self._near_at_us:
            return
        self._near_at_us = now_us + round(self._log.config.heartbeat_seconds * 1e6)
        for place, position in self._positions.items():
            retention = self._log.topic(place.topic).retention
            if retention.seconds_max is None and retention.bytes_max is None:
                continue
            expiry = self._log.expiry(place.topic, place.partition, position)
            if expiry.oldest and expiry.used >= NEAR_EXPIRY and (place, expiry.offset_next) not in self._warned:
                self._warned.add((place, expiry.offset_next))
                text = f"{place} will soon lose the rows before offset {expiry.offset_next}, and a reader is at {position}."
                warnings.warn(text, NearExpiry, stacklevel=4)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(what="consumer")

    def _beat(self) -> None:
        if self._membership is not None and time.monotonic() - self._polled < self._poll_seconds_max:
            self._membership.beat()


def _is_pattern(name: str) -> bool:
    return not _WILDCARDS.isdisjoint(name)


def _by_topic(offsets: Mapping[Place, int]) -> dict[str, Offsets]:
    found: dict[str, Offsets] = {}
    for place in sorted(offsets):
        found.setdefault(place.topic, {})[place.partition] = offsets[place]
    return found


def _beats(consumer: weakref.ref[Consumer], ended: threading.Event, seconds: float) -> Callable[[], None]:
    """Send heartbeats until the consumer is closed or garbage-collected."""

    def run() -> None:
        while not ended.wait(seconds):
            found = consumer()
            if found is None:
                return
            found._beat()
            del found

    return run
