"""`headwater sql`: SQL over topics and views, without Spark."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import AppName
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.row_output import show_result
from headwater.cli.terminal.streams import reader_is_gone

if TYPE_CHECKING:
    from headwater.log import Log

Statement = Annotated[str, typer.Argument(help="One SELECT; - reads it from stdin.", metavar="SQL")]
WATCH_SECONDS_MIN = 0.5
WATCH_SECONDS_MAX = 5.0


COMMANDS = Noun()


@COMMANDS.command("sql")
def sql(
    session: Session,
    statement: Statement,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", help="Show at most so many rows.", min=0, metavar="N")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Run it again as rows come; Ctrl-C ends it.")] = False,
    app: AppName = None,
) -> None:
    """Query topics and views with SQL.

    A name is a view's, or else a topic's. `log.NAME` is always the topic, with `_partition`, `_offset` and
    `_appended_at`; `current.NAME` is the last row of each of its keys. Files such as 'shops.csv' can be joined.
    """
    from headwater.views.sql import Sql

    text = sys.stdin.read() if statement == "-" else statement
    with session.log() as log, session.services() as services:
        while True:
            # Opened again each time: the app may have been started or stopped since.
            with services.views.tables(app=app) as views:
                tables = Sql(log, views)
                ends = {topic: log.end_offsets(topic) for topic in tables.topics(text)}
                result = tables.query(text, limit=limit)
            if watch:
                session.clear()
            show_result(session, result)
            if not watch:
                return
            sys.stdout.flush()
            if not _changed(log, ends):
                return


def _changed(log: Log, ends: dict[str, dict[int, int]]) -> bool:
    """Wait until the answer may have changed; False once the output is no longer read."""
    time.sleep(WATCH_SECONDS_MIN)
    while not reader_is_gone():
        # A view changes a moment after its changelog, so it is read again even if no rows came meanwhile.
        if not ends or log.wait(ends, seconds=WATCH_SECONDS_MAX):
            return True
    return False
