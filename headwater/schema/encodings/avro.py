"""Rows as Avro: single records for messages, container files for exchange, and schema resolution by Avro's rules.

An Arrow type that Avro lacks is written as one that holds it: small integers as int, uint32 as long, uint64 as a decimal of
20 digits, seconds as milliseconds, maps without text keys as arrays of records, nanoseconds as plain longs. Column names
that Avro does not allow are written with underscores. Times outside the years 1 to 9999 cannot be read back.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from headwater.errors import EncodingInvalid, SchemaInvalid
from headwater.schema.cast import Misfit, is_text
from headwater.schema.encodings import avro_columns
from headwater.schema.nested import to_values
from headwater.schema.values import Ticks, to_array

AvroSchema = Any  # JSON: a string, a list or a mapping
Convert = Callable[[Any], Any]

_FLAT: dict[pa.DataType, AvroSchema] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.uint8(): "int",
    pa.uint16(): "int",
    pa.uint32(): "long",
    pa.uint64(): {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0},
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time32("s"): {"type": "int", "logicalType": "time-millis"},
    pa.time32("ms"): {"type": "int", "logicalType": "time-millis"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}
_ARROW_OF_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "timestamp-nanos": pa.timestamp("ns", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
    "uuid": pa.string(),
}
_ARROW_OF_PRIMITIVE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
}
_TIMESTAMP_UNITS = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}
#: Fewer records than these are decoded by rows, which is faster then.
COLUMNS_RECORDS_MIN = 32
_RECORDED = "arrow"  # the attribute of a record that represents a map whose keys are not text


# -- schemas ----------------------------------------------------------------------------------------------------------


def avro_schema(schema: pa.Schema, name: str = "row") -> dict[str, Any]:
    """The Avro record for rows of this schema.

    >>> avro_schema(pa.schema([pa.field("id", pa.int64(), nullable=False), ("tags", pa.list_(pa.string()))]), "order")
    {'type': 'record', 'name': 'order', 'fields': [{'name': 'id', 'type': 'long'}, {'name': 'tags', 'type': ['null', \
{'type': 'array', 'items': ['null', 'string']}], 'default': None}]}
    """
    record = avro_name(name)
    return {"type": "record", "name": record, "fields": _avro_fields(list(schema), record)}


def avro_name(name: str) -> str:
    """The name with only characters that Avro allows.

    >>> avro_name("unit price"), avro_name("2nd")
    ('unit_price', '_2nd')
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"


def _avro_names(fields: list[pa.Field]) -> list[str]:
    """A name for each field; equal ones are numbered."""
    names: list[str] = []
    for field in fields:
        name, number = avro_name(field.name), 1
        while name in names:
            number += 1
            name = f"{avro_name(field.name)}_{number}"
        names.append(name)
    return names


def _avro_fields(fields: list[pa.Field], path: str) -> list[dict[str, Any]]:
    described = []
    for field, name in zip(fields, _avro_names(fields), strict=True):
        kind = _avro_type(field.type, f"{path}_{name}")
        described.append(
            {"name": name, "type": ["null", kind], "default": None} if field.nullable else {"name": name, "type": kind}
        )
    return described


def _avro_type(kind: pa.DataType, path: str) -> AvroSchema:
    if kind in _FLAT:
        return _FLAT[kind]
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-{_TIMESTAMP_UNITS[kind.unit]}"}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_fixed_size_binary(kind):
        return {"type": "fixed", "name": path, "size": kind.byte_width}
    if pa.types.is_struct(kind):
        return {"type": "record", "name": path, "fields": _avro_fields(list(kind), path)}
    if pa.types.is_map(kind):
        return _avro_map(kind, path)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _avro_part(kind.value_field, f"{path}_item")}
    return "long"


def _avro_part(field: pa.Field, path: str) -> AvroSchema:
    kind = _avro_type(field.type, path)
    return ["null", kind] if field.nullable else kind


def _avro_map(kind: pa.DataType, path: str) -> AvroSchema:
    if is_text(kind.key_type):
        return {"type": "map", "values": _avro_part(kind.item_field, f"{path}_value")}
    fields = _avro_fields([pa.field("key", kind.key_type, nullable=False), kind.item_field.with_name("value")], path)
    return {"type": "array", "items": {"type": "record", "name": path, _RECORDED: "map", "fields": fields}}


def arrow_schema(schema: AvroSchema) -> pa.Schema:
    """The Arrow schema for rows of an Avro record, for files that come without a topic.

    >>> arrow_schema({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})
    id: int64 not null
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise SchemaInvalid(schema=str(schema)[:200], why="rows are Avro records")
    try:
        return pa.schema([_arrow_field(field, {}) for field in schema["fields"]])
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaInvalid(schema=str(schema)[:200], why=f"this Avro schema has no Arrow form ({error})") from error


def _arrow_field(field: Mapping[str, Any], named: dict[str, pa.DataType]) -> pa.Field:
    kind, nullable = _arrow_type(field["type"], named)
    return pa.field(field["name"], kind, nullable=nullable)


def _arrow_type(schema: AvroSchema, named: dict[str, pa.DataType]) -> tuple[pa.DataType, bool]:
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        if len(others) != 1:
            raise ValueError(f"a choice of {len(others)} types")
        return _arrow_type(others[0], named)[0], len(others) < len(schema)
    if isinstance(schema, str):
        found = _ARROW_OF_PRIMITIVE.get(schema, named.get(schema))
        if found is None:
            raise ValueError(f"the type {schema!r}")
        return found, False
    kind = _arrow_type_of_mapping(schema, named)
    if "name" in schema:
        named[schema["name"]] = kind
    return kind, False


def _arrow_type_of_mapping(schema: Mapping[str, Any], named: dict[str, pa.DataType]) -> pa.DataType:
    logical = schema.get("logicalType")
    if logical == "decimal":
        precision, scale = schema["precision"], schema.get("scale", 0)
        return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if logical in _ARROW_OF_LOGICAL:
        return _ARROW_OF_LOGICAL[logical]
    match schema["type"]:
        case "record":
            return pa.struct([_arrow_field(field, named) for field in schema["fields"]])
        case "array":
            kind, nullable = _arrow_type(schema["items"], named)
            return pa.list_(pa.field("item", kind, nullable=nullable))
        case "map":
            kind, nullable = _arrow_type(schema["values"], named)
            return pa.map_(pa.string(), pa.field("value", kind, nullable=nullable))
        case "fixed":
            return pa.binary(schema["size"])
        case other:
            return _arrow_type(other, named)[0]


# -- encoding ---------------------------------------------------------------------------------------------------------


def encode(batch: pa.RecordBatch, name: str = "row") -> list[bytes]:
    """Each row as one Avro record, without a header: the reader must know `avro_schema(batch.schema, name)`.

    >>> encode(pa.record_batch({"id": [1, None]}))
    [b'\\x02\\x02', b'\\x00']
    """
    import fastavro  # imported on demand

    parsed = fastavro.parse_schema(avro_schema(batch.schema, name))
    encoded = []
    for row in _avro_rows(batch):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row)
        encoded.append(buffer.getvalue())
    return encoded


def write_container(
    file: BinaryIO, batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, name: str = "row", codec: str = "deflate"
) -> None:
    """Write batches of one schema as an Avro container file, which includes the schema.

    >>> file = io.BytesIO()
    >>> write_container(file, [pa.record_batch({"id": [1]})], pa.schema([("id", pa.int64())]))
    >>> [batch.to_pylist() for batch in read_container(io.BytesIO(file.getvalue()))]
    [[{'id': 1}]]
    """
    import fastavro

    rows = (row for batch in batches for row in _avro_rows(batch))
    fastavro.writer(file, fastavro.parse_schema(avro_schema(schema, name)), rows, codec=codec)


def _avro_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = _avro_names(list(batch.schema))
    columns = [_avro_values(column) for column in batch.columns]
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _avro_values(array: pa.Array) -> list[Any]:
    values, convert = to_values(array, _avro_leaf), _converter(array.type, outward=True)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _avro_leaf(array: pa.Array) -> list[Any]:
    """Flat values for fastavro; times as integers, so that Python's limits do not apply."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return list(
            (array.cast(pa.timestamp("ms", tz=kind.tz)) if kind.unit == "s" else array).cast(pa.int64()).to_pylist()
        )
    if pa.types.is_date32(kind):
        return list(array.cast(pa.int32()).to_pylist())
    if pa.types.is_time32(kind):
        return list(array.cast(pa.time32("ms")).cast(pa.int32()).to_pylist())
    if pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return list(array.cast(pa.int64()).to_pylist())
    if pa.types.is_uint64(kind):
        return list(array.cast(pa.decimal128(20, 0)).to_pylist())
    return list(array.to_pylist())


def _converter(kind: pa.DataType, *, outward: bool) -> Convert | None:
    """Converts the names of fields, maps and units between Arrow and Avro; None if there is nothing to convert."""
    if pa.types.is_struct(kind):
        fields = list(kind)
        names = [(field.name, name) for field, name in zip(fields, _avro_names(fields), strict=True)]
        if not outward:
            names = [(theirs, ours) for ours, theirs in names]
        converts = [_optional(_converter(field.type, outward=outward)) or _same for field in fields]
        parts = [(source, target, convert) for (source, target), convert in zip(names, converts, strict=True)]
        return lambda value: {target: convert(value[source]) for source, target, convert in parts}
    if pa.types.is_map(kind):
        return _map_converter(kind, outward=outward)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _optional(_converter(kind.value_type, outward=outward))
        return None if inner is None else lambda items: [inner(item) for item in items]
    if outward or not pa.types.is_temporal(kind):
        return None
    # A type that fastavro has no class for comes as a number of units, which `to_array` must not read as microseconds.
    return lambda value: Ticks(value) if type(value) is int else value


def _map_converter(kind: pa.DataType, *, outward: bool) -> Convert:
    of_key = _optional(_converter(kind.key_type, outward=outward)) or _same
    of_item = _optional(_converter(kind.item_type, outward=outward)) or _same
    if is_text(kind.key_type):
        if outward:
            return lambda pairs: {key: of_item(item) for key, item in pairs}
        return lambda pairs: {key: of_item(item) for key, item in pairs.items()}
    if outward:
        return lambda pairs: [{"key": of_key(key), "value": of_item(item)} for key, item in pairs]
    return lambda pairs: [(of_key(pair["key"]), of_item(pair["value"])) for pair in pairs]


def _optional(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


# -- decoding ---------------------------------------------------------------------------------------------------------


def decode(records: list[bytes], writer_schema: AvroSchema, schema: pa.Schema) -> pa.RecordBatch:
    """Decode single records of the writer's schema to rows of this schema.

    By Avro's rules: fields that the writer did not have are null, its other fields are skipped, and numbers widen.

    >>> writer = avro_schema(pa.schema([("id", pa.int32()), ("more", pa.string())]))
    >>> records = encode(pa.record_batch({"id": pa.array([7], pa.int32()), "more": ["x"]}))
    >>> decode(records, writer, pa.schema([("id", pa.int64()), ("name", pa.string())])).to_pylist()
    [{'id': 7, 'name': None}]
    """
    import fastavro

    writer = _parsed(writer_schema)
    reader_schema = _named_like(avro_schema(schema), writer_schema)
    if len(records) >= COLUMNS_RECORDS_MIN:
        with contextlib.suppress(avro_columns.Irregular):  # decoded by rows then, which says what is wrong
            return avro_columns.decode(records, writer_schema, reader_schema, schema)
    reader = fastavro.parse_schema(reader_schema)

    def read(record: bytes) -> Any:
        buffer = io.BytesIO(record)
        row = fastavro.schemaless_reader(buffer, writer, reader)
        if buffer.tell() < len(record):
            raise ValueError(f"{len(record) - buffer.tell()} bytes are left over")
        return row

    return _batch([_guarded(partial(read, record), f"record {i}") for i, record in enumerate(records)], schema)


def read_container(
    file: BinaryIO, schema: pa.Schema | None = None, *, rows_max: int = 8_192
) -> Iterator[pa.RecordBatch]:
    """The rows of a container file, in this schema or in the file's own."""
    import fastavro

    reader = _guarded(lambda: fastavro.reader(file), "the header")
    target = schema if schema is not None else arrow_schema(reader.writer_schema)
    reader.reader_schema = fastavro.parse_schema(_named_like(avro_schema(target), reader.writer_schema))
    rows: list[Any] = []
    number = 0
    while (row := _guarded(partial(next, reader, None), f"record {number}")) is not None:
        rows.append(row)
        number += 1
        if len(rows) >= rows_max:
            yield _batch(rows, target)
            rows = []
    if rows:
        yield _batch(rows, target)


def _parsed(schema: AvroSchema) -> AvroSchema:
    import fastavro

    try:
        return fastavro.parse_schema(schema)
    except Exception as error:  # fastavro raises what it meets: KeyError, TypeError, its own classes.
        raise SchemaInvalid(schema=str(schema)[:200], why=f"this is not an Avro schema ({error})") from error


def _guarded(read: Callable[[], Any], position: str) -> Any:
    try:
        return read()
    except Exception as error:  # Damaged bytes make fastavro fail in any way at all; each of them means the same.
        why = f"{type(error).__name__}: {error}" if str(error) else "the bytes end too early"
        raise EncodingInvalid(encoding="Avro", position=position, why=why) from error


def _named_like(reader: AvroSchema, writer: AvroSchema) -> AvroSchema:
    """The reader's schema with the writer's record names, for Avro matches records by name, and ours are made up."""
    if isinstance(reader, list):
        return [_named_like(branch, writer) for branch in reader]
    if isinstance(writer, list):
        same = [branch for branch in writer if _sort(branch) == _sort(reader)]
        return _named_like(reader, same[0]) if same else reader
    if not isinstance(reader, dict) or not isinstance(writer, Mapping) or _sort(reader) != _sort(writer):
        return reader
    match reader["type"]:
        case "record":
            theirs = {field["name"]: field["type"] for field in writer["fields"]}
            fields = [
                {**field, "type": _named_like(field["type"], theirs.get(field["name"]))} for field in reader["fields"]
            ]
            return {**reader, "name": writer["name"], "fields": fields}
        case "array":
            return {**reader, "items": _named_like(reader["items"], writer["items"])}
        case "map":
            return {**reader, "values": _named_like(reader["values"], writer["values"])}
        case "fixed":
            return {**reader, "name": writer["name"]}
    return reader


def _sort(schema: AvroSchema) -> Any:
    return schema.get("type") if isinstance(schema, Mapping) else schema


def _batch(rows: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    names = _avro_names(list(schema))
    arrays = []
    for column, name in zip(schema, names, strict=True):
        convert = _optional(_converter(column.type, outward=False)) or _same
        try:
            arrays.append(to_array([convert(row[name]) for row in rows], column.type))
        except Misfit as error:
            raise EncodingInvalid(encoding="Avro", position=f"column {column.name!r}", why=str(error)) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
