"""Rows in the bodies of requests and answers: Arrow streams for programs, JSON lines, JSON and CloudEvents.

Integers have all their digits. A browser rounds integers beyond 2^53, so it sets `integers=text` and gets those of 64
bits as text.

CloudEvents can be appended to any topic with their attributes. A topic of `CLOUDEVENT_SCHEMA` holds the whole event. A
topic without a schema holds its data as bytes, under the key in `partitionkey`; any other topic holds its data, a JSON
object, as columns. In both the attributes are headers of the row.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

import orjson
import pyarrow as pa

from headwater.errors import EncodingInvalid
from headwater.http.arrow_body import unpacked
from headwater.http.errors import BodyTooLarge, MediaTypeUnknown
from headwater.log import Batch, Topic
from headwater.log.remote.wire import ARROW, batches_to_bytes
from headwater.schema import cloudevents
from headwater.schema.encodings import json as json_lines
from headwater.services.row_pages import joined
from headwater.services.row_text import decoded_rows, json_lines_of

JSON_LINES = "application/x-ndjson"
JSON = "application/json"
_LINES = (JSON_LINES, "application/jsonl", "application/json-lines", "application/jsonlines")
KNOWN = f"{JSON_LINES}, {JSON}, {ARROW}, application/cloudevents+json, application/cloudevents-batch+json"
Integers = Literal["number", "text"]
#: Batches with fewer rows on average are joined before they are encoded as JSON.
SMALL_BATCH_ROWS = 64


# -- in ---------------------------------------------------------------------------------------------------------------


# Any: rows in a shape that `Log.append` takes.
def rows_of(body: bytes, headers: Mapping[str, str], topic: Topic, *, size_max: int) -> Any:
    """The rows of a request; after decompression it may be no larger than a body."""
    body = decompressed(body, headers.get("content-encoding", ""), size_max=size_max)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if is_event(kind, headers):
        return rows_of_events(kind, headers, body, topic)
    if kind == ARROW:
        return unpacked(body, size_max=size_max)
    if kind in _LINES:
        return decoded_rows(body, topic)
    if kind == JSON:
        return decoded_rows(json_lines_of(body), topic)
    raise MediaTypeUnknown(given=kind[:100] or "none", known=KNOWN)


def decompressed(body: bytes, encoding: str, *, size_max: int) -> bytes:
    """A body without its `Content-Encoding`; no more is decompressed than a body may have.

    >>> import gzip
    >>> decompressed(gzip.compress(b"rows"), "gzip", size_max=4)
    b'rows'
    """
    if encoding.strip().lower() in ("", "identity"):
        return body
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise MediaTypeUnknown(given=f"Content-Encoding: {encoding[:100]}", known="a body in gzip, or not encoded")
    parts, size, rest = [], 0, body
    try:
        while rest:  # a body may have several members, one behind the other
            member = zlib.decompressobj(wbits=31)
            part = member.decompress(rest, size_max - size + 1)
            size += len(part)
            if size > size_max:
                raise BodyTooLarge(size_max=size_max)
            if not member.eof:
                raise EncodingInvalid(encoding="gzip", position="the end of the body", why="it is not complete")
            parts.append(part)
            rest = member.unused_data
    except zlib.error as error:
        raise EncodingInvalid(encoding="gzip", position="the body", why=str(error)) from error
    return b"".join(parts)


# -- CloudEvents ------------------------------------------------------------------------------------------------------


def is_event(kind: str, headers: Mapping[str, str]) -> bool:
    """Whether a request has events, by its media type or its headers."""
    return kind in (cloudevents.CONTENT_TYPE, cloudevents.CONTENT_TYPE_BATCH) or cloudevents.is_cloudevent(headers)


# Any: rows, whose columns are of any type.
def rows_of_events(kind: str, headers: Mapping[str, str], body: bytes, topic: Topic) -> list[dict[str, Any]]:
    """The rows of a request's events."""
    if kind == cloudevents.CONTENT_TYPE:
        events = [cloudevents.from_structured(body)]
    elif kind == cloudevents.CONTENT_TYPE_BATCH:
        events = cloudevents.from_structured_batch(body)
    else:
        own = {
            name: value for name, value in headers.items() if name.lower().startswith("ce-") or name == "content-type"
        }
        events = [cloudevents.from_binary(own, body)]
    return [_row(event, topic) for event in events]


def _row(event: Mapping[str, Any], topic: Topic) -> dict[str, Any]:
    if topic.schema.names == cloudevents.CLOUDEVENT_SCHEMA.names:
        return cloudevents.to_row(event)
    headers = list(cloudevents.to_headers(event).items())
    if topic.schemaless:
        key = event.get("partitionkey")
        value = cloudevents.to_row(event)["data"]
        return {"key": None if key is None else str(key).encode(), "value": value, "_headers": headers}
    data = event.get("data")
    if not isinstance(data, Mapping):
        why = f"topic {topic.name!r} has columns, so that its data must be a JSON object"
        raise EncodingInvalid(encoding="CloudEvent", position=f"event {event.get('id')!r}", why=why)
    return {**data, "_headers": headers}


# -- out --------------------------------------------------------------------------------------------------------------


def form_of(accept: str) -> str:
    """The form of rows that a client accepts; JSON lines by default."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for kind in kinds:
        if kind == ARROW:
            return ARROW
        if kind in _LINES:
            return JSON_LINES
        if kind == JSON:
            return JSON
    return JSON_LINES


def encoded(schema: pa.Schema, batches: list[Batch], form: str, *, integers: Integers) -> bytes:
    """Batches, with their punctuations, as the body of an answer."""
    if form == ARROW:
        return batches_to_bytes(schema, batches)
    lines = [line for batch in _together(batches) for line in lines_of(batch, integers=integers)]
    if form == JSON:
        return b"[" + b",".join(lines) + b"]"
    return b"".join(line + b"\n" for line in lines)


def _together(batches: list[Batch]) -> Iterator[Batch]:
    """Join small batches between two punctuations: rows of several partitions may come in batches of one row each."""
    for _, some in groupby(batches, key=lambda batch: batch.punctuation_us):
        known = list(some)
        first = known[0]
        is_large = sum(batch.data.num_rows for batch in known) >= SMALL_BATCH_ROWS * len(known)
        if first.punctuation_us is not None or is_large:
            yield from known
        else:
            [data] = joined(batch.data for batch in known) or [first.data]
            yield replace(first, data=data)


def lines_of(batch: Batch, *, integers: Integers) -> Iterator[bytes]:
    """Each row as a line of JSON; a punctuation as a line with its time."""
    if batch.punctuation_us is not None:
        about = {"_partition": batch.partition, "_offset": batch.offset, "_punctuation_us": batch.punctuation_us}
        yield orjson.dumps({name: str(value) if integers == "text" else value for name, value in about.items()})
        return
    data = batch.data if integers == "number" else with_text(batch.data)
    yield from json_lines.encode_rows(data)


def with_text(data: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with each integer of 64 bits as text, also in nested columns.

    >>> with_text(pa.record_batch({"id": [73314510714175488]})).to_pylist()
    [{'id': '73314510714175488'}]
    """
    kinds = [text_type(field.type) for field in data.schema]
    columns = [
        column if column.type == kind else column.cast(kind) for column, kind in zip(data.columns, kinds, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=data.schema.names)


def text_type(kind: pa.DataType) -> pa.DataType:
    """A type with text instead of each integer of 64 bits."""
    types = pa.types
    if types.is_int64(kind) or types.is_uint64(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([pa.field(part.name, text_type(part.type), part.nullable) for part in kind])
    if types.is_map(kind):
        return pa.map_(text_type(kind.key_type), text_type(kind.item_type))
    if types.is_list(kind):
        return pa.list_(text_type(kind.value_type))
    if types.is_large_list(kind):
        return pa.large_list(text_type(kind.value_type))
    if types.is_dictionary(kind):
        return text_type(kind.value_type)
    return kind
