"""Topic schemas: text, mappings, dataclasses and Arrow schemas, parsed into one canonical Arrow schema.

A canonical schema has no metadata, no dictionary or view types, and list items named `item`. Two schemas with the same
meaning are therefore equal, so that the log compares them with one call on its hot path.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headwater.errors import SchemaInvalid
from headwater.schema.notation import (
    ALIASES,
    PLAIN_TYPES,
    check_zone,
    format_field,
    format_name,
    format_type,
    parse_columns,
    parse_type,
)

#: The rows of a topic that was created without a schema.
SCHEMALESS: pa.Schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])

_PYTHON_TYPES: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    bytearray: pa.binary(),
    decimal.Decimal: ALIASES["decimal"],
    datetime.datetime: ALIASES["timestamp"],
    datetime.date: pa.date32(),
    datetime.time: ALIASES["time"],
    datetime.timedelta: ALIASES["duration"],
}

_PLAIN = frozenset(PLAIN_TYPES.values())


def parse_schema(schema: Any) -> pa.Schema:
    """Parse a schema given as text, a mapping, a dataclass or an Arrow schema; None means keys and values as bytes.

    Columns of text and mappings admit null unless they are `not null`; those of a dataclass if the annotation does.
    Names that begin with `_` are reserved for system columns (`_offset`, `_headers`).

    >>> parse_schema("id int64 not null, at timestamp, tags list<string>").names
    ['id', 'at', 'tags']
    >>> format_schema(parse_schema({"id": int, "price": "decimal(12,2)"}))
    'id int64, price decimal(12,2)'
    >>> format_schema(parse_schema(None))
    'key binary, value binary'
    """
    if schema is None:
        return SCHEMALESS
    try:
        columns = [_canonical_field(column) for column in _columns(schema)]
        _check_names(columns)
    except ValueError as error:
        raise SchemaInvalid(schema=_shown(schema), why=str(error)) from error
    return pa.schema(columns)


def format_schema(schema: pa.Schema) -> str:
    """The text form of a schema, which `parse_schema` parses.

    >>> format_schema(pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", tz="UTC"))]))
    'id int64 not null, at timestamp'
    """
    return ", ".join(f"{format_name(column.name)} {format_field(column)}" for column in schema)


def schema_to_json(schema: pa.Schema) -> dict[str, Any]:
    """The schema as JSON, as it is stored on disk.

    >>> schema_to_json(parse_schema("id int64 not null, tags list<string>"))
    {'columns': [{'name': 'id', 'type': 'int64', 'nullable': False}, {'name': 'tags', 'type': 'list<string>', 'nullable': True}]}
    """
    return {
        "columns": [
            {"name": column.name, "type": format_type(column.type), "nullable": column.nullable} for column in schema
        ]
    }


def schema_from_json(data: Mapping[str, Any]) -> pa.Schema:
    """Parse what `schema_to_json` wrote.

    >>> schema_from_json({"columns": [{"name": "id", "type": "int64", "nullable": False}]})
    id: int64 not null
    """
    try:
        return pa.schema(
            [
                pa.field(column["name"], parse_type(column["type"])[0], nullable=column["nullable"])
                for column in data["columns"]
            ]
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SchemaInvalid(schema=_shown(data), why=f"its stored form is damaged ({error})") from error


def _shown(schema: Any) -> str:
    """The schema on one line, shortened, for the text of an error."""
    if isinstance(schema, type):
        return schema.__qualname__
    text = repr(schema) if not isinstance(schema, pa.Schema) else schema.to_string(show_field_metadata=False)
    text = " ".join(text.split())
    return text if len(text) <= 200 else text[:199] + "…"


def _columns(schema: Any) -> list[pa.Field]:
    if isinstance(schema, pa.Schema):
        return list(schema)
    if isinstance(schema, str):
        return parse_columns(schema) if schema.strip() else []
    if isinstance(schema, Mapping):
        return [_field_of_mapping(name, value) for name, value in schema.items()]
    if dataclasses.is_dataclass(schema):
        return _fields_of_dataclass(schema if isinstance(schema, type) else type(schema), within=())
    raise ValueError(f"a {type(schema).__name__} is not a schema")


def _field_of_mapping(name: Any, value: Any) -> pa.Field:
    if isinstance(value, pa.Field):
        return value.with_name(name)
    if isinstance(value, pa.DataType):
        return pa.field(name, value)
    if isinstance(value, str):
        kind, nullable = parse_type(value)
        return pa.field(name, kind, nullable=nullable)
    if isinstance(value, Mapping):
        return pa.field(name, pa.struct([_field_of_mapping(*part) for part in value.items()]))
    return pa.field(name, _type_of_annotation(value, within=())[0])


def _fields_of_dataclass(kind: type, *, within: tuple[type, ...]) -> list[pa.Field]:
    if kind in within:
        raise ValueError(f"{kind.__name__} contains itself, and a row cannot be infinite")
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise ValueError(f"an annotation of {kind.__name__} cannot be resolved ({error})") from error
    columns = []
    for part in dataclasses.fields(kind):
        value, nullable = _type_of_annotation(hints[part.name], within=(*within, kind))
        columns.append(pa.field(part.name, value, nullable=nullable))
    return columns


def _type_of_annotation(annotation: Any, *, within: tuple[type, ...]) -> tuple[pa.DataType, bool]:
    """The Arrow type of a Python annotation, and whether it admits None."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        others = [argument for argument in arguments if argument is not types.NoneType]
        if len(others) != 1 or len(others) == len(arguments):
            raise ValueError(f"{annotation} is a choice of types, and a column has one")
        return _type_of_annotation(others[0], within=within)[0], True
    if origin is typing.Annotated:
        return _type_of_annotated(arguments, within=within)
    if origin in (list, tuple, set, frozenset):
        if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            raise ValueError(f"{annotation} is a tuple of fixed length; use list[…] or a dataclass")
        item, nullable = _type_of_annotation(arguments[0], within=within)
        return pa.list_(pa.field("item", item, nullable=nullable)), False
    if origin is not None and issubclass(origin, Mapping):
        item, nullable = _type_of_annotation(arguments[1], within=within)
        key = _type_of_annotation(arguments[0], within=within)[0]
        return pa.map_(key, pa.field("value", item, nullable=nullable)), False
    return _type_of_class(annotation, within=within), False


def _type_of_annotated(arguments: tuple[Any, ...], *, within: tuple[type, ...]) -> tuple[pa.DataType, bool]:
    """The type in `Annotated[int, "int32"]`, which is more exact than Python's own."""
    nullable = _type_of_annotation(arguments[0], within=within)[1]
    for note in arguments[1:]:
        if isinstance(note, pa.DataType):
            return note, nullable
        if isinstance(note, str):
            return parse_type(note)[0], nullable
    return _type_of_annotation(arguments[0], within=within)


def _type_of_class(kind: Any, *, within: tuple[type, ...]) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return kind
    if isinstance(kind, type):
        if dataclasses.is_dataclass(kind):
            return pa.struct(_fields_of_dataclass(kind, within=within))
        for base in kind.__mro__:
            if base in _PYTHON_TYPES:
                return _PYTHON_TYPES[base]
        if issubclass(kind, list | dict | tuple | set):
            raise ValueError(
                f"{kind.__name__} does not say what it holds; write for instance list[str] or dict[str, int]"
            )
    raise ValueError(f"{getattr(kind, '__name__', kind)!s} has no Arrow type")


def _check_names(columns: list[pa.Field]) -> None:
    if not columns:
        raise ValueError("it has no columns")
    seen: set[str] = set()
    for column in columns:
        if column.name.startswith("_"):
            raise ValueError(f"column {column.name!r} begins with '_', which is reserved for system columns")
        _check_name(column.name, seen)


def _check_name(name: str, seen: set[str]) -> None:
    if not name.strip():
        raise ValueError("a column has no name")
    if name in seen:
        raise ValueError(f"there are two columns {name!r}")
    seen.add(name)


def _canonical_field(column: pa.Field) -> pa.Field:
    try:
        return pa.field(column.name, canonical_type(column.type), nullable=column.nullable)
    except ValueError as error:
        raise ValueError(f"column {column.name!r}: {error}") from error


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """The canonical type with the same values. Raise `ValueError` for a type that is not supported.

    >>> canonical_type(pa.dictionary(pa.int32(), pa.string()))
    DataType(string)
    """
    if kind in _PLAIN:
        return kind
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return canonical_type(kind.value_type)
    if pa.types.is_nested(kind):
        return _canonical_nested(kind)
    if pa.types.is_timestamp(kind):
        if kind.tz:
            check_zone(kind.tz)
        return kind
    if pa.types.is_decimal(kind):
        return _canonical_decimal(kind)
    if pa.types.is_time(kind) or pa.types.is_duration(kind) or pa.types.is_fixed_size_binary(kind):
        return kind
    return _replacement(kind)


def _canonical_nested(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        parts = [_canonical_field(part) for part in kind]
        if not parts:
            raise ValueError("a struct has no fields")
        seen: set[str] = set()
        for part in parts:
            _check_name(part.name, seen)
        return pa.struct(parts)
    if pa.types.is_map(kind):
        item = pa.field("value", canonical_type(kind.item_type), nullable=kind.item_field.nullable)
        return pa.map_(canonical_type(kind.key_type), item)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = pa.field("item", canonical_type(kind.value_type), nullable=kind.value_field.nullable)
        return pa.list_(item) if pa.types.is_list(kind) else pa.large_list(item)
    raise ValueError(f"the type {kind} is not supported{'; use list<…>' if 'list' in str(kind) else ''}")


def _canonical_decimal(kind: pa.DataType) -> pa.DataType:
    if not 0 <= kind.scale <= kind.precision:
        raise ValueError(f"a decimal({kind.precision},…) has a scale of 0 to {kind.precision}, not {kind.scale}")
    # Arrow's 32- and 64-bit decimals hold the same values, but few readers support them.
    return kind if kind.bit_width >= 128 else pa.decimal128(kind.precision, kind.scale)


def _replacement(kind: pa.DataType) -> pa.DataType:
    replacements = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.date64(): pa.date32()}
    if kind in replacements:
        return replacements[kind]
    hint = {pa.null(): "; say what it may hold", pa.float16(): "; use float32"}.get(kind, "")
    raise ValueError(f"the type {kind} is not supported{hint}")
