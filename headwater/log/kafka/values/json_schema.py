"""The JSON Schema of a topic's rows, as a registry takes it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headwater.schema.cast import is_text


# Any: a schema is a JSON value.
def json_schema(schema: pa.Schema, title: str) -> dict[str, Any]:
    """The JSON Schema of rows as `headwater.schema.encodings.json` writes them.

    >>> json_schema(pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())]), "users")["properties"]
    {'id': {'type': 'integer'}, 'name': {'oneOf': [{'type': 'null'}, {'type': 'string'}]}}
    """
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": title,
        "type": "object",
        "properties": {column.name: _field(column) for column in schema},
        "required": [column.name for column in schema if not column.nullable],
        "additionalProperties": True,
    }


def _field(field: pa.Field) -> dict[str, Any]:
    kind = _type(field.type)
    return {"oneOf": [{"type": "null"}, kind]} if field.nullable else kind


def _type(kind: pa.DataType) -> dict[str, Any]:
    types = pa.types
    if types.is_boolean(kind):
        return {"type": "boolean"}
    if types.is_integer(kind):
        return {"type": "integer"}
    if types.is_floating(kind):
        return {"type": ["number", "string"]}  # NaN and the infinities are strings
    if types.is_timestamp(kind) and kind.tz:
        return {"type": "string", "format": "date-time"}
    if types.is_date(kind):
        return {"type": "string", "format": "date"}
    if types.is_struct(kind):
        return {"type": "object", "properties": {part.name: _field(part) for part in kind}}
    if types.is_map(kind):
        item = _field(kind.item_field)
        if is_text(kind.key_type):
            return {"type": "object", "additionalProperties": item}
        return {"type": "array", "items": {"type": "array"}}
    if types.is_list(kind) or types.is_large_list(kind):
        return {"type": "array", "items": _field(kind.value_field)}
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return {"type": ["string", "object"]}  # base64 in an object, unless the bytes are UTF-8
    return {"type": "string"}
