"""`headwater state`: what the operators of streaming queries keep, and over how many partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.arguments import DryRun, Yes
from headwater.cli.command import command, noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import Column
from headwater.cli.terminal.text import counted, iso
from headwater.units import format_bytes

Folder = Annotated[Path, typer.Option("--state", help="The session's state folder.", metavar="FOLDER")]
Query = Annotated[str, typer.Argument(help="The query's id, as `state list` shows it.", metavar="QUERY")]
Operator = Annotated[str, typer.Argument(help="The operator's name.", metavar="OPERATOR")]
STATE = Path(".headwater/state")


def register(app: typer.Typer) -> None:
    state = noun(app, "state", "What the operators of streaming queries keep.")
    command(state, "list", "ls")(list_states)
    command(state, "show")(show)
    command(state, "rescale")(rescale)


def list_states(session: Session, folder: Folder = STATE) -> None:
    """List the operators of all queries, with what each partition holds."""
    from headwater.engine.state_maintenance import states

    found = list(states(folder))
    records = [
        {
            "query": one.query,
            "operator": one.operator,
            "partition": one.partition,
            "batch": one.batch,
            "rows": one.rows,
            "bytes": one.bytes,
            "runs": one.runs,
            "watermark": None if one.watermark_us is None else iso(one.watermark_us),
            "counts": one.counts,
        }
        for one in found
    ]
    columns = [
        Column(title="QUERY", cut=True),
        Column(title="OPERATOR", cut=True),
        Column(title="PART", right=True),
        Column(title="BATCH", right=True),
        Column(title="ROWS", right=True),
        Column(title="SIZE", right=True),
        Column(title="LATE", right=True),
        Column(title="WATERMARK"),
    ]
    rows = [
        [
            one.query,
            one.operator,
            str(one.partition),
            str(one.batch),
            f"{one.rows:,}",
            format_bytes(one.bytes),
            f"{one.counts.get('late', 0):,}",
            iso(one.watermark_us) or "-",
        ]
        for one in found
    ]
    session.show_all(records, columns, rows)
    if not found:
        session.say(f"No query has kept any state in {folder}. Another folder is named with `--state`.")


def show(
    session: Session,
    query: Query,
    operator: Operator,
    folder: Folder = STATE,
    limit: Annotated[int, typer.Option("-n", "--limit", help="Show at most so many keys.", min=1)] = 20,
) -> None:
    """Show the keys of an operator and what it keeps for each."""
    from headwater.engine.state_maintenance import rows_of

    table = rows_of(folder, query=query, operator=operator)
    records = table.slice(0, limit).to_pylist()
    columns = [Column(title=name.upper(), cut=True) for name in table.column_names]
    session.show_all(records, columns, [[str(value) for value in row.values()] for row in records])
    if table.num_rows > limit:
        session.say(f"{limit} of {counted(table.num_rows, 'row')}; `-n` shows more.")


def rescale(
    session: Session,
    query: Query,
    operator: Operator,
    partitions: Annotated[int, typer.Option("--partitions", help="How many there shall be.", min=1, max=10_000)],
    folder: Folder = STATE,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Spread an operator's state over another number of partitions. The query must be stopped."""
    from headwater.engine.state_maintenance import rescale as spread
    from headwater.engine.state_maintenance import states

    found = [one for one in states(folder, query=query) if one.operator == operator]
    rows = sum(one.rows for one in found)
    plan = f"{counted(rows, 'row')} of state move from {len(found)} to {partitions} partitions"
    if dry_run:
        session.say(f"{plan}. Nothing was changed.")
        return
    session.confirm(f"{plan}; is the query stopped?", yes=yes)
    moved = spread(folder, query=query, operator=operator, partitions=partitions)
    session.say(f"{counted(moved, 'row')} of state now lie in {partitions} partitions.")
