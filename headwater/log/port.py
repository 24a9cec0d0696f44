"""The `Log` port: what every kind of log can do, and the values that cross it.

One contract test suite runs against every adapter (`tests/log/contract`).
Offsets count rows of a partition from 0 and are never used twice; `*_next` is the first one not yet used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

import pyarrow as pa

if TYPE_CHECKING:
    from headwater.log.assignment import Place
    from headwater.log.consumer import Consumer
    from headwater.log.groups import Groups
    from headwater.log.limits import Limit
    from headwater.log.producer import Producer

Durability = Literal["fsync", "os", "memory"]
Codec = Literal["none", "lz4", "zstd"]
Start = Literal["earliest", "latest"] | int | datetime | Mapping[int, int]
Offsets = dict[int, int]
"""Partition number → offset."""

#: Anything that can be turned into rows: mappings, dataclasses, a pandas or polars frame, an Arrow table or batch.
Rows = Any

SYSTEM_COLUMNS = ("_partition", "_offset", "_appended_at", "_sent_at", "_headers")


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How much of a topic is kept: whatever is older, or beyond so many bytes per partition, goes."""

    seconds_max: float | None = None
    bytes_max: int | None = None


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic as it is declared: what its rows are and how they are kept."""

    name: str
    id: str
    schema: pa.Schema
    schema_version: int = 1
    schemaless: bool = False
    partitions: int = 1
    key: tuple[str, ...] = ()
    time: str | None = None
    retention: Retention = field(default_factory=Retention)
    compact: bool = False
    tombstone_seconds_max: float = 86_400.0
    durability: Durability = "fsync"
    codec: Codec = "none"
    segment_bytes_max: int = 64 * 1024 * 1024
    segment_seconds_max: float = 7 * 86_400.0
    archive: bool = False
    created_us: int = 0

    def _repr_html_(self) -> str:
        from headwater.log.showing import topic_html

        return topic_html(self)


@dataclass(frozen=True, kw_only=True)
class Appended:
    """Where an append put its rows.

    >>> Appended(topic="orders", ranges={0: (3, 5)}).count
    2
    """

    topic: str
    ranges: dict[int, tuple[int, int]]
    duplicate: bool = False

    @property
    def count(self) -> int:
        return sum(stop - start for start, stop in self.ranges.values())

    @property
    def offsets_next(self) -> Offsets:
        """The position just after these rows, for readers that want to see their own write."""
        return {partition: stop for partition, (_, stop) in self.ranges.items()}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of one partition in offset order, or a punctuation: "nothing earlier than `punctuation_us` follows"."""

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
    """What a partition holds now."""

    partition: int
    offset_start: int
    offset_next: int
    bytes: int
    segments: int
    appended_at_us: int | None

    @property
    def rows(self) -> int:
        """Offsets between the two ends; compaction may have left fewer rows."""
        return self.offset_next - self.offset_start


@dataclass(frozen=True, kw_only=True)
class Description:
    """A topic with what each of its partitions holds."""

    topic: Topic
    partitions: list[PartitionInfo]

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for partition in self.partitions)

    @property
    def rows(self) -> int:
        return sum(partition.rows for partition in self.partitions)

    def _repr_html_(self) -> str:
        from headwater.log.showing import description_html

        return description_html(self)


@dataclass(frozen=True, kw_only=True)
class Lag:
    """How far a group is behind in one partition; `committed` is None where it never committed."""

    group: str
    topic: str
    partition: int
    committed: int | None
    offset_start: int
    offset_next: int
    seconds: float
    member: str | None = None
    expires_in_seconds: float | None = None

    @property
    def rows(self) -> int:
        return self.offset_next - max(self.committed or 0, self.offset_start)


class Reader(Protocol):
    """A bounded, lazy read: batches come as they are asked for, memory-mapped where the codec allows."""

    @property
    def schema(self) -> pa.Schema: ...
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...
    def batches(self) -> Iterator[Batch]: ...
    def table(self) -> pa.Table: ...
    def rows(self) -> list[dict[str, Any]]: ...
    def count(self) -> int: ...
    def pandas(self) -> Any: ...
    def polars(self) -> Any: ...


class Cursor(Protocol):
    """A place in one partition from which a consumer reads on."""

    @property
    def offset(self) -> int: ...
    @property
    def deleted(self) -> bool: ...
    def read(self, *, rows_max: int) -> list[Batch]: ...


class Transaction(Protocol):
    """Appends to any number of topics that readers see all at once or never."""

    @property
    def id(self) -> str: ...
    @property
    def committed(self) -> bool: ...
    def append(self, topic: str, rows: Rows, *, partition: int | None = None, headers: Any = None) -> None: ...
    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None: ...
    def prepare(self) -> str: ...
    def commit(self) -> dict[str, Appended]: ...
    def rollback(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class Log(Protocol):
    """A partitioned, append-only log of typed rows."""

    def create(
        self,
        topic: str,
        schema: Any = None,
        *,
        partitions: int = 1,
        key: str | Sequence[str] | None = None,
        time: str | None = None,
        retention: Retention | timedelta | str | None = None,
        compact: bool = False,
        durability: Durability = "fsync",
        codec: Codec = "none",
        segment_bytes_max: int | str | None = None,
        segment_seconds_max: float | str | None = None,
        tombstone_seconds_max: float | str | None = None,
        archive: bool = False,
        exist_ok: bool = False,
    ) -> Topic: ...
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
    ) -> Topic: ...
    def delete(self, topic: str) -> None: ...
    def topics(self, pattern: str = "*", *, internal: bool = False) -> list[str]: ...
    def topic(self, name: str) -> Topic: ...
    def describe(self, topic: str) -> Description: ...
    def schema(self, topic: str, version: int | None = None) -> pa.Schema: ...
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
    ) -> Appended: ...
    def flush(self, topic: str) -> None: ...
    def punctuate(
        self, topic: str, time: datetime | int, *, producer: str | None = None, partition: int | None = None
    ) -> None: ...
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
    ) -> Reader: ...
    def start_offsets(self, topic: str) -> Offsets: ...
    def end_offsets(self, topic: str) -> Offsets: ...
    def offset_at(self, topic: str, time: datetime | int) -> Offsets: ...
    def wait(
        self, topics: str | Mapping[str, Offsets], *, after: Offsets | None = None, seconds: float | None = None
    ) -> bool: ...
    def transaction(
        self, producer: str | None = None, *, epoch: int | None = None, sequence: int | None = None
    ) -> Transaction: ...
    def prepared(self) -> list[str]: ...
    def commit(self, transaction: str) -> dict[str, Appended]: ...
    def rollback(self, transaction: str) -> None: ...
    def producer(
        self,
        topic: str | None = None,
        *,
        name: str | None = None,
        linger_seconds: float | None = None,
        batch_rows_max: int | None = None,
        batch_bytes_max: int | None = None,
        limit: Limit | None = None,
        overload: Literal["block", "buffer", "drop"] = "block",
        wait_seconds_max: float | None = None,
        buffer_bytes_max: int = ...,
        on_drop: Callable[[str, Rows], None] | None = None,
    ) -> Producer: ...
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
        on_expired: Literal["fail", "skip"] = "fail",
        on_revoke: Callable[[list[Place]], None] | None = None,
    ) -> Consumer: ...
    @property
    def groups(self) -> Groups: ...
    def cursor(self, topic: str, partition: int, offset: int, *, columns: Sequence[str] | None = None) -> Cursor: ...
    def open_producer(self, name: str) -> int: ...
    def last_sequence(self, topic: str, producer: str) -> int: ...
    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None: ...
    def committed(self, group: str, topic: str) -> Offsets: ...
    def close(self) -> None: ...
