"""`headwater schema`: what a topic's columns are, were, and may become."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import Topic
from headwater.cli.commands import command, noun
from headwater.cli.schemas import given_schema
from headwater.cli.session import Record, Session
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from headwater.schema import Change

_FORMS = ("text", "json", "avro")
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red")}


def register(app: typer.Typer) -> None:
    group = noun(app, "schema", "What a topic's columns are, were, and may become.")
    command(group, "show")(show)
    command(group, "check")(check)
    command(group, "diff")(diff)


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
    with session.log() as log:
        schema = log.schema(topic, version)
        number = version or log.topic(topic).schema_version
    if form == "avro":
        session.write(json.dumps(encodings.avro.avro_schema(schema, topic), indent=2, ensure_ascii=False))
    elif form == "json":
        session.write(json.dumps(schema_to_json(schema), indent=2, ensure_ascii=False))
    else:
        session.show({"topic": topic, "version": number, **schema_to_json(schema)}, [format_schema(schema)])


def check(
    session: Session,
    topic: Topic,
    schema: Annotated[str, typer.Argument(help="The new schema, as text or in a file.", metavar="TEXT|FILE")],
    force: Annotated[bool, typer.Option("--force", help="As if columns might be dropped.")] = False,
) -> None:
    """Say whether a topic could take a new schema.

    Nothing is changed. Ends with an error if the topic could not take it.
    """
    from headwater import schema as schemas

    new = given_schema(schema)
    with session.log() as log:
        old = log.schema(topic)
    changes = schemas.diff(old, new)
    fits = not any(one.refused and not (force and one.kind == "removed") for one in changes)
    session.show({"topic": topic, "fits": fits, "changes": [_record(one) for one in changes]}, _lines(session, changes))
    schemas.evolve(topic, old, new, force=force)  # raises, with the reason, where the topic could not follow
    session.say("The topic can take this schema." if changes else "The topic has this schema already.")


def diff(
    session: Session,
    topic: Topic,
    old: Annotated[int | None, typer.Argument(help="By default the version before.", metavar="VERSION")] = None,
    new: Annotated[int | None, typer.Argument(help="By default the present version.", metavar="VERSION")] = None,
) -> None:
    """Show what changed between two versions of a topic's schema."""
    from headwater import schema as schemas

    with session.log() as log:
        latest = log.topic(topic).schema_version if new is None else new
        earlier = max(1, latest - 1) if old is None else old
        changes = schemas.diff(log.schema(topic, earlier), log.schema(topic, latest))
    record = {"topic": topic, "old": earlier, "new": latest, "changes": [_record(one) for one in changes]}
    session.show(record, _lines(session, changes))
    if not changes:
        session.say(f"Versions {earlier} and {latest} are the same.")


def _record(change: Change) -> Record:
    return {
        "kind": change.kind,
        "column": change.column,
        "old": change.old or None,
        "new": change.new or None,
        "refused": change.refused or None,
    }


def _lines(session: Session, changes: list[Change]) -> list[str]:
    lines = []
    for change in changes:
        sign, style = _SIGNS.get(change.kind, ("~", "yellow"))
        lines.append(session.paint(f"{sign} {change.description}", style) + ("  (refused)" if change.refused else ""))
    return lines
