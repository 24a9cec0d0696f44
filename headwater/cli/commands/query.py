"""`headwater query` and `headwater replay`: the queries of apps, and a second version beside one in use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.command import command, noun
from headwater.cli.session import Session
from headwater.cli.terminal.query_table import table_of
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from headwater.apps.replay import Comparison

AppName = Annotated[
    str | None, typer.Option("--app", help="Name of the app; needed where the log has several.", metavar="APP")
]
Name = Annotated[str, typer.Argument(help="Name of the query.", metavar="QUERY")]


def register(app: typer.Typer) -> None:
    query = noun(app, "query", "The queries of a running app.")
    command(query, "list", "ls")(list_queries)
    command(query, "status")(status)
    command(query, "stop")(stop)
    command(query, "restart")(restart)
    command(query, "explain")(explain)
    command(query, "graph")(graph)
    command(app, "replay")(replay)


def list_queries(session: Session, app: AppName = None) -> None:
    """List the queries with their state, rate, lag, watermark and errors."""
    from headwater.services.json_form import to_json

    with session.services() as services:
        found = services.queries.statuses(app=app)
        is_stopped = not found.queries and not found.silent
        if is_stopped:
            found = services.queries.statuses(app=app, stopped=True)
    columns, rows = table_of(found.queries)
    session.show_all([to_json(one) for one in found.queries], columns, rows)
    if is_stopped and found.queries:
        session.say("No process runs this app now; this is how its last run left it.")
    for name in found.silent:
        session.say(f"App {name!r} runs, but does not answer: its queries are not in this list.")


def status(session: Session, query: Name, app: AppName = None) -> None:
    """Show everything that is known of a query."""
    from headwater.services.json_form import to_json

    with session.services() as services:
        found = services.queries.status(query, app=app)
    for one in map(to_json, found):
        session.show(one, [f"{name + ':':<17} {_cell(value)}" for name, value in one.items()])


def stop(session: Session, query: Name, app: AppName = None) -> None:
    """Stop a query between two batches; it stays stopped until it is restarted."""
    with session.services() as services:
        services.queries.stop(query, app=app)
    session.say(f"{query} is stopped. `headwater query restart {query}` starts it again.")


def restart(session: Session, query: Name, app: AppName = None) -> None:
    """Stop a query if it runs, and start it from its checkpoint."""
    with session.services() as services:
        services.queries.restart(query, app=app)
    session.say(f"{query} starts again from its checkpoint.")


def explain(session: Session, query: Name, app: AppName = None) -> None:
    """Show Spark's plan of a query's last batch."""
    from headwater.services.json_form import to_json

    with session.services() as services:
        answer = services.queries.explain(query, app=app)
    session.show(to_json(answer), answer.plan.splitlines())


def graph(
    session: Session,
    app: AppName = None,
    file: Annotated[
        str | None, typer.Option("--file", help="Draw the app of a file, which need not run.", metavar="FILE")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write a picture: a name that ends in .svg.", metavar="PATH")
    ] = None,
) -> None:
    """Draw who reads from whom, as text or as a picture."""
    from headwater.apps.diagram import as_svg, as_text

    if file is not None:
        from headwater.apps.app_file import load_app
        from headwater.apps.graph import picture

        loaded = load_app(file)
        drawn = picture(loaded.name, loaded.queries, labels={})
    else:
        with session.services() as services:
            drawn = services.queries.graph(app)
    if to is None:
        session.write(as_text(drawn))
    elif to.suffix == ".svg":
        to.write_text(as_svg(drawn), encoding="utf-8")
    else:
        raise ArgumentInvalid(name="--to", value=str(to), expected="a name that ends in .svg")
    if to is not None:
        session.say(f"Drawn to {to}.")


def replay(
    session: Session,
    query: Name,
    start: Annotated[
        str, typer.Option("--from", help="Where the new version begins: earliest, latest or a time.", metavar="WHERE")
    ] = "earliest",
    version: Annotated[
        str | None, typer.Option("--as", help="Name of the new version, such as v2.", metavar="VERSION")
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Compare the two versions.")] = False,
    switch: Annotated[bool, typer.Option("--switch", help="Let the new version take over.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Give the new version up.")] = False,
    app: AppName = None,
) -> None:
    """Run a second version of a query beside the one in use, compare them, and switch over without a gap.

    The new version is the code as the app runs it now, from another place on: `headwater replay spend --as v2` begins
    it, `--compare` shows where the two differ, `--switch` makes it the one in use, `--drop` gives it up.
    """
    from headwater.services.json_form import to_json

    if sum((compare, switch, drop)) > 1:
        raise ArgumentInvalid(name="replay", value="several", expected="one of --compare, --switch and --drop")
    with session.services() as services:
        queries = services.queries
        if compare:
            answer = queries.compare(query, app=app)
        elif switch:
            answer = queries.switch(query, app=app)
        elif drop:
            answer = queries.drop(query, app=app)
        else:
            answer = queries.replay(query, start=start, version=version, app=app)
    session.show(to_json(answer), _told(answer))


def _told(answer: Comparison) -> list[str]:
    query, trial, active = answer.query, f"v{answer.trial}", f"v{answer.active}"
    if answer.state == "dropped":
        return [f"{query} {trial} is given up; {active} goes on."]
    counts = (
        f"{answer.same:,} rows are the same, {answer.changed:,} differ, "
        f"{answer.only_active:,} only in {active}, {answer.only_trial:,} only in {trial}"
    )
    if answer.state == "switched":
        return [f"{query} now runs as {trial}. At the switch: {counts}."]
    lines = [f"{query} {trial} beside {active}: {answer.state}, {answer.lag_rows or 0:,} rows behind.", counts + "."]
    return lines + [f"  {sample}" for sample in answer.samples]


# Any: JSON values of any type.
def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)
