"""Events as rows of their topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from headwater.schema import parse_schema

SUFFIX = ".events"
SCHEMA: pa.Schema = parse_schema(
    "entity string not null, version int64 not null, event string not null, schema int32 not null, "
    "data string not null, at timestamp not null, command_id string, by string, why string, correlation string, "
    "causation string, tags list<string>"
)


class EventRow(NamedTuple):
    """One event as it is stored: what happened, in which order for its entity, and who caused it."""

    entity: str
    version: int
    event: str
    schema: int
    data: str
    at_us: int
    command_id: str | None = None
    by: str | None = None
    why: str | None = None
    correlation: str | None = None
    causation: str | None = None
    tags: list[str] | None = None
    #: -1 until it is appended.
    offset: int = -1


def to_batch(rows: Sequence[EventRow]) -> pa.RecordBatch:
    """The rows as one Arrow batch."""
    columns = list(zip(*rows, strict=True))[:-1]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def from_batch(batch: pa.RecordBatch) -> list[EventRow]:
    """The rows of a batch that was read, with their offsets."""
    columns = [batch.column(name).to_pylist() for name in SCHEMA.names if name != "at"]
    columns.insert(SCHEMA.names.index("at"), batch.column("at").cast(pa.int64()).to_pylist())
    return [EventRow(*row) for row in zip(*columns, batch.column("_offset").to_pylist(), strict=True)]
