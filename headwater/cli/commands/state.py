"""`headwater state`: the state of the operators of streaming queries."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import Column, columns, counted, iso_time
from headwater.units import format_bytes

Folder = Annotated[
    str, typer.Option("--state", help="The session's state folder, or `s3://bucket/prefix`.", metavar="FOLDER")
]
Query = Annotated[str, typer.Argument(help="The query's id, as `state list` shows it.", metavar="QUERY")]
Operator = Annotated[str, typer.Argument(help="The operator's name.", metavar="OPERATOR")]
STATE = ".headwater/state"


COMMANDS = Noun("state", "The state of the operators of streaming queries.")


@COMMANDS.command("list", "ls")
def list_states(session: Session, folder: Folder = STATE) -> None:
    """List the state of all operators, by partition."""
    from headwater.engine.state_maintenance import states

    found = list(states(folder))
    names = ("query", "operator", "partition", "batch", "rows", "bytes", "runs")
    records = [
        {
            **{name: getattr(one, name) for name in names},
            "watermark": None if one.has_ended else iso_time(one.watermark_us),
            "ended": one.has_ended,
            "counts": one.counts,
        }
        for one in found
    ]
    titles = columns("QUERY…", "OPERATOR…", ">PART", ">BATCH", ">ROWS", ">SIZE", ">LATE", "WATERMARK")
    rows = [
        [
            one.query,
            one.operator,
            str(one.partition),
            str(one.batch),
            f"{one.rows:,}",
            format_bytes(one.bytes),
            f"{one.counts.get('late', 0):,}",
            "end of input" if one.has_ended else iso_time(one.watermark_us) or "-",
        ]
        for one in found
    ]
    session.show_all(records, titles, rows)
    if not found:
        session.say(f"No query has any state in {folder}. Give another folder with `--state`.")


@COMMANDS.command("show")
def show(
    session: Session,
    query: Query,
    operator: Operator,
    folder: Folder = STATE,
    limit: Annotated[int, typer.Option("-n", "--limit", help="Show at most so many keys.", min=1)] = 20,
) -> None:
    """Show the state of an operator by key."""
    from headwater.engine.state_maintenance import rows_of

    table = rows_of(folder, query=query, operator=operator)
    records = table.slice(0, limit).to_pylist()
    titles = [Column(title=name.upper(), cut=True) for name in table.column_names]
    session.show_all(records, titles, [[str(value) for value in row.values()] for row in records])
    if table.num_rows > limit:
        session.say(f"{limit} of {counted(table.num_rows, 'row')}; `-n` shows more.")
