"""How the types of a topic's columns lie in PostgreSQL: natively where it has the type, nested ones as jsonb.

A column has a *staged* form, in which Arrow's driver copies it and a look-up binds it, and expressions that lead from
there into the table and back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ViewInvalid
from headwater.schema import encodings, format_schema, to_batches
from headwater.views.spec import ViewSpec

_NATIVE: dict[pa.DataType, tuple[str, pa.DataType]] = {
    pa.bool_(): ("boolean", pa.bool_()),
    pa.int8(): ("smallint", pa.int16()),
    pa.int16(): ("smallint", pa.int16()),
    pa.int32(): ("integer", pa.int32()),
    pa.int64(): ("bigint", pa.int64()),
    pa.uint8(): ("smallint", pa.int16()),
    pa.uint16(): ("integer", pa.int32()),
    pa.uint32(): ("bigint", pa.int64()),
    pa.float32(): ("real", pa.float32()),
    pa.float64(): ("double precision", pa.float64()),
    pa.string(): ("text", pa.string()),
    pa.large_string(): ("text", pa.string()),
    pa.binary(): ("bytea", pa.binary()),
    pa.large_binary(): ("bytea", pa.binary()),
    pa.date32(): ("date", pa.date32()),
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
    if kind in _NATIVE:
        sql, staged = _NATIVE[kind]
        return Stored(sql=sql, staged=staged)
    if pa.types.is_fixed_size_binary(kind):
        return Stored(sql="bytea", staged=pa.binary())
    if pa.types.is_uint64(kind):
        return Stored(sql="numeric(20,0)", staged=pa.string(), into="{}::numeric(20,0)", out="{}::text")
    if pa.types.is_decimal(kind):
        sql = f"numeric({kind.precision},{kind.scale})"
        return Stored(sql=sql, staged=pa.string(), into=f"{{}}::{sql}", out="{}::text")
    if pa.types.is_nested(kind):
        if _holds(kind, lambda part: pa.types.is_duration(part) or getattr(part, "unit", "") == "ns"):
            raise ValueError("its JSON keeps no durations and no nanoseconds")
        return Stored(sql="jsonb", staged=pa.string(), into="{}::jsonb", out="{}::text", nested=True)
    if getattr(kind, "unit", "") == "ns":
        raise ValueError("its times count microseconds")
    if pa.types.is_timestamp(kind):
        return Stored(
            sql="timestamptz" if kind.tz else "timestamp", staged=pa.timestamp("us", "UTC" if kind.tz else None)
        )
    if pa.types.is_time(kind):
        return Stored(sql="time", staged=pa.time64("us"))
    if pa.types.is_duration(kind):
        out = "(extract(epoch FROM {}) * 1000000)::bigint"
        return Stored(sql="interval", staged=pa.int64(), into="({} * interval '1 microsecond')", out=out)
    raise ValueError(f"it knows no type {kind}")


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


def staged(table: pa.Table, spec: ViewSpec) -> pa.Table:
    """Rows in the form in which they are copied."""
    columns = {column.name: column for column in spec.schema}
    arrays = [_staged(table.column(name).combine_chunks(), columns[name]) for name in table.column_names]
    return pa.table(arrays, names=table.column_names)


def _staged(array: pa.Array, column: pa.Field) -> pa.Array:
    how = stored_type(column.type)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if how.nested:
        return _as_json(array)
    if pa.types.is_uint64(column.type):
        return array.cast(pa.decimal128(20, 0)).cast(pa.string())
    if pa.types.is_duration(column.type):
        return array.cast(pa.duration("us")).cast(pa.int64())
    if pa.types.is_timestamp(column.type) and column.type.tz:
        return array.cast(pa.timestamp("us", column.type.tz)).cast(how.staged)
    if pa.types.is_time(column.type):
        return array.cast(pa.time64("us"))
    return array.cast(how.staged)


def _as_json(array: pa.Array) -> pa.Array:
    lines = encodings.json.encode_rows(pa.record_batch([array], names=["v"]))
    prefix, suffix = len(b'{"v":'), 1
    texts = pa.array([line[prefix : len(line) - suffix].decode() for line in lines], pa.string())
    return pc.if_else(array.is_null(), pa.scalar(None, pa.string()), texts)


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
