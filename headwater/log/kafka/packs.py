"""Messages that wait for their transaction, many in one: a message costs its reader and its writer about the same, however small it is.

A pack is an Arrow batch with the keys, the values and the headers of messages for one partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headwater.log.frame import HEADERS_TYPE
from headwater.log.kafka.delivery import Messages

#: A pack is closed when it has so many bytes. A message that is larger has one of its own.
PACK_BYTES_MAX = 900_000
#: What a message costs beside its bytes.
_MESSAGE_BYTES = 16
_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS_TYPE)])


def packs(messages: Messages) -> Iterator[bytes]:
    """Messages of one partition in packs, in order.

    >>> [unpacked(pack) for pack in packs([{"key": b"a", "value": b"1"}, {"value": None, "headers": [("n", b"2")]}])]
    [[{'key': b'a', 'value': b'1', 'headers': []}, {'key': None, 'value': None, 'headers': [('n', b'2')]}]]
    """
    first = size = 0
    for number, message in enumerate(messages):
        headers = message.get("headers")
        own = _MESSAGE_BYTES + len(message["value"] or b"") + len(message.get("key") or b"")
        own += sum(len(name) + len(value or b"") for name, value in headers) if headers else 0
        if size and size + own > PACK_BYTES_MAX:
            yield _packed(messages[first:number])
            first, size = number, 0
        size += own
    if size:
        yield _packed(messages[first:])


def _packed(messages: Messages) -> bytes:
    headers = [message.get("headers") or None for message in messages]
    columns = [
        pa.array([message.get("key") for message in messages], pa.binary()),
        pa.array([message["value"] for message in messages], pa.binary()),
        pa.array(headers, HEADERS_TYPE) if any(headers) else pa.nulls(len(messages), HEADERS_TYPE),
    ]
    serialized: bytes = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA).serialize().to_pybytes()
    return serialized


def unpacked(pack: bytes) -> Messages:
    """The messages of a pack, as they were."""
    batch = pa.ipc.read_record_batch(pa.py_buffer(pack), _SCHEMA)
    keys, values = _cells(batch.column("key")), _cells(batch.column("value"))
    headers = batch.column("headers")
    if headers.null_count == len(headers):
        return [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
    return [
        {"key": key, "value": value, "headers": some or []}
        for key, value, some in zip(keys, values, headers.to_pylist(), strict=True)
    ]


def _cells(column: pa.Array) -> list[bytes | None]:
    """The cells of a column: slices of its bytes, which is ten times as fast as a conversion of each."""
    if column.null_count == len(column):
        return [None] * len(column)
    if column.null_count:
        return list(column.to_pylist())
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4).tolist()
    whole = b"" if data is None else data.to_pybytes()
    return [whole[start:stop] for start, stop in pairwise(places)]
