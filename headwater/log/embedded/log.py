"""The embedded log: a folder that many processes may read and write, with no server."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import orjson
import pyarrow as pa

from headwater.clock import Clock, SystemClock
from headwater.config import Config
from headwater.errors import (
    ArgumentInvalid,
    Closed,
    FormatUnknown,
    KeyConflict,
    LogNotFound,
    OffsetConflict,
    PartitionNotFound,
    ProducerFenced,
    ReadOnly,
    TopicExists,
)
from headwater.log.embedded import drafting, tidy
from headwater.log.embedded.cursor import EmbeddedCursor
from headwater.log.embedded.expiry import expiry_of
from headwater.log.embedded.faults import reach
from headwater.log.embedded.files import replace_file
from headwater.log.embedded.frame import Draft, draft_punctuation
from headwater.log.embedded.keys import key_of_rows
from headwater.log.embedded.notify import wait_for
from headwater.log.embedded.partition import Identity, Partition, append_together
from headwater.log.embedded.producers import Registry, producer_id
from headwater.log.embedded.reader import LogReader, Projection, check_range, offset_at
from headwater.log.embedded.staging import Area, Stage, Staged, file_name
from headwater.log.embedded.state import Tail
from headwater.log.embedded.topics import Catalogue, TopicHandle, check_name, with_schema
from headwater.log.embedded.transactions import Commits, EmbeddedTransaction
from headwater.log.embedded.watch import Watch
from headwater.log.lag import Expiry
from headwater.log.offsets import OFFSETS_TOPIC, OffsetTable
from headwater.log.port import (
    Appended,
    Codec,
    Description,
    Durability,
    Offsets,
    PartitionInfo,
    Retention,
    Rows,
    Start,
    Topic,
)
from headwater.log.retention import parse_retention
from headwater.schema import evolve, parse_schema
from headwater.units import MIB, parse_bytes, parse_seconds

if TYPE_CHECKING:
    from headwater.log.assignment import Place
    from headwater.log.consumer import Consumer, OnExpired
    from headwater.log.groups import Groups
    from headwater.log.limits import Limit
    from headwater.log.producer import Overload, Producer

FORMAT = 1
_open_logs: weakref.WeakSet[EmbeddedLog] = weakref.WeakSet()


class EmbeddedLog:
    """A log in a folder. Open it with `headwater.open("./data")`."""

    def __init__(
        self,
        path: str | Path,
        *,
        config: Config | None = None,
        create: bool = True,
        read_only: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.path = Path(path)
        self.config = config or Config()
        self.clock = clock or SystemClock()
        self.read_only = read_only
        self.id = self._make_or_check(create)
        self._start()
        _open_logs.add(self)

    def __repr__(self) -> str:
        return f"Log({str(self.path)!r})"

    def _start(self) -> None:
        self._closed = False
        self._stale = False
        self._lock = threading.Lock()
        self._registry = Registry(self.path / "producers")
        self._commits: Commits | None = None
        self._catalogue = Catalogue(
            self.path,
            log_id=self.id,
            clock=self.clock,
            is_committed=self._is_committed,
            read_only=self.read_only,
            archive=self.config.archive_dir or self.path / "archive",
            open_partitions_max=self.config.open_partitions_max,
        )
        self._commits = Commits(
            self.path / "transactions",
            clock=self.clock,
            partition=lambda topic, number: self._catalogue.get(topic).partition(number),
            every_partition=self._every_partition,
            registry=self._registry,
            read_only=self.read_only,
        )
        self._staging = Area(self.path / "transactions" / "staged")
        self._offsets = OffsetTable(self)
        self._tidier = tidy.Tidier(self)
        self._pool: ThreadPoolExecutor | None = None
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        if not self.read_only:
            self._commits.settle()

    # -- topics -------------------------------------------------------------------------------------------------------

    def create(
        self,
        topic: str,
        schema: Any = None,
        *,
        partitions: int | None = None,
        key: str | Sequence[str] | None = None,
        time: str | None = None,
        retention: Retention | timedelta | str | None = None,
        compact: bool = False,
        durability: Durability | None = None,
        codec: Codec | None = None,
        segment_bytes_max: int | str | None = None,
        segment_seconds_max: float | str | None = None,
        tombstone_seconds_max: float | str | None = None,
        archive: bool = False,
        exist_ok: bool = False,
    ) -> Topic:
        """Make a topic. Without a schema its rows are `key` and `value`, both bytes."""
        self._check_open()
        check_name("topic", topic)
        wanted = drafting.declare(
            topic,
            parse_schema(schema),
            schemaless=schema is None,
            partitions=self.config.partitions if partitions is None else partitions,
            key=key,
            time=time,
            retention=parse_retention(retention, self.config),
            compact=compact,
            durability=durability or self.config.durability,
            codec=codec or self.config.codec,
            segment_bytes_max=parse_bytes(segment_bytes_max or self.config.segment_bytes_max),
            segment_seconds_max=parse_seconds(segment_seconds_max or 7 * 86_400.0),
            tombstone_seconds_max=parse_seconds(86_400.0 if tombstone_seconds_max is None else tombstone_seconds_max),
            archive=archive,
            created_us=self.clock.now_us(),
        )
        if self._catalogue.has(topic):
            return self._existing(wanted, exist_ok)
        try:
            return self._catalogue.create(wanted).topic
        except TopicExists:  # another process was quicker
            return self._existing(wanted, exist_ok)

    def alter(
        self,
        topic: str,
        *,
        schema: Any = None,
        force: bool = False,
        partitions: int | None = None,
        retention: Retention | timedelta | str | None = None,
        compact: bool | None = None,
        segment_bytes_max: int | str | None = None,
        segment_seconds_max: float | str | None = None,
        tombstone_seconds_max: float | str | None = None,
        archive: bool | None = None,
        codec: Codec | None = None,
    ) -> Topic:
        """Change a topic while it is in use; other processes see it at their next call."""
        self._check_open()

        def change(old: Topic, schemas: dict[int, pa.Schema]) -> tuple[Topic, dict[int, pa.Schema]]:
            changes: dict[str, Any] = {
                "partitions": partitions,
                "retention": None if retention is None else parse_retention(retention, self.config),
                "compact": compact,
                "segment_bytes_max": None if segment_bytes_max is None else parse_bytes(segment_bytes_max),
                "segment_seconds_max": None if segment_seconds_max is None else parse_seconds(segment_seconds_max),
                "tombstone_seconds_max": None
                if tombstone_seconds_max is None
                else parse_seconds(tombstone_seconds_max),
                "archive": archive,
                "codec": codec,
            }
            new = replace(old, **{name: value for name, value in changes.items() if value is not None})
            drafting.check_alter(old, new)
            if schema is None:
                return new, schemas
            parsed = parse_schema(schema)
            if evolve(topic, old.schema, parsed, force=force):
                drafting.check_columns(topic, parsed, key=old.key, time=old.time)
                drafting.check_key_types(topic, old.key, old.schema, parsed)
                return with_schema(new, schemas, parsed)
            return new, schemas

        return self._catalogue.alter(topic, change)

    def delete(self, topic: str) -> None:
        """Remove a topic and all its rows. Readers that are in the middle keep what they have mapped."""
        self._check_open()
        self._catalogue.delete(topic)
        self._offsets.forget_topic(topic)

    def topics(self, pattern: str = "*", *, internal: bool = False) -> list[str]:
        """The names of all topics that match a pattern such as `orders.*`."""
        self._check_open()
        return self._catalogue.names(pattern, internal=internal)

    def topic(self, name: str) -> Topic:
        return self._handle(name).current()

    def schema(self, topic: str, version: int | None = None) -> pa.Schema:
        handle = self._handle(topic)
        current = handle.current()
        if version is None:
            return current.schema
        if version not in handle.schemas:
            raise ArgumentInvalid(name="version", value=version, expected=f"1 to {current.schema_version}")
        return handle.schemas[version]

    def describe(self, topic: str) -> Description:
        """What the topic is and what each partition holds."""
        handle = self._handle(topic)
        return Description(topic=handle.current(), partitions=[_info(partition) for partition in handle.partitions()])

    # -- appending ----------------------------------------------------------------------------------------------------

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
        draft = draft_punctuation(_micros(time), schema_version=current.schema_version, sent_at_us=now_us)
        identity = None
        if producer is not None:
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

    # -- transactions -------------------------------------------------------------------------------------------------

    def transaction(
        self, producer: str | None = None, *, epoch: int | None = None, sequence: int | None = None
    ) -> EmbeddedTransaction:
        """Append to many topics at once: `with log.transaction() as t: t.append(...)`.

        With a producer and a sequence, a transaction that was committed before changes nothing, so it can be retried
        without doubling; with an older epoch it is refused.
        """
        self._check_open()
        if self.read_only:
            raise ReadOnly(path=str(self.path))
        if producer is not None:
            check_name("producer", producer)
        if sequence is not None and producer is None:
            raise ArgumentInvalid(name="sequence", value=sequence, expected="a producer along with it")
        return EmbeddedTransaction(
            self._checked_commits,
            self._draft_by_name,
            self._offset_rows,
            producer=producer,
            epoch=epoch,
            sequence=sequence,
        )

    def prepared(self) -> list[str]:
        """The ids of transactions that are durable but neither committed nor rolled back."""
        return self._checked_commits.prepared()

    def commit(self, transaction: str) -> dict[str, Appended]:
        """Commit a prepared transaction by its id; a second call changes nothing."""
        return self._checked_commits.commit_prepared(transaction)

    def rollback(self, transaction: str) -> None:
        """Forget a prepared transaction."""
        self._checked_commits.rollback_prepared(transaction)

    def committed_sequence(self, producer: str) -> int:
        """The sequence of the last transaction that `producer` committed, -1 for none."""
        return self._checked_commits.last_sequence(producer)

    def transaction_metadata(self, producer: str) -> dict[str, Any] | None:
        """What the last transaction that `producer` committed says about itself, None where there is nothing."""
        return self._checked_commits.last_metadata(producer)

    def stage(self, name: str, *, sequence: int, attempt: str) -> Stage:
        """Begin a file of rows that nobody reads until `commit_staged` takes it over, in this or another process."""
        self._check_writable()
        check_name("producer", name)
        check_name("attempt", attempt)
        return Stage(
            self._staging,
            name,
            file_name(sequence, attempt),
            draft=self._draft_by_name,
            topic_id=lambda topic: self.topic(topic).id,
            rows_max=self.config.frame_rows_max,
        )

    def commit_staged(
        self,
        staged: Iterable[Staged],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Appended]:
        """Append all rows of staged files in one transaction, and remove the files.

        With a producer and a sequence it can be repeated without doubling, and removes what other attempts have staged
        under the producer's name up to that sequence. `metadata` is kept with the transaction, also where it has no rows.
        """
        self._check_writable()
        files = list(staged)
        if producer is not None and sequence is not None and self.committed_sequence(producer) >= sequence:
            parts = []  # without a look at the files, which may be gone
        else:
            parts = self._staging.parts(files, topic_id=lambda topic: self.topic(topic).id)
        reach("sink.before_commit")
        name = f"{producer}.{sequence}" if producer is not None else uuid.uuid4().hex
        result = self._checked_commits.commit(
            parts, name=name, producer=producer, epoch=epoch, sequence=sequence, metadata=metadata
        )
        reach("sink.committed")
        self._staging.discard(files)
        if producer is not None and sequence is not None:
            self._staging.clear(producer, sequence_max=sequence)
        self._staging.sweep_now_and_then()
        return result

    def discard_staged(self, staged: Iterable[Staged]) -> None:
        """Remove staged files. Whatever a transaction has taken over stays."""
        self._check_writable()
        self._staging.discard(staged)

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        *,
        start: Start = "earliest",
        stop: Start | None = None,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        archived: bool = False,
    ) -> LogReader:
        """Read what is there now, from `start` up to `stop` or the present end."""
        handle = self._handle(topic)
        current = handle.current()
        projection = Projection.of(current, columns)
        numbers = list(range(current.partitions)) if partitions is None else list(partitions)
        ends = self._snapshot(handle, numbers)
        starts = self._resolve(handle, start, numbers, ends, archived=archived)
        stops = ends if stop is None else self._resolve(handle, stop, numbers, ends, archived=archived)
        ranges = {}
        for number in numbers:
            where = handle.partition(number)
            check_range(where, starts[number], self._oldest(handle, number, archived), ends[number])
            ranges[number] = (where, starts[number], min(stops[number], ends[number]))
        archives = {number: handle.archive(number) for number in numbers} if archived else None
        return LogReader(handle.current, handle.schema_of, ranges, projection, limit=limit, archives=archives)

    def start_offsets(self, topic: str) -> Offsets:
        """The oldest offset that each partition still has."""
        return {partition.number: partition.start() for partition in self._handle(topic).partitions()}

    def end_offsets(self, topic: str) -> Offsets:
        """The offset that the next row of each partition will get; no transaction is ever half counted."""
        handle = self._handle(topic)
        return self._snapshot(handle, range(handle.current().partitions))

    def offset_at(self, topic: str, time: datetime | int) -> Offsets:
        """In each partition, the first offset appended at or after a time (microseconds or a datetime)."""
        time_us = _micros(time)
        handle = self._handle(topic)
        return {partition.number: offset_at(partition, time_us, handle.schema_of) for partition in handle.partitions()}

    def wait(
        self, topics: str | Mapping[str, Offsets], *, after: Offsets | None = None, seconds: float | None = None
    ) -> bool:
        """Sleep until a partition has rows at or behind the given offsets. Woken by the writer; False on time-out."""
        positions = (
            {topics: after if after is not None else self.end_offsets(topics)} if isinstance(topics, str) else topics
        )
        handles = {name: self._handle(name) for name in positions}
        watched = [
            (handles[name].partition(number), offset)
            for name, offsets in positions.items()
            for number, offset in offsets.items()
        ]

        places = [partition.visible()[1:3] for partition, _ in watched]

        def arrived() -> bool:
            if self._checked_commits.pending():
                self._checked_commits.settle()
            if any(handle.deleted for handle in handles.values()):
                return True
            tails = [partition.visible() for partition, _ in watched]
            # A punctuation takes no offset: it shows by the place where the partition ends.
            return any(
                tail.offset > offset or tail[1:3] != place
                for tail, (_, offset), place in zip(tails, watched, places, strict=True)
            )

        return wait_for(arrived, [handle.state.path for handle in handles.values()], seconds=seconds)

    # -- producers and consumers --------------------------------------------------------------------------------------

    def producer(
        self,
        topic: str | None = None,
        *,
        name: str | None = None,
        linger_seconds: float | None = None,
        batch_rows_max: int | None = None,
        batch_bytes_max: int | None = None,
        limit: Limit | None = None,
        overload: Overload = "block",
        wait_seconds_max: float | None = None,
        buffer_bytes_max: int = 64 * MIB,
        on_drop: Callable[[str, Rows], None] | None = None,
    ) -> Producer:
        """Send rows in the background, in batches; with a name, none is ever doubled."""
        from headwater.log.producer import Producer

        self._check_open()
        if self.read_only:
            raise ReadOnly(path=str(self.path))
        producer = Producer(
            self,
            topic,
            name=name,
            linger_seconds=linger_seconds,
            batch_rows_max=batch_rows_max,
            batch_bytes_max=batch_bytes_max,
            limit=limit,
            overload=overload,
            wait_seconds_max=wait_seconds_max,
            buffer_bytes_max=buffer_bytes_max,
            on_drop=on_drop,
        )
        self._producers.add(producer)
        return producer

    def consumer(
        self,
        topics: str | Sequence[str],
        group: str | None = None,
        *,
        member: str | None = None,
        start: Start = "earliest",
        columns: Sequence[str] | None = None,
        auto_commit: bool = True,
        auto_commit_seconds: float = 0.0,
        rows_max: int | None = None,
        session_seconds_max: float | None = None,
        heartbeat_seconds: float | None = None,
        heartbeat_in_background: bool = True,
        poll_seconds_max: float = 300.0,
        on_expired: OnExpired = "fail",
        on_revoke: Callable[[list[Place]], None] | None = None,
    ) -> Consumer:
        """Read topics, by name or by pattern, as they grow; in a group, members share the partitions."""
        from headwater.log.consumer import Consumer

        self._check_open()
        consumer = Consumer(
            self,
            topics,
            group,
            member=member,
            start=start,
            columns=columns,
            auto_commit=auto_commit,
            auto_commit_seconds=auto_commit_seconds,
            rows_max=rows_max,
            session_seconds_max=session_seconds_max,
            heartbeat_seconds=heartbeat_seconds,
            heartbeat_in_background=heartbeat_in_background,
            poll_seconds_max=poll_seconds_max,
            on_expired=on_expired,
            on_revoke=on_revoke,
        )
        self._consumers.add(consumer)
        return consumer

    @property
    def groups(self) -> Groups:
        """The consumer groups of this log: who reads what, and how far behind."""
        from headwater.log.groups import Groups

        self._check_open()
        return Groups(self)

    def cursor(
        self, topic: str, partition: int, offset: int, *, columns: Sequence[str] | None = None
    ) -> EmbeddedCursor:
        """A place in one partition from which to read on, again and again."""
        handle = self._handle(topic)
        names = None if columns is None else tuple(columns)
        return EmbeddedCursor(handle, handle.partition(partition), offset, columns=names)

    def expiry(self, topic: str, partition: int, offset: int) -> Expiry:
        """When retention will delete the segment that holds an offset."""
        handle = self._handle(topic)
        return expiry_of(handle, handle.partition(partition), offset, clock=self.clock)

    def watch(self) -> Watch:
        """A sleeper that files of this log can wake."""
        return Watch()

    def settle(self) -> None:
        """Finish the commit of a process that died in the middle of it, if there is one."""
        if self._checked_commits.pending():
            self._checked_commits.settle()

    # -- offsets of groups --------------------------------------------------------------------------------------------

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        """Record how far a group has come; the newest commit counts."""
        check_name("group", group)
        self._handle(topic)
        self._offsets.commit(self._offset_rows(group, topic, offsets, metadata))

    def committed(self, group: str, topic: str) -> Offsets:
        """How far a group has come, for the partitions in which it ever committed."""
        return self._offsets.committed(group, topic)

    def committed_groups(self) -> dict[str, set[str]]:
        """All groups that ever committed, with their topics."""
        return self._offsets.groups()

    def forget_offsets(self, group: str, topic: str | None = None) -> None:
        """Remove a group's commits, as tombstones in the same log."""
        self._offsets.forget(group, topic)

    # -- upkeep -------------------------------------------------------------------------------------------------------

    def tidy(self, topic: str | None = None, *, compact: bool = True, seal: bool = False) -> tidy.TidyReport:
        """Do now what otherwise happens behind appends: retention, coalescing and compaction.

        With `seal` the segment being written is closed first, so that its rows take part too.
        """
        self._check_open()
        if self.read_only:
            raise ReadOnly(path=str(self.path))
        names = self.topics(internal=True) if topic is None else [topic]
        report = tidy.TidyReport()
        for name in names:
            for partition in self._handle(name).partitions():
                report += tidy.tidy_partition(
                    self._handle(name), partition, clock=self.clock, compact=compact, seal=seal
                )
        return report

    def close(self) -> None:
        """Let go of all files. Rows are safe without it; it only ends background work."""
        if self._closed:
            return
        for consumer in list(self._consumers):
            consumer.close(commit=False)
        for producer in list(self._producers):
            producer.close()
        self._tidier.close()
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        self._catalogue.close()
        if self._commits is not None:
            self._commits.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A log crosses a process border as its address.
        return (_reopen, (str(self.path), self.config, self.read_only))

    # -- behind the public calls --------------------------------------------------------------------------------------

    def handle(self, topic: str) -> TopicHandle:
        """The open topic, for the parts of the embedded log that work on files."""
        return self._handle(topic)

    def catalogue(self) -> Catalogue:
        return self._catalogue

    def create_internal(self, topic: Topic) -> None:
        """Make one of our own topics, whose names begin with two underscores."""
        try:
            self._catalogue.create(topic)
        except TopicExists:
            return

    @property
    def _checked_commits(self) -> Commits:
        self._check_open()
        if self._commits is None:
            raise Closed(what="log")
        return self._commits

    def _handle(self, topic: str) -> TopicHandle:
        self._check_open()
        return self._catalogue.get(topic)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(what="log")
        if self._stale:
            self._start()

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnly(path=str(self.path))

    def _is_committed(self, number: int) -> bool:
        return self._commits is not None and self._commits.is_committed(number)

    def _every_partition(self) -> list[Partition]:
        return [partition for name in self.topics(internal=True) for partition in self._handle(name).partitions()]

    def _existing(self, wanted: Topic, exist_ok: bool) -> Topic:
        found = self._handle(wanted.name).current()
        if not exist_ok:
            raise TopicExists(topic=wanted.name, why="made earlier")
        if not found.schema.equals(wanted.schema) or found.key != wanted.key or found.partitions != wanted.partitions:
            raise TopicExists(topic=wanted.name, why="with another schema, key or number of partitions")
        return found

    def _draft_by_name(
        self, topic: str, rows: Rows, *, partition: int | None = None, headers: Any = None
    ) -> dict[int, list[Draft]]:
        if topic == OFFSETS_TOPIC:
            self._offsets.make()
        return self._draft(self._handle(topic), rows, partition=partition, headers=headers)

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
        if len(places) == 1:
            results = [places[0][0].append(places[0][1], identity=identity, condition=condition)]
        else:
            results = append_together(places, identity)
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

    def _snapshot(self, handle: TopicHandle, numbers: Sequence[int] | range) -> Offsets:
        commits = self._checked_commits
        if len(numbers) == 1:
            found = {number: handle.partition(number).visible().offset for number in numbers}
            if not commits.pending() or self.read_only:
                return found
        return commits.snapshot(lambda: {number: handle.partition(number).visible().offset for number in numbers})

    def _resolve(
        self, handle: TopicHandle, position: Start, numbers: Sequence[int], ends: Offsets, *, archived: bool
    ) -> Offsets:
        if position == "latest":
            return ends
        if position == "earliest":
            return {number: self._oldest(handle, number, archived) for number in numbers}
        if isinstance(position, Mapping):
            return {number: position.get(number, self._oldest(handle, number, archived)) for number in numbers}
        if isinstance(position, datetime):
            time_us = _micros(position)
            return {number: offset_at(handle.partition(number), time_us, handle.schema_of) for number in numbers}
        if isinstance(position, (int, np.integer)) and not isinstance(position, bool):
            if position >= 0:
                return dict.fromkeys(numbers, int(position))
            oldest = {number: self._oldest(handle, number, archived) for number in numbers}
            return {number: max(oldest[number], ends[number] + int(position)) for number in numbers}
        raise ArgumentInvalid(
            name="start",
            value=position,
            expected="'earliest', 'latest', an offset, minus so many rows, a time or {partition: offset}",
        )

    @staticmethod
    def _oldest(handle: TopicHandle, number: int, archived: bool) -> int:
        if archived:
            from headwater.log.embedded.segment import list_segments

            # Segments that retention has marked, but whose process died before it archived them, are read where they are.
            chain = list_segments(handle.archive(number))[0] or handle.partition(number).segments()
            if chain:
                return chain[0].base
        return handle.partition(number).start()

    def _offset_rows(self, group: str, topic: str, offsets: Offsets, metadata: str) -> list[dict[str, Any]]:
        at = datetime.fromtimestamp(self.clock.now_us() / 1e6, tz=UTC)
        return [
            {"group": group, "topic": topic, "partition": partition, "offset": offset, "metadata": metadata, "at": at}
            for partition, offset in offsets.items()
        ]

    def _make_or_check(self, create: bool) -> str:
        mark = self.path / "headwater.json"
        if not mark.exists():
            if self.read_only or not create or (self.path.exists() and not self.path.is_dir()):
                raise LogNotFound(path=str(self.path))
            try:
                for name in ("topics", "groups", "producers", "transactions"):
                    (self.path / name).mkdir(parents=True, exist_ok=True)
                body = {"format": FORMAT, "id": uuid.uuid4().hex, "created_us": self.clock.now_us()}
                replace_file(mark, orjson.dumps(body, option=orjson.OPT_INDENT_2), durable=True)
            except PermissionError as error:
                raise ReadOnly(path=str(self.path)) from error
        body = orjson.loads(mark.read_bytes())
        if body.get("format") != FORMAT:
            raise FormatUnknown(path=str(mark), found=str(body.get("format")), known=f"format {FORMAT}")
        if not self.read_only and not os.access(self.path / "topics", os.W_OK):
            raise ReadOnly(path=str(self.path))
        return str(body["id"])

    def _after_fork(self) -> None:
        # The child shares the parent's open files, and so its locks, which would outlive the parent: let go of them,
        # and open everything anew when the child first uses this log, if it ever does.
        if not self._closed:
            self._catalogue.abandon()
            if self._commits is not None:
                self._commits.abandon()
            self._stale = True


def _reopen(path: str, config: Config, read_only: bool) -> EmbeddedLog:
    return EmbeddedLog(path, config=config, read_only=read_only)


def _info(partition: Partition) -> PartitionInfo:
    visible = partition.visible()
    sizes = []
    for segment in partition.segments():
        with contextlib.suppress(FileNotFoundError):  # removed or written anew while we looked
            sizes.append(segment.path.stat().st_size)
    return PartitionInfo(
        partition=partition.number,
        offset_start=partition.start(),
        offset_next=visible.offset,
        bytes=sum(sizes),
        segments=len(sizes),
        appended_at_us=visible.appended_at_us or None,
    )


def _micros(time: datetime | int) -> int:
    if isinstance(time, datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1_000_000)
    return int(time)


def _forget_inherited_files() -> None:
    for log in list(_open_logs):
        log._after_fork()


os.register_at_fork(after_in_child=_forget_inherited_files)
