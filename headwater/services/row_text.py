"""Rows as text: offset, times, key, value and headers; and rows from text.

Text, because a browser rounds numbers beyond 2^53. Values of topics with a schema are JSON; those without are text if
the bytes are UTF-8, and hexadecimal digits otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import EncodingInvalid
from headwater.log.port import Batch
from headwater.log.topic import Topic
from headwater.schema.cast import is_bytes, is_text
from headwater.schema.encodings import json as json_lines
from headwater.services.row_pages import joined

Form = Literal["json", "text", "hex", "none"]
Part = Literal["key", "value", "headers"]
PARTS: tuple[Part, ...] = ("key", "value", "headers")
#: How many characters of each long column are shown in a list.
COLUMN_CHARACTERS_MAX = 600
#: Columns whose values are longer than this on average are cut before they are written as JSON.
COLUMN_BYTES_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row as text. Times are microseconds since 1970; `event_us` is None if the topic has no event time."""

    partition: int
    offset: int
    appended_us: int
    sent_us: int | None
    event_us: int | None
    key: str | None
    value: str | None
    form: Form
    headers: tuple[tuple[str, str], ...] = ()
    is_tombstone: bool = False

    def place(self) -> tuple[int, int, int]:
        """The order of rows of many partitions."""
        return self.appended_us, self.partition, self.offset


def text_rows(topic: Topic, batches: Iterable[Batch], *, whole: bool = False) -> list[Row]:
    """The rows of batches that have all columns. Without `whole`, long columns are cut."""
    return [row for data in joined(batch.data for batch in batches) for row in rows_of(topic, data, whole=whole)]


def rows_of(topic: Topic, data: pa.RecordBatch, *, whole: bool = False) -> list[Row]:
    """The rows of one batch that has all columns."""
    if data.num_rows == 0:
        return []
    own = data.select([name for name in topic.schema.names if name in data.schema.names])
    shown = own if whole else shortened(own)
    values, keys = list(_values(topic, shown)), keys_of(topic, shown)
    has_event_time = topic.time_column is not None and topic.time_column in data.schema.names
    events = _micros(data.column(topic.time_column)) if has_event_time else [None] * data.num_rows
    tombstones = data.column("_tombstone").to_pylist() if "_tombstone" in data.schema.names else [False] * len(keys)
    rows = zip(
        data.column("_partition").to_pylist(),
        data.column("_offset").to_pylist(),
        _micros(data.column("_appended_at")),
        _micros(data.column("_sent_at")),
        data.column("_headers").to_pylist(),
        strict=True,
    )
    return [
        Row(
            partition=partition,
            offset=offset,
            appended_us=appended or 0,
            sent_us=sent,
            event_us=events[number],
            key=keys[number],
            value=values[number][0],
            form=values[number][1],
            headers=headers_of(headers),
            is_tombstone=bool(tombstones[number]),
        )
        for number, (partition, offset, appended, sent, headers) in enumerate(rows)
    ]


def text_of(value: bytes | None) -> tuple[str | None, Form]:
    """Bytes as text, or as hexadecimal digits.

    >>> text_of(b"hello"), text_of(bytes([255, 0])), text_of(None)
    (('hello', 'text'), ('ff 00', 'hex'), (None, 'none'))
    """
    if value is None:
        return None, "none"
    try:
        return value.decode("utf-8"), "text"
    except UnicodeDecodeError:
        return value.hex(" "), "hex"


def headers_of(pairs: Sequence[tuple[str, bytes | None]] | None) -> tuple[tuple[str, str], ...]:
    return tuple((name, text_of(value)[0] or "") for name, value in pairs or ())


def shortened(data: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its long texts and bytes cut, so that a list of large rows stays cheap."""
    columns = [_cut(column) for column in data.columns]
    return pa.RecordBatch.from_arrays(columns, names=data.schema.names)


def _cut(column: pa.Array) -> pa.Array:
    kind = column.type
    if not (is_text(kind) or is_bytes(kind)) or isinstance(column, pa.DictionaryArray):
        return column
    if pa.types.is_fixed_size_binary(kind) or column.nbytes <= COLUMN_BYTES_MAX * len(column):
        return column
    if is_text(kind):
        return pc.utf8_slice_codeunits(column, 0, COLUMN_CHARACTERS_MAX)
    begun = pc.binary_slice(column, 0, COLUMN_CHARACTERS_MAX)
    return pa.array([None if value is None else _whole_characters(value) for value in begun.to_pylist()], kind)


def _whole_characters(part: bytes) -> bytes:
    """The beginning of some bytes without a part of a character at its end, so that text stays text.

    >>> _whole_characters("aä".encode()[:2]), _whole_characters(bytes([255, 254]))
    (b'a', b'\\xff\\xfe')
    """
    try:
        part.decode("utf-8")
    except UnicodeDecodeError as error:
        return part[: error.start] if error.start >= len(part) - 3 and error.start > 0 else part
    return part


def lines_of(topic: Topic, own: pa.RecordBatch) -> list[str]:
    """The value of each row as one line of text; empty if there is none."""
    return [text or "" for text, _ in _values(topic, own)]


def _values(topic: Topic, own: pa.RecordBatch) -> Iterator[tuple[str | None, Form]]:
    if topic.schemaless:
        for value in own.column("value").to_pylist():
            yield text_of(value)
        return
    for line in json_lines.encode_rows(own):
        yield line.decode(), "json"


def keys_of(topic: Topic, own: pa.RecordBatch) -> list[str | None]:
    """The key of each row as text; None if the topic has none."""
    if topic.schemaless:
        return [text_of(value)[0] for value in own.column("key").to_pylist()]
    names = [name for name in topic.key if name in own.schema.names]
    if not names:
        return [None] * own.num_rows
    if len(names) == 1 and is_text(own.schema.field(names[0]).type):
        found: list[str | None] = own.column(names[0]).to_pylist()
        return found
    parts = [orjson.loads(line) for line in json_lines.encode_rows(own.select(names))]
    return [", ".join(_plain(part[name]) for name in names) for part in parts]


# Any of JSON's values.
def _plain(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _micros(column: pa.Array) -> list[int | None]:
    unit = pa.timestamp("us", tz=column.type.tz)
    found: list[int | None] = column.cast(unit, safe=False).cast(pa.int64()).to_pylist()
    return found


# -- text as rows -----------------------------------------------------------------------------------------------------


# Any: rows in a shape that `Log.append` takes.
def decoded_rows(lines: bytes | Iterable[bytes], topic: Topic) -> list[dict[str, Any]]:
    """Rows from lines of JSON, each one object."""
    return [row for some in json_lines.decode_lines(lines, topic.schema, topic=topic.name) for row in some]


def json_lines_of(body: bytes) -> list[bytes]:
    """A JSON array or object as lines, each element unchanged, so that no digit is lost.

    >>> json_lines_of(b'[{"price": 1.10}, {"price": 2}]')
    [b'{"price": 1.10}', b'{"price": 2}']
    """
    try:
        stripped = body.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise EncodingInvalid(encoding="JSON", position=f"byte {error.start}", why="it is not UTF-8") from error
    if stripped.startswith("{"):
        return [stripped.replace("\n", " ").replace("\r", " ").encode()]
    if not stripped.startswith("["):
        raise EncodingInvalid(encoding="JSON", position="the body", why="rows are an array of objects, or one object")
    return list(_elements(stripped))


def _elements(text: str) -> Iterator[bytes]:
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
