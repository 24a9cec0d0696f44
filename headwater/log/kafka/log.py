"""A log on Apache Kafka: the same port, on topics of its brokers. Open it with `headwater.open("kafka://host:9092")`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa

from headwater.clock import Clock, SystemClock
from headwater.config import Config
from headwater.errors import Closed
from headwater.home import home_of
from headwater.log.client_config import ConsumerSettings, ProducerSettings, Rows, Start
from headwater.log.clients import ClientSet, Consumer, Producer
from headwater.log.decoder import Projection
from headwater.log.errors import ReadOnly
from headwater.log.kafka.address import Address
from headwater.log.kafka.catalogue import OWN, Catalogue, KafkaTopic
from headwater.log.kafka.cluster import NEWEST, Cluster
from headwater.log.kafka.errors import CapabilityMissing
from headwater.log.kafka.event_times import event_times
from headwater.log.kafka.fence import Transactor
from headwater.log.kafka.groups import GroupOffsets, KafkaGroups, KafkaMembership, KafkaWatch
from headwater.log.kafka.reader import (
    KafkaCursor,
    KafkaRead,
    KafkaRowWatch,
    TopicReader,
    check_partition,
    check_range,
)
from headwater.log.kafka.records import Records
from headwater.log.kafka.stage import KafkaStage, Staging
from headwater.log.kafka.transactions import KafkaTransaction, Transactions
from headwater.log.kafka.writer import Writer
from headwater.log.port import (
    Appended,
    Batch,
    Description,
    EventTimes,
    Expiry,
    Log,
    Offsets,
    PartitionInfo,
    Staged,
)
from headwater.log.topic import Topic, TopicChanges, TopicSettings
from headwater.log.topic_rules import check_name

#: A wait asks the brokers again after this time at most.
WAIT_SECONDS_MAX = 1.0
STAGED_DAYS, PREPARED_DAYS = 1, 14


class KafkaLog(Log):
    """A log on Kafka. Its topics are Kafka's; what Kafka has no place for is in internal topics."""

    def __init__(
        self,
        address: str,
        *,
        config: Config | None = None,
        clock: Clock | None = None,
        read_only: bool = False,
    ) -> None:
        self.config = config or Config.load()
        self.clock = clock or SystemClock()
        where = Address.parse(address)
        self.address = str(where)
        self.read_only = read_only
        copies = self.config.kafka_replication
        self._cluster = cluster = Cluster(where, self.config)
        self._transactor = Transactor(cluster)
        records = Records(cluster, self._transactor, OWN, replication=copies)
        self._catalogue = Catalogue(cluster, records, config=self.config, clock=self.clock)
        self._writer = Writer(cluster, self._catalogue, config=self.config, clock=self.clock)
        self._reader = TopicReader(cluster, self._catalogue)
        self._offsets = GroupOffsets(cluster, self._catalogue)

        def staging(topic: str, days: int) -> Staging:
            return Staging(cluster, self._catalogue, self._writer, topic=topic, days=days, replication=copies)

        self._transactions = Transactions(
            cluster,
            self._catalogue,
            self._writer,
            self._transactor,
            records,
            staged=staging(f"{OWN}_staged", STAGED_DAYS),
            prepared=staging(f"{OWN}_prepared", PREPARED_DAYS),
        )
        self._clients = ClientSet()

    def __repr__(self) -> str:
        return f"Log({self.address!r})"

    @property
    def home(self) -> Path:
        return home_of(self.address)

    # -- topics -------------------------------------------------------------------------------------------------------

    def create(
        self, topic: str, schema: Any = None, *, exist_ok: bool = False, **settings: Unpack[TopicSettings]
    ) -> Topic:
        self._check_writable()
        return self._catalogue.declare(topic, schema, exist_ok=exist_ok, settings=settings)

    def create_internal(self, topic: Topic) -> None:
        self._check_writable()
        self._catalogue.ensure(topic)

    def alter(self, topic: str, *, schema: Any = None, force: bool = False, **changes: Unpack[TopicChanges]) -> Topic:
        self._check_writable()
        return self._catalogue.alter(topic, schema=schema, force=force, changes=changes)

    def delete(self, topic: str) -> None:
        self._check_writable()
        self._catalogue.delete(topic)

    def topics(self, pattern: str = "*", *, internal: bool = False) -> list[str]:
        self._check_open()
        return self._catalogue.names(pattern, internal=internal)

    def topic(self, name: str) -> Topic:
        return self._get(name).topic

    def partitions_of(self, topic: str) -> int:
        return self._get(topic, fresh=False).topic.partitions

    def schema(self, topic: str, version: int | None = None) -> pa.Schema:
        known = self._get(topic)
        return known.topic.schema if version is None else known.schema_of(version)

    def describe(self, topic: str) -> Description:
        """The topic and its offsets. Kafka's clients are not told sizes: bytes and segments are 0."""
        known = self._get(topic)
        starts, ends = self._reader.starts(known), self._reader.ends(known)
        newest = self._cluster.offsets(known.kafka, ends, NEWEST)
        return Description(
            topic=known.topic,
            partitions=[
                PartitionInfo(
                    partition=number,
                    offset_start=starts[number],
                    offset_next=end,
                    bytes=0,
                    segments=0,
                    appended_at_us=newest[number][1] * 1000 if newest[number][1] >= 0 else None,
                    rows=self._reader.rows_between(known, number, starts[number], end),
                )
                for number, end in sorted(ends.items())
            ],
        )

    # -- writing ------------------------------------------------------------------------------------------------------

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
        durable: bool = True,  # noqa: ARG002  # an append always waits for the brokers
    ) -> Appended:
        """See `Log.append`. Rows of a call become visible one by one; for all or none use a `transaction`."""
        self._check_writable()
        if expected_offset is not None or expected_key_offset is not None:
            raise CapabilityMissing(
                capability="conditional append",
                why="brokers do not compare an offset before they append",
                instead="Commit under a producer's name, which fences others, or keep such topics in a log in a folder",
            )
        encoded = self._writer.encode(
            topic, rows, partition=partition, headers=headers, sent_at_us=sent_at_us, sequence=sequence
        )
        if producer is not None and (sequence is not None or epoch is not None):
            return self._transactions.append(encoded, producer, sequence=sequence, epoch=epoch)
        return self._writer.append(encoded)

    def flush(self, topic: str) -> None:
        """Do nothing: an append returns when the brokers have acknowledged its rows."""
        self._get(topic, fresh=False)

    def punctuate(
        self,
        topic: str,
        time: datetime | int,
        *,
        producer: str | None = None,  # noqa: ARG002  # readers take the punctuations of a partition together
        partition: int | None = None,
    ) -> None:
        self._check_writable()
        self._writer.punctuate(topic, time, partition=partition)

    def open_producer(self, name: str, *, holder: str | None = None) -> int:
        self._check_writable()
        return self._transactions.open_producer(name, holder=holder)

    def last_sequence(self, topic: str, producer: str) -> int:
        return self._transactions.last_sequence(producer, self._get(topic, fresh=False).kafka)

    # -- transactions -------------------------------------------------------------------------------------------------

    def transaction(
        self, producer: str | None = None, *, epoch: int | None = None, sequence: int | None = None
    ) -> KafkaTransaction:
        self._check_writable()
        return self._transactions.begin(producer, epoch=epoch, sequence=sequence)

    def prepared(self) -> list[str]:
        self._check_open()
        return self._transactions.prepared()

    def commit(self, transaction: str) -> dict[str, Appended]:
        self._check_writable()
        return self._transactions.commit_prepared(transaction)

    def rollback(self, transaction: str) -> None:
        self._check_writable()
        self._transactions.rollback_prepared(transaction)

    def committed_sequence(self, producer: str) -> int:
        self._check_open()
        return self._transactions.last_sequence(producer)

    def transaction_metadata(self, producer: str) -> dict[str, Any] | None:
        self._check_open()
        return self._transactions.last_metadata(producer)

    def stage(self, name: str, *, sequence: int, attempt: str) -> KafkaStage:
        self._check_writable()
        check_name("producer", name)
        check_name("attempt", attempt)
        return self._transactions.staged.open(name, sequence=sequence, attempt=attempt)

    def commit_staged(
        self,
        staged: Iterable[Staged],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Appended]:
        self._check_writable()
        return self._transactions.commit_staged(
            staged, producer=producer, sequence=sequence, epoch=epoch, metadata=metadata
        )

    def discard_attempts(self, name: str, *, sequence: int, attempt: str) -> None:
        self._check_writable()
        self._transactions.discard_attempts(name, sequence=sequence, attempt=attempt)

    def resolve_transactions(self) -> None:
        """Nothing to do: the brokers end the transaction of a process that died."""

    def recover(self, topic: str, *, appends: bool = True) -> None:
        """Nothing to do: the brokers know what is written."""

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
    ) -> KafkaRead:
        if archived:
            raise CapabilityMissing(
                capability="archive", why="brokers delete what retention ends", instead="Read without `archived`"
            )
        return self._reader.read(
            self._get(topic), start=start, stop=stop, partitions=partitions, columns=columns, limit=limit
        )

    def read_range(
        self,
        topic: str,
        partition: int,
        *,
        start: int,
        stop: int,
        columns: Sequence[str] | None = None,
        since_us: int | None = None,  # noqa: ARG002  # brokers do not know event times
        until_us: int | None = None,  # noqa: ARG002
        punctuations: tuple[int, int | None] | None = None,
    ) -> Iterator[Batch]:
        """See `Log.read_range`. A punctuation has an offset of its own: it is in the range that its offset is in."""
        known = self._get(topic, fresh=False)
        check_partition(known, partition)
        end = self._reader.ends(known)[partition]
        check_range(topic, partition, start, self._reader.starts(known)[partition], end)
        projection = Projection.of(known.topic, columns)
        for batch in self._reader.batches(known, partition, start, min(stop, end), projection):
            if batch.punctuation_us is None or punctuations is not None:
                yield batch

    def punctuations_at(self, topic: str, partition: int, offset: int) -> list[int]:  # noqa: ARG002
        """None: a punctuation has an offset of its own, so that no two share one with a row."""
        check_partition(self._get(topic, fresh=False), partition)
        return []

    def event_times(
        self, topic: str, partition: int, *, start: int, stop: int, until_us: int | None = None
    ) -> EventTimes:
        """See `Log.event_times`. Brokers do not know event times: frames tell theirs, and other rows are read.

        Of many messages only the last ones are looked at, so that no batch is read twice. The answer may then be earlier
        than the latest time, never later: a watermark that follows from it holds back more, and loses nothing.
        """
        known = self._get(topic, fresh=False)
        check_partition(known, partition)
        return event_times(self._reader, known, partition, start, stop, until_us=until_us)

    def tails(self, topic: str) -> dict[int, tuple[int, int]]:
        return {number: (0, end) for number, end in self.end_offsets(topic).items()}

    def start_offsets(self, topic: str) -> Offsets:
        return self._reader.starts(self._get(topic, fresh=False))

    def end_offsets(self, topic: str) -> Offsets:
        return self._reader.ends(self._get(topic, fresh=False))

    def offset_at(self, topic: str, time: datetime | int) -> Offsets:
        """See `Log.offset_at`. Kafka keeps the times of appends in milliseconds."""
        return self._reader.offset_at(self._get(topic, fresh=False), time)

    def offset_step(self, topic: str) -> float:
        return self._reader.offset_step(self._get(topic, fresh=False))

    def rows_between(self, topic: str, partition: int, start: int, stop: int) -> int:
        known = self._get(topic, fresh=False)
        check_partition(known, partition)
        return self._reader.rows_between(known, partition, start, stop)

    def wait(
        self, topics: str | Mapping[str, Offsets], *, after: Offsets | None = None, seconds: float | None = None
    ) -> bool:
        positions: Mapping[str, Offsets]
        if isinstance(topics, str):
            positions = {topics: self.end_offsets(topics) if after is None else after}
        else:
            positions = topics
        watch = self.row_watch(positions)
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = WAIT_SECONDS_MAX if deadline is None else max(0.0, deadline - time.monotonic())
            if left == 0:
                return watch.arrived()
            if watch.wait(min(left, WAIT_SECONDS_MAX), lambda: self.closed):
                return True
            self._check_open()

    def row_watch(self, topics: Mapping[str, Offsets]) -> KafkaRowWatch:
        self._check_open()
        return KafkaRowWatch(self._reader, topics)

    def cursor(self, topic: str, partition: int, offset: int, *, columns: Sequence[str] | None = None) -> KafkaCursor:
        return KafkaCursor(self._reader, self._get(topic, fresh=False), partition, offset, columns)

    def expiry(self, topic: str, partition: int, offset: int) -> Expiry:
        """Not known: brokers do not tell where their segments begin."""
        check_partition(self._get(topic, fresh=False), partition)
        return Expiry(offset_next=offset, oldest=False, seconds=None, used=0.0)

    # -- clients and groups -------------------------------------------------------------------------------------------

    def producer(self, topic: str | None = None, **settings: Unpack[ProducerSettings]) -> Producer:
        self._check_writable()
        return self._clients.producer(self, topic, settings)

    def consumer(
        self, topics: str | Sequence[str], group: str | None = None, **settings: Unpack[ConsumerSettings]
    ) -> Consumer:
        self._check_open()
        return self._clients.consumer(self, topics, group, settings)

    def watch(self) -> KafkaWatch:
        return KafkaWatch(self._cluster, self._catalogue)

    def membership(
        self,
        group: str,
        *,
        member: str | None,
        topics: tuple[str, ...],  # noqa: ARG002  # `partitions` has matched them
        partitions: Callable[[bool], dict[str, int]],
        start: Start,  # noqa: ARG002  # the consumer commits where new topics begin
        session_seconds_max: float,
        heartbeat_seconds: float,
    ) -> KafkaMembership:
        return KafkaMembership(
            self._cluster,
            self._catalogue,
            self._offsets,
            group,
            member=member,
            partitions=partitions,
            session_seconds_max=session_seconds_max,
            heartbeat_seconds=heartbeat_seconds,
        )

    @property
    def groups(self) -> KafkaGroups:
        self._check_open()
        return KafkaGroups(self, self._offsets, self._cluster)

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        self._check_writable()
        self._offsets.commit(group, topic, offsets, metadata)

    def committed(self, group: str, topic: str) -> Offsets:
        self._check_open()
        return self._offsets.committed(group, topic)

    def committed_groups(self) -> dict[str, set[str]]:
        self._check_open()
        return self._offsets.groups()

    def forget_offsets(self, group: str, topic: str | None = None) -> None:
        self._check_writable()
        self._offsets.forget(group, topic)

    # -- close --------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._cluster.closed

    def close(self) -> None:
        if self.closed:
            return
        self._clients.close()
        self._transactor.close()
        self._cluster.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A log is pickled as its address.
        return (_reopen, (self.address, self.config, self.read_only))

    def _get(self, topic: str, *, fresh: bool = True) -> KafkaTopic:
        self._check_open()
        return self._catalogue.get(topic, fresh=fresh)

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(what="log")

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnly(path=self.address)


def _reopen(address: str, config: Config, read_only: bool) -> KafkaLog:
    return KafkaLog(address, config=config, read_only=read_only)
