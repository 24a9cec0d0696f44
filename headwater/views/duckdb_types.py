"""How the types of a topic's columns lie in DuckDB, and how they come back exactly as they went in."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.schema import format_schema
from headwater.views.errors import ViewInvalid
from headwater.views.spec import ViewSpec

_PLAIN: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.large_binary(): "BLOB",
    pa.date32(): "DATE",
}
_TIMESTAMPS = {"s": "TIMESTAMP_S", "ms": "TIMESTAMP_MS", "us": "TIMESTAMP", "ns": "TIMESTAMP_NS"}
DIGITS_MAX = 38


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever characters it has.

    >>> quoted('spend@1'), quoted('a"b')
    ('"spend@1"', '"a""b"')
    """
    return '"' + name.replace('"', '""') + '"'


def column_types(spec: ViewSpec) -> dict[str, str]:
    """The SQL type of each column, or `ViewInvalid` for one that would not come back as it went in."""
    return {column.name: _column_type(spec, column) for column in spec.schema}


def _column_type(spec: ViewSpec, column: pa.Field) -> str:
    try:
        return "INTERVAL" if _is_interval(column.type) else sql_type(column.type)
    except ValueError as error:
        shown = format_schema(pa.schema([column]))
        raise ViewInvalid(view=spec.name, why=f"DuckDB cannot hold its column {shown}: {error}") from error


def sql_type(kind: pa.DataType) -> str:
    """The DuckDB type for an Arrow type. Raises `ValueError` where values would change on the way.

    >>> sql_type(pa.struct([("a b", pa.list_(pa.int8())), ("at", pa.timestamp("us", "UTC"))]))
    'STRUCT("a b" TINYINT[], "at" TIMESTAMPTZ)'
    """
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_timestamp(kind):
        zoned = "TIMESTAMPTZ_NS" if kind.unit == "ns" else "TIMESTAMPTZ"
        return zoned if kind.tz else _TIMESTAMPS[kind.unit]
    if pa.types.is_time(kind):
        return "TIME_NS" if kind.unit == "ns" else "TIME"
    if pa.types.is_fixed_size_binary(kind):
        return "BLOB"
    if pa.types.is_decimal(kind):
        if kind.precision > DIGITS_MAX:
            raise ValueError(f"its decimals have at most {DIGITS_MAX} digits")
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_duration(kind):
        raise ValueError("its intervals count microseconds, and only in a column of their own")
    return _nested_type(kind)


def _nested_type(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_struct(kind):
        if len({part.name.lower() for part in kind}) < kind.num_fields:
            raise ValueError("SQL cannot tell the names of its fields from each other")
        return f"STRUCT({', '.join(f'{quoted(part.name)} {sql_type(part.type)}' for part in kind)})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    raise ValueError(f"it knows no type {kind}")


def _is_interval(kind: pa.DataType) -> bool:
    return bool(pa.types.is_duration(kind) and kind.unit != "ns")


def ingestible(table: pa.Table) -> pa.Table:
    """The table with the types that DuckDB reads: it knows no 256-bit decimals, also not those with few digits."""
    schema = pa.schema([pa.field(column.name, _ingestible_type(column.type)) for column in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema)


def _ingestible_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal256(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _ingestible_type(part.type)) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(_ingestible_type(kind.key_type), _ingestible_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_ingestible_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_ingestible_type(kind.value_type))
    return kind


def selected(columns: Sequence[pa.Field]) -> str:
    """A select list from which `restored` gets the values back; an interval is told as its microseconds."""
    parts = []
    for column in columns:
        name = quoted(column.name)
        parts.append(f"epoch_us({name}) AS {name}" if _is_interval(column.type) else name)
    return ", ".join(parts)


def restored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """What `selected` gave, in the types of the view."""
    arrays = []
    for column in schema:
        array = table.column(column.name)
        if _is_interval(column.type):
            array = array.cast(pa.duration("us"))
        arrays.append(array if array.type == column.type else array.cast(column.type))
    # Nullable throughout, as rows of a topic are when they are read.
    return pa.Table.from_arrays(arrays, schema=pa.schema([pa.field(one.name, one.type) for one in schema]))
