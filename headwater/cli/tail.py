"""`headwater tail`: the last rows of a topic, and then every new one as it comes."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.arguments import Topic
from headwater.cli.commands import command
from headwater.cli.consume import Columns, ExitAtEnd, Layout, Partitions
from headwater.cli.positions import Position
from headwater.cli.reading import Wanted, print_rows
from headwater.cli.session import Session


def register(app: typer.Typer) -> None:
    command(app, "tail")(tail)


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
    wanted = Wanted(
        topic=topic,
        position=Position(last=last),
        partitions=partition or None,
        columns=columns,
        layout=layout,
        follow=not exit_at_end,
    )
    with session.log() as log:
        print_rows(session, log, wanted)
