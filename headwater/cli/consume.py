"""`headwater consume`: read rows from a place on, alone or for a consumer group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import formats, positions
from headwater.cli.arguments import Topic
from headwater.cli.commands import command
from headwater.cli.following import Follower
from headwater.cli.positions import Position, parse_position, resolve
from headwater.cli.printing import Writer, writer_for
from headwater.cli.session import Session
from headwater.cli.terminal import data_stream, reader_is_gone
from headwater.errors import PartitionNotFound

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import EmbeddedLog

Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", help="Only this partition; may be repeated.", metavar="N")
]
Columns = Annotated[
    str | None, typer.Option("--columns", help="Only these columns, with commas between.", metavar="NAMES")
]
Layout = Annotated[str | None, typer.Option("--format", "-f", help=formats.HELP, metavar="TEXT")]


def register(app: typer.Typer) -> None:
    command(app, "consume")(consume)


def consume(
    session: Session,
    topic: Topic,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="End after so many rows.", min=0, metavar="N")
    ] = None,
    offset: Annotated[str | None, typer.Option("--offset", "-o", help=positions.HELP, metavar="PLACE")] = None,
    partition: Partitions = None,
    layout: Layout = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="End at the end instead of waiting for more.")
    ] = False,
    columns: Columns = None,
) -> None:
    """Read a topic from its start, or from another place, and go on as rows come.

    Rows of all partitions come in the order in which they were appended. With `--json` each row is one line.
    """
    position = parse_position(offset or "start", name="--offset")
    with session.log() as log:
        print_rows(
            session,
            log,
            topic,
            position,
            partitions=partition,
            columns=columns,
            layout=layout,
            count=count,
            follow=not exit_at_end,
        )


def print_rows(
    session: Session,
    log: EmbeddedLog,
    topic: str,
    position: Position,
    *,
    partitions: list[int] | None,
    columns: str | None,
    layout: str | None,
    count: int | None,
    follow: bool,
) -> None:
    """Print rows from a place on, until enough were printed, the end is reached, or nobody reads them any more."""
    declared = log.topic(topic)
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    for number in partitions or []:
        if not 0 <= number < declared.partitions:
            raise PartitionNotFound(topic=topic, partition=number, partitions=declared.partitions)
    log.read(topic, columns=chosen, partitions=[])  # columns that are not there are refused before anything is printed
    writer = writer_for(session, declared, columns=chosen, layout=layout)
    numbers = partitions or range(declared.partitions)
    follower = Follower(
        log,
        topic,
        resolve(log, topic, position, list(numbers)),
        columns=writer.columns,
        all_partitions=partitions is None,
    )
    for batch in _limited(_batches(follower, follow=follow), count):
        write(writer, batch)


def write(writer: Writer, batch: pa.RecordBatch) -> None:
    writer.write(batch)
    data_stream().flush()


def _batches(follower: Follower, *, follow: bool) -> Iterator[pa.RecordBatch]:
    while True:
        yield from follower.available()
        if not follow or reader_is_gone():
            return
        follower.wait()


def _limited(batches: Iterator[pa.RecordBatch], count: int | None) -> Iterator[pa.RecordBatch]:
    left = count
    if left == 0:
        return
    for batch in batches:
        if left is not None and batch.num_rows >= left:
            yield batch.slice(0, left)
            return
        left = None if left is None else left - batch.num_rows
        yield batch
