"""Arrow columns as Spark knows them: which type a topic's column has in a DataFrame, and how its values get there.

Spark has no unsigned integers, no half floats and one unit of time each; such columns get the smallest Spark type that
holds every value. What is the same on both sides is handed over without a copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import SchemaInvalid
from headwater.log.port import SYSTEM_COLUMNS
from headwater.spark.errors import SourceChanged
from headwater.spark.source.options import Metadata

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

POSITION = ("_partition", "_offset")
TIME = pa.timestamp("us", tz="UTC")
TOPIC = "_topic"
PUNCTUATION = "_punctuation"
TOMBSTONE = "_tombstone"
#: The key of a row whose value was decoded into columns.
KEY = "_key"

_SYSTEM_TYPES = {
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_appended_at": TIME,
    "_sent_at": TIME,
    "_headers": pa.map_(pa.string(), pa.binary()),
    TOMBSTONE: pa.bool_(),
    KEY: pa.binary(),
    TOPIC: pa.string(),
    PUNCTUATION: TIME,
}

_PLAIN = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


def carried_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type under which values of a type are sent to Spark.

    >>> carried_type(pa.uint64()), carried_type(pa.timestamp("ms")), carried_type(pa.list_(pa.uint8()))
    (Decimal128Type(decimal128(20, 0)), TimestampType(timestamp[us]), ListType(list<element: int16>))
    """
    types = pa.types
    if kind in _PLAIN:
        return _PLAIN[kind]
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if types.is_time(kind):
        return pa.time64("ns")
    if types.is_duration(kind):
        return pa.duration("us")
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal(kind):
        return _carried_decimal(kind)
    if types.is_map(kind):
        return pa.map_(carried_type(kind.key_type), carried_type(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", carried_type(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, carried_type(field.type)) for field in kind])
    return kind


def _carried_decimal(kind: pa.DataType) -> pa.DataType:
    if kind.precision > 38:
        raise SchemaInvalid(schema=str(kind), why="Spark's decimals have at most 38 digits")
    return pa.decimal128(kind.precision, kind.scale)


def spark_type(kind: pa.DataType) -> DataType:
    """Return the Spark type of a topic's column.

    >>> spark_type(pa.uint32()).simpleString(), spark_type(pa.list_(pa.string())).simpleString()
    ('bigint', 'array<string>')
    """
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return from_arrow_type(carried_type(kind), prefer_timestamp_ntz=True)
    except PySparkTypeError:
        raise SchemaInvalid(schema=str(kind), why="Spark has no such type") from None


def spark_schema(
    schema: pa.Schema,
    *,
    columns: tuple[str, ...] | None,
    topic: bool,
    metadata: Metadata | None,
    punctuations: bool,
    tombstones: bool,
    key: bool,
) -> StructType:
    """Return the schema of a DataFrame over a topic: its columns, then the requested system columns.

    Unless told otherwise, all columns come with the position of the row, by which operators break ties; and columns
    that were named come alone.
    All may be null: a row that marks a deletion has nothing but its key, and a punctuation not even that.
    """
    from pyspark.sql.types import StructField, StructType

    names = list(schema.names) if columns is None else list(columns)
    system = [TOPIC] if topic else []
    if metadata == "position" or (metadata is None and columns is None):
        system += POSITION
    if metadata == "all":
        system += [*([KEY] if key else []), *SYSTEM_COLUMNS, *([TOMBSTONE] if tombstones else [])]
    if punctuations:
        system.append(PUNCTUATION)
    names += [name for name in system if name not in names]
    types = {**{field.name: field.type for field in schema}, **_SYSTEM_TYPES}
    return StructType([StructField(name, spark_type(types[name])) for name in names])


def is_system(name: str) -> bool:
    return name in _SYSTEM_TYPES


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of batches that Spark reads and writes; the session's time zone affects display only."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def carried(array: pa.Array, kind: pa.DataType, *, topic: str, column: str) -> pa.Array:
    """Cast values to the type that the query expects; raise `SourceChanged` if one of them does not fit."""
    if array.type == kind:
        return array
    try:
        return _cast(array, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        why = f"column {column!r} has become {array.type}, and the query began with {kind} ({_first_line(error)})"
        raise SourceChanged(topic=topic, why=why) from error


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_timestamp(kind) and types.is_timestamp(array.type) and array.type.unit == "ns":
        return array.cast(kind, safe=False)  # Spark counts microseconds; what is finer is cut off
    if types.is_duration(kind) and types.is_duration(array.type) and array.type.unit == "ns":
        return array.cast(kind, safe=False)
    if types.is_struct(kind) and types.is_struct(array.type):
        return _cast_struct(array, kind)
    if types.is_list(kind) and (types.is_list(array.type) or types.is_large_list(array.type)):
        if types.is_nested(kind.value_type):
            values = _cast(array.flatten(), kind.value_type)
            lengths = pc.list_value_length(array).fill_null(0)
            offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
            return pa.ListArray.from_arrays(offsets, values, type=kind, mask=array.is_null())
        return array.cast(kind)
    return array.cast(kind)


def _cast_struct(array: pa.Array, kind: pa.DataType) -> pa.Array:
    fields = {field.name: index for index, field in enumerate(array.type)}
    columns = [
        _cast(array.field(fields[field.name]), field.type) if field.name in fields else pa.nulls(len(array), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=array.is_null() if array.null_count else None)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
