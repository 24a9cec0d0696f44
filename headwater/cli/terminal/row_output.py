"""Output of rows: JSON lines, CSV, a growing table, or a layout of the user.

All writers get the same JSON values, so that 64-bit integers are exact and times are ISO 8601 in each of them.

A layout is such as `'%t[%p]@%o %k %v\\n'`: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %T time of the
append, %% a percent sign, and the escapes \\n, \\t, \\r, \\0, \\\\. The value of a topic with a schema is its columns as
JSON; bytes are written as they are.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headwater.cli.session import Record, Session, csv_cell
from headwater.cli.terminal.streams import data_stream, width_of
from headwater.cli.terminal.tables import GAP, Column, cell, cut, data_column, line, widths
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import Topic

LAYOUT_HELP = (
    r"Lay each row out: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %T append time; \n, \t."
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
SYSTEM = ("_partition", "_offset", "_appended_at", "_sent_at", "_headers")
_TITLES = {"_partition": "PART", "_offset": "OFFSET", "_appended_at": "APPENDED"}


class Writer(Protocol):
    """Takes batches that have all columns which `columns` names."""

    columns: list[str]

    def write(self, batch: pa.RecordBatch) -> None: ...


def writer_for(session: Session, topic: Topic, *, columns: Sequence[str] | None, layout: str | None) -> Writer:
    """The writer for the output format; with `columns`, only these are shown."""
    everything = [*topic.schema.names, *SYSTEM, *(["_tombstone"] if topic.compact else [])]
    if layout is not None:
        return _LayoutWriter(topic, layout)
    if session.output in ("json", "jsonl"):
        return _JsonWriter(list(columns or everything))
    if session.output == "csv":
        return _CsvWriter(list(columns or everything))
    own = [name for name in everything if name not in ("_sent_at", "_headers", "_partition", "_offset", "_appended_at")]
    return _TableWriter(session, topic, list(columns or ["_partition", "_offset", "_appended_at", *own]))


def records(batch: pa.RecordBatch) -> list[Record]:
    """The rows of a batch as JSON values."""
    import orjson

    from headwater.schema import encodings

    return [orjson.loads(text) for text in encodings.json.encode_rows(batch)]


class _JsonWriter:
    def __init__(self, columns: list[str]) -> None:
        self.columns = columns

    def write(self, batch: pa.RecordBatch) -> None:
        from headwater.schema import encodings

        data_stream().write(b"".join(text + b"\n" for text in encodings.json.encode_rows(batch.select(self.columns))))


class _CsvWriter:
    def __init__(self, columns: list[str]) -> None:
        self.columns = columns
        self._titled = False

    def write(self, batch: pa.RecordBatch) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._titled:
            writer.writerow(self.columns)
            self._titled = True
        writer.writerows([csv_cell(row[name]) for name in self.columns] for row in records(batch.select(self.columns)))
        data_stream().write(text.getvalue().encode())


class _LayoutWriter:
    def __init__(self, topic: Topic, layout: str) -> None:
        self.columns = [*topic.schema.names, *SYSTEM]
        self._topic = topic
        self._lay_out = compile_format(layout)

    def write(self, batch: pa.RecordBatch) -> None:
        own = self._topic.schema.names
        raw = self._topic.schemaless
        bodies = batch.select(own).to_pylist() if raw else records(batch.select(own))
        rows = zip(records(batch.select(list(SYSTEM))), bodies, strict=True)
        data_stream().write(b"".join(self._lay_out(self._row(place, body, raw)) for place, body in rows))

    def _row(self, place: Record, body: Record, raw: bool) -> Row:
        return Row(
            topic=self._topic.name,
            partition=place["_partition"],
            offset=place["_offset"],
            appended_at=place["_appended_at"],
            headers=place["_headers"],
            columns=body,
            key=self._topic.key,
            raw=raw,
        )


class _TableWriter:
    """A growing table; if the terminal is too narrow for it, each row becomes a paragraph."""

    def __init__(self, session: Session, topic: Topic, columns: list[str]) -> None:
        self.columns = columns
        self._session = session
        self._topic = topic
        kinds = {column.name: str(column.type) for column in topic.schema}
        self._shape = [_column(name, kinds.get(name, "")) for name in columns]
        # Times are long: room is kept for them even if the first rows have none.
        self._widest = ["9" * (20 if kinds.get(name, "").startswith("timestamp") else 0) for name in columns]
        self._titled = False

    def write(self, batch: pa.RecordBatch) -> None:
        rows = [[_cell(name, row[name]) for name in self.columns] for row in records(batch.select(self.columns))]
        if not rows:
            return
        self._widest = [max(cells, key=len) for cells in zip(self._widest, *rows, strict=True)]
        width = width_of(sys.stdout)
        sizes = widths(self._shape, [self._widest], width=width)
        if sum(sizes) + len(GAP) * (len(sizes) - 1) > width:
            for row in rows:
                self._session.write(self._paragraph(row))
            return
        if not self._titled:
            titles = [column.title for column in self._shape]
            self._session.write(self._session.paint(line(titles, self._shape, sizes), "bold"))
            self._titled = True
        for row in rows:
            self._session.write(line(row, self._shape, sizes))

    def _paragraph(self, row: list[str]) -> str:
        named = dict(zip(self.columns, row, strict=True))
        place = [named.pop(name, "") for name in ("_partition", "_offset", "_appended_at")]
        head = f"{self._topic.name}[{place[0]}]@{place[1]}  {place[2]}"
        longest = max(map(len, named), default=0)
        room = width_of(sys.stdout) - longest - 4
        lines = [f"  {name:<{longest}}  {cut(cell, room)}" for name, cell in named.items()]
        return "\n".join([self._session.paint(head, "bold"), *lines])


def _column(name: str, kind: str) -> Column:
    if not name.startswith("_"):
        return data_column(name, kind)
    return Column(title=_TITLES.get(name, name), right=name in ("_partition", "_offset"))


def _cell(name: str, value: Any) -> str:
    if name == "_appended_at" and value is not None:
        return str(value)[:23].replace("T", " ").rstrip("Z")
    return cell(value)


# -- results of SQL statements and interactive queries ----------------------------------------------------------------


def show_result(session: Session, table: pa.Table) -> None:
    """Show all rows of a result in the output format."""
    records = result_records(table)
    columns = [data_column(field.name, str(field.type)) for field in table.schema]
    session.show_all(records, columns, [[cell(value) for value in record.values()] for record in records])
    if not records and session.output == "table":
        session.say("No rows.")


def result_records(table: pa.Table) -> list[Record]:
    """The rows as JSON values; columns of one name get a number, so that none is lost."""
    import pyarrow as pa

    names: list[str] = []
    for name in table.column_names:
        count = sum(one == name or one.startswith(f"{name}:") for one in names)
        names.append(f"{name}:{count}" if name in names else name)
    plain = pa.table([_json_column(column) for column in table.columns], names=names)
    return [record for batch in plain.to_batches() for record in records(batch)]


def _json_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a type that has a JSON form: intervals and other types of a database as text."""
    import pyarrow as pa

    from headwater.errors import HeadwaterError
    from headwater.schema import parse_schema

    try:
        parse_schema(pa.schema([("value", column.type)]))
    except HeadwaterError:
        texts = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column


# -- layouts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row for a layout; `columns` are the topic's own, as JSON values or raw bytes."""

    topic: str
    partition: int
    offset: int
    appended_at: str
    # Any: JSON values.
    headers: dict[str, Any] | None
    columns: dict[str, Any]
    key: Sequence[str]
    raw: bool = False


def compile_format(text: str) -> Callable[[Row], bytes]:
    """A function that writes a row in a layout.

    >>> row = Row(topic="t", partition=0, offset=7, appended_at="", headers=None, columns={"id": 1}, key=["id"])
    >>> compile_format("%t[%p]@%o %k %v\\\\n")(row)
    b't[0]@7 1 {"id":1}\\n'
    """
    pieces = list(_pieces(text))
    return lambda row: b"".join(piece if isinstance(piece, bytes) else piece(row) for piece in pieces)


def _pieces(text: str) -> list[bytes | Callable[[Row], bytes]]:
    pieces: list[bytes | Callable[[Row], bytes]] = []
    position = 0
    while position < len(text):
        character, following = text[position], text[position + 1 : position + 2]
        if character == "%":
            pieces.append(_field(text, following))
            position += 2
        elif character == "\\" and following in _ESCAPES:
            pieces.append(_ESCAPES[following].encode())
            position += 2
        else:
            pieces.append(character.encode())
            position += 1
    return pieces


def _field(text: str, name: str) -> bytes | Callable[[Row], bytes]:
    if name == "%":
        return b"%"
    if name not in _FIELDS:
        raise ArgumentInvalid(
            name="--format",
            value=text,
            expected=f"only {', '.join(f'%{one}' for one in _FIELDS)} and %% after a percent",
        )
    return _FIELDS[name]


def _key(row: Row) -> bytes:
    values = [row.columns.get(name) for name in row.key]
    return _text(values[0] if len(values) == 1 else values) if values else b""


def _value(row: Row) -> bytes:
    return _text(row.columns.get("value")) if row.raw else _json(row.columns)


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"" if value is None else value.encode() if isinstance(value, str) else _json(value)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


_FIELDS: dict[str, Callable[[Row], bytes]] = {
    "t": lambda row: row.topic.encode(),
    "p": lambda row: str(row.partition).encode(),
    "o": lambda row: str(row.offset).encode(),
    "k": _key,
    "v": _value,
    "h": lambda row: _json(row.headers or {}),
    "T": lambda row: row.appended_at.encode(),
}
