"""The writer of the embedded log: split rows by partition, encode them as frames, write and sync them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NoReturn

import pyarrow as pa
from google_crc32c import value as crc32c

from headwater.clock import Clock, time_us
from headwater.config import Config
from headwater.errors import ArgumentInvalid, NotFound, StorageError
from headwater.log.client_config import Rows
from headwater.log.decoder import Decoder, Projection
from headwater.log.drafts import Key, drafts_of, key_of
from headwater.log.embedded.catalogue import Catalogue
from headwater.log.embedded.files import storage_error
from headwater.log.embedded.maintenance import MaintenanceThread
from headwater.log.embedded.partition import Identity, Partition, Written, append_together
from headwater.log.embedded.partition_reader import PartitionReader
from headwater.log.embedded.producers import Registry, producer_id
from headwater.log.embedded.state import Tail
from headwater.log.embedded.topic import TopicHandle
from headwater.log.errors import KeyConflict, OffsetConflict, ProducerFenced
from headwater.log.frame import Draft, draft_punctuation
from headwater.log.port import Appended
from headwater.log.topic_rules import check_name

#: Raises if the end of a partition is not what the caller of an append expects.
Condition = Callable[[Tail], None]


class Writer:
    """Appends rows to the partitions of topics."""

    def __init__(
        self, catalogue: Catalogue, registry: Registry, maintenance: MaintenanceThread, *, config: Config, clock: Clock
    ) -> None:
        self._catalogue = catalogue
        self._registry = registry
        self._maintenance = maintenance
        self._config = config
        self._clock = clock
        self._maintained = config.maintenance == "auto"
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def append(
        self,
        handle: TopicHandle,
        rows: Rows,
        *,
        partition: int | None,
        headers: Any,
        expected_offset: int | None,
        expected_key_offset: int | None,
        identity: tuple[str, int | None, int | None] | None,
        sent_at_us: int | None,
        durable: bool,
    ) -> Appended:
        """Append rows. `identity` is the name of an idempotent producer, a sequence and an epoch."""
        if expected_key_offset is not None and not isinstance(rows, (list, Mapping, pa.Table, pa.RecordBatch)):
            rows = list(rows)  # read twice: for the frames and for the key
        known = None if identity is None else self._identity(handle, *identity)
        topic = handle.current()
        if known is not None and partition is None and not topic.key:
            # Round robin would send a retried batch to another partition.
            partition = known.sequence % topic.partitions
        drafts = self.draft(handle, rows, partition=partition, headers=headers, sent_at_us=sent_at_us)
        condition = None
        if expected_offset is not None or expected_key_offset is not None:
            condition = _condition(handle, rows, drafts, expected_offset, expected_key_offset)
        return self._append(handle, drafts, known, condition, durable)

    def append_payload(
        self,
        handle: TopicHandle,
        number: int,
        payload: bytes,
        *,
        rows: int,
        times: tuple[int, int],
        schema_version: int,
        expected_offset: int,
    ) -> int:
        """Append rows that are encoded already, as `append` with `durable=False`; return the offset behind them."""
        partition = handle.partition(number)
        frame = Draft(payload, crc32c(payload), len(payload), rows, rows, schema_version)
        frame.sent_at_us, (frame.time_min_us, frame.time_max_us) = self._clock.now_us(), times

        def check(tail: Tail) -> None:
            if tail.offset != expected_offset:
                raise _conflict(handle, number, expected_offset, tail.offset)

        try:
            written = partition.append([frame], condition=check)
        except (OSError, StorageError) as error:
            _raise_failure(handle, error)
        self._appended(handle, [(partition, written)])
        return written.offset_next

    @property
    def frame_rows_max(self) -> int:
        return self._config.frame_rows_max

    def flush(self, handle: TopicHandle) -> None:
        waits = []
        for partition in handle.partitions():
            written = partition.state.written(partition.number)
            if written is not None and partition.synced and partition.visible().offset < written.offset:
                waits.append((partition, written.offset))
        self._sync(waits)

    def punctuate(
        self, handle: TopicHandle, time: datetime | int, *, producer: str | None, partition: int | None
    ) -> None:
        current = handle.current()
        now_us = self._clock.now_us()
        draft = draft_punctuation(time_us(time), schema_version=current.schema_version, sent_at_us=now_us)
        identity = None
        if producer is not None:
            check_name("producer", producer)
            identity = Identity(producer_id(producer), self._registry.epoch(producer), 0, producer)
        numbers = range(current.partitions) if partition is None else [partition]
        for number in numbers:
            where = handle.partition(number)
            where.append_punctuation(draft, identity)

    def open_producer(self, name: str, *, holder: str | None) -> int:
        check_name("producer", name)
        return self._registry.open(name, holder=holder)

    def last_sequence(self, handle: TopicHandle, producer: str) -> int:
        found = -1
        for partition in handle.partitions():
            if partition.folder.is_dir():
                with partition.append_lock:
                    producers = partition.producers(partition.tail())
                    found = max(found, producers.last_sequence(producer_id(producer)))
        return found

    def draft(
        self,
        handle: TopicHandle,
        rows: Rows,
        *,
        partition: int | None = None,
        headers: Any = None,
        sent_at_us: int | None = None,
    ) -> dict[int, list[Draft]]:
        """The frames of `rows`, by partition."""
        return drafts_of(
            handle.current(),
            rows,
            config=self._config,
            clock=self._clock,
            turn=handle.next_turn,
            partition=partition,
            headers=headers,
            sent_at_us=sent_at_us,
        )

    def draft_for(
        self,
        topic: str,
        rows: Rows,
        *,
        partition: int | None = None,
        headers: Any = None,
        sent_at_us: int | None = None,
    ) -> dict[int, list[Draft]]:
        """The frames of `rows`, by partition of the topic of this name."""
        handle = self._catalogue.get(topic)
        return self.draft(handle, rows, partition=partition, headers=headers, sent_at_us=sent_at_us)

    def schedule_maintenance(self, appended: Iterable[Appended]) -> None:
        """Schedule maintenance after a transaction, as an append does."""
        for one in appended if self._maintained else ():
            handle = self._catalogue.get(one.topic)
            for number, (start, stop) in one.ranges.items():
                written = handle.partition(number).state.written(number)
                if written is not None and start <= written.segment < stop:
                    self._maintenance.rolled(handle, handle.partition(number))
            if handle.topic.retention.seconds_max is not None:
                self._maintenance.appended(handle)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _append(
        self,
        handle: TopicHandle,
        drafts: dict[int, list[Draft]],
        identity: Identity | None,
        condition: Condition | None,
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
            _raise_failure(handle, error)
        for (partition, _), written in zip(places, results, strict=True):
            ranges[partition.number] = (written.offset, written.offset_next)
            if written.tail is None:
                duplicates += 1
            waits.append((partition, written.offset_next))
        self._appended(handle, [(partition, written) for (partition, _), written in zip(places, results, strict=True)])
        if durable and handle.topic.durability == "fsync":
            self._sync(waits)
        return Appended(topic=handle.topic.name, ranges=ranges, duplicate=bool(drafts) and duplicates == len(drafts))

    def _appended(self, handle: TopicHandle, results: Iterable[tuple[Partition, Written]]) -> None:
        """Schedule maintenance after an append."""
        if self._maintained:
            for partition, written in results:
                if written.rolled:
                    self._maintenance.rolled(handle, partition)
            if handle.topic.retention.seconds_max is not None:
                self._maintenance.appended(handle)

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
            sequence = self.last_sequence(handle, producer) + 1
        if sequence < 0:
            raise ArgumentInvalid(
                name="sequence", value=sequence, expected="a number that is not negative and only grows"
            )
        return Identity(producer_id(producer), current if epoch is None else epoch, sequence, producer)


def _condition(
    handle: TopicHandle,
    rows: Rows,
    drafts: dict[int, list[Draft]],
    expected_offset: int | None,
    expected_key_offset: int | None,
) -> Condition:
    if len(drafts) != 1:
        raise ArgumentInvalid(name="rows", value=f"rows for {len(drafts)} partitions", expected="rows of one partition")
    topic = handle.current()
    number = next(iter(drafts))
    key = key_of(topic, rows) if expected_key_offset is not None else None

    def check(tail: Tail) -> None:
        if expected_offset is not None and tail.offset != expected_offset:
            raise _conflict(handle, number, expected_offset, tail.offset)
        if key is not None and expected_key_offset is not None:
            partition = handle.partition(number)
            partition.sync_to(tail.offset)  # rows that are not synced yet count too
            if partition.keys is None:
                partition.keys = KeyOffsets(handle, partition)
            last = partition.keys.last(key)
            if last > expected_key_offset:
                shown = str(key[0]) if len(key) == 1 else str(key)
                raise KeyConflict(
                    topic=topic.name, partition=number, key=shown, expected=expected_key_offset, actual=last
                )

    return check


def _conflict(handle: TopicHandle, number: int, expected: int, actual: int) -> OffsetConflict:
    # The writer of the last rows may have died before it synced them: the caller must be able to see them.
    handle.partition(number).sync_to(actual)
    return OffsetConflict(topic=handle.topic.name, partition=number, expected=expected, actual=actual)


def _raise_failure(handle: TopicHandle, error: OSError | StorageError) -> NoReturn:
    """Raise the error of a failed append."""
    if handle.deleted:  # by another process, while this one was about to append
        raise NotFound(kind="topic", name=handle.topic.name) from error
    if isinstance(error, StorageError):
        raise error
    raise storage_error(error, handle.folder) from error


class KeyOffsets:
    """The offset of the last row of each key, up to the visible end of one partition."""

    def __init__(self, handle: TopicHandle, partition: Partition) -> None:
        self._names = handle.current().key
        projection = Projection.of(handle.current(), [*self._names, "_offset"])
        self._decoder = Decoder(handle.current, handle.schema_of, partition.number, projection)
        self._reader = PartitionReader(partition, partition.start())
        self._offsets: dict[Key, int] = {}

    def last(self, key: Key) -> int:
        """The offset of the key's last row; -1 if it has none."""
        for header, payload in self._reader.frames():
            batch = self._decoder.batch(header, payload, start=self._reader.since, stop=None)
            if batch is not None and batch.punctuation_us is None:
                columns = [batch.data.column(name).to_pylist() for name in self._names]
                self._offsets.update(
                    zip(zip(*columns, strict=True), batch.data.column("_offset").to_pylist(), strict=True)
                )
        return self._offsets.get(key, -1)
