"""Rows that somebody has written into a page: begun from the schema or from a row, checked before they are appended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
import pyarrow as pa

from headwater.console.parts.pretty import is_json, pretty
from headwater.console.records import Record
from headwater.errors import ArgumentInvalid
from headwater.log.port import Topic
from headwater.schema.rows import to_batches
from headwater.server.bodies import JSON, JSON_LINES, rows_of


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Rows that fit the topic, and what goes with them."""

    # Any: rows in a shape that `Log.append` takes.
    rows: list[Any]
    headers: dict[str, bytes] | None
    partition: int | None


def draft_of(topic: Topic, *, value: str, key: str = "", headers: str = "", partition: int | None = None) -> Draft:
    """What somebody has written, checked by the schema; the first thing that does not fit is refused."""
    if topic.schemaless:
        rows: list[Any] = [(key.encode() if key else None, value.encode())]
    else:
        if not value.strip():
            raise ArgumentInvalid(name="rows", value="", expected="a JSON object, or several")
        body, kind = value.encode(), JSON_LINES if _are_lines(value) else JSON
        rows = rows_of(body, {"content-type": kind}, topic, size_max=len(body))
        if not rows:
            raise ArgumentInvalid(name="rows", value=value, expected="at least one row")
    to_batches(rows, topic.schema, topic=topic.name, key=topic.key)
    return Draft(rows=rows, headers=_headers(headers) or None, partition=partition)


def _are_lines(text: str) -> bool:
    """Whether each line is an object of its own."""
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) > 1 and all(line.lstrip().startswith("{") and is_json(line) for line in lines)


def _headers(text: str) -> dict[str, bytes]:
    """Lines of `name: value`.

    >>> _headers("trace: 4f2a\\n\\nsource:web")
    {'trace': b'4f2a', 'source': b'web'}
    """
    found: dict[str, bytes] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            raise ArgumentInvalid(name="headers", value=line, expected="one header a line, such as trace: 4f2a")
        found[name.strip()] = value.strip().encode()
    return found


def template_of(schema: pa.Schema, *, now: datetime) -> str:
    """A row with a value of the right kind in each column.

    >>> from datetime import UTC
    >>> print(template_of(pa.schema([("id", pa.int64()), ("name", pa.string())]), now=datetime(2026, 1, 1, tzinfo=UTC)))
    {
      "id": 0,
      "name": ""
    }
    """
    row = {one.name: _example(one.type, now) for one in schema}
    return pretty(orjson.dumps(row).decode())


def like(record: Record) -> str:
    """The value of a row, to be changed and sent again."""
    value = record.value or ""
    return pretty(value) if record.form == "json" else value


# Any: values of JSON.
def _example(kind: pa.DataType, now: datetime) -> Any:
    types = pa.types
    if types.is_struct(kind):
        return {part.name: _example(part.type, now) for part in kind}
    if types.is_list(kind) or types.is_large_list(kind):
        return [_example(kind.value_type, now)]
    if types.is_map(kind):
        return {"name": _example(kind.item_type, now)} if types.is_string(kind.key_type) else []
    if types.is_boolean(kind):
        return False
    if types.is_integer(kind):
        return 0
    if types.is_floating(kind):
        return 0.0
    return _example_text(kind, now)


def _example_text(kind: pa.DataType, now: datetime) -> str:
    types = pa.types
    if types.is_decimal(kind):
        return "0"
    if types.is_timestamp(kind):
        plain = now.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{plain}Z" if kind.tz else plain
    if types.is_date(kind):
        return now.date().isoformat()
    if types.is_time(kind):
        return "12:00:00"
    return "PT0S" if types.is_duration(kind) else ""
