"""`headwater query`, `headwater ask` and `headwater replay`: the queries of apps, their state, and a second version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.arguments import AppName, pairs_of
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.query_table import table_of
from headwater.cli.terminal.row_output import show_result
from headwater.errors import ArgumentInvalid
from headwater.optional import require_extras

if TYPE_CHECKING:
    from headwater.apps.replay import Comparison

ROWS_MAX = 10_000
Name = Annotated[str, typer.Argument(help="Name of the query.", metavar="QUERY")]


COMMANDS = Noun("query", "The queries of apps.")
ROOT = Noun()


@COMMANDS.command("list", "ls")
def list_queries(session: Session, app: AppName = None) -> None:
    """List the queries with their state, rate, lag, watermark and errors."""
    with session.services() as services:
        found = services.queries.statuses(app=app)
    session.show_all(found.queries, *table_of(found.queries))
    stopped = sorted({one.app for one in found.queries} - set(found.running) - set(found.silent))
    for name in stopped:
        session.say(f"No process runs app {name!r} now. `headwater run FILE` starts it.")
    for name in found.silent:
        session.say(f"App {name!r} runs, but does not answer: its queries are not in this list.")


@COMMANDS.command("status")
def status(session: Session, query: Name, app: AppName = None) -> None:
    """Show everything that is known of a query."""
    from headwater.services.json_form import to_json

    with session.services() as services:
        found = services.queries.status(query, app=app)
    for one in map(to_json, found):
        session.show(one, [f"{name + ':':<17} {_cell(value)}" for name, value in one.items()])


@COMMANDS.command("stop")
def stop(session: Session, query: Name, app: AppName = None) -> None:
    """Stop a query between two batches; it stays stopped until it is restarted."""
    with session.services() as services:
        services.queries.stop(query, app=app)
    session.say(f"{query} is stopped. `headwater query restart {query}` starts it again.")


@COMMANDS.command("restart")
def restart(session: Session, query: Name, app: AppName = None) -> None:
    """Stop a query if it runs, and start it from its checkpoint."""
    with session.services() as services:
        services.queries.restart(query, app=app)
    session.say(f"{query} starts again from its checkpoint.")


@COMMANDS.command("explain")
def explain(session: Session, query: Name, app: AppName = None) -> None:
    """Show Spark's plan of a query's last batch."""
    with session.services() as services:
        answer = services.queries.explain(query, app=app)
    session.show(answer, answer.plan.splitlines())


@COMMANDS.command("graph")
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
    """Draw which query reads from which, as text or as a picture."""
    from headwater.apps.diagram import as_svg, as_text

    if file is not None:
        require_extras("spark")
        from headwater.apps.app_file import load_app
        from headwater.apps.captures import named_tables, with_captured_inputs
        from headwater.apps.graph import picture
        from headwater.apps.home import DeclaredQuery

        loaded = load_app(file)
        tables = named_tables(loaded.captures)
        queries = with_captured_inputs(loaded.queries, tables, inputs=[one.name for one in loaded.inputs])
        captures = {
            one.name: [topic for topic, table in tables.items() if one[table] == topic] for one in loaded.captures
        }
        drawn = picture(
            loaded.name,
            [DeclaredQuery.of(query) for query in queries],
            labels={},
            captures=captures,
            gateways=loaded.gateways,
        )
    else:
        with session.services() as services:
            drawn = services.queries.graph(app)
    if to is None:
        session.write(as_text(drawn))
    elif to.suffix == ".svg":
        to.write_text(as_svg(drawn), encoding="utf-8")
        session.say(f"Drawn to {to}.")
    else:
        raise ArgumentInvalid(name="--to", value=str(to), expected="a name that ends in .svg")


@ROOT.command("replay")
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
    switch: Annotated[bool, typer.Option("--switch", help="Replace the version in use by the new one.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Drop the new version.")] = False,
    app: AppName = None,
) -> None:
    """Run a second version of a query beside the one in use, compare them, and switch over without a gap.

    The new version is the code as the app runs it now, from another position on: `headwater replay spend --as v2` begins
    it, `--compare` shows where the two differ, `--switch` makes it the one in use, `--drop` drops it.
    """
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
    session.show(answer, _comparison_lines(answer))


@ROOT.command("rescale")
def rescale(
    session: Session,
    query: Name,
    partitions: Annotated[int, typer.Option("--partitions", help="The new number of partitions.", min=1, max=10_000)],
    app: AppName = None,
) -> None:
    """Cut the state of a query into another number of partitions, between two batches.

    A query that runs is restarted for it; a stopped one goes on so at its next start. The output is the same.
    """
    with session.services() as services:
        services.queries.rescale(query, partitions, app=app)
    session.say(f"The state of {query} is cut into {partitions} partitions from its next batch on.")


@ROOT.command("ask")
def ask(
    session: Session,
    query: Name,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", help="A key: COLUMN=VALUE, or only the VALUE; all without it.", metavar="KEY"),
    ] = None,
    compute: Annotated[
        list[str] | None,
        typer.Option("--compute", help="An aggregate of all rows, such as spent=sum(total).", metavar="NAME=WHAT"),
    ] = None,
    operator: Annotated[
        str | None,
        typer.Option("--operator", help="An operator of the query; by default its last one.", metavar="NAME"),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Show at most so many rows.", min=1)] = ROWS_MAX,
    seconds: Annotated[float, typer.Option("--seconds", help="How long to wait for the answer.", min=0)] = 30.0,
    app: AppName = None,
) -> None:
    """Run an interactive query: read the state of a running query, of one key, of all keys, or aggregated.

    The query is declared with `ask=True`. The answer is the state after one batch, whose offsets are shown.
    """
    import pyarrow as pa

    with session.services(write=True) as services:
        answer = services.queries.ask(
            query,
            key=_key(key) if key else None,
            compute=pairs_of("--compute", compute) if compute else None,
            operator=operator,
            rows_max=limit,
            seconds=seconds,
            app=app,
        )
    if answer.rows:
        show_result(session, pa.Table.from_pylist(answer.rows))
    offsets = ", ".join(
        f"{topic}/{partition} up to {offset}"
        for topic, found in answer.offsets.items()
        for partition, offset in found.items()
    )
    rows = f"{len(answer.rows):,} rows" if answer.complete else f"the first {len(answer.rows):,} rows"
    session.say(f"{rows} of {answer.operator}, as of batch {answer.batch}: {offsets}.")


def _comparison_lines(answer: Comparison) -> list[str]:
    query, trial, active = answer.query, f"v{answer.trial}", f"v{answer.active}"
    if answer.state == "dropped":
        return [f"{query} {trial} is dropped; {active} runs on."]
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


def _key(given: Sequence[str]) -> object:
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return pairs_of("--key", given)
