"""`headwater entity`: what event sourcing has stored, and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.arguments import DryRun, known_kinds
from headwater.cli.declaration import Noun
from headwater.cli.entity_file import entity_service
from headwater.cli.session import Session
from headwater.cli.terminal.tables import cell, columns, counted, short_time
from headwater.errors import ArgumentInvalid, NotAllowed

if TYPE_CHECKING:
    from headwater.services.entities import CommandField, EntityEvent, EntityKind

COMMANDS = Noun("entity", "Event sourcing: entities, their histories and states, and commands for them.")

Kind = Annotated[
    str, typer.Argument(help="Kind of entities, such as account.", metavar="KIND", autocompletion=known_kinds)
]
Id = Annotated[str, typer.Argument(help="The entity's id.", metavar="ID")]
File = Annotated[
    str | None,
    typer.Option(
        "--file", help="The Python file that declares the entities; not for a log behind a server.", metavar="FILE"
    ),
]
Limit = Annotated[int, typer.Option("-n", "--limit", help="Show at most so many.", min=1)]


@COMMANDS.command("list", "ls")
def list_entities(
    session: Session,
    kind: Annotated[
        str | None,
        typer.Argument(
            help="List the entities of this kind; by default the kinds.", metavar="[KIND]", autocompletion=known_kinds
        ),
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Only ids that begin so.", metavar="TEXT")] = "",
    after: Annotated[str, typer.Option("--after", help="Go on behind this id.", metavar="ID")] = "",
    limit: Limit = 100,
    file: File = None,
) -> None:
    """List the kinds of entities, or the entities of a kind.

    With the Python file that declares them, kinds are shown with their commands.
    """
    with entity_service(session, file) as service:
        if kind is None:
            _show_kinds(session, service.kinds())
            return
        page = service.ids(kind, prefix=prefix, after=after, limit=limit)
    rows = [[each.id, f"{each.version:,}"] for each in page.entities]
    session.show_all(page.entities, columns("ID…", ">EVENTS"), rows)
    if page.next is not None:
        session.say(f"There are more: `headwater entity list {kind} --after {page.next}`.")


def _show_kinds(session: Session, kinds: list[EntityKind]) -> None:
    rows = [
        [
            each.name,
            f"{each.events:,}",
            short_time(each.appended_us),
            ", ".join(_signature(name, fields) for name, fields in (each.commands or {}).items()) or "-",
        ]
        for each in kinds
    ]
    session.show_all(kinds, columns("KIND…", ">EVENTS", "LAST EVENT", "COMMANDS…"), rows)
    if not kinds:
        session.say(
            "There are no entities yet: a program makes them with `hw.Entities`; see docs/reference/entities.md."
        )


@COMMANDS.command("show")
def show(session: Session, kind: Kind, id: Id, file: File = None) -> None:
    """Show an entity: its version, its last event, and with `--file` its state."""
    from headwater.services.json_form import to_json

    # Any: JSON.
    facts: dict[str, Any] = {}
    with entity_service(session, file) as service:
        first = service.history(kind, id, limit=1).events[0]
        [found] = service.ids(kind, prefix=id, limit=1).entities
        [last] = service.history(kind, id, after=found.version - 1).events[-1:]
        if service.kind(kind).commands is not None:
            try:
                facts["state"] = service.state(kind, id).state
            except NotAllowed as error:
                session.warn(str(error))
    lines = [
        session.paint(f"{kind} {id}", "bold"),
        f"  version  {found.version:,}",
        f"  first    {short_time(first.at_us)}  {_told(first)}",
        f"  last     {short_time(last.at_us)}  {_told(last)}",
        *([f"  state    {cell(facts['state'])}"] if facts else []),
    ]
    session.show(found, lines, last=to_json(last), **facts)
    if not facts and file is None:
        session.say("Its state is known where its decider is: name the Python file with `--file`.")


@COMMANDS.command("history")
def history(
    session: Session,
    kind: Kind,
    id: Id,
    after: Annotated[int, typer.Option("--after", help="Only events behind this version.", min=0, metavar="N")] = 0,
    limit: Limit = 1_000,
    cloudevents: Annotated[
        bool, typer.Option("--cloudevents", help="Print each event as a CloudEvent 1.0, one JSON document a line.")
    ] = False,
    source: Annotated[
        str, typer.Option("--source", help="The source of CloudEvents; by default /entities/KIND.", metavar="URI")
    ] = "",
) -> None:
    """Show the events of an entity: what, when, who and why. Personal values stay encrypted."""
    with entity_service(session, None) as service:
        if cloudevents:
            import orjson

            for event in orjson.loads(service.cloudevents(kind, id, after=after, limit=limit, source=source)):
                session.write(orjson.dumps(event).decode())
            return
        found = service.history(kind, id, after=after, limit=limit)
    optional = {"BY…": "by", "WHY…": "why", "CORRELATION…": "correlation", "CAUSATION…": "causation"}
    optional = {
        title: name for title, name in optional.items() if any(getattr(each, name) is not None for each in found.events)
    }
    rows = [
        [
            f"{each.version:,}",
            short_time(each.at_us),
            each.event,
            cell(each.data),
            *(cell(getattr(each, name)) for name in optional.values()),
        ]
        for each in found.events
    ]
    session.show_all(found.events, columns(">VERSION", "WHEN (UTC)", "EVENT…", "DATA…", *optional), rows)
    if found.next is not None:
        session.say(f"There are more: `headwater entity history {kind} {id} --after {found.next}`.")


@COMMANDS.command("at")
def at(
    session: Session,
    kind: Kind,
    id: Id,
    version: Annotated[
        int | None, typer.Option("--version", help="After so many of its events.", min=0, metavar="N")
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option("--offset", help="After its events up to this offset of its partition.", min=0, metavar="N"),
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", help="At this time, such as 2026-03-01T12:00:00Z.", metavar="TIME")
    ] = None,
    file: File = None,
) -> None:
    """Show the state of an entity as it was."""
    with entity_service(session, file) as service:
        if (version, offset, time) == (None, None, None):
            raise ArgumentInvalid(name="at", value=None, expected="one of --version, --offset and --time")
        found = service.state(kind, id, version=version, offset=offset, time=time)
    lines = [
        session.paint(f"{kind} {id}", "bold"),
        f"  version  {found.version:,}",
        f"  state    {cell(found.state)}",
    ]
    session.show(found, lines)


@COMMANDS.command("send")
def send(
    session: Session,
    kind: Kind,
    id: Id,
    command: Annotated[str, typer.Argument(help="The name of the command's class.", metavar="COMMAND")],
    data: Annotated[
        str, typer.Argument(help="The command's fields as JSON, such as '{\"amount\": 20}'.", metavar="[JSON]")
    ] = "{}",
    file: File = None,
    expected_version: Annotated[
        int | None,
        typer.Option("--expected-version", help="Refuse if the entity is at another version.", min=0, metavar="N"),
    ] = None,
    command_id: Annotated[
        str | None, typer.Option("--command-id", help="Do the command once, however often it is sent.", metavar="TEXT")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who sends it; by default you.", metavar="TEXT")] = None,
    why: Annotated[str | None, typer.Option("--why", help="The reason, for the history.", metavar="TEXT")] = None,
    correlation: Annotated[
        str | None, typer.Option("--correlation", help="What it belongs to, for the history.", metavar="TEXT")
    ] = None,
    causation: Annotated[
        str | None, typer.Option("--causation", help="What caused it, for the history.", metavar="TEXT")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Send a command to an entity: its decider rejects it, or makes events of it. An id without events is a new entity."""
    with entity_service(session, file) as service:
        found = service.send(
            kind,
            id,
            command,
            _fields(data),
            expected_version=expected_version,
            command_id=command_id,
            by=by,
            why=why,
            correlation=correlation,
            causation=causation,
            dry_run=dry_run,
        )
    rows = [[f"{each.version:,}", each.event, cell(each.data)] for each in found.events]
    session.show(found, session.table(columns(">VERSION", "EVENT…", "DATA…"), rows))
    if found.duplicate:
        session.say(f"Command {command_id!r} was done before, with these events; nothing was appended.")
    elif dry_run:
        session.say(f"That would be {counted(len(rows), 'event')} of {kind} {id}. Nothing was appended.")
    else:
        session.say(f"{kind} {id} is at version {found.version:,}.")


# Any: JSON.
def _fields(text: str) -> dict[str, Any]:
    import orjson

    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        raise ArgumentInvalid(name="JSON", value=text, expected="the command's fields, as in '{\"amount\": 20}'")
    return fields


def _signature(command: str, fields: list[CommandField]) -> str:
    return f"{command}({', '.join(field.name for field in fields)})"


def _told(event: EntityEvent) -> str:
    """An event in a line: what, who and why."""
    by = "" if event.by is None else f", by {event.by}"
    why = "" if event.why is None else f": {event.why}"
    return f"{event.event} {cell(event.data)}{by}{why}"
