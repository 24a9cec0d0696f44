"""`headwater consume` and `headwater tail`: rows from a place on, alone or for a consumer group, and as they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import POSITION_HELP, Topic
from headwater.cli.command import command
from headwater.cli.commands.interrupts import Interrupts
from headwater.cli.session import Session
from headwater.cli.terminal.row_output import LAYOUT_HELP, Writer, writer_for
from headwater.cli.terminal.streams import data_stream, reader_is_gone

if TYPE_CHECKING:
    from headwater.log import Batch, Consumer
    from headwater.services.positions import Position
    from headwater.services.rows import Rows

WAIT_SECONDS_MAX = 1.0
"""How long a wait may take before it is seen that the output is no longer read."""
GROUP_END_SECONDS = 0.5
"""How long a member of a group waits for rows before it takes the end for reached."""

Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", help="Only this partition; may be repeated.", metavar="N")
]
Columns = Annotated[
    str | None, typer.Option("--columns", help="Only these columns, with commas between.", metavar="NAMES")
]
Layout = Annotated[str | None, typer.Option("--format", "-f", help=LAYOUT_HELP, metavar="TEXT")]
ExitAtEnd = Annotated[bool, typer.Option("--exit", "-e", help="End at the end instead of waiting for more.")]


def register(app: typer.Typer) -> None:
    command(app, "consume")(consume)
    command(app, "tail")(tail)


def consume(
    session: Session,
    topic: Topic,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="End after so many rows.", min=0, metavar="N")
    ] = None,
    offset: Annotated[str, typer.Option("--offset", "-o", help=POSITION_HELP, metavar="PLACE")] = "start",
    partition: Partitions = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Go on where this group stopped; commit what is printed.", metavar="NAME"),
    ] = None,
    layout: Layout = None,
    exit_at_end: ExitAtEnd = False,
    columns: Columns = None,
) -> None:
    """Read a topic from a place on, and go on as rows come.

    Rows of all partitions come in the order in which they were appended. With `--json` each row is one line.
    For a group, `--offset` says only where a new group begins.
    """
    if group is not None and partition:
        raise typer.BadParameter("A group shares its partitions out by itself: give either `--group` or `--partition`.")
    from headwater.services.positions import parse_position

    wanted = Wanted(
        topic=topic,
        position=parse_position(offset, name="--offset"),
        partitions=partition or None,
        columns=columns,
        layout=layout,
        count=count,
        follow=not exit_at_end,
    )
    with session.services(write=group is not None) as services:
        if group is None:
            print_rows(session, services.rows, wanted)
        else:
            print_for_group(session, services.rows, wanted, group)


def tail(
    session: Session,
    topic: Topic,
    last: Annotated[
        int, typer.Option("--last", "-n", help="Begin with so many of the last rows.", min=0, metavar="N")
    ] = 10,
    partition: Partitions = None,
    layout: Layout = None,
    columns: Columns = None,
    exit_at_end: ExitAtEnd = False,
) -> None:
    """Show the last rows of a topic, then every new one. Ctrl-C ends it."""
    from headwater.services.positions import Position

    wanted = Wanted(
        topic=topic,
        position=Position(last=last),
        partitions=partition or None,
        columns=columns,
        layout=layout,
        follow=not exit_at_end,
    )
    with session.services() as services:
        print_rows(session, services.rows, wanted)


# -- printing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which rows to print, and how."""

    topic: str
    position: Position
    partitions: list[int] | None = None
    columns: str | None = None
    layout: str | None = None
    count: int | None = None
    follow: bool = True

    @property
    def names(self) -> list[str] | None:
        return None if self.columns is None else [name.strip() for name in self.columns.split(",")]


def print_rows(session: Session, rows: Rows, wanted: Wanted) -> None:
    """Print rows from a place on, until enough were printed, the end is reached, or the output is no longer read."""
    writer = _writer(session, rows, wanted)
    wait_seconds = WAIT_SECONDS_MAX if wanted.follow else None
    left = wanted.count
    if left == 0:
        return
    for batch in rows.read(
        wanted.topic, wanted.position, partitions=wanted.partitions, columns=writer.columns, wait_seconds=wait_seconds
    ):
        if batch is None:
            if reader_is_gone():
                return
            continue
        part = batch if left is None else batch.slice(0, left)
        writer.write(part)
        data_stream().flush()
        left = None if left is None else left - part.num_rows
        if left == 0:
            return


def _writer(session: Session, rows: Rows, wanted: Wanted) -> Writer:
    """The writer; columns that are not there are refused before anything is printed."""
    rows.log.read(wanted.topic, columns=wanted.names, partitions=[])
    return writer_for(session, rows.log.topic(wanted.topic), columns=wanted.names, layout=wanted.layout)


# -- for a group ------------------------------------------------------------------------------------------------------


def print_for_group(session: Session, rows: Rows, wanted: Wanted, group: str) -> None:
    """Print what the group has not seen. A row is committed after it was printed, so that none is lost on the way."""
    from headwater.services.positions import resolve

    writer = _writer(session, rows, wanted)
    start = resolve(rows.log, wanted.topic, wanted.position)
    columns = list(dict.fromkeys([*writer.columns, "_offset"]))
    consumer = rows.log.consumer(wanted.topic, group, start=start, columns=columns, auto_commit=False)
    printed: dict[int, int] = {}
    interrupts = Interrupts()
    try:
        with interrupts.watched():
            left = wanted.count
            while left is None or left > 0:
                batches = consumer.poll(seconds=WAIT_SECONDS_MAX if wanted.follow else GROUP_END_SECONDS)
                for batch in batches:
                    with interrupts.held():
                        left = _print_batch(writer, batch, printed, left)
                _commit(session, consumer, wanted.topic, printed)
                if reader_is_gone() or not (wanted.follow or batches):
                    return
    finally:
        # Also after Ctrl-C: what a person has seen is not shown again.
        _commit(session, consumer, wanted.topic, printed)
        consumer.close(commit=False)


def _print_batch(writer: Writer, batch: Batch, printed: dict[int, int], left: int | None) -> int | None:
    """Print as much of a batch as is wanted, and note how far that goes."""
    if left == 0:
        return 0
    rows = batch.data if left is None else batch.data.slice(0, left)
    if rows.num_rows:
        writer.write(rows)
        data_stream().flush()
    whole = rows.num_rows == batch.data.num_rows
    printed[batch.partition] = batch.offset_next if whole else rows.column("_offset")[-1].as_py() + 1
    return None if left is None else left - rows.num_rows


def _commit(session: Session, consumer: Consumer, topic: str, printed: dict[int, int]) -> None:
    from headwater.log.errors import MemberFenced

    if not printed:
        return
    try:
        consumer.commit({topic: dict(printed)})
    except MemberFenced as error:
        session.warn(str(error))
    printed.clear()
