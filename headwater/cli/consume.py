"""`headwater consume`: read rows from a place on, alone or for a consumer group."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli import formats, positions
from headwater.cli.arguments import Topic
from headwater.cli.commands import command
from headwater.cli.positions import parse_position
from headwater.cli.reading import Wanted, print_for_group, print_rows
from headwater.cli.session import Session

Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", help="Only this partition; may be repeated.", metavar="N")
]
Columns = Annotated[
    str | None, typer.Option("--columns", help="Only these columns, with commas between.", metavar="NAMES")
]
Layout = Annotated[str | None, typer.Option("--format", "-f", help=formats.HELP, metavar="TEXT")]
ExitAtEnd = Annotated[bool, typer.Option("--exit", "-e", help="End at the end instead of waiting for more.")]


def register(app: typer.Typer) -> None:
    command(app, "consume")(consume)


def consume(
    session: Session,
    topic: Topic,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="End after so many rows.", min=0, metavar="N")
    ] = None,
    offset: Annotated[str, typer.Option("--offset", "-o", help=positions.HELP, metavar="PLACE")] = "start",
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
    wanted = Wanted(
        topic=topic,
        position=parse_position(offset, name="--offset"),
        partitions=partition or None,
        columns=columns,
        layout=layout,
        count=count,
        follow=not exit_at_end,
    )
    with session.log(write=group is not None) as log:
        if group is None:
            print_rows(session, log, wanted)
        else:
            print_for_group(session, log, wanted, group)
