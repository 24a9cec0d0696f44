"""Rows: topic schemas and their evolution, and conversion from and to every form and encoding."""

from headwater.schema import cloudevents, encodings
from headwater.schema.cast import misfit
from headwater.schema.cloudevents import CLOUDEVENT_SCHEMA
from headwater.schema.event_time import EventTime
from headwater.schema.evolution import Change, conform, diff, evolve
from headwater.schema.partitioner import key_hash, partition_of, partition_of_text
from headwater.schema.rows import ASSIGNED_COLUMNS, HEADERS_TYPE, RowBatch, stored_schema, to_batches, to_rows
from headwater.schema.types import SCHEMALESS, format_schema, parse_schema, schema_from_json, schema_to_json

__all__ = [
    "ASSIGNED_COLUMNS",
    "CLOUDEVENT_SCHEMA",
    "HEADERS_TYPE",
    "SCHEMALESS",
    "Change",
    "EventTime",
    "RowBatch",
    "cloudevents",
    "conform",
    "diff",
    "encodings",
    "evolve",
    "format_schema",
    "key_hash",
    "misfit",
    "parse_schema",
    "partition_of",
    "partition_of_text",
    "schema_from_json",
    "schema_to_json",
    "stored_schema",
    "to_batches",
    "to_rows",
]
