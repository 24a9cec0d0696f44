"""`headwater schema`: the schema of a topic, its versions, and the check of a new one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headwater.cli.arguments import Topic
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import columns
from headwater.errors import ArgumentInvalid, SchemaInvalid

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.schema import Change

_FORMS = ("text", "json", "avro")
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red")}


COMMANDS = Noun("schema", "Schemas of topics and subjects: list, show, check, register, and compare versions.")


@COMMANDS.command("show")
def show(
    session: Session,
    topic: Topic,
    version: Annotated[int | None, typer.Option("--version", help="An earlier version.", min=1, metavar="N")] = None,
    form: Annotated[str, typer.Option("--as", help="text, json or avro.", metavar="FORM")] = "text",
) -> None:
    """Show the schema of a topic, as `topic create` takes it."""
    from headwater.schema import encodings, format_schema, schema_to_json

    if form not in _FORMS:
        raise ArgumentInvalid(name="--as", value=form, expected="text, json or avro")
    with session.services() as services:
        number = version or services.topics.get(topic).schema_version
        schema = services.topics.schema(topic, number)
    if form == "avro":
        session.write(json.dumps(encodings.avro.avro_schema(schema, topic), indent=2, ensure_ascii=False))
    elif form == "json":
        session.write(json.dumps(schema_to_json(schema), indent=2, ensure_ascii=False))
    else:
        session.show({"topic": topic, "version": number, **schema_to_json(schema)}, [format_schema(schema)])


@COMMANDS.command("list", "ls")
def list_schemas(session: Session) -> None:
    """List the schemas of topics, and the Avro schemas that are registered under subjects."""
    with session.services() as services:
        named = services.schemas.list_schemas()
        found = [services.schemas.describe(one.name, kind=one.kind) for one in named]
    rows = [[one.name, one.kind, str(len(one.versions)), one.level.lower() or "-"] for one in found]
    session.show_all(found, columns("NAME…", "KIND", ">VERSIONS", "COMPATIBILITY"), rows)


@COMMANDS.command("register")
def register(
    session: Session,
    name: Annotated[str, typer.Argument(help="Name of the topic, or with --subject of the subject.", metavar="NAME")],
    schema: Annotated[str, typer.Argument(help="The next version, as text or in a file.", metavar="TEXT|FILE")],
    subject: Annotated[bool, typer.Option("--subject", help="Register an Avro schema under a subject.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Allow columns of a topic to be dropped.")] = False,
) -> None:
    """Register the next version of a topic's schema, or of the Avro schema of a subject.

    `schema check` says before whether a topic could take it.
    """
    from headwater.services.schemas import Draft

    kind: Literal["topic", "subject"] = "subject" if subject else "topic"
    with session.services(write=True) as services:
        made = services.schemas.register(name, Draft(schema=given_text(schema), force=force), kind=kind)
    session.show(made, [f"{name} has version {made.version} of its schema."])


@COMMANDS.command("check")
def check(
    session: Session,
    topic: Topic,
    schema: Annotated[str, typer.Argument(help="The new schema, as text or in a file.", metavar="TEXT|FILE")],
    force: Annotated[bool, typer.Option("--force", help="Allow columns to be dropped.")] = False,
) -> None:
    """Check whether a topic could take a new schema.

    Nothing is changed. Ends with an error if the topic could not take it.
    """
    from headwater.schema import format_schema
    from headwater.services.json_form import to_json
    from headwater.services.schemas import Draft

    new = given_schema(schema)
    with session.services() as services:
        draft = Draft(schema=format_schema(new), force=force)
        verdict = services.schemas.check(topic, draft, kind="topic")
        changes = verdict.changes
        record = {"topic": topic, "fits": verdict.fits, "changes": to_json(changes)}
        session.show(record, _lines(session, changes))
        # Raises, with the reason, if the topic could not take it.
        services.topics.alter(topic, schema=new, force=force, dry_run=True)
        if not verdict.fits:
            raise SchemaInvalid(schema=draft.schema, why=verdict.refused[0].rstrip("."))
    session.say("The topic can take this schema." if changes else "The topic has this schema already.")


@COMMANDS.command("diff")
def diff(
    session: Session,
    topic: Topic,
    old: Annotated[int | None, typer.Argument(help="By default the version before.", metavar="VERSION")] = None,
    new: Annotated[int | None, typer.Argument(help="By default the present version.", metavar="VERSION")] = None,
) -> None:
    """Show what changed between two versions of a topic's schema."""
    from headwater import schema as schemas
    from headwater.services.json_form import to_json

    with session.services() as services:
        latest = services.topics.get(topic).schema_version if new is None else new
        earlier = max(1, latest - 1) if old is None else old
        changes = schemas.diff(services.topics.schema(topic, earlier), services.topics.schema(topic, latest))
    record = {"topic": topic, "old": earlier, "new": latest, "changes": to_json(changes)}
    session.show(record, _lines(session, changes))
    if not changes:
        session.say(f"Versions {earlier} and {latest} are the same.")


def _lines(session: Session, changes: list[Change]) -> list[str]:
    lines = []
    for change in changes:
        sign, style = _SIGNS.get(change.kind, ("~", "yellow"))
        lines.append(session.paint(f"{sign} {change.description}", style) + ("  (refused)" if change.refused else ""))
    return lines


def given_schema(text: str) -> pa.Schema:
    """The schema in an argument, or in the file that the argument names.

    >>> given_schema("id int64, at timestamp").names
    ['id', 'at']
    """
    from headwater.services.schemas import schema_of_text

    return schema_of_text(given_text(text))


def given_text(text: str) -> str:
    """The text in an argument, or in the file that the argument names."""
    path = Path(text.removeprefix("@"))
    if text.startswith("@") or path.suffix in {".json", ".avsc", ".txt", ".schema"}:
        return path.read_text(encoding="utf-8")
    return text
