"""Rows in the bodies of requests and answers: Arrow streams for programs, JSON lines and JSON for people.

Integers are written with all their digits. A browser rounds what is beyond 2^53, so it asks for `integers=text` and gets
those of 64 bits as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import orjson
import pyarrow as pa

from headwater.errors import EncodingInvalid, MediaTypeUnknown
from headwater.log import Batch, Topic
from headwater.log.remote.wire import ARROW, batches_to_bytes
from headwater.schema.encodings import json as json_lines
from headwater.server.events import is_event, rows_of_events
from headwater.server.unpacking import unpacked

JSON_LINES = "application/x-ndjson"
JSON = "application/json"
_LINES = (JSON_LINES, "application/jsonl", "application/json-lines", "application/jsonlines")
KNOWN = f"{JSON_LINES}, {JSON}, {ARROW}, application/cloudevents+json, application/cloudevents-batch+json"
Integers = Literal["number", "text"]


# -- in ---------------------------------------------------------------------------------------------------------------


# Any: rows in a shape that `Log.append` takes.
def rows_of(body: bytes, headers: Mapping[str, str], topic: Topic, *, size_max: int) -> Any:
    """The rows of a request; those of an Arrow stream may be no larger than a body, once they are unpacked."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if is_event(kind, headers):
        return rows_of_events(kind, headers, body, topic)
    if kind == ARROW:
        return unpacked(body, size_max=size_max)
    if kind in _LINES:
        lines: bytes | Iterable[bytes] = body
    elif kind == JSON:
        lines = _lines_of(body)
    else:
        raise MediaTypeUnknown(given=kind[:100] or "none", known=KNOWN)
    return [row for some in json_lines.decode_lines(lines, topic.schema, topic=topic.name) for row in some]


def _lines_of(body: bytes) -> list[bytes]:
    """A JSON array or object as lines: each element is cut out as it stands, so that no digit of it is lost."""
    text = body.decode("utf-8", "strict") if _is_text(body) else ""
    stripped = text.strip()
    if stripped.startswith("{"):
        return [stripped.replace("\n", " ").replace("\r", " ").encode()]
    if not stripped.startswith("["):
        raise EncodingInvalid(encoding="JSON", position="the body", why="rows are an array of objects, or one object")
    return list(_elements(stripped))


def _is_text(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EncodingInvalid(encoding="JSON", position=f"byte {error.start}", why="it is not UTF-8") from error
    return True


def _elements(text: str) -> Iterator[bytes]:
    import json

    decoder = json.JSONDecoder()
    at = _space(text, 1)
    if text[at : at + 1] == "]":
        at = _end(text, at)
        return
    while True:
        try:
            _, stop = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise EncodingInvalid(encoding="JSON", position=f"character {at}", why=str(error)) from error
        yield text[at:stop].replace("\n", " ").replace("\r", " ").encode()
        at = _space(text, stop)
        if text[at : at + 1] == "]":
            _end(text, at)
            return
        if text[at : at + 1] != ",":
            raise EncodingInvalid(encoding="JSON", position=f"character {at}", why="a comma or ] is missing")
        at = _space(text, at + 1)


def _space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _end(text: str, at: int) -> int:
    if _space(text, at + 1) != len(text):
        raise EncodingInvalid(encoding="JSON", position=f"character {at + 1}", why="something follows the array")
    return at


# -- out --------------------------------------------------------------------------------------------------------------


def form_of(accept: str) -> str:
    """The form in which a client wants rows; JSON lines unless it says otherwise."""
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
    """Batches as the body of an answer. Punctuations are told to programs, and in the lines for people."""
    if form == ARROW:
        return batches_to_bytes(schema, batches)
    lines = [line for batch in batches for line in lines_of(batch, integers=integers)]
    if form == JSON:
        return b"[" + b",".join(lines) + b"]"
    return b"".join(line + b"\n" for line in lines)


def lines_of(batch: Batch, *, integers: Integers) -> Iterator[bytes]:
    """Each row as a line of JSON; a punctuation as a line that only has its time."""
    if batch.punctuation_us is not None:
        about = {"_partition": batch.partition, "_offset": batch.offset, "_punctuation_us": batch.punctuation_us}
        yield orjson.dumps({name: _written(value, integers) for name, value in about.items()})
        return
    data = batch.data if integers == "number" else with_text(batch.data)
    yield from json_lines.encode_rows(data)


def _written(value: int, integers: Integers) -> int | str:
    return str(value) if integers == "text" else value


def with_text(data: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with each integer of 64 bits as text, however deep it lies.

    >>> with_text(pa.record_batch({"id": [73314510714175488]})).to_pylist()
    [{'id': '73314510714175488'}]
    """
    kinds = [text_type(field.type) for field in data.schema]
    columns = [
        column if column.type == kind else column.cast(kind) for column, kind in zip(data.columns, kinds, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=data.schema.names)


def text_type(kind: pa.DataType) -> pa.DataType:
    """A type with text in place of each integer of 64 bits."""
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
