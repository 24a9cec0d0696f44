"""The `Log` port: the protocol of every kind of log, and its values.

One contract test suite runs against every adapter (`tests/log/contract`).
Offsets count rows of a partition from 0 and are never used twice; `*_next` is the first one not yet used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    NewType,
    Protocol,
    Self,
    Unpack,
    runtime_checkable,
)

import pyarrow as pa

from headwater.clock import Clock
from headwater.config import Config
from headwater.log.client_config import (
    ConsumerSettings,
    ProducerSettings,
    Rows,
    Start,
)
from headwater.log.topic import Topic, TopicChanges, TopicSettings

if TYPE_CHECKING:
    from headwater.log.clients.consumer import Consumer
    from headwater.log.clients.groups import Groups, Membership, Watch
    from headwater.log.clients.producer import Producer

Offsets = dict[int, int]
"""Partition number → offset."""

#: What a task has staged, as text that the log wrote: small, so that a task can send it to the process that commits.
Staged = NewType("Staged", str)

#: The topic with the committed offsets of all groups.
OFFSETS_TOPIC = "__offsets"
SYSTEM_COLUMNS = ("_partition", "_offset", "_appended_at", "_sent_at", "_headers")


class Place(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, kw_only=True)
class Appended:
    """The offsets of appended rows.

    >>> Appended(topic="orders", ranges={0: (3, 5)}).count
    2
    """

    topic: str
    ranges: dict[int, tuple[int, int]]
    duplicate: bool = False
    #: How many rows there are, on a log where other offsets may lie between theirs.
    rows: int | None = None

    @property
    def count(self) -> int:
        return self.rows if self.rows is not None else sum(stop - start for start, stop in self.ranges.values())

    @property
    def offsets_next(self) -> Offsets:
        """The offsets behind these rows, for readers of their own writes."""
        return {partition: stop for partition, (_, stop) in self.ranges.items()}


class EventTimes(NamedTuple):
    """What a range of offsets says of event time: the latest time of its rows, and the latest punctuation up to its end."""

    latest_us: int | None
    promised_us: int | None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of one partition in offset order, or a punctuation: "no row earlier than `punctuation_us` follows"."""

    topic: str
    partition: int
    offset: int
    offset_next: int
    data: pa.RecordBatch
    punctuation_us: int | None = None
    producer: int = 0

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.data.to_pylist(maps_as_pydicts="strict")
        return rows


@dataclass(frozen=True, kw_only=True)
class PartitionInfo:
    """The offsets and size of a partition."""

    partition: int
    offset_start: int
    offset_next: int
    bytes: int
    segments: int
    appended_at_us: int | None
    #: The number of offsets, unless the log counts its rows; after compaction there may be fewer rows.
    rows: int


@dataclass(frozen=True, kw_only=True)
class Description:
    """A topic with the offsets and sizes of its partitions."""

    topic: Topic
    partitions: list[PartitionInfo]

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for partition in self.partitions)

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions)

    def _repr_html_(self) -> str:
        from headwater.log.cards import description_html

        return description_html(self)


@dataclass(frozen=True, kw_only=True)
class Lag:
    """The lag of a group in one partition; `committed` is None if it has no committed offset."""

    group: str
    topic: str
    partition: int
    committed: int | None
    offset_start: int
    offset_next: int
    #: The number of offsets behind the committed one, unless the log counts its rows.
    rows: int
    seconds: float
    member: str | None = None
    expires_in_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """When retention deletes the segment of an offset."""

    offset_next: int
    oldest: bool
    seconds: float | None
    used: float


class Reader(Protocol):
    """A bounded, lazy read: batches are read on demand, memory-mapped if the codec allows."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """The first offset and the offset behind the last one, by partition."""

    def batches(self) -> Iterator[Batch]:
        """Batches with their offsets, and punctuations."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return (batch.data for batch in self.batches() if batch.punctuation_us is None)

    def table(self) -> pa.Table:
        return pa.Table.from_batches(iter(self), schema=self.schema)

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self for row in batch.to_pylist(maps_as_pydicts="strict")]

    def count(self) -> int:
        return sum(batch.num_rows for batch in self)

    def _repr_html_(self) -> str:
        from headwater.log.cards import reader_html

        return reader_html(self)

    def pandas(self) -> Any:
        return self.table().to_pandas()

    def polars(self) -> Any:
        import polars

        return polars.from_arrow(self.table())


class Cursor(Protocol):
    """A position in one partition that advances with each read."""

    @property
    def offset(self) -> int:
        """The first offset that was not returned yet."""

    @property
    def deleted(self) -> bool:
        """Whether the topic was deleted; a later topic of the same name is another one."""

    def read(self, *, rows_max: int) -> list[Batch]:
        """The next rows, at most `rows_max`, in order with the punctuations; never waits."""


class RowWatch(Protocol):
    """Looks whether rows or punctuations have come behind some positions, for programs that wait in their own way."""

    @property
    def paths(self) -> list[Path]:
        """Files of this machine that change when rows come; if there are none, look again after a time."""

    def arrived(self) -> bool:
        """Whether there are rows behind a position, or punctuations since the watch was made, or a topic was deleted."""


class Transaction(Protocol):
    """Appends to any number of topics that become visible all at once or never."""

    #: "prepared", "committed" or "rolled back"; empty while it is open.
    outcome: str

    @property
    def id(self) -> str: ...
    @property
    def committed(self) -> bool:
        """Whether this transaction, or an earlier one with its producer and sequence, is committed."""

    def append(
        self,
        topic: str,
        rows: Rows,
        *,
        partition: int | None = None,
        headers: Any = None,
        sent_at_us: int | None = None,
    ) -> None:
        """Add rows; they become visible by `commit`. Without `sent_at_us` they are sent now."""

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        """Commit offsets of a group together with the rows, for exactly-once processing."""

    def prepare(self) -> str:
        """Make it durable but not visible, for a later `Log.commit(id)` or `Log.rollback(id)` in any process."""

    def commit(self) -> dict[str, Appended]:
        """Make all rows visible at once; return their offsets by topic."""

    def rollback(self) -> None:
        """Discard the rows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.outcome:
            if error is None:
                self.commit()
            else:
                self.rollback()


class Stage(Protocol):
    """Rows of any topics that one task writes ahead; they become visible by `Log.commit_staged`, in any process."""

    def append(self, topic: str, rows: Rows) -> None:
        """Add rows for a topic."""

    def finish(self) -> Staged:
        """Write the remaining rows, and return what `Log.commit_staged` needs to find all of them."""

    def abandon(self) -> None:
        """Delete the rows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abandon()


@runtime_checkable
class Log(Protocol):
    """A partitioned, append-only log of typed rows."""

    config: Config
    clock: Clock
    address: str
    read_only: bool

    def _repr_html_(self) -> str:
        from headwater.log.cards import log_html

        return log_html(self)

    @property
    def home(self) -> Path:
        """The folder on this machine for files that belong to this log but are not rows of it."""

    @property
    def closed(self) -> bool: ...
    def create(
        self, topic: str, schema: Any = None, *, exist_ok: bool = False, **settings: Unpack[TopicSettings]
    ) -> Topic:
        """Create a topic. Without a schema its rows are `key` and `value`, both bytes."""

    def create_internal(self, topic: Topic) -> None:
        """Create an internal topic, whose name begins with two underscores, unless it exists."""

    def alter(self, topic: str, *, schema: Any = None, force: bool = False, **changes: Unpack[TopicChanges]) -> Topic:
        """Change a topic while it is in use; other processes use the new settings at their next call."""

    def delete(self, topic: str) -> None:
        """Delete a topic and all its rows. Readers keep the segments that they have mapped.

        Internal topics, whose names begin with two underscores, cannot be deleted.
        """

    def topics(self, pattern: str = "*", *, internal: bool = False) -> list[str]:
        """The names of all topics that match a pattern such as `orders.*`."""

    def topic(self, name: str) -> Topic: ...
    def describe(self, topic: str) -> Description:
        """The topic, and the offsets and size of each partition."""

    def schema(self, topic: str, version: int | None = None) -> pa.Schema:
        """The schema of a version; by default the newest."""

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
        """Append rows; on return they are as durable as the topic promises, and visible.

        The rows of one partition are appended atomically; for several partitions use a `transaction`. With
        `durable=False` the call does not wait for the disk: rows of an `fsync` topic become visible with the next
        append that waits, or by `flush`. If the answer of a remote log is lost, the call retries and the rows are
        appended once; if its server was restarted meanwhile, it raises `OutcomeUnknown`, unless a producer and a
        sequence are given.
        """

    def flush(self, topic: str) -> None:
        """Wait until every row written so far is as durable as the topic promises."""

    def punctuate(
        self, topic: str, time: datetime | int, *, producer: str | None = None, partition: int | None = None
    ) -> None:
        """Append a punctuation: no row earlier than `time` follows from this producer. Readers get it in order."""

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
    ) -> Reader:
        """Read the rows from `start` up to `stop` or the current end."""

    def read_range(
        self,
        topic: str,
        partition: int,
        *,
        start: int,
        stop: int,
        columns: Sequence[str] | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        punctuations: tuple[int, int | None] | None = None,
    ) -> Iterator[Batch]:
        """Read the rows of one partition with offsets from `start` up to `stop`, in order.

        With `since_us` and `until_us`, a log that knows the event times of stored batches skips those without a row in
        that range; the others may hold rows outside it.

        With `punctuations`, also return punctuations: skip so many at `start`, and return up to so many at `stop` (None
        for all). They take no offset, so two adjacent ranges have to divide those at their border.
        """

    def punctuations_at(self, topic: str, partition: int, offset: int) -> list[int]:
        """The times of the punctuations between the last row before an offset and the row with that offset, in order."""

    def event_times(
        self, topic: str, partition: int, *, start: int, stop: int, until_us: int | None = None
    ) -> EventTimes:
        """The latest event time of the rows with offsets from `start` up to `stop`, and of the punctuations there.

        A punctuation at `stop` counts; event times after `until_us` do not. A log that knows the event times of stored
        batches answers without reading their rows.
        """

    def tails(self, topic: str) -> dict[int, tuple[int, int]]:
        """The end of each partition as a place that moves with each append, also with that of a punctuation."""

    def start_offsets(self, topic: str) -> Offsets:
        """The oldest offset of each partition."""

    def end_offsets(self, topic: str) -> Offsets:
        """The offset of the next row of each partition; no transaction is counted in part."""

    def offset_step(self, topic: str) -> float:  # noqa: ARG002
        """About how many offsets a row takes, to estimate how many rows a range has: 1, unless offsets have gaps."""
        return 1.0

    def rows_between(self, topic: str, partition: int, start: int, stop: int) -> int:  # noqa: ARG002
        """How many rows have offsets from `start` up to `stop`: their difference, unless the log counts rows."""
        return max(0, stop - start)

    def offset_at(self, topic: str, time: datetime | int) -> Offsets:
        """In each partition, the first offset appended at or after a time (microseconds or a datetime)."""

    def wait(
        self, topics: str | Mapping[str, Offsets], *, after: Offsets | None = None, seconds: float | None = None
    ) -> bool:
        """Wait until a partition has rows at or behind the given offsets; return False on timeout."""

    def row_watch(self, topics: Mapping[str, Offsets]) -> RowWatch:
        """A watch for rows at or behind the given offsets; `wait` uses it, and servers that wait for many clients."""

    def transaction(
        self, producer: str | None = None, *, epoch: int | None = None, sequence: int | None = None
    ) -> Transaction:
        """Append to many topics atomically: `with log.transaction() as t: t.append(...)`.

        With a producer and a sequence it is idempotent: a transaction that was committed before changes nothing. With
        an older epoch it is fenced.
        """

    def prepared(self) -> list[str]:
        """The ids of transactions that are durable but neither committed nor rolled back."""

    def commit(self, transaction: str) -> dict[str, Appended]:
        """Commit a prepared transaction by its id; idempotent."""

    def rollback(self, transaction: str) -> None:
        """Discard a prepared transaction."""

    def stage(self, name: str, *, sequence: int, attempt: str) -> Stage:
        """Write rows ahead that become visible by `commit_staged`, in this or another process.

        `name` is the producer that will commit them, and `attempt` tells tasks and their repetitions apart.

        >>> import tempfile, headwater
        >>> log = headwater.open(tempfile.mkdtemp())
        >>> _ = log.create("greetings", {"text": "string"})
        >>> with log.stage("copy", sequence=0, attempt="a") as stage:
        ...     stage.append("greetings", [{"text": "hello"}])
        ...     staged = stage.finish()
        >>> log.read("greetings").count()
        0
        >>> log.commit_staged([staged], producer="copy", sequence=0)["greetings"].count
        1
        >>> log.commit_staged([staged], producer="copy", sequence=0)["greetings"].duplicate
        True
        """

    # Any: metadata are JSON.
    def commit_staged(
        self,
        staged: Iterable[Staged],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Appended]:
        """Append all staged rows in one transaction, and delete what was staged.

        With a producer and a sequence it is idempotent, and deletes what other attempts have staged under the
        producer's name up to that sequence. `metadata` is stored with the transaction, even if it has no rows.
        """

    def discard_attempts(self, name: str, *, sequence: int, attempt: str) -> None:
        """Delete all rows staged for a sequence by attempts whose names begin with `attempt`."""

    def producer(self, topic: str | None = None, **settings: Unpack[ProducerSettings]) -> Producer:
        """A producer that sends rows in batches in the background; with a name it is idempotent."""

    def consumer(
        self, topics: str | Sequence[str], group: str | None = None, **settings: Unpack[ConsumerSettings]
    ) -> Consumer:
        """A consumer of topics, by name or by pattern; members of a group share the partitions."""

    @property
    def groups(self) -> Groups:
        """The consumer groups of this log: their members and lag."""

    # Any: the layer of queues is behind the log, so it is imported by name when it is used.
    def queue(
        self, name: str, *, group: str = "default", schema: Any = None, create: bool = True, **settings: Any
    ) -> Any:
        """Open a work queue as one of its groups; create it if there is none. See `headwater.queues.Queue`."""
        return import_module("headwater.queues").open_queue(
            self, name, group=group, schema=schema, create=create, **settings
        )

    def exchange(self, name: str) -> Any:
        """An exchange, which routes messages to queues. See `headwater.queues.Exchange`."""
        return import_module("headwater.queues").open_exchange(self, name)

    def worker(
        self, queue: str, *, concurrency: int = 1, retries: Any = None, group: str = "default"
    ) -> Callable[[Callable[..., Any]], Any]:
        """Declare a function as the worker of a queue. See `headwater.queues.Worker`."""
        declare: Callable[[Callable[..., Any]], Any] = import_module("headwater.queues").worker(
            self, queue, concurrency=concurrency, retries=retries, group=group
        )
        return declare

    def cursor(self, topic: str, partition: int, offset: int, *, columns: Sequence[str] | None = None) -> Cursor:
        """A position in one partition that advances with each read."""

    def open_producer(self, name: str, *, holder: str | None = None) -> int:
        """Start a new epoch of an idempotent producer: older epochs are fenced.

        A `holder` (the id of one run of a program) that calls again gets its own epoch, so that its processes share
        one; it is fenced once another holder has called.
        """

    def last_sequence(self, topic: str, producer: str) -> int:
        """The highest sequence that the producer has appended to the topic, -1 for none."""

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        """Commit the offsets of a group."""

    def committed(self, group: str, topic: str) -> Offsets:
        """The committed offsets of a group."""

    def committed_groups(self) -> dict[str, set[str]]:
        """All groups with committed offsets, and their topics."""

    def forget_offsets(self, group: str, topic: str | None = None) -> None:
        """Delete the committed offsets of a group."""

    def committed_sequence(self, producer: str) -> int:
        """The sequence of the last transaction that `producer` committed, -1 for none."""

    def transaction_metadata(self, producer: str) -> dict[str, Any] | None:
        """The metadata of the last transaction that `producer` committed, None for none."""

    def partitions_of(self, topic: str) -> int:
        """The number of partitions of a topic; consumers call it at every poll."""

    def expiry(self, topic: str, partition: int, offset: int) -> Expiry:
        """When retention will delete the segment that holds an offset."""

    def resolve_transactions(self) -> None:
        """Finish the commit of a process that died during it, if there is one."""

    def recover(self, topic: str, *, appends: bool = True) -> None:
        """Return when what a process that died has written to a topic can be read, or never will be.

        For a caller that has got a lock of such a process: its other locks, and with them a commit or an append, may still
        be held for a moment. Without `appends` only transactions count, and it costs next to nothing if none is under way.
        """

    def watch(self) -> Watch:
        """A watch for a consumer's waits."""

    def membership(
        self,
        group: str,
        *,
        member: str | None,
        topics: tuple[str, ...],
        partitions: Callable[[bool], dict[str, int]],
        start: Start,
        session_seconds_max: float,
        heartbeat_seconds: float,
    ) -> Membership:
        """The membership of a consumer in its group, not joined yet."""

    def close(self) -> None:
        """Close all files and connections, and end background work. Rows that were appended are safe without it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
