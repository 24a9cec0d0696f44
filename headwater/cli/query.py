"""`headwater query` and `headwater replay`: ask the process that runs an app, and tell it what to do."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.commands import command, noun
from headwater.cli.live import table_of
from headwater.cli.session import Session
from headwater.errors import ArgumentInvalid, QueryNotFound, RunnerNotFound

if TYPE_CHECKING:
    from headwater.runtime.client import Client
    from headwater.runtime.status import QueryStatus

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
    _show(session, _statuses(session, app))


def status(session: Session, query: Name, app: AppName = None) -> None:
    """Show everything that is known of a query."""
    every = _statuses(session, app)
    found = [one.as_dict() for one in every if one.name == query]
    if not found:
        near = difflib.get_close_matches(query, [one.name for one in every], n=1)
        raise QueryNotFound(query=query, near=f" Did you mean {near[0]!r}?" if near else "")
    for one in found:
        session.show(one, [f"{name + ':':<17} {_cell(value)}" for name, value in one.items()])


def stop(session: Session, query: Name, app: AppName = None) -> None:
    """Stop a query between two batches; it stays stopped until it is restarted."""
    client_of(session, app).post(f"/queries/{query}/stop")
    session.say(f"{query} is stopped. `headwater query restart {query}` starts it again.")


def restart(session: Session, query: Name, app: AppName = None) -> None:
    """Stop a query if it runs, and start it from its checkpoint."""
    client_of(session, app).post(f"/queries/{query}/restart")
    session.say(f"{query} starts again from its checkpoint.")


def explain(session: Session, query: Name, app: AppName = None) -> None:
    """Show Spark's plan of a query's last batch."""
    answer = client_of(session, app).get(f"/queries/{query}/explain")
    session.show(answer, str(answer["plan"]).splitlines())


def graph(
    session: Session,
    app: AppName = None,
    file: Annotated[
        str | None, typer.Option("--file", help="Draw the app of a file, which need not run.", metavar="FILE")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write a picture: a name that ends in .svg or .png.", metavar="PATH")
    ] = None,
) -> None:
    """Draw who reads from whom, as text or as a picture."""
    from headwater.runtime.drawing import as_png, as_svg, as_text
    from headwater.runtime.graph import picture_from

    if file is not None:
        from headwater.runtime.graph import picture
        from headwater.runtime.loading import load_app

        loaded = load_app(file)
        drawn = picture(loaded.name, loaded.queries, labels={})
    else:
        drawn = picture_from(client_of(session, app).get("/graph", format="json"))
    if to is None:
        session.write(as_text(drawn))
    elif to.suffix == ".svg":
        to.write_text(as_svg(drawn), encoding="utf-8")
    elif to.suffix == ".png":
        to.write_bytes(as_png(drawn))
    else:
        raise ArgumentInvalid(name="--to", value=str(to), expected="a name that ends in .svg or .png")
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
    client = client_of(session, app)
    if sum((compare, switch, drop)) > 1:
        raise ArgumentInvalid(name="replay", value="several", expected="one of --compare, --switch and --drop")
    if compare:
        answer = client.get(f"/queries/{query}/replay")
    elif switch:
        answer = client.post(f"/queries/{query}/switch")
    elif drop:
        answer = client.delete(f"/queries/{query}/replay")
    else:
        answer = client.post(f"/queries/{query}/replay", start=start, version=version)
    session.show(answer, list(_told(answer)))


def _told(answer: dict[str, Any]) -> list[str]:
    query, trial, active = answer["query"], f"v{answer['trial']}", f"v{answer['active']}"
    if answer["state"] == "dropped":
        return [f"{query} {trial} is given up; {active} goes on."]
    counts = (
        f"{answer['same']:,} rows are the same, {answer['changed']:,} differ, "
        f"{answer['only_active']:,} only in {active}, {answer['only_trial']:,} only in {trial}"
    )
    if answer["state"] == "switched":
        return [f"{query} now runs as {trial}. At the switch: {counts}."]
    lines = [
        f"{query} {trial} beside {active}: {answer['state']}, {answer['lag_rows'] or 0:,} rows behind.",
        counts + ".",
    ]
    return lines + [f"  {sample}" for sample in answer["samples"]]


# -- which app --------------------------------------------------------------------------------------------------------


def client_of(session: Session, app: str | None) -> Client:
    """The process that runs the app, or the only app, of the log."""
    from headwater.runtime.client import Client

    session.need_folder()
    name = app or only_app(session)
    return Client(name, home_of(session, name))


def home_of(session: Session, app: str) -> Path:
    return Path(session.config.log) / "apps" / app


def only_app(session: Session) -> str:
    """The name of the log's only app, or of the only one that runs."""
    from headwater.runtime.client import find_runner

    folder = Path(session.config.log) / "apps"
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    running = [name for name in names if find_runner(folder / name) is not None]
    for candidates in (running, names):
        if len(candidates) == 1:
            return candidates[0]
    if not names:
        raise RunnerNotFound(app="(any)")
    raise ArgumentInvalid(name="--app", value=None, expected=f"one of {', '.join(running or names)}")


def _statuses(session: Session, app: str | None) -> list[QueryStatus]:
    """How the queries do; where nobody runs the app, how they were left."""
    from headwater.runtime.home import Home
    from headwater.runtime.resting import resting
    from headwater.runtime.status import QueryStatus

    try:
        told = client_of(session, app).get("/queries")
    except RunnerNotFound:
        home = Home(home_of(session, app or only_app(session)))
        with session.log() as log:
            found = resting(home, log)
        session.say("Nobody runs this app now; this is how it was left.")
        return found
    return [QueryStatus(**{**one, "inputs": tuple(one["inputs"]), "outputs": tuple(one["outputs"])}) for one in told]


def _show(session: Session, statuses: list[QueryStatus]) -> None:
    columns, rows = table_of(statuses)
    session.show_all([one.as_dict() for one in statuses], columns, rows)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)
