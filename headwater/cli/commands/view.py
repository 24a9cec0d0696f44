"""`headwater view`: the materialised views of the log's apps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import AppName, DryRun, Yes
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.row_output import result_records
from headwater.cli.terminal.tables import Column, cell, columns, counted, iso_time
from headwater.units import format_seconds

if TYPE_CHECKING:
    from headwater.services.views import ViewDescription

Name = Annotated[str, typer.Argument(help="Name of the view.", metavar="VIEW")]


COMMANDS = Noun("view", "Materialised views: what they hold, and how fresh they are.")


@COMMANDS.command("list", "ls")
def list_views(session: Session, app: AppName = None) -> None:
    """List the views of all apps, with how far behind they are."""
    with session.services() as services:
        listed = services.views.all(app=app)
    rows = [
        [one.name, one.app, str(one.version), ", ".join(one.key), _behind(one), _state(one)] for one in listed.views
    ]
    session.show_all(listed.views, columns("VIEW…", "APP…", ">VERSION", "KEY…", ">BEHIND", "STATE…"), rows)
    for name in listed.silent:
        session.say(f"App {name!r} runs, but does not answer: its views are not in this list.")
    if not listed.views and not listed.silent:
        session.say("There are no views. An app declares them with `@app.view(key=…)`; `headwater run FILE` runs it.")


@COMMANDS.command("show")
def show(
    session: Session,
    view: Name,
    app: AppName = None,
    limit: Annotated[int, typer.Option("-n", "--limit", help="Show at most so many rows.", min=0)] = 10,
) -> None:
    """Show a view: its declaration, how far it is, and some of its rows."""
    with session.services() as services:
        found = services.views.describe(view, app=app)
        with services.views.open(view, app=found.app) as opened:
            rows = opened.table(limit=limit)
    records = result_records(rows)
    others = ", ".join(str(number) for number in found.versions if number != found.version)
    reflected = ", ".join(
        f"{topic}[{partition}] up to {offset}"
        for topic, offsets in found.sources.items()
        for partition, offset in offsets.items()
    )
    lines = [
        session.paint(found.name, "bold"),
        f"  app         {found.app} ({_state(found)})",
        f"  version     {found.version}" + (f" (also kept: {others})" if others else ""),
        f"  changelog   {found.topic}",
        f"  key         {', '.join(found.key)}",
        f"  columns     {found.schema}",
        f"  reflects    {reflected or 'nothing yet'}",
        f"  applied     {iso_time(found.applied_at_us) if found.applied_at_us else 'nothing yet'}",
        f"  behind      {_behind(found)}",
        "",
        *session.table(
            [Column(title=name, cut=True) for name in rows.column_names],
            [[cell(value) for value in record.values()] for record in records],
        ),
    ]
    session.show(found, lines, rows=records)


@COMMANDS.command("rebuild")
def rebuild(session: Session, view: Name, app: AppName = None, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Rebuild a view as a new version, beside the one in use.

    Readers see the old version until the new one has caught up and replaces it. The app must run.
    """
    with session.services(write=not dry_run) as services:
        found = services.views.rebuild(view, app=app, dry_run=True)
        if dry_run:
            session.say(f"View {view!r} of app {found.app!r} would be rebuilt. Nothing was changed.")
            return
        session.confirm(f"This rebuilds view {view!r} of app {found.app!r} from all of its input.", yes=yes)
        found = services.views.rebuild(view, app=found.app)
    session.say(f"View {view!r} is rebuilt, as version {found.version}.")
    session.show(found)


@COMMANDS.command("drop", "rm")
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
    session.show({"view": view, "state": "dropped"})


def _behind(found: ViewDescription) -> str:
    """How far a view is behind its sources, in rows and in time."""
    seconds = format_seconds(round(max(found.freshness, found.lag_seconds or 0.0), 1))
    return f"{counted(found.lag_rows, 'row')}, {seconds}" if found.lag_rows else seconds


def _state(found: ViewDescription) -> str:
    if found.problem:
        return f"stopped: {found.problem}"
    return "maintained" if found.running else "app stopped"
