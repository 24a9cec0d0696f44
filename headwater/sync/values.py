"""Values of a topic as a database without rich types has them: numbers, text and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.postgres.copy import family_of, json_texts
from headwater.schema.encodings import json as json_lines


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


# Any: JSON.
def texts_of(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> pa.Table:
    """Rows of JSON as a table of text: a string as it is, another value as JSON, null as null.

    >>> texts_of([{"a": "x", "b": [1]}, {"a": None}], ["a", "b"]).to_pylist()
    [{'a': 'x', 'b': '[1]'}, {'a': None, 'b': None}]
    """
    values = [[_text(row.get(name)) for name in names] for row in rows]
    columns = zip(*values, strict=True) if values else [()] * len(names)
    return pa.table([pa.array(column, pa.string()) for column in columns], names=list(names))


def json_texts_of(rows: pa.Table) -> pa.Table:
    """Rows of a topic as `texts_of` has them after their way through JSON."""
    lines = (line for batch in rows.combine_chunks().to_batches() for line in json_lines.encode_rows(batch))
    return texts_of(map(orjson.loads, lines), rows.column_names)


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def canonical_json(text: str | None) -> str | None:
    """JSON in one form, whatever the order of its names was.

    >>> canonical_json('{"b": 1, "a": [ ]}')
    '{"a":[],"b":1}'
    """
    return None if text is None else orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()
