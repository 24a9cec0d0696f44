"""Values of a topic as a database without rich types has them: numbers, text and bytes."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.postgres.copy import family_of, json_texts


def as_text(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as text that reads the same wherever it is read: dates in ISO form, nested values as JSON.

    >>> as_text(pa.array([1], pa.timestamp("s", "UTC"))).to_pylist(), as_text(pa.array([{"a": 1}])).to_pylist()
    (['1970-01-01 00:00:01.000000Z'], ['{"a":1}'])
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    family = family_of(array.type)
    if family == "nested":
        return json_texts(array)
    if family == "timestamp":
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    return array.cast(pa.string())


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as whole numbers, floating-point numbers, text or bytes.

    Not-a-number becomes null, as SQL has no such value, and a negative zero becomes zero.

    >>> plain(pa.array([True, None])).to_pylist(), plain(pa.array([1.5, float("nan")])).to_pylist()
    ([1, None], [1.5, None])
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind, types = array.type, pa.types
    if types.is_boolean(kind) or (types.is_integer(kind) and not types.is_uint64(kind)):
        return array.cast(pa.int64())
    if types.is_duration(kind):
        return array.cast(pa.duration("us"), safe=False).cast(pa.int64())
    if types.is_floating(kind):
        wide = array.cast(pa.float64())
        return pc.if_else(pc.is_nan(wide), pa.scalar(None, pa.float64()), pc.add(wide, 0.0))
    if family_of(kind) == "bytes":
        return array.cast(pa.binary())
    return as_text(array)


def canonical_json(text: str | None) -> str | None:
    """JSON in one form, whatever the order of its names was.

    >>> canonical_json('{"b": 1, "a": [ ]}')
    '{"a":[],"b":1}'
    """
    return None if text is None else orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()
