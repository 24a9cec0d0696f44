"""`headwater consume` and `headwater tail`: read rows from a position on, with or without a consumer group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import POSITION_HELP, Topic, names_of
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.interrupts import Interrupts
from headwater.cli.terminal.row_output import LAYOUT_HELP, Writer, writer_for
from headwater.cli.terminal.streams import data_stream, reader_is_gone

if TYPE_CHECKING:
    from headwater.log import Batch, Consumer
    from headwater.services.positions import Position
    from headwater.services.rows import Rows

#: How long a wait may take before the command checks whether its output is still read.
WAIT_SECONDS_MAX = 1.0
#: How long a member of a group waits for rows before it takes the end of the topic as reached.
GROUP_END_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Options of `consume` and `tail`: which rows to print, and how."""

    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this partition; may be repeated.", metavar="N")
    ] = None
    layout: Annotated[str | None, typer.Option("--format", "-f", help=LAYOUT_HELP, metavar="TEXT")] = None
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="End at the end instead of waiting for more.")] = (
        False
    )
    columns: Annotated[
        str | None, typer.Option("--columns", help="Only these columns, with commas between.", metavar="NAMES")
    ] = None


COMMANDS = Noun()


@COMMANDS.command("consume")
def consume(
    session: Session,
    topic: Topic,
    options: RowOptions,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="End after so many rows.", min=0, metavar="N")
    ] = None,
    offset: Annotated[str, typer.Option("--offset", "-o", help=POSITION_HELP, metavar="PLACE")] = "start",
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Go on at the offsets of this group; commit the rows that are printed.",
            metavar="NAME",
        ),
    ] = None,
) -> None:
    """Read a topic from a position on, and follow it as rows come.

    Rows of all partitions come in the order in which they were appended. With `--json` each row is one line.
    For a group, `--offset` is only the start of a new group.
    """
    if group is not None and options.partition:
        raise typer.BadParameter("A group assigns partitions to its members: give either `--group` or `--partition`.")
    from headwater.services.positions import parse_position

    position = parse_position(offset, name="--offset")
    with session.services(write=group is not None) as services:
        if group is None:
            print_rows(session, services.rows, topic, position, options, count)
        else:
            print_for_group(session, services.rows, topic, position, options, count, group)


@COMMANDS.command("tail")
def tail(
    session: Session,
    topic: Topic,
    options: RowOptions,
    last: Annotated[
        int, typer.Option("--last", "-n", help="Begin with so many of the last rows.", min=0, metavar="N")
    ] = 10,
) -> None:
    """Show the last rows of a topic, then every new one. Ctrl-C ends it."""
    from headwater.services.positions import Position

    with session.services() as services:
        print_rows(session, services.rows, topic, Position(last=last), options)


# -- printing ---------------------------------------------------------------------------------------------------------


def print_rows(
    session: Session, rows: Rows, topic: str, position: Position, options: RowOptions, count: int | None = None
) -> None:
    """Print rows until `count` were printed, the end is reached, or the output is no longer read."""
    writer = _writer(session, rows, topic, options)
    if count == 0:
        return
    for batch in rows.read(
        topic,
        position,
        partitions=options.partition or None,
        columns=writer.columns,
        wait_seconds=None if options.exit_at_end else WAIT_SECONDS_MAX,
    ):
        if batch is None:
            if reader_is_gone():
                return
            continue
        part = batch if count is None else batch.slice(0, count)
        writer.write(part)
        data_stream().flush()
        count = None if count is None else count - part.num_rows
        if count == 0:
            return


def _writer(session: Session, rows: Rows, topic: str, options: RowOptions) -> Writer:
    """The writer; columns that do not exist are an error before anything is printed."""
    names = names_of(options.columns)
    rows.log.read(topic, columns=names, partitions=[])
    return writer_for(session, rows.log.topic(topic), columns=names, layout=options.layout)


# -- for a group ------------------------------------------------------------------------------------------------------


def print_for_group(
    session: Session,
    rows: Rows,
    topic: str,
    position: Position,
    options: RowOptions,
    count: int | None,
    group: str,
) -> None:
    """Print the rows that the group has not read. A row is committed after it was printed, so that none is lost."""
    from headwater.services.positions import resolve

    writer = _writer(session, rows, topic, options)
    start = resolve(rows.log, topic, position)
    columns = list(dict.fromkeys([*writer.columns, "_offset"]))
    consumer = rows.log.consumer(topic, group, start=start, columns=columns, auto_commit=False)
    printed: dict[int, int] = {}
    interrupts = Interrupts()
    try:
        with interrupts.watched():
            while count is None or count > 0:
                batches = consumer.poll(seconds=GROUP_END_SECONDS if options.exit_at_end else WAIT_SECONDS_MAX)
                for batch in batches:
                    with interrupts.held():
                        count = _print_batch(writer, batch, printed, count)
                _commit(session, consumer, topic, printed)
                if reader_is_gone() or (options.exit_at_end and not batches):
                    return
    finally:
        # Also after Ctrl-C: rows that were printed are not printed again.
        _commit(session, consumer, topic, printed)
        consumer.close(commit=False)


def _print_batch(writer: Writer, batch: Batch, printed: dict[int, int], left: int | None) -> int | None:
    """Print at most `left` rows of a batch, and note the offset behind them."""
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
