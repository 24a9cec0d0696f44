"""Compatibility of Avro schemas: the levels of a schema registry, decided by Headwater's rules of evolution.

`BACKWARD`: readers of the new schema can read what was written under the last one. `FORWARD`: readers of the last one can
read what is written under the new one. `FULL`: both. `…_TRANSITIVE`: not only the last one, but all.
A type may become one that holds each of its values exactly; that is stricter than Avro, which allows a long to become a
float. A field may be removed, and one may be added if it admits null or has a default, as in Avro.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from headwater.errors import SchemaInvalid
from headwater.schema.encodings.avro import arrow_schema
from headwater.schema.evolution import diff

LEVELS = ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE")
DEFAULT_LEVEL = "BACKWARD"
_NAME = "value"

# Any: Avro schemas are JSON values.
Avro = Any


def parse_avro(text: str) -> Avro:
    """Parse an Avro schema; raise `SchemaInvalid` if it is not valid, or has no Arrow form."""
    try:
        schema = orjson.loads(text)
    except ValueError as error:
        raise SchemaInvalid(schema=text[:200], why=f"it is not JSON ({error})") from error
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        fastavro.parse_schema(schema)
    # fastavro raises these for JSON values that are not a schema.
    except (
        SchemaParseException,
        UnknownType,
        TypeError,
        ValueError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        raise SchemaInvalid(schema=text[:200], why=f"it is not an Avro schema ({error})") from error
    rows_of(schema)
    return schema


def rows_of(schema: Avro) -> pa.Schema:
    """The schema as columns; one that is not a record is a single column."""
    return arrow_schema(_record(schema))


def conflicts(level: str, new: Avro, known: Sequence[Avro]) -> list[str]:
    """Why a schema may not follow the known ones, oldest first; empty if it may."""
    if level == "NONE" or not known:
        return []
    others = known if level.endswith("_TRANSITIVE") else known[-1:]
    kind = level.removesuffix("_TRANSITIVE")
    found: list[str] = []
    for other in others:
        if kind in ("BACKWARD", "FULL"):
            found += unreadable(reader=new, writer=other)
        if kind in ("FORWARD", "FULL"):
            found += unreadable(reader=other, writer=new)
    return list(dict.fromkeys(found))


def unreadable(*, reader: Avro, writer: Avro) -> list[str]:
    """Why a reader with the reader's schema could not read rows of the writer's schema.

    >>> long, int = '{"type": "long"}', '{"type": "int"}'
    >>> unreadable(reader=orjson.loads(long), writer=orjson.loads(int))
    []
    >>> unreadable(reader=orjson.loads(int), writer=orjson.loads(long))
    ['value: would change from int64 to int32, which is narrower']
    """
    defaults = set(_defaults(_record(reader), ""))
    found = []
    for change in diff(rows_of(writer), rows_of(reader)):
        if change.kind == "removed":
            continue
        if change.kind == "added":
            if change.column not in defaults and change.new.endswith(" not null"):
                found.append(f"{change.column}: is new, and has neither a default nor admits null")
        elif change.refused:
            found.append(f"{change.column}: {change.refused}")
    return found


def _record(schema: Avro) -> Avro:
    if isinstance(schema, Mapping) and schema.get("type") == "record":
        return schema
    return {"type": "record", "name": _NAME, "fields": [{"name": _NAME, "type": schema}]}


def _defaults(schema: Avro, path: str) -> Iterator[str]:
    """The paths of fields that have a default, in the notation of `diff`."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _defaults(branch, path)
    elif isinstance(schema, Mapping):
        kind = schema.get("type")
        if kind == "record":
            for field in schema.get("fields", ()):
                if "default" in field:
                    yield path + field["name"]
                yield from _defaults(field["type"], f"{path}{field['name']}.")
        elif kind == "array":
            yield from _defaults(schema["items"], f"{path.removesuffix('.')}[].")
        elif kind == "map":
            yield from _defaults(schema["values"], f"{path.removesuffix('.')}{{}}.")
        elif isinstance(kind, (Mapping, list)):
            yield from _defaults(kind, path)
