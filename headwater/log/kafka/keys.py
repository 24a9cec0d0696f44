"""The keys of messages: the key columns of rows as bytes, and back, for tombstones, which have nothing else.

One column of text is its UTF-8, one of bytes is itself, as other programs write keys. Anything else is JSON: the value
of one column, or a list with the values of several. A key without any value is no key.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import pyarrow as pa

from headwater.errors import EncodingInvalid
from headwater.schema import stored_schema, to_batches
from headwater.schema.encodings.json import decode_lines, encode_rows


def encode_keys(data: pa.RecordBatch, key: Sequence[str]) -> list[bytes | None]:
    """The key of each row.

    >>> rows = pa.record_batch({"id": [1, 2], "name": ["ada", None]})
    >>> encode_keys(rows, ["name"]), encode_keys(rows, ["id"]), encode_keys(rows, ["id", "name"])
    ([b'ada', None], [b'1', b'2'], [b'[1,"ada"]', b'[2,null]'])
    """
    if not key:
        return [None] * data.num_rows
    columns = [data.column(name) for name in key]
    kind = columns[0].type
    if len(key) == 1 and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return list(columns[0].to_pylist())
    if len(key) == 1 and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return list(columns[0].cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary()).to_pylist())
    rows = [list(orjson.loads(row).values()) for row in encode_rows(data.select(list(key)))]
    if len(key) == 1:
        return [None if row[0] is None else orjson.dumps(row[0]) for row in rows]
    return [orjson.dumps(row) for row in rows]


def decode_keys(keys: Sequence[bytes | None], key: Sequence[str], schema: pa.Schema, *, topic: str) -> pa.RecordBatch:
    """The key columns of keys.

    >>> decode_keys([b'[1,"ada"]'], ["id", "name"], pa.schema({"id": pa.int64(), "name": pa.string()}), topic="t").to_pylist()
    [{'id': 1, 'name': 'ada'}]
    """
    part = pa.schema([stored_schema(schema).field(name) for name in key])
    kind = part.field(0).type
    if len(key) == 1 and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return pa.RecordBatch.from_arrays([pa.array(keys, kind)], schema=part)
    if len(key) == 1 and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        try:
            texts = [None if one is None else one.decode() for one in keys]
        except UnicodeDecodeError as error:
            raise EncodingInvalid(encoding="key", position=f"topic {topic!r}", why=str(error)) from error
        return pa.RecordBatch.from_arrays([pa.array(texts, kind)], schema=part)
    lines = [_object(one, key, topic) for one in keys]
    rows = [row for rows in decode_lines(lines, part, topic=topic) for row in rows]
    batches = [batch.data for batch in to_batches(rows, part, topic=topic, rows_max=max(1, len(rows)))]
    return batches[0] if batches else part.empty_table().to_batches()[0]


def _object(one: bytes | None, key: Sequence[str], topic: str) -> bytes:
    try:
        value = None if one is None else orjson.loads(one)
    except ValueError as error:
        raise EncodingInvalid(encoding="key", position=f"topic {topic!r}", why=str(error)) from error
    values = value if len(key) > 1 and isinstance(value, list) else [value]
    return orjson.dumps(dict(zip(key, values, strict=False)))
