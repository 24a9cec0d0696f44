"""`headwater tail`: the last rows of a topic, and then every new one as it comes."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.arguments import Topic
from headwater.cli.commands import command
from headwater.cli.consume import Columns, Layout, Partitions, print_rows
from headwater.cli.positions import Position
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
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="End at the end instead of waiting for more.")
    ] = False,
) -> None:
    """Show the last rows of a topic, then every new one. Ctrl-C ends it."""
    with session.log() as log:
        print_rows(
            session,
            log,
            topic,
            Position(last=last),
            partitions=partition,
            columns=columns,
            layout=layout,
            count=None,
            follow=not exit_at_end,
        )
