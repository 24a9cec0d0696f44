"""Schemas as people give them to a command: as text, or in a file of text, JSON or Avro."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import SchemaInvalid

if TYPE_CHECKING:
    import pyarrow as pa


def given_schema(text: str) -> pa.Schema:
    """The schema that an argument says; one that is the path of a file is read from there.

    >>> given_schema("id int64, at timestamp").names
    ['id', 'at']
    """
    from headwater.schema import parse_schema

    path = Path(text.removeprefix("@"))
    if text.startswith("@") or path.suffix in {".json", ".avsc", ".txt", ".schema"}:
        text = path.read_text(encoding="utf-8")
    return _of_json(text) if text.lstrip().startswith("{") else parse_schema(text)


def _of_json(text: str) -> pa.Schema:
    """JSON is our own stored form, an Avro record, or a mapping of names to types."""
    from headwater.schema import encodings, parse_schema, schema_from_json

    try:
        # Any: what a file says is not known before it is read.
        body: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise SchemaInvalid(schema=" ".join(text.split())[:60], why=f"it is not JSON ({error})") from error
    if "columns" in body:
        return parse_schema(schema_from_json(body))
    if body.get("type") == "record":
        return parse_schema(encodings.avro.arrow_schema(body))
    return parse_schema(body)
