"""Appending to the embedded log: rows are cut into frames, placed, written and synced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import (
    ArgumentInvalid,
    KeyConflict,
    OffsetConflict,
    PartitionNotFound,
    ProducerFenced,
    ReadOnly,
    StorageError,
    TopicNotFound,
)
from headwater.log.embedded import drafting
from headwater.log.embedded.files import storage_error
from headwater.log.embedded.frame import Draft, draft_punctuation
from headwater.log.embedded.keys import key_of_rows
from headwater.log.embedded.partition import Identity, Partition, append_together
from headwater.log.embedded.producers import producer_id
from headwater.log.embedded.state import Tail
from headwater.log.embedded.topics import TopicHandle, check_name
from headwater.log.port import (
    Appended,
    Rows,
)

if TYPE_CHECKING:
    pass


from headwater.log.embedded.declaring import Declaring


class Writing(Declaring):
    """How rows come in."""

    def append(
        self,
        topic: str,
        rows: Rows,
        *,
        partition: int | None = None,
        headers: Any = None,
        expected_offset: int | None = None,
        expected_key_offset: int | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        sent_at_us: int | None = None,
        durable: bool = True,
    ) -> Appended:
        """Append rows; on return they are as durable as the topic promises, and readers see them.

        All rows that go to one partition are there together or not at all; for several partitions at once use a
        `transaction`. With `durable=False` the call does not wait for the disk: rows of an `fsync` topic then become
        visible with the next append that does wait, or by `flush`.
        """
        handle = self._handle(topic)
        if expected_key_offset is not None and not isinstance(rows, (list, Mapping, pa.Table, pa.RecordBatch)):
            rows = list(rows)  # looked at twice: once for the frames, once for the key
        identity = None if producer is None else self._identity(handle, producer, sequence, epoch)
        topic_now = handle.current()
        if identity is not None and partition is None and not topic_now.key:
            # Taking turns would send a retried batch to a partition that does not know it.
            partition = identity.sequence % topic_now.partitions
        drafts = self._draft(handle, rows, partition=partition, headers=headers, sent_at_us=sent_at_us)
        condition = None
        if expected_offset is not None or expected_key_offset is not None:
            condition = self._condition(handle, rows, drafts, expected_offset, expected_key_offset)
        return self._append(handle, drafts, identity, condition, durable)

    def flush(self, topic: str) -> None:
        """Wait until every row written so far is as durable as the topic promises."""
        waits = []
        for partition in self._handle(topic).partitions():
            written = partition.state.written(partition.number)
            if written is not None and partition.synced and partition.visible().offset < written.offset:
                waits.append((partition, written.offset))
        self._sync(waits)

    def punctuate(
        self, topic: str, time: datetime | int, *, producer: str | None = None, partition: int | None = None
    ) -> None:
        """Promise that no row earlier than `time` follows from this producer; readers get it in order with the rows."""
        handle = self._handle(topic)
        current = handle.current()
        now_us = self.clock.now_us()
        draft = draft_punctuation(micros(time), schema_version=current.schema_version, sent_at_us=now_us)
        identity = None
        if producer is not None:
            check_name("producer", producer)
            identity = Identity(producer_id(producer), self._registry.epoch(producer), 0, producer)
        numbers = range(current.partitions) if partition is None else [partition]
        for number in numbers:
            where = handle.partition(number)
            where.append_punctuation(draft, identity)

    def open_producer(self, name: str, *, holder: str | None = None) -> int:
        """Begin a new epoch for an idempotent producer: from now on, whoever uses an older one is refused.

        A `holder` (the id of one run of a program) that asks again gets the epoch that it has, so that its processes
        need not tell each other; once another holder has come, it is refused.
        """
        self._check_open()
        check_name("producer", name)
        if self.read_only:
            raise ReadOnly(path=str(self.path))
        return self._registry.open(name, holder=holder)

    def last_sequence(self, topic: str, producer: str) -> int:
        """The highest sequence that this producer has appended to any partition of the topic, -1 for none."""
        found = -1
        for partition in self._handle(topic).partitions():
            if partition.folder.is_dir():
                with partition.append_lock:
                    producers = partition.producers(partition.tail())
                    found = max(found, producers.last_sequence(producer_id(producer)))
        return found

    def _draft(
        self,
        handle: TopicHandle,
        rows: Rows,
        *,
        partition: int | None = None,
        headers: Any = None,
        sent_at_us: int | None = None,
    ) -> dict[int, list[Draft]]:
        current = handle.current()
        if partition is not None and not 0 <= partition < current.partitions:
            raise PartitionNotFound(topic=current.name, partition=partition, partitions=current.partitions)
        sent = self.clock.now_us() if sent_at_us is None else sent_at_us
        return drafting.draft(handle, rows, partition=partition, headers=headers, sent_at_us=sent, config=self.config)

    def _append(
        self,
        handle: TopicHandle,
        drafts: dict[int, list[Draft]],
        identity: Identity | None,
        condition: Any,
        durable: bool,
    ) -> Appended:
        ranges: dict[int, tuple[int, int]] = {}
        waits: list[tuple[Partition, int]] = []
        duplicates = 0
        places = [(handle.partition(number), drafts[number]) for number in sorted(drafts)]
        try:
            if len(places) == 1:
                results = [places[0][0].append(places[0][1], identity=identity, condition=condition)]
            else:
                results = append_together(places, identity)
        except (OSError, StorageError) as error:
            if handle.deleted:  # by another process, while this one was about to append
                raise TopicNotFound(topic=handle.topic.name) from error
            if isinstance(error, StorageError):
                raise
            raise storage_error(error, handle.folder) from error
        for (partition, _), written in zip(places, results, strict=True):
            number = partition.number
            ranges[number] = (written.offset, written.offset_next)
            if written.tail is None:
                duplicates += 1
            waits.append((partition, written.offset_next))
            if written.rolled and self.config.upkeep == "auto":
                self._tidier.rolled(handle, partition)
        if handle.topic.retention.seconds_max is not None and self.config.upkeep == "auto":
            self._tidier.appended(handle)
        if durable and handle.topic.durability == "fsync":
            self._sync(waits)
        return Appended(topic=handle.topic.name, ranges=ranges, duplicate=bool(drafts) and duplicates == len(drafts))

    def _look_after(self, appended: Iterable[Appended]) -> None:
        """Let upkeep see what a transaction has written, as it sees what an append has."""
        for one in appended if self.config.upkeep == "auto" else ():
            handle = self._handle(one.topic)
            for number, (start, stop) in one.ranges.items():
                written = handle.partition(number).state.written(number)
                if written is not None and start <= written.segment < stop:
                    self._tidier.rolled(handle, handle.partition(number))
            if handle.topic.retention.seconds_max is not None:
                self._tidier.appended(handle)

    def _sync(self, waits: list[tuple[Partition, int]]) -> None:
        if len(waits) <= 1:
            for partition, offset in waits:
                partition.sync_to(offset)
            return
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="headwater-sync")
        list(self._pool.map(lambda wait: wait[0].sync_to(wait[1]), waits))

    def _identity(self, handle: TopicHandle, producer: str, sequence: int | None, epoch: int | None) -> Identity:
        check_name("producer", producer)
        current = self._registry.epoch(producer)
        if epoch is not None and epoch < current:
            raise ProducerFenced(producer=producer, epoch=epoch, current=current)
        if sequence is None:
            sequence = self.last_sequence(handle.topic.name, producer) + 1
        if sequence < 0:
            raise ArgumentInvalid(
                name="sequence", value=sequence, expected="a number that is not negative and only grows"
            )
        return Identity(producer_id(producer), current if epoch is None else epoch, sequence, producer)

    def _condition(
        self,
        handle: TopicHandle,
        rows: Rows,
        drafts: dict[int, list[Draft]],
        expected_offset: int | None,
        expected_key_offset: int | None,
    ) -> Any:
        if len(drafts) != 1:
            raise ArgumentInvalid(
                name="rows", value=f"rows for {len(drafts)} partitions", expected="rows of one partition"
            )
        topic = handle.current()
        number = next(iter(drafts))
        key = key_of_rows(topic, rows) if expected_key_offset is not None else None

        def check(tail: Tail) -> None:
            if expected_offset is not None and tail.offset != expected_offset:
                raise OffsetConflict(topic=topic.name, partition=number, expected=expected_offset, actual=tail.offset)
            if key is not None and expected_key_offset is not None:
                last = handle.last_offset_of(number, key, tail)
                if last > expected_key_offset:
                    shown = str(key[0]) if len(key) == 1 else str(key)
                    raise KeyConflict(
                        topic=topic.name, partition=number, key=shown, expected=expected_key_offset, actual=last
                    )

        return check


def micros(time: datetime | int) -> int:
    if isinstance(time, datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1_000_000)
    return int(time)
