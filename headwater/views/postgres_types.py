"""How the types of a topic's columns lie in PostgreSQL: natively where it has the type, nested ones as jsonb.

Rows go in by COPY. A key of a look-up is bound in its *staged* form, from which an expression leads to the column's type;
another expression leads from the column to what the driver reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import LiteralString

import pyarrow as pa

from headwater.postgres.copy import sql_type
from headwater.schema import encodings, format_schema, to_batches
from headwater.views.errors import ViewInvalid
from headwater.views.spec import ViewSpec

#: The form in which the value of a key is bound, where the column's type is the same.
_BOUND: dict[LiteralString, pa.DataType] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True, kw_only=True)
class Stored:
    """How one column is kept: its SQL type, its staged form, and the ways in and out; `{}` is the value."""

    sql: str
    staged: pa.DataType
    into: str = "{}"
    out: str = "{}"
    nested: bool = False


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def stored_columns(spec: ViewSpec) -> dict[str, Stored]:
    """How each column is kept, or `ViewInvalid` for one that would not come back as it went in."""
    found = {}
    for column in spec.schema:
        try:
            found[column.name] = stored_type(column.type)
        except ValueError as error:
            shown = format_schema(pa.schema([column]))
            raise ViewInvalid(view=spec.name, why=f"PostgreSQL cannot hold its column {shown}: {error}") from error
    return found


def stored_type(kind: pa.DataType) -> Stored:
    """How a type is kept. Raises `ValueError` where values would change on the way.

    >>> stored_type(pa.uint64()).sql, stored_type(pa.list_(pa.int8())).sql
    ('numeric(20,0)', 'jsonb')
    """
    types = pa.types
    if types.is_uint64(kind) or types.is_decimal(kind):
        sql = "numeric(20,0)" if types.is_uint64(kind) else f"numeric({kind.precision},{kind.scale})"
        return Stored(sql=sql, staged=pa.string(), into=f"{{}}::text::{sql}", out="{}::text")
    if types.is_nested(kind):
        if _holds(kind, lambda part: types.is_duration(part) or getattr(part, "unit", "") == "ns"):
            raise ValueError("its JSON keeps no durations and no nanoseconds")
        return Stored(sql="jsonb", staged=pa.string(), out="{}::text", nested=True)
    if getattr(kind, "unit", "") == "ns":
        raise ValueError("its times count microseconds")
    if types.is_duration(kind):
        out = "(extract(epoch FROM {}) * 1000000)::bigint"
        return Stored(sql="interval", staged=pa.int64(), into="({}::bigint * interval '1 microsecond')", out=out)
    known = sql_type(kind)
    if known not in _BOUND or types.is_float16(kind) or types.is_null(kind):
        raise ValueError(f"it knows no type {kind}")
    return Stored(sql=known, staged=_BOUND[known], into=f"{{}}::{known}")


def _holds(kind: pa.DataType, test: object) -> bool:
    parts: Iterable[pa.DataType]
    if pa.types.is_map(kind):
        parts = [kind.key_type, kind.item_type]
    elif pa.types.is_struct(kind):
        parts = [part.type for part in kind]
    elif pa.types.is_nested(kind):
        parts = [kind.value_type]
    else:
        return bool(callable(test) and test(kind))
    return any(_holds(part, test) for part in parts)


def bound_key(key: pa.RecordBatch, spec: ViewSpec) -> pa.RecordBatch:
    """The values of a key in the form in which a look-up binds them."""
    columns = [spec.schema.field(name) for name in spec.key]
    arrays = [_bound_values(key.column(column.name), column.type) for column in columns]
    return pa.record_batch(arrays, names=list(spec.key))


def _bound_values(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_uint64(kind):
        return array.cast(pa.decimal128(20, 0)).cast(pa.string())
    if pa.types.is_duration(kind):
        return array.cast(pa.duration("us")).cast(pa.int64())
    if pa.types.is_timestamp(kind) and kind.tz:
        return array.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us", "UTC"))
    return array.cast(stored_type(kind).staged)


def selected(spec: ViewSpec) -> str:
    """A select list from which `restored` gets the values back."""
    return ", ".join(f"{how.out.format(quoted(name))} AS {quoted(name)}" for name, how in stored_columns(spec).items())


def restored(table: pa.Table, spec: ViewSpec) -> pa.Table:
    """What `selected` gave, in the types of the view."""
    arrays = [_restored(table.column(column.name), column) for column in spec.schema]
    return pa.Table.from_arrays(arrays, schema=pa.schema([pa.field(one.name, one.type) for one in spec.schema]))


def _restored(array: pa.ChunkedArray, column: pa.Field) -> pa.ChunkedArray:
    kind = column.type
    if stored_type(kind).nested:
        return _from_json(array, column)
    if pa.types.is_uint64(kind):
        return array.cast(pa.decimal128(20, 0)).cast(kind)
    if pa.types.is_duration(kind):
        return array.cast(pa.duration("us")).cast(kind)
    return array if array.type == kind else array.cast(kind)


def _from_json(array: pa.ChunkedArray, column: pa.Field) -> pa.ChunkedArray:
    schema = pa.schema([pa.field("v", column.type)])
    lines = [b'{"v":%s}' % (b"null" if text is None else text.encode()) for text in array.to_pylist()]
    parts = [
        batch.data.column(0)
        for rows in encodings.json.decode_lines(lines, schema, topic=column.name)
        for batch in to_batches(rows, schema, topic=column.name)
    ]
    return pa.chunked_array(parts, column.type)
