"""`headwater topic`: make, list, describe, alter and delete topics."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import DryRun, Topic, Yes, names_of
from headwater.cli.commands.schema import given_schema
from headwater.cli.declaration import Noun
from headwater.cli.session import Record, Session
from headwater.cli.terminal.tables import Column, columns, counted, iso_time, short_time
from headwater.errors import NotPossible
from headwater.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import headwater.log as hw

Schema = Annotated[
    str | None,
    typer.Option("--schema", "-s", help="Columns as text, or a file of text, JSON or Avro.", metavar="TEXT|FILE"),
]


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Options of `create` and `alter`: the fields of `TopicChanges`."""

    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="Number of partitions.", min=1, metavar="N")
    ] = None
    time: Annotated[
        str | None,
        typer.Option(
            "--time", help='Event time: a column, or "at, delay=30 seconds, idle_timeout=1 minute".', metavar="TEXT"
        ),
    ] = None
    retention: Annotated[
        str | None, typer.Option("--retention", help='How much to keep: "7 days", "10 GB", both, or "forever".')
    ] = None
    compact: Annotated[
        bool | None, typer.Option("--compact/--no-compact", help="Keep only the last row of each key.")
    ] = None
    codec: Annotated[str | None, typer.Option("--codec", help="none, lz4 or zstd.", metavar="KIND")] = None
    segment_bytes_max: Annotated[
        str | None, typer.Option("--segment-bytes-max", help="Size of a segment.", metavar="SIZE")
    ] = None
    segment_seconds_max: Annotated[
        str | None, typer.Option("--segment-seconds-max", help="Age of a segment.", metavar="TIME")
    ] = None
    tombstone_seconds_max: Annotated[
        str | None, typer.Option("--tombstone-seconds-max", help="How long a deletion stays visible.", metavar="TIME")
    ] = None
    archive: Annotated[
        bool | None, typer.Option("--archive/--no-archive", help="Move old segments instead of deleting.")
    ] = None


COMMANDS = Noun("topic", "Make, list, describe, alter and delete topics.")


@COMMANDS.command("create")
def create(
    session: Session,
    topic: Topic,
    changes: Changes,
    schema: Schema = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Key columns, with commas between.", metavar="COLUMNS")
    ] = None,
    durability: Annotated[str | None, typer.Option("--durability", help="fsync, os or memory.", metavar="KIND")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Accept the same topic.")] = False,
) -> None:
    """Make a topic. Without a schema its rows are a key and a value, both bytes.

    The log is made too, if there is none yet.
    """
    from headwater.services.topics import TopicSettings

    # The log checks the words, and says what it takes.
    settings = TopicSettings(key=names_of(key), durability=durability, **asdict(changes))  # type: ignore[arg-type]
    wanted = None if schema is None else given_schema(schema)
    with session.services(create=True, write=True) as services:
        made = services.topics.create(topic, wanted, settings, exist_ok=if_not_exists)
        session.say(f"Topic {topic!r} is ready in {session.config.log}: {counted(made.partitions, 'partition')}.")
        session.show(made)


@COMMANDS.command("list", "ls")
def list_topics(
    session: Session,
    pattern: Annotated[str, typer.Argument(help="Only names that match, such as 'orders.*'.")] = "*",
    internal: Annotated[bool, typer.Option("--internal", help="Also topics of the log itself.")] = False,
) -> None:
    """List the topics, with what they hold."""
    with session.services() as services:
        descriptions = [services.topics.describe(name) for name in services.topics.names(pattern, internal=internal)]
    titles = columns("TOPIC…", ">PARTITIONS", ">ROWS", ">SIZE", "KEY…", "KEEPS…", "LAST APPEND")
    rows = [
        [
            one.topic.name,
            str(one.topic.partitions),
            f"{one.rows:,}",
            format_bytes(one.bytes),
            ", ".join(one.topic.key) or "-",
            keeps(one.topic),
            short_time(_appended_at(one)),
        ]
        for one in descriptions
    ]
    session.show_all(map(summary, descriptions), titles, rows)
    if not descriptions:
        session.say(f"There are no topics in {session.config.log}. Make one with `headwater topic create NAME`.")


@COMMANDS.command("describe", "info")
def describe(session: Session, topic: Topic) -> None:
    """Show one topic: its declaration and its partitions."""
    with session.services() as services:
        found = services.topics.describe(topic)
    session.show(found, _described(session, found))


@COMMANDS.command("alter")
def alter(
    session: Session,
    topic: Topic,
    changes: Changes,
    schema: Schema = None,
    add_column: Annotated[
        list[str] | None, typer.Option("--add-column", help="A further column, as 'name type'; may be repeated.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let a schema drop columns.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Change a topic while it is in use.

    Other processes see the change at their next call.
    """
    from headwater.services.topics import TopicChanges

    settings = TopicChanges(**asdict(changes))
    if schema is None and not add_column and not settings.given():
        raise typer.BadParameter("Nothing to change was given. See `headwater topic alter --help`.")
    with session.services(write=not dry_run) as services:
        wanted = None if schema is None else given_schema(schema)
        for text in add_column or []:
            wanted = services.topics.get(topic).schema if wanted is None else wanted
            for column in given_schema(text):
                wanted = wanted.append(column)
        lines = services.topics.alter(topic, settings, schema=wanted, force=force, dry_run=dry_run).changes
    record = {"topic": topic, "changed": bool(lines) and not dry_run, "changes": lines}
    session.show(record, [f"would change {one}" for one in lines] if dry_run else lines)
    if not lines and not dry_run:
        session.say("Nothing changed: the topic has these settings already.")


@COMMANDS.command("delete", "rm")
def delete(
    session: Session,
    topics: Annotated[list[str], typer.Argument(help="Names of topics.", metavar="TOPIC...")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete topics with all their rows. This cannot be undone."""
    for name in topics:
        if name.startswith("__"):
            raise NotPossible(
                why=f"Topic {name!r} belongs to the log itself, and cannot be deleted",
                instead=f"Set its retention to keep less: `headwater topic alter {name} --retention '7 days'`",
            )
    with session.services(write=not dry_run) as services:
        found = [services.topics.describe(name) for name in topics]
        listed = ", ".join(
            f"{one.topic.name!r} ({counted(one.rows, 'row')}, {format_bytes(one.bytes)})" for one in found
        )
        if not dry_run:
            session.confirm(f"This deletes {listed} for ever.", yes=yes)
            for name in topics:
                services.topics.delete(name)
    session.say(f"{'Would delete' if dry_run else 'Deleted'} {listed}.")
    session.show_all(map(summary, found), [], [], deleted=not dry_run)


def summary(found: hw.Description) -> Record:
    """One line of the list of topics. These names are a contract: scripts rely on them."""
    return {
        "name": found.topic.name,
        "partitions": found.topic.partitions,
        "rows": found.rows,
        "bytes": found.bytes,
        "key": list(found.topic.key),
        "compact": found.topic.compact,
        "retention_seconds_max": found.topic.retention.seconds_max,
        "retention_bytes_max": found.topic.retention.bytes_max,
        "appended_at": iso_time(_appended_at(found)),
    }


def keeps(topic: hw.Topic) -> str:
    """What retention and compaction leave of a topic, in a few words."""
    limits = []
    if topic.retention.seconds_max is not None:
        limits.append(format_seconds(topic.retention.seconds_max))
    if topic.retention.bytes_max is not None:
        limits.append(f"{format_bytes(topic.retention.bytes_max)} each")
    if topic.compact:
        limits.append("last per key")
    return ", ".join(limits) or "all"


def _described(session: Session, found: hw.Description) -> list[str]:
    from headwater.schema import schema_to_json

    topic = found.topic
    facts = [
        ("holds", f"{found.rows:,} {'offsets' if topic.compact else 'rows'}, {format_bytes(found.bytes)}"),
        ("key", ", ".join(topic.key) or "none: rows are spread in turn"),
        ("time", str(topic.time or "none")),
        ("keeps", keeps(topic)),
        ("durability", topic.durability),
        ("codec", topic.codec),
        ("segments", f"up to {format_bytes(topic.segment_bytes_max)} or {format_seconds(topic.segment_seconds_max)}"),
        ("created", short_time(topic.created_us)),
        ("schema", "none: a key and a value" if topic.schemaless else f"version {topic.schema_version}"),
    ]
    described = [
        [column["name"], column["type"], "yes" if column["nullable"] else "no"]
        for column in schema_to_json(topic.schema)["columns"]
    ]
    return [
        session.paint(topic.name, "bold"),
        *(f"  {name:<11} {value}" for name, value in facts),
        "",
        *session.table(columns("COLUMN…", "TYPE…", "NULL"), described),
        "",
        *session.table(*_partition_table(found)),
    ]


def _partition_table(found: hw.Description) -> tuple[list[Column], list[list[str]]]:
    rows = [
        [
            str(one.partition),
            str(one.offset_start),
            str(one.offset_next),
            f"{one.rows:,}",
            format_bytes(one.bytes),
            str(one.segments),
            short_time(one.appended_at_us),
        ]
        for one in found.partitions
    ]
    return columns(">PARTITION", ">START", ">NEXT", ">ROWS", ">SIZE", ">SEGMENTS", "LAST APPEND"), rows


def _appended_at(found: hw.Description) -> int | None:
    return max((one.appended_at_us or 0 for one in found.partitions), default=0) or None
