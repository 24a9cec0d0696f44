"""`headwater produce`: append rows from a file or a pipe."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.arguments import Topic, names_of, pairs_of
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.progress import progress_bar
from headwater.cli.terminal.row_input import (
    INFERRED_ROWS_MAX,
    BadLine,
    Block,
    blocks_of_bytes,
    blocks_of_file,
    choose_format,
    csv_blocks,
    infer_schema,
    json_blocks,
    line_blocks,
    parquet_blocks,
    reader_of,
)
from headwater.cli.terminal.tables import counted
from headwater.errors import ArgumentInvalid, EncodingInvalid, RowInvalid
from headwater.units import format_seconds

if TYPE_CHECKING:
    import headwater.log as hw
    from headwater.services.rows import Rows
    from headwater.services.topics import Topics

_NAMES = {"json": "JSON", "csv": "CSV", "parquet": "Parquet", "lines": "text"}


COMMANDS = Noun()


@COMMANDS.command("produce")
def produce(
    session: Session,
    topic: Topic,
    file: Annotated[
        Path | None, typer.Option("--file", help="Read this file instead of stdin.", dir_okay=False, metavar="FILE")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="json, csv, parquet or lines; else the file's ending says it.", metavar="KIND"),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every row.", metavar="TEXT")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", help="Header of every row; may be repeated.", metavar="NAME=TEXT"),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Partition of every row.", metavar="N")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="At most so many rows per second.", metavar="N")] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the topic if needed; the first rows say its schema.")
    ] = False,
    key_columns: Annotated[
        str | None, typer.Option("--key-columns", help="With --create: key of the topic.", metavar="COLUMNS")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="With --create: partitions of the topic.", min=1, metavar="N")
    ] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="The CSV has no line of names; its columns are those of the topic.")
    ] = False,
    on_error: Annotated[
        str, typer.Option("--on-error", help="stop at a bad line, or skip it.", metavar="stop|skip")
    ] = "stop",
) -> None:
    """Append rows from a file or stdin.

    Takes JSON lines, CSV, Parquet, and plain lines for a topic without a schema. When the command ends, the rows are as
    durable as the topic promises, and their offsets are printed. A line that does not fit is reported and stops the
    command; the lines before it are appended.
    """
    from headwater.schema import format_schema

    if on_error not in ("stop", "skip"):
        raise ArgumentInvalid(name="--on-error", value=on_error, expected="stop or skip")
    if rate is not None and rate <= 0:
        raise ArgumentInvalid(name="--rate", value=rate, expected="a number above 0")
    headers = pairs_of("--header", header) if header else None
    if file is not None and not file.exists():
        raise FileNotFoundError(2, "No such file", str(file))
    with session.services(create=create, write=True) as services:
        source = _Source(services.topics, topic, file, format_, no_header=no_header)
        if source.topic is None and not create:
            services.topics.get(topic)  # raises, with a similar name
        if file is None and sys.stdin.isatty():
            session.say(f"Type rows as {_NAMES[source.format]}, one per line; Ctrl-D ends.")
        if source.topic is None:
            made = source.create(key_columns, partitions)
            origin = "" if made.schemaless else ", as the first rows suggest"
            columns, count = format_schema(made.schema), counted(made.partitions, "partition")
            session.say(f"Made topic {topic!r} ({columns}; {count}){origin}.")
        target = _Target(services.rows, topic, headers, partition, key)
        _Production(session, source, target, rate=rate, skip=on_error == "skip").run()


class _Source:
    """The input: its format, its blocks, and the topic that they are for; None if it does not exist yet."""

    def __init__(self, topics: Topics, name: str, file: Path | None, format_: str | None, *, no_header: bool) -> None:
        self._topics = topics
        self.name = name
        self.topic = topics.get(name) if name in topics.names(name) else None
        self.file = file
        self._no_header = no_header
        schemaless = self.topic.schemaless if self.topic is not None else format_ == "lines"
        self.format = choose_format(format_, file, schemaless=schemaless)
        self.blocks = self._read()

    def create(self, key_columns: str | None, partitions: int | None) -> hw.Topic:
        """Make the topic, with the schema of the first rows."""
        from headwater.services.topics import TopicSettings

        schema = None
        if self.format != "lines":
            first = next((block for block in self.blocks if len(block.rows)), None)
            if first is None:
                raise ArgumentInvalid(name="--create", value="no rows", expected="at least one row for the schema")
            if self.format == "parquet":
                schema = first.rows.schema  # type: ignore[union-attr]  # a batch
            else:
                schema = infer_schema(first.rows[:INFERRED_ROWS_MAX], texts_only=self.format == "csv")
            self.blocks = itertools.chain([first], self.blocks)
        self.topic = self._topics.create(
            self.name, schema, TopicSettings(key=names_of(key_columns), partitions=partitions)
        )
        return self.topic

    def fitted(self) -> Iterator[Block]:
        """The blocks, with the cells of a CSV file converted to the types of their columns."""
        assert self.topic is not None
        if self.format != "csv":
            yield from self.blocks
            return
        readers = {column.name: reader_of(column) for column in self.topic.schema}
        for block in self.blocks:
            fitted = Block(rows=[], numbers=[], bad=list(block.bad), bytes=block.bytes)
            for number, row in zip(block.numbers, block.rows, strict=True):
                values: dict[str, Any] = {}
                try:
                    for name, text in row.items():
                        values[name] = readers.get(name, str)(text)
                except ValueError as error:
                    fitted.bad.append(BadLine(number=number, why=f"column {name!r}: {error}"))
                    continue
                fitted.rows.append(values)
                fitted.numbers.append(number)  # type: ignore[union-attr]  # a list, made above
            yield fitted

    def _read(self) -> Iterator[Block]:
        if self.format == "parquet":
            return parquet_blocks(sys.stdin.buffer if self.file is None else self.file)
        pieces = blocks_of_bytes(sys.stdin.fileno()) if self.file is None else blocks_of_file(self.file)
        if self.format == "lines":
            return line_blocks(pieces)
        if self.format == "csv":
            return csv_blocks(pieces, self.topic.schema.names if self._no_header and self.topic is not None else None)
        from headwater.schema import encodings, parse_schema

        # Without a topic no column is known to hold bytes or decimals, so any schema without them will do.
        schema = parse_schema("value string") if self.topic is None else self.topic.schema

        def decode(lines: list[bytes]) -> list[dict[str, Any]]:
            return [row for rows in encodings.json.decode_lines(lines, schema, topic=self.name) for row in rows]

        return json_blocks(pieces, decode)


class _Target:
    """The topic that rows are appended to, with the key and headers of every row."""

    def __init__(
        self, rows: Rows, topic: str, headers: dict[str, str] | None, partition: int | None, key: str | None
    ) -> None:
        self._rows = rows
        self._topic = rows.log.topic(topic)
        self._headers = headers
        self._partition = partition
        self._key = None if key is None else self._key_of(key)
        self.ranges: dict[int, list[int]] = {}
        self.count = 0

    def append(self, rows: Any) -> None:
        if len(rows) == 0:
            return
        if self._key is not None:
            name, value = self._key
            rows = [{**row, name: value} for row in rows]
        done = self._rows.append(self._topic.name, rows, partition=self._partition, headers=self._headers)
        self.count += done.count
        for number, (start, stop) in done.ranges.items():
            self.ranges.setdefault(number, [start, stop])[1] = stop

    def _key_of(self, text: str) -> tuple[str, Any]:
        if len(self._topic.key) != 1:
            expected = f"a topic with one key column; {self._topic.name!r} has {len(self._topic.key)}"
            raise ArgumentInvalid(name="--key", value=text, expected=expected)
        name = self._topic.key[0]
        try:
            return name, reader_of(self._topic.schema.field(name))(text)
        except ValueError as error:
            expected = f"a value for column {name!r} ({error})"
            raise ArgumentInvalid(name="--key", value=text, expected=expected) from error


class _Production:
    """One run of `produce`."""

    def __init__(self, session: Session, source: _Source, target: _Target, *, rate: float | None, skip: bool) -> None:
        self._session, self._source, self._target = session, source, target
        self._rate, self._skip = rate, skip
        self._skipped: list[BadLine] = []
        self._count_skipped = 0
        self._started = time.monotonic()

    def run(self) -> None:
        total = self._source.file.stat().st_size if self._source.file is not None else None
        done = 0
        try:
            with progress_bar(self._session, f"produce {self._source.name}", total=total) as progress:
                for block in self._source.fitted():
                    for share in self._take(block):
                        progress(done + int(block.bytes * share), total, f"{self._target.count:,} rows")
                    done += block.bytes
        finally:
            self._conclude()

    def _take(self, block: Block) -> Iterator[float]:
        """Append a block, and yield which share of it is done after each step."""
        rows, numbers = block.rows, block.numbers
        first_bad = min((bad.number for bad in block.bad), default=None)
        if first_bad is not None and not self._skip:
            stop = sum(1 for number in numbers if number < first_bad)
            rows, numbers = rows[:stop], numbers[:stop]
        step = len(rows) if self._rate is None else max(1, int(self._rate / 20))
        for start in range(0, len(rows), step or 1):
            self._append(rows[start : start + step], numbers[start : start + step])
            yield min(start + step, len(rows)) / len(rows)
            if self._rate is not None:
                time.sleep(max(0.0, self._started + self._target.count / self._rate - time.monotonic()))
        for bad in block.bad:
            self._refuse(bad)

    def _append(self, rows: Any, numbers: Any) -> None:
        while len(rows):
            try:
                self._target.append(rows)
                return
            except RowInvalid as error:
                # The rows before this one fit in this column, but perhaps not in another: append them first.
                self._append(rows[: error.row], numbers[: error.row])
                self._refuse(BadLine(number=numbers[error.row], why=f"column {error.column!r} {error.why}"))
                rows, numbers = rows[error.row + 1 :], numbers[error.row + 1 :]

    def _refuse(self, bad: BadLine) -> None:
        if not self._skip:
            unit = "row" if self._source.format == "parquet" else "line"
            encoding = f"{_NAMES[self._source.format]} for topic {self._source.name!r}"
            raise EncodingInvalid(encoding=encoding, position=f"{unit} {bad.number}", why=bad.why)
        self._count_skipped += 1
        if len(self._skipped) < 3:
            self._skipped.append(bad)

    def _conclude(self) -> None:
        session, target, topic = self._session, self._target, self._source.name
        for bad in sorted(self._skipped, key=lambda bad: bad.number):
            session.warn(f"line {bad.number} was skipped: {bad.why}")
        if self._count_skipped > len(self._skipped):
            session.warn(f"{self._count_skipped:,} lines were skipped in all.")
        ranges = sorted(target.ranges.items())
        record = {
            "topic": topic,
            "rows": target.count,
            "skipped": self._count_skipped,
            "ranges": [{"partition": one, "offset_start": start, "offset_next": stop} for one, (start, stop) in ranges],
        }
        lines = [
            f"{topic}[{one}]@{start}" + ("" if stop == start + 1 else f"..{stop - 1}") for one, (start, stop) in ranges
        ]
        session.show(record, lines)
        if target.count != 1:
            took = format_seconds(round(time.monotonic() - self._started, 3))
            session.say(f"Appended {counted(target.count, 'row')} to {topic!r} in {took}.")
