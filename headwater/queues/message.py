"""Messages: what is put, how it is stored as a row of the queue's topic, and what a worker takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pyarrow as pa

from headwater.clock import time_us
from headwater.errors import ArgumentInvalid
from headwater.queues.config import QueueConfig, seconds_us
from headwater.schema import parse_schema
from headwater.units import Duration

if TYPE_CHECKING:
    from headwater.queues.work_queue import WorkQueue

#: Header of a redriven message: only this group gets it, since the other groups have processed it.
GROUP_HEADER = "headwater.group"
#: Headers of a dead letter: how often its message was delivered, and the traceback of its last failure.
DELIVERIES_HEADER = "headwater.deliveries"
TRACE_HEADER = "headwater.trace"

_TIME = pa.timestamp("us", "UTC")
_FIELDS = [
    pa.field("id", pa.string()),
    pa.field("key", pa.string()),
    pa.field("deliver_at", _TIME),
    pa.field("expires_at", _TIME),
    pa.field("reply_to", pa.string()),
]


class Place(NamedTuple):
    """The place of a message in its queue's topic; the partition is its priority."""

    partition: int
    offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Outgoing:
    """A message to put with options of its own; see `Queue.put`."""

    # Any: what the queue's body setting or schema allows.
    body: Any
    key: str | None = None
    id: str | None = None
    headers: Mapping[str, bytes | str] | None = None
    priority: int = 0
    delay: Duration | None = None
    deliver_at: datetime | int | None = None
    ttl: Duration | None = None
    reply_to: str | None = None


@dataclass(slots=True, eq=False)
class Message:
    """A message that a worker took, with its lease. Acknowledge it, or return it; else its lease runs out."""

    body: Any
    partition: int
    offset: int
    id: str
    key: str | None = None
    headers: dict[str, bytes | None] = field(default_factory=dict)
    attempt: int = 1
    put_at_us: int = 0
    lease_until_us: int = 0
    reply_to: str | None = None
    token: int = 0
    queue: WorkQueue | None = field(default=None, repr=False)

    @property
    def priority(self) -> int:
        return self.partition

    @property
    def place(self) -> Place:
        return Place(self.partition, self.offset)

    @property
    def receipt(self) -> str:
        """What names this delivery in another process; empty without a lease."""
        return f"{self.partition}.{self.offset}.{self.token}" if self.token else ""

    def ack(self) -> None:
        """Acknowledge the message: its group never gets it again."""
        self._held().ack(self)

    def nack(self, *, delay: Duration | None = None, reason: str = "", trace: str = "") -> None:
        """Return the message after a failure, to be delivered again after `delay`."""
        self._held().nack(self, delay=delay, reason=reason, trace=trace)

    def reject(self, *, reason: str = "", trace: str = "") -> None:
        """Make the message a dead letter now."""
        self._held().reject(self, reason=reason, trace=trace)

    def release(self) -> None:
        """Return the message unprocessed."""
        self._held().release(self)

    def extend(self, lease: Duration | None = None) -> int:
        """Hold the message for another `lease` from now."""
        return self._held().extend(self, lease=lease)

    def _held(self) -> WorkQueue:
        if self.queue is None:
            raise ArgumentInvalid(name="message", value=self.id, expected="a message that was taken from a queue")
        return self.queue


def parse_receipt(receipt: Message | str) -> tuple[int, int, int]:
    """The partition, offset and token of a delivery.

    >>> parse_receipt("0.17.99")
    (0, 17, 99)
    """
    if isinstance(receipt, Message):
        return receipt.partition, receipt.offset, receipt.token
    try:
        partition, offset, token = map(int, str(receipt).split("."))
    except ValueError:
        expected = "a message that was taken, or its `receipt`"
        raise ArgumentInvalid(name="receipt", value=str(receipt), expected=expected) from None
    return partition, offset, token


def topic_schema(config: QueueConfig, schema: Any) -> pa.Schema:
    """The schema of a queue's topic: the columns of a message, and its body as text, bytes or a struct."""
    if config.body == "schema":
        body = pa.struct(list(parse_schema(schema)))
    else:
        body = pa.string() if config.body == "json" else pa.binary()
    return pa.schema([*_FIELDS, pa.field("body", body)])


class Encoder:
    """Turns messages into rows of the topic, in one batch for each priority."""

    def __init__(self, config: QueueConfig, schema: pa.Schema) -> None:
        self._config = config
        self._schema = schema
        self._body = schema.field("body").type

    def plain(self, bodies: list[Any]) -> pa.RecordBatch | None:
        """Rows of bodies without options; None if their time to live is a matter of the queue."""
        if self._config.ttl is not None:
            return None
        nulls = [pa.nulls(len(bodies), field.type) for field in _FIELDS]
        return pa.RecordBatch.from_arrays([*nulls, self._bodies(bodies)], schema=self._schema)

    def batches(
        self, messages: Sequence[Outgoing], *, now_us: int
    ) -> dict[int, tuple[pa.RecordBatch, list[Any] | None, list[int]]]:
        """By priority: the rows, their headers if there are any, and which of the messages they are."""
        priorities = self._config.priorities
        by_priority: dict[int, list[int]] = {}
        for number, message in enumerate(messages):
            if not 0 <= message.priority < priorities:
                raise ArgumentInvalid(
                    name="priority",
                    value=message.priority,
                    expected=f"0 to {priorities - 1}, as the queue's `priorities` says",
                )
            by_priority.setdefault(message.priority, []).append(number)
        return {
            priority: (*self._rows([messages[number] for number in numbers], now_us), numbers)
            for priority, numbers in by_priority.items()
        }

    def _rows(self, messages: list[Outgoing], now_us: int) -> tuple[pa.RecordBatch, list[Any] | None]:
        ttl = self._config.ttl
        plain = all(each.delay is None and each.deliver_at is None and each.ttl is None for each in messages)
        count = len(messages)
        deliver: pa.Array = pa.nulls(count, _TIME)
        expires: pa.Array = pa.nulls(count, _TIME)
        if not plain or ttl is not None:
            at = [_deliver_at(each, now_us) for each in messages]
            deliver = pa.array(at, pa.int64()).cast(_TIME)
            ends = [
                None if (own := ttl if each.ttl is None else each.ttl) is None else (due or now_us) + seconds_us(own)
                for each, due in zip(messages, at, strict=True)
            ]
            expires = pa.array(ends, pa.int64()).cast(_TIME)
        columns = [
            pa.array([_text("id", each.id) for each in messages], pa.string()),
            pa.array([_text("key", each.key) for each in messages], pa.string()),
            deliver,
            expires,
            pa.array([_text("reply_to", each.reply_to) for each in messages], pa.string()),
            self._bodies([each.body for each in messages]),
        ]
        headers = [dict(each.headers) if each.headers else None for each in messages]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return rows, headers if any(headers) else None

    def _bodies(self, bodies: list[Any]) -> pa.Array:
        kind = self._config.body
        try:
            if kind == "json":
                encoded = pa.array(list(map(orjson.dumps, bodies)), pa.binary())
                return encoded.cast(pa.string(), safe=False)  # JSON of orjson is UTF-8
            return pa.array(bodies, self._body)
        except (TypeError, ValueError, pa.ArrowException) as error:
            expected = {"json": "JSON values", "bytes": "bytes", "schema": f"rows of {self._body}"}[kind]
            raise ArgumentInvalid(name="body", value=str(error), expected=f"{expected}; nothing was put") from error


def _text(name: str, value: str | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ArgumentInvalid(name=name, value=value, expected="text")


def _deliver_at(message: Outgoing, now_us: int) -> int | None:
    if message.deliver_at is not None:
        if message.delay is not None:
            raise ArgumentInvalid(
                name="delay", value=message.delay, expected="either `delay` or `deliver_at`, not both"
            )
        return time_us(message.deliver_at)
    return None if message.delay is None else now_us + seconds_us(message.delay)


class Stored(NamedTuple):
    """A row of the queue's topic, with what decides on its delivery."""

    message: Message
    deliver_at_us: int
    expires_at_us: int | None
    only_group: str | None


def decode(data: pa.RecordBatch, config: QueueConfig, queue: WorkQueue | None) -> list[Stored]:
    """The messages in a batch of the queue's topic."""
    count = data.num_rows

    def values(name: str) -> list[Any]:
        column = data.column(name)
        if column.null_count == count:
            return [None] * count
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]

    bodies = values("body")
    if config.body == "json":
        bodies = [None if body is None else orjson.loads(body) for body in bodies]
    result = []
    for body, partition, offset, id_, key, headers, put_at, reply_to, deliver, expires in zip(
        bodies,
        values("_partition"),
        values("_offset"),
        values("id"),
        values("key"),
        values("_headers"),
        values("_appended_at"),
        values("reply_to"),
        values("deliver_at"),
        values("expires_at"),
        strict=True,
    ):
        message = Message(
            body,
            partition,
            offset,
            id_ if id_ is not None else f"{partition}-{offset}",
            key,
            headers or {},
            1,
            put_at,
            0,
            reply_to,
            0,
            queue,
        )
        only = (headers or {}).get(GROUP_HEADER)
        result.append(Stored(message, deliver or 0, expires, None if only is None else only.decode()))
    return result


# Any: values of a column; here and below.
def _values(column: pa.Array) -> Iterable[Any]:
    if column.null_count == len(column):
        return repeat(None, len(column))
    if column.null_count or pa.types.is_nested(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def decode_plain(
    data: pa.RecordBatch, config: QueueConfig, *, token: int, lease_until_us: int, queue: WorkQueue | None
) -> list[Message]:
    """The messages of a batch whose rows have no headers and no times: most are like this, and it is faster."""
    partition: int = data.column("_partition")[0].as_py() if data.num_rows else 0
    bodies = _values(data.column("body"))
    if config.body == "json":
        loads = orjson.loads
        bodies = [None if body is None else loads(body) for body in bodies]
    return [
        Message(
            body,
            partition,
            offset,
            id_ or f"{partition}-{offset}",
            key,
            {},
            1,
            put_at,
            lease_until_us,
            reply_to,
            token,
            queue,
        )
        for body, offset, id_, key, reply_to, put_at in zip(
            bodies,
            _values(data.column("_offset")),
            _values(data.column("id")),
            _values(data.column("key")),
            _values(data.column("reply_to")),
            _values(data.column("_appended_at").cast(pa.int64())),
            strict=True,
        )
    ]
