"""What codecs of one message per row share: tombstones, the limit of a message, and the search for a bad one."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import EncodingInvalid, HeadwaterError, RowInvalid, SchemaInvalid
from headwater.log.errors import RowTooLarge
from headwater.log.kafka.errors import ValueUnreadable
from headwater.log.kafka.values.port import Decoded, Headers, Incoming, Messages, Outgoing
from headwater.log.topic import Topic
from headwater.schema import RowBatch, stored_schema

#: What the decoding of a bad value raises. Everything else, such as a registry that is away, is no fault of a message.
_BAD = (EncodingInvalid, RowInvalid, SchemaInvalid)
Encode = Callable[[pa.RecordBatch], list[bytes]]
#: Decodes the values of messages that are no tombstones; raises for all of them if one is bad.
Decode = Callable[[Messages], pa.RecordBatch]


def outgoing(topic: Topic, rows: RowBatch, encode: Encode, *, bytes_max: int, headers: Headers = ()) -> list[Outgoing]:
    """Rows as messages; those that delete their key have no value."""
    data = rows.data
    if rows.tombstones is not None:
        data = data.filter(pc.invert(rows.tombstones))
    # What is stored may be null everywhere; what others read has the schema that the topic was created with.
    values = encode(pa.RecordBatch.from_arrays(data.columns, schema=topic.schema))
    longest = max(map(len, values), default=0)
    if longest > bytes_max:
        raise RowTooLarge(topic=topic.name, size=longest, size_max=bytes_max)
    if rows.tombstones is None:
        return [Outgoing(value, headers) for value in values]
    following = iter(values)
    return [Outgoing(None if gone else next(following), headers) for gone in rows.tombstones.to_pylist()]


def decoded(topic: Topic, format: str, messages: Messages, decode: Decode) -> Decoded:
    """The rows of messages, with nulls for tombstones; raises `ValueUnreadable` with the first bad message."""
    gone = messages.has_tombstones
    live = Messages([message for message in messages if message.value is not None]) if gone else messages
    try:
        data = decode(live)
    except _BAD:
        bad, error = _first_bad(live, decode)
        why = error.filled(error.problem).rstrip(".")
        raise ValueUnreadable(topic=topic.name, offset=bad.offset, format=format, why=why) from error
    stored = stored_schema(topic.schema)
    data = pa.RecordBatch.from_arrays(data.columns, schema=stored)
    if not gone:
        return Decoded(data)
    present = np.fromiter((value is not None for value in messages.values), dtype=np.bool_, count=len(messages))
    places = pa.array(np.cumsum(present) - 1, mask=~present)
    return Decoded(data.take(places), tombstones=pa.array(~present))


def _first_bad(messages: Messages, decode: Decode) -> tuple[Incoming, HeadwaterError]:
    """The first message that cannot be decoded, by halves: about twice the work of decoding all of them."""
    while True:
        half = messages[: (len(messages) + 1) // 2]
        try:
            decode(half)
            messages = messages[len(half) :]
            if len(messages) > 1:
                continue
            half = messages
            decode(half)
            raise AssertionError("each message can be decoded, but not all of them together")
        except _BAD as error:
            if len(half) == 1:
                return half[0], error
            messages = half


def values_of(messages: Messages) -> list[bytes]:
    """The values of messages that are no tombstones."""
    if messages.has_tombstones:
        return [value for value in messages.values if value is not None]
    return cast("list[bytes]", messages.values)  # not copied


def joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Batches one behind the other."""
    return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=schema)
