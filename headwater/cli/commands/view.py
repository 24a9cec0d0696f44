"""`headwater view`: the materialised views of the log's apps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import DryRun, Yes
from headwater.cli.command import command, noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import Column
from headwater.cli.terminal.text import iso
from headwater.units import format_seconds

if TYPE_CHECKING:
    from headwater.services.views import ViewDescription

Name = Annotated[str, typer.Argument(help="Name of the view.", metavar="VIEW")]
AppName = Annotated[str | None, typer.Option("--app", help="Only this app, where the log has several.", metavar="APP")]


def register(app: typer.Typer) -> None:
    view = noun(app, "view", "Materialised views: what they hold, and how fresh they are.")
    command(view, "list", "ls")(list_views)
    command(view, "show")(show)
    command(view, "rebuild")(rebuild)
    command(view, "drop", "rm")(drop)


def list_views(session: Session, app: AppName = None) -> None:
    """List the views of all apps, with how far behind they are."""
    from headwater.services.json_form import to_json

    with session.services() as services:
        listed = services.views.all(app=app)
    found, silent = listed.views, listed.silent
    columns = [
        Column(title="VIEW", cut=True),
        Column(title="APP", cut=True),
        Column(title="VERSION", right=True),
        Column(title="KEY", cut=True),
        Column(title="BEHIND", right=True),
        Column(title="STATE", cut=True),
    ]
    rows = [
        [
            one.name,
            one.app,
            str(one.version),
            ", ".join(one.key),
            format_seconds(round(one.freshness, 1)),
            _state(one),
        ]
        for one in found
    ]
    session.show_all([to_json(one) for one in found], columns, rows)
    for one in silent:
        session.say(f"App {one!r} runs, but does not answer: its views are not in this list.")
    if not found and not silent:
        session.say("There are no views. An app has some where it says `@app.view(key=…)`: `headwater run FILE`.")


def show(
    session: Session,
    view: Name,
    app: AppName = None,
    limit: Annotated[int, typer.Option("-n", "--limit", help="Show at most so many rows.", min=0)] = 10,
) -> None:
    """Show a view: its declaration, how far it is, and some of its rows."""
    from headwater.cli.terminal.results import result_records
    from headwater.services.json_form import to_json

    with session.services() as services:
        found = services.views.describe(view, app=app)
        with services.views.open(view, app=found.app) as opened:
            rows = opened.table(limit=limit)
    records = result_records(rows)
    lines = [
        session.paint(found.name, "bold"),
        f"  app         {found.app} ({_state(found)})",
        f"  version     {found.version}" + _others(found),
        f"  changelog   {found.topic}",
        f"  key         {', '.join(found.key)}",
        f"  columns     {found.schema}",
        f"  reflects    {_reflected(found.sources) or 'nothing yet'}",
        f"  applied     {iso(found.applied_at_us) if found.applied_at_us else 'nothing yet'}",
        f"  behind      {format_seconds(round(found.freshness, 1))}",
        "",
        *session.table(
            [Column(title=name, cut=True) for name in rows.column_names],
            [["-" if value is None else str(value) for value in record.values()] for record in records],
        ),
    ]
    session.show({**to_json(found), "rows": records}, lines)


def rebuild(session: Session, view: Name, app: AppName = None, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Rebuild a view as a new version, beside the one in use.

    Readers see the old version until the new one has caught up and replaces it. The app must run.
    """
    from headwater.services.json_form import to_json

    with session.services(write=not dry_run) as services:
        found = services.views.rebuild(view, app=app, dry_run=True)
        if dry_run:
            session.say(f"View {view!r} of app {found.app!r} would be rebuilt. Nothing was changed.")
            return
        session.confirm(f"This rebuilds view {view!r} of app {found.app!r} from all of its input.", yes=yes)
        found = services.views.rebuild(view, app=found.app)
    session.say(f"View {view!r} is rebuilt, as version {found.version}.")
    if session.output != "table":
        session.show(to_json(found))


def drop(session: Session, view: Name, app: AppName = None, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Drop the rows of a view that its app no longer declares. Its changelog stays. The app must run."""
    with session.services(write=not dry_run) as services:
        owner = services.views.drop(view, app=app, dry_run=True)
        if dry_run:
            session.say(f"View {view!r} of app {owner!r} would be dropped. Nothing was changed.")
            return
        session.confirm(f"This drops view {view!r} of app {owner!r}; its changelog stays.", yes=yes)
        services.views.drop(view, app=owner)
    session.say(f"View {view!r} is dropped.")
    if session.output != "table":
        session.show({"view": view, "state": "dropped"})


def _state(found: ViewDescription) -> str:
    if found.problem:
        return f"stopped: {found.problem}"
    return "maintained" if found.running else "app stopped"


def _others(found: ViewDescription) -> str:
    others = [str(number) for number in found.versions if number != found.version]
    return f" (also kept: {', '.join(others)})" if others else ""


def _reflected(sources: dict[str, dict[str, int]]) -> str:
    return ", ".join(
        f"{topic}[{partition}] up to {offset}"
        for topic, offsets in sources.items()
        for partition, offset in offsets.items()
    )
