"""Input of rows: JSON lines, CSV, plain lines or Parquet, from a file or a pipe, in blocks.

A pipe is read as its bytes come, so that rows of a slow one are appended one by one, and those of a fast one in large
blocks. Each row has the number of its line, for error messages. The schema of a new topic is inferred from the first rows.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from headwater.errors import ArgumentInvalid, EncodingInvalid, SchemaInvalid

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["json", "csv", "parquet", "lines"]
FORMATS = ("json", "csv", "parquet", "lines")
ENDINGS: dict[str, Format] = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "lines",
}  # fmt: skip
BLOCK_BYTES = 4 * 1024 * 1024
ROWS_MAX = 8_192


@dataclass(frozen=True, kw_only=True)
class BadLine:
    """A line that cannot be read, and why."""

    number: int
    why: str


@dataclass(kw_only=True)
class Block:
    """Some rows with the numbers of their lines, and the lines between them that cannot be read."""

    # Any: values of rows, before the topic's schema has seen them.
    rows: list[dict[str, Any]] | pa.RecordBatch
    numbers: list[int] | range
    bad: list[BadLine] = field(default_factory=list)
    bytes: int = 0


def choose_format(given: str | None, file: Path | None, *, schemaless: bool) -> Format:
    """The format that was given, else that of the file's ending, else that of the topic.

    >>> choose_format(None, Path("orders.csv"), schemaless=False), choose_format(None, None, schemaless=True)
    ('csv', 'lines')
    """
    if given is not None:
        for known in FORMATS:
            if given in (known, f"{known}l"):
                return known  # type: ignore[return-value]  # it is one of them
        raise ArgumentInvalid(name="--format", value=given, expected="json, csv, parquet or lines")
    if file is not None and file.suffix.lower() in ENDINGS:
        return ENDINGS[file.suffix.lower()]
    return "lines" if schemaless else "json"


# -- bytes as blocks of whole lines -----------------------------------------------------------------------------------


def blocks_of_file(file: Path) -> Iterator[bytes]:
    """A file in blocks of whole lines."""
    with file.open("rb") as stream:
        yield from blocks_of_bytes(stream.fileno())


def blocks_of_bytes(descriptor: int) -> Iterator[bytes]:
    """Read the bytes that have come, in whole lines. Waits only if there are none."""
    rest = b""
    while data := _available(descriptor):
        text, newline, after = (rest + data).rpartition(b"\n")
        rest = after
        if newline:
            yield text + newline
    if rest:
        yield rest


def _available(descriptor: int) -> bytes:
    data = os.read(descriptor, BLOCK_BYTES)
    poll = select.poll()  # `select.select` refuses descriptors above 1,023
    poll.register(descriptor, select.POLLIN)
    while data and len(data) < BLOCK_BYTES and poll.poll(0):
        more = os.read(descriptor, BLOCK_BYTES - len(data))
        if not more:
            break
        data += more
    return data


def _numbered(blocks: Iterator[bytes]) -> Iterator[tuple[list[tuple[int, bytes]], int]]:
    """Lines with their numbers, without the blank ones; some thousand at a time."""
    number = 0
    for data in blocks:
        lines = data.removesuffix(b"\n").split(b"\n")
        for start in range(0, len(lines), ROWS_MAX):
            part = lines[start : start + ROWS_MAX]
            kept = [(number + i, text) for i, text in enumerate(part, start=1) if text.strip()]
            number += len(part)
            yield kept, sum(map(len, part)) + len(part)


# -- the formats ------------------------------------------------------------------------------------------------------

Decode = Callable[[list[bytes]], list[dict[str, Any]]]


def json_blocks(blocks: Iterator[bytes], decode: Decode) -> Iterator[Block]:
    """Each line is one object. A block is decoded at once, and line by line only if that fails."""
    for lines, size in _numbered(blocks):
        numbers = [number for number, _ in lines]
        try:
            yield Block(rows=decode([text for _, text in lines]), numbers=numbers, bytes=size)
        except EncodingInvalid:
            yield _line_by_line(lines, decode, size)


def _line_by_line(lines: list[tuple[int, bytes]], decode: Decode, size: int) -> Block:
    block = Block(rows=[], numbers=[], bytes=size)
    for number, text in lines:
        try:
            block.rows += decode([text])
            block.numbers.append(number)  # type: ignore[union-attr]  # a list, made above
        except EncodingInvalid as error:
            block.bad.append(BadLine(number=number, why=error.why))
    return block


def line_blocks(blocks: Iterator[bytes]) -> Iterator[Block]:
    """Each line is one value, unchanged."""
    for lines, size in _numbered(blocks):
        rows: list[dict[str, Any]] = [{"value": text} for _, text in lines]
        yield Block(rows=rows, numbers=[number for number, _ in lines], bytes=size)


def csv_blocks(blocks: Iterator[bytes], names: list[str] | None) -> Iterator[Block]:
    """Cells as text under the names of the first line, or under `names` if they are given."""
    line = 0
    for data in _whole_records(blocks):
        reader = csv.reader(
            io.StringIO(data.decode("utf-8-sig" if line == 0 else "utf-8", "surrogateescape"), newline="")
        )
        block = Block(rows=[], numbers=[], bytes=len(data))
        before = 0
        for cells in reader:
            number, before = line + before + 1, reader.line_num
            if names is None:
                names = cells
            elif len(cells) == len(names):
                block.rows.append(dict(zip(names, cells, strict=True)))
                block.numbers.append(number)  # type: ignore[union-attr]  # a list, made above
            elif cells:
                block.bad.append(
                    BadLine(number=number, why=f"it has {len(cells)} cells, and the header has {len(names)}")
                )
        line += before
        yield block


def _whole_records(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """A quoted cell may hold line feeds: a block ends only where the number of quotes is even."""
    rest = b""
    for data in blocks:
        rest += data
        if rest.count(b'"') % 2 == 0:
            yield rest
            rest = b""
    if rest:
        yield rest


def parquet_blocks(given: BinaryIO | Path) -> Iterator[Block]:
    """The batches of a Parquet file; its rows are numbered from 1. A pipe is read whole first: the index is at its end."""
    import pyarrow as pa
    from pyarrow import parquet

    source = str(given) if isinstance(given, Path) else pa.BufferReader(given.read())
    try:
        opened = parquet.ParquetFile(source)
    except pa.ArrowInvalid as error:
        raise EncodingInvalid(encoding="Parquet", position="the start", why=str(error).splitlines()[0]) from error
    number = 1
    with opened:
        for batch in opened.iter_batches(batch_size=65_536):
            yield Block(rows=batch, numbers=range(number, number + batch.num_rows), bytes=batch.nbytes)
            number += batch.num_rows


# -- text as values ---------------------------------------------------------------------------------------------------

_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False, "t": True, "f": False}
Convert = Callable[[str], Any]


def reader_of(column: pa.Field) -> Convert:
    """The function that reads a cell of this column. An empty cell is null, except where a text must not be null.

    >>> import pyarrow as pa
    >>> reader_of(pa.field("id", pa.int64()))("73314510714175488"), reader_of(pa.field("id", pa.int64()))("")
    (73314510714175488, None)
    """
    convert = _converter(column.type)
    empty = "" if convert is str and not column.nullable else None
    return lambda text: empty if text == "" else convert(text)


def _converter(kind: pa.DataType) -> Convert:
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_nested(kind):
        return json.loads
    # Decimals, times and bytes are read from text by the schema itself.
    return str


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise ValueError(f"{text!r} is neither true nor false")
    return value


# -- the schema of a new topic ----------------------------------------------------------------------------------------

#: How many rows the schema of a new topic is inferred from.
INFERRED_ROWS_MAX = 1_000
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
#: Columns that rows carry when they were read from a log.
_OURS = frozenset({"_partition", "_offset", "_appended_at", "_sent_at", "_headers", "_tombstone"})


def infer_schema(rows: Sequence[dict[str, Any]], *, texts_only: bool = False) -> pa.Schema:
    """The schema that these rows fit; with `texts_only`, types are inferred from the text of CSV cells.

    >>> infer_schema([{"id": 1, "at": "2026-01-01T10:00:00Z"}, {"id": 2.5}])
    id: double
    at: timestamp[us, tz=UTC]
    """
    import pyarrow as pa

    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _OURS]
    columns = {name: [row.get(name) for row in rows] for name in names}
    if texts_only:
        return pa.schema([(name, _type_of_cells(cells)) for name, cells in columns.items()])
    return pa.schema([(name, _type_of_values(name, values)) for name, values in columns.items()])


def _type_of_values(name: str, values: list[Any]) -> pa.DataType:
    import pyarrow as pa

    try:
        kind = pa.array(values).type
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        why = f"column {name!r} mixes values of different kinds ({str(error).splitlines()[0]})"
        raise SchemaInvalid(schema="of the first rows", why=why) from error
    return _type_of_texts(values) if pa.types.is_string(kind) else _without_unknown(kind)


def _without_unknown(kind: pa.DataType) -> pa.DataType:
    """The type, with text instead of types that no value shows."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_unknown(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, _without_unknown(part.type)) for part in kind])
    return kind


def _type_of_texts(texts: list[str | None]) -> pa.DataType:
    import pyarrow as pa

    present = [text for text in texts if text]
    if present and all(_DATE.fullmatch(text) and _is_time(text) for text in present):
        return pa.date32()
    if present and all(_MOMENT.fullmatch(text) and _is_time(text) for text in present):
        return pa.timestamp("us", tz="UTC")
    return pa.string()


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _type_of_cells(cells: list[str | None]) -> pa.DataType:
    import pyarrow as pa

    present = [cell for cell in cells if cell]
    if present and all(re.fullmatch(r"[+-]?\d{1,18}", cell) for cell in present):
        return pa.int64()
    if present and all(_is_number(cell) for cell in present):
        return pa.float64()
    if present and all(cell.lower() in {"true", "false"} for cell in present):
        return pa.bool_()
    return _type_of_texts(cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
