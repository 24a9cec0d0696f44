"""`headwater produce`: append rows from a file or a pipe."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.arguments import Topic, names_of
from headwater.cli.declaration import command
from headwater.cli.session import Session
from headwater.cli.terminal.progress import Progress, progress_bar
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
    from headwater.log import Log
    from headwater.services.rows import Rows

_NAMES = {"json": "JSON", "csv": "CSV", "parquet": "Parquet", "lines": "text"}


def register(app: typer.Typer) -> None:
    command(app, "produce")(produce)


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
    if on_error not in ("stop", "skip"):
        raise ArgumentInvalid(name="--on-error", value=on_error, expected="stop or skip")
    if rate is not None and rate <= 0:
        raise ArgumentInvalid(name="--rate", value=rate, expected="a number above 0")
    headers = _headers(header or [])
    if file is not None and not file.exists():
        raise FileNotFoundError(2, "No such file", str(file))
    with session.services(create=create, write=True) as services:
        job = _Job(session, services.rows.log, topic, file=file, format_=format_, no_header=no_header)
        job.prepare(create=create, key_columns=key_columns, partitions=partitions)
        job.run(_Target(services.rows, topic, headers, partition, key), rate=rate, skip=on_error == "skip")


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
            raise ArgumentInvalid(
                name="--key", value=text, expected=f"a value for column {name!r} ({error})"
            ) from error


class _Job:
    """One run of `produce`: its input and its progress."""

    def __init__(
        self, session: Session, log: Log, topic: str, *, file: Path | None, format_: str | None, no_header: bool
    ) -> None:
        self._session = session
        self._log = log
        self._name = topic
        self._file = file
        self._format_given = format_
        self._no_header = no_header
        self._skipped: list[BadLine] = []
        self._count_skipped = 0
        self._bytes_done = 0
        self._started = time.monotonic()

    # -- before the first row -----------------------------------------------------------------------------------------

    def prepare(self, *, create: bool, key_columns: str | None, partitions: int | None) -> None:
        """Open the input, and make the topic if `--create` was given and it does not exist."""
        existing = self._existing()
        if existing is None and not create:
            self._log.topic(self._name)  # raises, with a similar name
        schemaless = existing.schemaless if existing is not None else self._format_given == "lines"
        self._format = choose_format(self._format_given, self._file, schemaless=schemaless)
        if self._file is None and sys.stdin.isatty():
            self._session.say(f"Type rows as {_NAMES[self._format]}, one per line; Ctrl-D ends.")
        if existing is None:
            self._create(key_columns, partitions)
        else:
            self._blocks = self._read(existing)

    def _existing(self) -> hw.Topic | None:
        return self._log.topic(self._name) if self._name in self._log.topics(self._name) else None

    def _create(self, key_columns: str | None, partitions: int | None) -> None:
        # Any: arguments of `create`, each of its own type.
        more: dict[str, Any] = {} if partitions is None else {"partitions": partitions}
        if key_columns is not None:
            more["key"] = names_of(key_columns)
        if self._format == "lines":
            made = self._log.create(self._name, **more)
            self._blocks = self._read(made)
        else:
            raw = self._read(None)
            first = next((block for block in raw if len(block.rows)), None)
            if first is None:
                raise ArgumentInvalid(
                    name="--create", value="no rows", expected="at least one row to see the columns of"
                )
            schema = self._schema_of(first)
            made = self._log.create(self._name, schema, **more)
            self._blocks = self._fitted(itertools.chain([first], raw), made)
        self._tell_created(made)

    def _schema_of(self, block: Block) -> Any:
        if self._format == "parquet":
            return block.rows.schema  # type: ignore[union-attr]  # a batch
        return infer_schema(block.rows[:INFERRED_ROWS_MAX], texts_only=self._format == "csv")

    def _tell_created(self, made: hw.Topic) -> None:
        from headwater.schema import format_schema

        count = counted(made.partitions, "partition")
        origin = "" if made.schemaless else ", as the first rows suggest"
        self._session.say(f"Made topic {self._name!r} ({format_schema(made.schema)}; {count}){origin}.")

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _read(self, topic: hw.Topic | None) -> Iterator[Block]:
        """The blocks of the input; without a topic, cells of a CSV file are not converted yet."""
        if self._format == "parquet":
            return parquet_blocks(sys.stdin.buffer if self._file is None else self._file)
        pieces = blocks_of_bytes(sys.stdin.fileno()) if self._file is None else blocks_of_file(self._file)
        if self._format == "lines":
            return line_blocks(pieces)
        if self._format == "json":
            return json_blocks(pieces, self._decode(topic))
        names = topic.schema.names if self._no_header and topic is not None else None
        cells = csv_blocks(pieces, names)
        return cells if topic is None else self._fitted(cells, topic)

    def _decode(self, topic: hw.Topic | None) -> Any:
        from headwater.schema import encodings, parse_schema

        # Without a topic no column is known to hold bytes or decimals, so any schema without them will do.
        schema = parse_schema("value string") if topic is None else topic.schema
        name = self._name

        def decode(lines: list[bytes]) -> list[dict[str, Any]]:
            return [row for rows in encodings.json.decode_lines(lines, schema, topic=name) for row in rows]

        return decode

    def _fitted(self, blocks: Iterable[Block], topic: hw.Topic) -> Iterator[Block]:
        """Convert the cells of a CSV file to the types of their columns."""
        if self._format != "csv":
            yield from blocks
            return
        readers = {column.name: reader_of(column) for column in topic.schema}
        for block in blocks:
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

    def run(self, target: _Target, *, rate: float | None, skip: bool) -> None:
        total = self._file.stat().st_size if self._file is not None else None
        try:
            with progress_bar(self._session, f"produce {self._name}", total=total) as progress:
                for block in self._blocks:
                    self._take(block, target, progress, total, rate=rate, skip=skip)
        finally:
            self._conclude(target)

    def _take(
        self,
        block: Block,
        target: _Target,
        progress: Progress,
        total: int | None,
        *,
        rate: float | None,
        skip: bool,
    ) -> None:
        rows, numbers = block.rows, block.numbers
        first_bad = min((bad.number for bad in block.bad), default=None)
        if first_bad is not None and not skip:
            stop = sum(1 for number in numbers if number < first_bad)
            rows, numbers = rows[:stop], numbers[:stop]
        step = len(rows) if rate is None else max(1, int(rate / 20))
        for start in range(0, len(rows), step or 1):
            self._append(rows[start : start + step], numbers[start : start + step], target, skip=skip)
            part = block.bytes * min(start + step, len(rows)) // max(1, len(rows))
            progress(self._bytes_done + part, total, f"{target.count:,} rows")
            if rate is not None:
                time.sleep(max(0.0, self._started + target.count / rate - time.monotonic()))
        for bad in block.bad:
            self._refuse(bad, skip=skip)
        self._bytes_done += block.bytes

    def _append(self, rows: Any, numbers: Any, target: _Target, *, skip: bool) -> None:
        while len(rows):
            try:
                target.append(rows)
                return
            except RowInvalid as error:
                # The rows before this one fit in this column, but perhaps not in another: append them first.
                self._append(rows[: error.row], numbers[: error.row], target, skip=skip)
                why = f"column {error.column!r} {error.why}"
                self._refuse(BadLine(number=numbers[error.row], why=why), skip=skip)
                rows, numbers = rows[error.row + 1 :], numbers[error.row + 1 :]

    def _refuse(self, bad: BadLine, *, skip: bool) -> None:
        if not skip:
            unit = "row" if self._format == "parquet" else "line"
            encoding = f"{_NAMES[self._format]} for topic {self._name!r}"
            raise EncodingInvalid(encoding=encoding, position=f"{unit} {bad.number}", why=bad.why)
        self._count_skipped += 1
        if len(self._skipped) < 3:
            self._skipped.append(bad)

    # -- after the last row -------------------------------------------------------------------------------------------

    def _conclude(self, target: _Target) -> None:
        session = self._session
        for bad in sorted(self._skipped, key=lambda bad: bad.number):
            session.warn(f"line {bad.number} was skipped: {bad.why}")
        if self._count_skipped > len(self._skipped):
            session.warn(f"{self._count_skipped:,} lines were skipped in all.")
        ranges = sorted(target.ranges.items())
        record = {
            "topic": self._name,
            "rows": target.count,
            "skipped": self._count_skipped,
            "ranges": [{"partition": one, "offset_start": start, "offset_next": stop} for one, (start, stop) in ranges],
        }
        session.show(record, [_place(self._name, one, start, stop) for one, (start, stop) in ranges])
        if target.count != 1:
            took = format_seconds(round(time.monotonic() - self._started, 3))
            session.say(f"Appended {counted(target.count, 'row')} to {self._name!r} in {took}.")


def _place(topic: str, partition: int, start: int, stop: int) -> str:
    return f"{topic}[{partition}]@{start}" + ("" if stop == start + 1 else f"..{stop - 1}")


def _headers(given: list[str]) -> dict[str, str] | None:
    headers = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ArgumentInvalid(name="--header", value=text, expected="a name and a text with '=' between")
        headers[name] = value
    return headers or None
