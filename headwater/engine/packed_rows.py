"""Rows on their way to the partition of their key, packed: one row of Spark's for all that goes to one partition.

Spark moves rows one by one, and takes each of their columns apart twice. Where rows are made in Python and are wanted
in Python, a reader does what Spark would have done: it hashes the key, as Spark's `xxhash64` does, and puts the rows of
each partition into one value of bytes, an Arrow stream. State is found by that hash, so both must agree to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import xxhash

from headwater.engine.columns import HASH, SLOT
from headwater.engine.state_store import Hashes
from headwater.schema.partitioner import hash_half_words, hash_words

PACKED = "_packed"
#: What travels through Spark.
SCHEMA = pa.schema([pa.field(SLOT, pa.int32()), pa.field(PACKED, pa.binary())])
#: Spark's seed.
SEED = 42
#: A value of Spark's holds less than 2 GB, and a task has it in memory several times.
ROWS_MAX = 1_000_000


def can_hash(kind: pa.DataType) -> bool:
    """Whether keys of this type are hashed here as Spark hashes them."""
    return bool(_is_whole(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_whole(kind: pa.DataType) -> bool:
    signed = pa.types.is_signed_integer(kind)
    return bool(signed or pa.types.is_date32(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us"))


def packed(table: pa.Table, keys: Sequence[str], partitions: int) -> Iterator[pa.RecordBatch]:
    """The rows, packed for the partitions that their keys belong to."""
    hashes = hashes_of([table.column(name) for name in keys])
    slots = np.mod(hashes.view(np.int64), partitions).astype(np.int32)
    table = table.append_column(HASH, pa.array(hashes.view(np.int64)))
    for slot in range(partitions):
        part = table if partitions == 1 else table.filter(pa.array(slots == slot))
        for start in range(0, part.num_rows, ROWS_MAX):
            value = _as_value(part.slice(start, ROWS_MAX))
            yield pa.record_batch([pa.array([slot], pa.int32()), value], schema=SCHEMA)


def _as_value(table: pa.Table) -> pa.Array:
    """A table as one value of bytes, which are not copied."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    written = stream.getvalue()
    ends = pa.py_buffer(np.array([0, written.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, written])


def unpacked(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows that were packed, with the hash of their key and their partition."""
    tables = []
    for batch in batches:
        for slot, value in zip(batch.column(SLOT), batch.column(PACKED), strict=True):
            table = pa.ipc.open_stream(value.as_buffer()).read_all()
            slots = pa.array(np.full(table.num_rows, slot.as_py(), np.int32))
            tables.append(table.append_column(SLOT, slots))
    return pa.concat_tables(tables)


def hashes_of(columns: Sequence[pa.ChunkedArray]) -> Hashes:
    """Spark's `xxhash64` of several columns: each goes on from the hash of the one before; a null changes nothing.

    >>> hashes_of([pa.chunked_array([[1, None]])]).view(np.int64).tolist()
    [-7001672635703045582, 42]
    """
    found = np.full(len(columns[0]) if columns else 0, SEED, np.uint64)
    for column in columns:
        array = column.combine_chunks()
        hashed = _of_numbers(array, found) if _is_whole(array.type) else _of_bytes(array, found)
        found = np.where(np.asarray(array.is_valid()), hashed, found) if array.null_count else hashed
    return found


def _of_numbers(array: pa.Array, seeds: Hashes) -> Hashes:
    if pa.types.is_timestamp(array.type) or pa.types.is_int64(array.type):
        return hash_words(np.asarray(array.cast(pa.int64()).fill_null(0)).view(np.uint64), seeds)
    return hash_half_words(np.asarray(array.cast(pa.int32()).fill_null(0)).view(np.uint32), seeds)


def _of_bytes(array: pa.Array, seeds: Hashes) -> Hashes:
    values = array.cast(pa.binary()).fill_null(b"").to_pylist()
    digest = xxhash.xxh64_intdigest
    return np.fromiter((digest(value, seed) for value, seed in zip(values, seeds.tolist(), strict=True)), np.uint64)
