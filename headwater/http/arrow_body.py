"""Arrow streams of clients: their decompressed size is computed before anything is decompressed.

A compressed buffer begins with its decompressed length, and Arrow allocates that much before it reads on: a few bytes
could allocate terabytes. Here the lengths are added up first, from the messages in the body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import EncodingInvalid
from headwater.http.errors import BodyTooLarge
from headwater.log.remote.wire import bytes_to_table

#: Numbers of the fields in Arrow's tables (Message.fbs): header, buffers, compression, data of a dictionary.
_HEADER, _BUFFERS, _COMPRESSION, _DICTIONARY_DATA = 2, 2, 3, 1
_BUFFER_BYTES = 16


def unpacked(body: bytes, *, size_max: int) -> pa.Table:
    """The rows of an Arrow stream; raises if they are larger than a body may be, with dictionaries decoded."""
    try:
        size = unpacked_size(body)
    except (pa.ArrowException, struct.error, ValueError, OSError) as error:
        raise EncodingInvalid(
            encoding="Arrow stream", position="the body", why=str(error).partition("\n")[0]
        ) from error
    if size > size_max:
        raise BodyTooLarge(size_max=size_max)
    table = bytes_to_table(body)
    # A column of nulls has rows and no bytes.
    if table.num_rows > size_max or table.nbytes > size_max:
        raise BodyTooLarge(size_max=size_max)
    if sum(_spelt_out(column) for column in table.columns) > size_max:
        raise BodyTooLarge(size_max=size_max)
    return table


def unpacked_size(body: bytes) -> int:
    """The decompressed size of the buffers of a stream; nothing is decompressed.

    >>> import pyarrow as pa
    >>> sink = pa.BufferOutputStream()
    >>> zeros = pa.table({"n": pa.array([0] * 1_000_000, pa.int64())})
    >>> options = pa.ipc.IpcWriteOptions(compression="zstd")
    >>> with pa.ipc.new_stream(sink, zeros.schema, options=options) as writer:
    ...     writer.write_table(zeros)
    >>> body = sink.getvalue().to_pybytes()
    >>> len(body) < 10_000, unpacked_size(body)
    (True, 8000000)
    """
    return sum(_message_size(message) for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)))


# Any message: pyarrow has no types.
def _message_size(message: pa.ipc.Message) -> int:
    if message.type not in ("record batch", "dictionary"):
        return 0
    data, body = message.metadata.to_pybytes(), message.body
    batch = _field(data, _word(data, 0), _HEADER)
    if message.type == "dictionary" and batch is not None:
        batch = _field(data, _target(data, batch), _DICTIONARY_DATA)
    if batch is None:
        raise ValueError("a message has no rows")
    table = _target(data, batch)
    if _field(data, table, _COMPRESSION) is None:
        return 0 if body is None else int(body.size)
    packed = memoryview(body) if body is not None else memoryview(b"")
    return sum(_buffer_size(packed, start, length) for start, length in _buffers(data, table))


def _buffer_size(body: memoryview, start: int, length: int) -> int:
    """A buffer begins with its decompressed length; -1 means that it is not compressed."""
    if length == 0:
        return 0
    if start < 0 or length < 8 or start + length > len(body):
        raise ValueError("a buffer lies outside of its message")
    (told,) = struct.unpack_from("<q", body, start)
    if told < -1:
        raise ValueError("a buffer has a length that is negative")
    return length - 8 if told == -1 else int(told)


def _buffers(data: bytes, table: int) -> Iterator[tuple[int, int]]:
    place = _field(data, table, _BUFFERS)
    if place is None:
        return
    vector = _target(data, place)
    count = _word(data, vector)
    if vector + 4 + count * _BUFFER_BYTES > len(data):
        raise ValueError("a message names more buffers than it has")
    for number in range(count):
        yield struct.unpack_from("<qq", data, vector + 4 + number * _BUFFER_BYTES)


def _field(data: bytes, table: int, number: int) -> int | None:
    """The offset of a field of a table, None if it is absent: a table begins with the distance to its list of fields."""
    (back,) = struct.unpack_from("<i", data, table)
    listed = table - back
    if listed < 0:
        raise ValueError("a message has no list of its fields")
    (size,) = struct.unpack_from("<H", data, listed)
    at = 4 + 2 * number
    if at >= size:
        return None
    (distance,) = struct.unpack_from("<H", data, listed + at)
    return table + distance if distance else None


def _target(data: bytes, place: int) -> int:
    return place + _word(data, place)


def _word(data: bytes, place: int) -> int:
    (found,) = struct.unpack_from("<I", data, place)
    return int(found)


def _spelt_out(column: pa.ChunkedArray) -> int:
    """The bytes of a column with its dictionary decoded."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    total = 0
    for chunk in column.chunks:
        values = chunk.dictionary
        if pa.types.is_primitive(values.type):
            total += len(chunk) * values.type.bit_width // 8
        elif values.type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
            lengths = pc.binary_length(values).cast(pa.int64())
            total += pc.sum(lengths.take(chunk.indices.drop_null()), min_count=0).as_py()
        else:
            total += len(chunk) * int(values.nbytes)
    return total
