"""`headwater capture`: databases as streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from headwater.cli.arguments import Yes
from headwater.cli.declaration import Noun
from headwater.cli.runners import run_until_stopped
from headwater.cli.session import Session
from headwater.cli.terminal.tables import columns, counted
from headwater.errors import ArgumentInvalid
from headwater.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from headwater.capture.envelope import EnvelopeName
    from headwater.services.captures import CapturedTable, CaptureStatus

COMMANDS = Noun("capture", "Databases as streams: every row and every change of their tables, as topics.")

Name = Annotated[str, typer.Argument(help="Name of the capture.", metavar="NAME")]


@COMMANDS.command("create")
def create(
    session: Session,
    name: Name,
    url: Annotated[
        str,
        typer.Argument(
            help="The database: sqlite:///path/to/file.db, postgresql://user@host/database or mariadb://user@host/database",
            metavar="URL",
        ),
    ],
    tables: Annotated[
        str, typer.Option("--tables", help="Names or patterns of tables, with commas between.", metavar="NAMES")
    ] = "*",
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", help="What stands before a table's name in its topic's; by default NAME and a dot."),
    ] = None,
    envelope: Annotated[
        str, typer.Option("--envelope", help="flat: the table's columns. debezium: before, after, op, source.")
    ] = "flat",
    partitions: Annotated[int, typer.Option("--partitions", help="Partitions of each topic.", min=1)] = 1,
    password_env: Annotated[
        str | None,
        typer.Option("--password-env", help="The environment variable that has the password.", metavar="NAME"),
    ] = None,
    password_file: Annotated[
        str | None, typer.Option("--password-file", help="The file that has the password.", metavar="PATH")
    ] = None,
    transactions: Annotated[
        bool, typer.Option("--transactions", help="Write a topic with the beginning and the end of each transaction.")
    ] = False,
    outbox: Annotated[
        str | None,
        typer.Option("--outbox", help="A table whose insertions are events, by aggregate type.", metavar="TABLE"),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="Capture only rows that meet a condition.", metavar="TABLE=CONDITION"),
    ] = None,
    only_columns: Annotated[
        list[str] | None,
        typer.Option("--columns", help="Capture only these columns of a table.", metavar="TABLE=NAMES"),
    ] = None,
    mask: Annotated[
        list[str] | None,
        typer.Option("--mask", help="Hide a column: hash, null, or a text instead.", metavar="TABLE.COLUMN=HOW"),
    ] = None,
    salt_env: Annotated[
        str, typer.Option("--salt-env", help="The environment variable that has the secret of hashes.", metavar="NAME")
    ] = "HEADWATER_CAPTURE_SALT",
) -> None:
    """Create a capture, and what it needs in the database: for SQLite triggers and a changelog table, for PostgreSQL a publication.

    From now on the database records its changes. `headwater capture run` brings them into the log.
    """
    with session.services(create=True, write=True) as services:
        status = services.captures.create(
            name,
            url,
            tables=[one.strip() for one in tables.split(",")],
            prefix=prefix,
            envelope=cast("EnvelopeName", envelope),  # the service checks it
            partitions=partitions,
            password_env=password_env,
            password_file=None if password_file is None else str(Path(password_file).absolute()),
            transactions=transactions,
            outbox=outbox,
            where=_pairs("--where", where),
            columns={
                table: [one.strip() for one in names.split(",")]
                for table, names in _pairs("--columns", only_columns).items()
            },
            mask=_pairs("--mask", mask),
            salt_env=salt_env,
        )
    session.show(status, [f"Capture {name!r} is created. Run it with `headwater capture run {name}`."])


@COMMANDS.command("list", "ls")
def list_captures(session: Session) -> None:
    """List the captures and how far they have come."""
    with session.services() as services:
        found = services.captures.list_captures()
    rows = [
        [
            one.name,
            one.state,
            _runs(one),
            f"{one.rows:,}",
            f"{one.rows_per_second:,.0f}",
            _pending(one),
            _delay(one),
            one.url,
        ]
        for one in found
    ]
    titles = columns("NAME…", "STATE", "RUN BY", ">ROWS", ">ROWS/S", ">PENDING", ">DELAY", "DATABASE…")
    session.show_all(found, titles, rows)
    if not found:
        session.say("There are no captures yet: `headwater capture create shop sqlite:///shop.db`.")


@COMMANDS.command("status", "describe")
def status(session: Session, name: Name) -> None:
    """Show one capture: its state, its delay, what the database keeps for it, and its tables with their snapshots."""
    with session.services() as services:
        found = services.captures.status(name)
    tables = [
        [
            one.table,
            one.topic,
            f"{one.rows_per_second:,.0f}",
            f"{one.dead_letters:,}" if one.dead_letters else "-",
            f"{one.snapshot_rows:,}",
            _snapshot(one),
        ]
        for one in found.tables
    ]
    lines = [
        session.paint(found.name, "bold"),
        f"  database  {found.url}",
        f"  state     {found.state}",
        f"  run by    {_runs(found)}" + (f", process {found.pid}" if found.pid is not None else ""),
        f"  rows      {found.rows:,} captured, {found.rows_per_second:,.0f} rows/s",
        f"  pending   {_pending(found)}{' changes' if found.pending_unit == 'change' else ''}, {_delay(found)} old",
        f"  position  {found.position or '-'}",
        *([f"  retained  {format_bytes(found.retained_bytes)}"] if found.retained_bytes is not None else []),
        *(f"  {name:<9} {value}" for name, value in found.details.items()),
        *(session.paint(f"  warning   {one}", "yellow") for one in found.warnings),
        *(
            session.paint(f"  {label:<9} {text}", "red")
            for label, text in (("danger", found.danger), ("error", found.error))
            if text
        ),
        "",
        *session.table(columns("TABLE…", "TOPIC…", ">ROWS/S", ">DEAD LETTERS", ">SNAPSHOT ROWS", "SNAPSHOT"), tables),
    ]
    session.show(found, lines)


@COMMANDS.command("run")
def run(
    session: Session,
    names: Annotated[list[str] | None, typer.Argument(help="Captures; by default all.", metavar="[NAME]…")] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Capture what is there now, and end.")
    ] = False,
) -> None:
    """Run captures in this process until Ctrl-C: read their databases and append to the log, exactly once.

    A capture that another process runs is taken over: that process stops with an error. A capture that fails, because its
    database is away, is restarted with pauses that grow to a minute.
    """
    from headwater.capture import CaptureStore, SourceUnreachable
    from headwater.capture.runner import CaptureRunner
    from headwater.cli.terminal.capture_progress import capture_progress

    with session.log(write=True) as log:
        store = CaptureStore(log)
        chosen = names or list(store.configs())
        if not chosen:
            session.say("There are no captures yet: `headwater capture create shop sqlite:///shop.db`.")
            return
        with capture_progress(session) as show:
            runners = [CaptureRunner(log, name, on_piece=show, on_failure=_teller(session, name)) for name in chosen]
            for runner in runners:
                try:
                    session.say(f"{runner.name}: {counted(runner.catch_up(), 'row')}, caught up")
                except SourceUnreachable as error:
                    if until_caught_up:
                        raise
                    session.warn(f"{runner.name}: {error}")
            failures = [] if until_caught_up else run_until_stopped(runners)
        if not until_caught_up:
            for runner in runners:
                session.say(f"{runner.name}: {counted(store.progress(runner.name).rows, 'row')} in all")
        if failures:
            raise failures[0]


def _teller(session: Session, name: str) -> Callable[[str], None]:
    return lambda error: session.warn(f"{name}: {error}")


@COMMANDS.command("pause")
def pause(session: Session, name: Name) -> None:
    """Pause a capture. Its database keeps the changes until it goes on."""
    with session.services() as services:
        found = services.captures.pause(name)
    session.show(found, [f"Capture {name!r} is paused; its database keeps the changes."])


@COMMANDS.command("resume")
def resume(session: Session, name: Name) -> None:
    """Let a paused capture go on."""
    with session.services() as services:
        found = services.captures.resume(name)
    session.show(found, [f"Capture {name!r} goes on."])


@COMMANDS.command("snapshot")
def snapshot(
    session: Session,
    name: Name,
    table: Annotated[str, typer.Argument(help="The table to read again.", metavar="TABLE")],
    where: Annotated[
        str | None,
        typer.Option("--where", help="Only rows that meet this condition in SQL (PostgreSQL).", metavar="CONDITION"),
    ] = None,
) -> None:
    """Read a table by a new snapshot, beside the changes that go on; a capture that runs begins it at once."""
    with session.services() as services:
        found = services.captures.snapshot(name, table, where=where)
    session.show(
        found, [f"Table {table!r} is read by a new snapshot: at once if capture {name!r} runs, or when it runs next."]
    )


@COMMANDS.command("drop")
def drop(session: Session, name: Name, yes: Yes = False) -> None:
    """Remove a capture, and what it created in its database. Its topics stay."""
    with session.services() as services:
        services.captures.status(name)
        session.confirm(f"Capture {name!r} is removed, with its changelog in the database.", yes=yes)
        services.captures.drop(name)
    session.say(f"Capture {name!r} is removed; its topics stay.")


def _runs(status: CaptureStatus) -> str:
    """Which program runs the capture now."""
    return "-" if not status.running else f"app {status.app}" if status.app else "capture run"


def _pending(status: CaptureStatus) -> str:
    if status.pending is None:
        return "?"
    return format_bytes(status.pending) if status.pending_unit == "byte" else f"{status.pending:,}"


def _delay(status: CaptureStatus) -> str:
    return "?" if status.delay_seconds is None else format_seconds(round(status.delay_seconds, 1))


def _snapshot(table: CapturedTable) -> str:
    """How far the snapshot of a table is."""
    if table.snapshot_complete:
        return "complete"
    share, left = table.snapshot_share, table.snapshot_seconds_left
    done = "begun" if share is None else f"{share:.0%}"
    return done if left is None else f"{done}, {format_seconds(round(left))} left"


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Options of the form NAME=VALUE; the value may have further equals signs."""
    pairs = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise ArgumentInvalid(name=option, value=text, expected="a name, an equals sign and a value")
        pairs[name.strip()] = value.strip()
    return pairs
