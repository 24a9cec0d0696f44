"""`headwater sync`: other systems kept in step with topics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, cast

import typer

from headwater.cli.arguments import Yes
from headwater.cli.declaration import Noun
from headwater.cli.runners import run_until_stopped
from headwater.cli.session import Session
from headwater.cli.terminal.tables import columns, counted
from headwater.errors import ArgumentInvalid
from headwater.units import format_seconds

if TYPE_CHECKING:
    from headwater.services.syncs import SyncStatus
    from headwater.sync.config import Mode

COMMANDS = Noun("sync", "Databases, caches, indexes and lakes kept in step with topics.")

Name = Annotated[str, typer.Argument(help="Name of the sync.", metavar="NAME")]
_NONE = "There are no syncs yet: `headwater sync create copy sqlite:///copy.db --topics 'shop.*'`."


@COMMANDS.command("create")
def create(
    session: Session,
    name: Name,
    url: Annotated[
        str,
        typer.Argument(help="The target, such as postgresql://user@host/database or sqlite:///file.db", metavar="URL"),
    ],
    topics: Annotated[
        str, typer.Option("--topics", help="Names or patterns of topics, with commas between.", metavar="NAMES")
    ] = "*",
    table: Annotated[
        str,
        typer.Option("--table", help="The table of a topic; {table} is what follows the last dot of {topic}."),
    ] = "{table}",
    mode: Annotated[
        str, typer.Option("--mode", help="current: the last row of each key. history: every version of a row.")
    ] = "current",
    dead_letters: Annotated[
        bool,
        typer.Option("--dead-letters", help="Set rows aside that the target refuses, instead of stopping."),
    ] = False,
    transactions: Annotated[
        bool,
        typer.Option("--transactions", help="Apply whole transactions of a database that is captured with markers."),
    ] = False,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="A setting of the target, NAME=VALUE; may be repeated.")
    ] = None,
    password_env: Annotated[
        str | None, typer.Option("--password-env", help="The environment variable that has the password.")
    ] = None,
    password_file: Annotated[
        str | None, typer.Option("--password-file", help="The file that has the password.")
    ] = None,
) -> None:
    """Create a sync of topics that have a key. `headwater sync run` applies their rows to the target."""
    options = {}
    for one in option or []:
        key, equals, value = one.partition("=")
        if not equals:
            raise ArgumentInvalid(name="option", value=one, expected="NAME=VALUE")
        options[key] = value
    with session.services(create=True, write=True) as services:
        status = services.syncs.create(
            name,
            url,
            topics=[one.strip() for one in topics.split(",")],
            table=table,
            mode=cast("Mode", mode),  # the service checks it
            dead_letters=dead_letters,
            transactions=transactions,
            options=options,
            password_env=password_env,
            password_file=password_file,
        )
    session.show(status, [f"Sync {name!r} is created. Run it with `headwater sync run {name}`."])


@COMMANDS.command("list", "ls")
def list_syncs(session: Session) -> None:
    """List the syncs and how far they are."""
    with session.services() as services:
        found = services.syncs.list_syncs()
    rows = [[one.name, one.state, _count(one.pending), ", ".join(one.topics), one.url] for one in found]
    session.show_all(found, columns("NAME…", "STATE", ">PENDING", "TOPICS…", "TARGET…"), rows)
    if not found:
        session.say(_NONE)


@COMMANDS.command("status", "describe")
def status(session: Session, name: Name) -> None:
    """Show one sync: its topics, their tables in the target, and what is not applied yet."""
    with session.services() as services:
        found = services.syncs.status(name)
    lines = [
        session.paint(found.name, "bold"),
        f"  target    {found.url}",
        f"  mode      {found.mode}",
        f"  state     {found.state}",
        f"  run by    {f'process {found.pid}, {found.rows_per_second:,.0f} rows/s' if found.running else '-'}",
        f"  pending   {'?' if found.pending is None else counted(found.pending, 'row')}"
        + (f", {format_seconds(round(found.delay_seconds or 0.0, 1))} old" if found.pending else ""),
        f"  compared  {_comparison(found)}",
        *([session.paint(f"  error     {found.error}", "red")] if found.error else []),
        "",
        *session.table(
            columns("TOPIC…", "TABLE…", ">PENDING"),
            [[one.topic, one.table, f"{one.pending:,}"] for one in found.tables],
        ),
    ]
    session.show(found, lines)


@COMMANDS.command("run")
def run(
    session: Session,
    names: Annotated[list[str] | None, typer.Argument(help="Syncs; by default all.", metavar="[NAME]…")] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Apply what is there now, and end.")
    ] = False,
) -> None:
    """Run syncs in this process until Ctrl-C: read their topics, and apply the rows to their targets.

    A sync that another process runs is taken over: that process stops with an error.
    """
    from headwater.sync import SyncStore
    from headwater.sync.runner import SyncRunner

    with session.log(write=True) as log:
        chosen = names or list(SyncStore(log).configs())
        if not chosen:
            session.say(_NONE)
            return
        runners = [SyncRunner(log, name) for name in chosen]
        for runner in runners:
            session.say(f"{runner.name}: {counted(runner.catch_up(), 'row')}, caught up")
        if until_caught_up:
            return
        failures = run_until_stopped(runners)
        for runner in runners:
            session.say(f"{runner.name}: {counted(runner.rows, 'row')} in all")
        if failures:
            raise failures[0]


@COMMANDS.command("pause")
def pause(session: Session, name: Name) -> None:
    """Pause a sync. Its topics keep the changes until it goes on."""
    with session.services() as services:
        found = services.syncs.pause(name)
    session.show(found, [f"Sync {name!r} is paused; its topics keep the changes."])


@COMMANDS.command("resume")
def resume(session: Session, name: Name) -> None:
    """Let a paused sync go on."""
    with session.services() as services:
        found = services.syncs.resume(name)
    session.show(found, [f"Sync {name!r} goes on."])


@COMMANDS.command("compare")
def compare(
    session: Session,
    name: Name,
    repair: Annotated[bool, typer.Option("--repair", help="Correct the rows that differ.")] = False,
    source: Annotated[
        bool, typer.Option("--source", help="Compare with the tables of the captured databases, not with the topics.")
    ] = False,
) -> None:
    """Compare the target with its topics, key by key. Ends with code 5 if they differ and were not repaired."""
    with session.services() as services:
        found = services.syncs.compare(name, repair=repair, source=source)
    rows = [
        [one.table, f"{one.rows:,}", f"{one.missing:,}", f"{one.extra:,}", f"{one.different:,}", f"{one.pending:,}"]
        for one in found
    ]
    session.show_all(found, columns("TABLE…", ">ROWS", ">MISSING", ">EXTRA", ">DIFFERENT", ">PENDING"), rows)
    for one in found:
        for difference in one.differences:
            session.say(f"{one.table}: {difference.kind}: {difference.key}")
    wrong = sum(one.missing + one.extra + one.different for one in found)
    if wrong and repair:
        session.say(f"{counted(wrong, 'row')} corrected")
    elif wrong:
        session.say(f"Correct them with `headwater sync compare {name} --repair`.")
        if source:
            session.say("If the topics lack them, too, read the tables again with `headwater capture snapshot`.")
        raise typer.Exit(5)


@COMMANDS.command("rebuild")
def rebuild(
    session: Session,
    name: Name,
    topic: Annotated[str | None, typer.Argument(help="A topic; by default all.", metavar="[TOPIC]")] = None,
    yes: Yes = False,
) -> None:
    """Make the tables of the target again from the whole topics, beside the old ones, and then replace these."""
    with session.services() as services:
        services.syncs.status(name)
        session.confirm(f"The tables of sync {name!r} are made again from their topics.", yes=yes)
        rows = services.syncs.rebuild(name, topic=topic)
    session.say(f"{name}: {counted(rows, 'row')}, rebuilt")


@COMMANDS.command("drop")
def drop(session: Session, name: Name, yes: Yes = False) -> None:
    """Remove a sync, and its positions in the target. The tables of the target stay."""
    with session.services() as services:
        services.syncs.status(name)
        session.confirm(f"Sync {name!r} is removed; the tables of its target stay.", yes=yes)
        services.syncs.drop(name)
    session.say(f"Sync {name!r} is removed; the tables of its target stay.")


def _comparison(status: SyncStatus) -> str:
    """What the last comparison found."""
    if status.compared is None:
        return "-"
    at = datetime.fromtimestamp(status.compared.at_us / 1e6, UTC)
    found = f"{counted(status.compared.count, 'row')} {status.compared.verb}"
    return f"{at:%Y-%m-%d %H:%M:%S} UTC, {found if status.compared.count else 'equal'}"


def _count(pending: int | None) -> str:
    return "?" if pending is None else f"{pending:,}"
