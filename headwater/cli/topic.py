"""`headwater topic`: make, list, describe, alter and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.arguments import DryRun, Topic, Yes
from headwater.cli.asking import confirm
from headwater.cli.commands import command, noun
from headwater.cli.schemas import given_schema
from headwater.cli.session import Record, Session
from headwater.cli.tables import Column
from headwater.cli.wording import counted, iso, shown
from headwater.errors import TopicInternal
from headwater.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import headwater.log as hw

Schema = Annotated[
    str | None,
    typer.Option("--schema", "-s", help="Columns as text, or a file of text, JSON or Avro.", metavar="TEXT|FILE"),
]
Partitions = Annotated[int | None, typer.Option("--partitions", "-p", help="Number of partitions.", min=1, metavar="N")]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Key columns, with commas between.", metavar="COLUMNS")]
Time = Annotated[str | None, typer.Option("--time", help="Column of the event time.", metavar="COLUMN")]
Keep = Annotated[
    str | None, typer.Option("--retention", help='How much to keep: "7 days", "10 GB", both, or "forever".')
]
Compact = Annotated[bool | None, typer.Option("--compact/--no-compact", help="Keep only the last row of each key.")]
Durability = Annotated[str | None, typer.Option("--durability", help="fsync, os or memory.", metavar="KIND")]
Codec = Annotated[str | None, typer.Option("--codec", help="none, lz4 or zstd.", metavar="KIND")]
SegmentBytes = Annotated[str | None, typer.Option("--segment-bytes-max", help="Size of a segment.", metavar="SIZE")]
SegmentSeconds = Annotated[str | None, typer.Option("--segment-seconds-max", help="Age of a segment.", metavar="TIME")]
Tombstone = Annotated[
    str | None, typer.Option("--tombstone-seconds-max", help="How long a deletion stays visible.", metavar="TIME")
]
Archive = Annotated[bool | None, typer.Option("--archive/--no-archive", help="Move old segments instead of deleting.")]


def register(app: typer.Typer) -> None:
    group = noun(app, "topic", "Make, list, describe, alter and delete topics.")
    command(group, "create")(create)
    command(group, "list", "ls")(list_topics)
    command(group, "describe", "info")(describe)
    command(group, "alter")(alter)
    command(group, "delete", "rm")(delete)


def create(
    session: Session,
    topic: Topic,
    schema: Schema = None,
    partitions: Partitions = None,
    key: Key = None,
    time: Time = None,
    retention: Keep = None,
    compact: Compact = None,
    durability: Durability = None,
    codec: Codec = None,
    segment_bytes_max: SegmentBytes = None,
    segment_seconds_max: SegmentSeconds = None,
    tombstone_seconds_max: Tombstone = None,
    archive: Archive = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Accept the same topic.")] = False,
) -> None:
    """Make a topic. Without a schema its rows are a key and a value, both bytes.

    The log is made too, if there is none yet.
    """
    with session.log(create=True, write=True) as log:
        made = log.create(
            topic,
            None if schema is None else given_schema(schema),
            partitions=partitions,
            key=_names(key),
            time=time,
            retention=retention,
            compact=bool(compact),
            durability=durability,  # type: ignore[arg-type]  # checked by `create`, which says what it takes
            codec=codec,  # type: ignore[arg-type]
            segment_bytes_max=segment_bytes_max,
            segment_seconds_max=segment_seconds_max,
            tombstone_seconds_max=tombstone_seconds_max,
            archive=bool(archive),
            exist_ok=if_not_exists,
        )
        session.say(f"Topic {topic!r} is ready in {session.config.log}: {counted(made.partitions, 'partition')}.")
        if session.output != "table":
            session.show(declared(made))


def list_topics(
    session: Session,
    pattern: Annotated[str, typer.Argument(help="Only names that match, such as 'orders.*'.")] = "*",
    internal: Annotated[bool, typer.Option("--internal", help="Also topics of the log itself.")] = False,
) -> None:
    """List the topics, with what they hold."""
    with session.log() as log:
        descriptions = [log.describe(name) for name in log.topics(pattern, internal=internal)]
    columns = [
        Column(title="TOPIC", cut=True),
        Column(title="PARTITIONS", right=True),
        Column(title="ROWS", right=True),
        Column(title="SIZE", right=True),
        Column(title="KEY", cut=True),
        Column(title="KEEPS", cut=True),
        Column(title="LAST APPEND"),
    ]
    rows = [
        [
            one.topic.name,
            str(one.topic.partitions),
            f"{one.rows:,}",
            format_bytes(one.bytes),
            ", ".join(one.topic.key) or "-",
            keeps(one.topic),
            shown(_appended_at(one)),
        ]
        for one in descriptions
    ]
    session.show_all([summary(one) for one in descriptions], columns, rows)
    if not descriptions:
        session.say(f"There are no topics in {session.config.log}. Make one with `headwater topic create NAME`.")


def describe(session: Session, topic: Topic) -> None:
    """Show one topic: its declaration and its partitions."""
    with session.log() as log:
        found = log.describe(topic)
    record = {**declared(found.topic), **_holdings(found)}
    session.show(record, _described(session, found))


def alter(
    session: Session,
    topic: Topic,
    schema: Schema = None,
    add_column: Annotated[
        list[str] | None, typer.Option("--add-column", help="A further column, as 'name type'; may be repeated.")
    ] = None,
    partitions: Partitions = None,
    retention: Keep = None,
    compact: Compact = None,
    codec: Codec = None,
    segment_bytes_max: SegmentBytes = None,
    segment_seconds_max: SegmentSeconds = None,
    tombstone_seconds_max: Tombstone = None,
    archive: Archive = None,
    force: Annotated[bool, typer.Option("--force", help="Let a schema drop columns.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Change a topic while it is in use.

    Other processes see the change at their next call.
    """
    changes = {
        "partitions": partitions,
        "retention": retention,
        "compact": compact,
        "codec": codec,
        "segment_bytes_max": segment_bytes_max,
        "segment_seconds_max": segment_seconds_max,
        "tombstone_seconds_max": tombstone_seconds_max,
        "archive": archive,
    }
    with session.log(write=not dry_run) as log:
        before = log.topic(topic)
        wanted = _wanted_schema(before, schema, add_column or [])
        if wanted is None and all(value is None for value in changes.values()):
            raise typer.BadParameter("Nothing to change was given. See `headwater topic alter --help`.")
        if dry_run:
            _preview(session, before, wanted, changes, force=force)
            return
        after = log.alter(topic, schema=wanted, force=force, **changes)  # type: ignore[arg-type]
    _show_changes(session, before, after)


def delete(
    session: Session,
    topics: Annotated[list[str], typer.Argument(help="Names of topics.", metavar="TOPIC...")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete topics with all their rows. There is no way back."""
    for name in topics:
        if name.startswith("__"):
            raise TopicInternal(topic=name)
    with session.log(write=not dry_run) as log:
        found = [log.describe(name) for name in topics]
        listed = ", ".join(
            f"{one.topic.name!r} ({counted(one.rows, 'row')}, {format_bytes(one.bytes)})" for one in found
        )
        if not dry_run:
            confirm(session, f"This deletes {listed} for ever.", yes=yes)
            for name in topics:
                log.delete(name)
    session.say(f"{'Would delete' if dry_run else 'Deleted'} {listed}.")
    if session.output != "table":
        records = [{**summary(one), "deleted": not dry_run} for one in found]
        session.show_all(records, [], [])


# -- what a topic is, for programs ------------------------------------------------------------------------------------


def declared(topic: hw.Topic) -> Record:
    """How a topic is declared. These names are a contract: scripts rely on them."""
    from headwater.schema import schema_to_json

    return {
        "name": topic.name,
        "id": topic.id,
        "created_at": iso(topic.created_us),
        "partitions": topic.partitions,
        "key": list(topic.key),
        "time": topic.time,
        "schemaless": topic.schemaless,
        "schema_version": topic.schema_version,
        "columns": schema_to_json(topic.schema)["columns"],
        "compact": topic.compact,
        "retention_seconds_max": topic.retention.seconds_max,
        "retention_bytes_max": topic.retention.bytes_max,
        "tombstone_seconds_max": topic.tombstone_seconds_max,
        "durability": topic.durability,
        "codec": topic.codec,
        "segment_bytes_max": topic.segment_bytes_max,
        "segment_seconds_max": topic.segment_seconds_max,
        "archive": topic.archive,
    }


def summary(found: hw.Description) -> Record:
    """One line of the list of topics. These names are a contract, too."""
    return {
        "name": found.topic.name,
        "partitions": found.topic.partitions,
        "rows": found.rows,
        "bytes": found.bytes,
        "key": list(found.topic.key),
        "compact": found.topic.compact,
        "retention_seconds_max": found.topic.retention.seconds_max,
        "retention_bytes_max": found.topic.retention.bytes_max,
        "appended_at": iso(_appended_at(found)),
    }


def _holdings(found: hw.Description) -> Record:
    partitions = [
        {
            "partition": one.partition,
            "offset_start": one.offset_start,
            "offset_next": one.offset_next,
            "rows": one.rows,
            "bytes": one.bytes,
            "segments": one.segments,
            "appended_at": iso(one.appended_at_us),
        }
        for one in found.partitions
    ]
    return {"rows": found.rows, "bytes": found.bytes, "holds": partitions}


# -- what a topic is, for people --------------------------------------------------------------------------------------


def keeps(topic: hw.Topic) -> str:
    """What stays of a topic, in a few words."""
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
        ("time", topic.time or "none"),
        ("keeps", keeps(topic)),
        ("durability", topic.durability),
        ("codec", topic.codec),
        ("segments", f"up to {format_bytes(topic.segment_bytes_max)} or {format_seconds(topic.segment_seconds_max)}"),
        ("created", shown(topic.created_us)),
        ("schema", "none: a key and a value" if topic.schemaless else f"version {topic.schema_version}"),
    ]
    columns = [Column(title="COLUMN", cut=True), Column(title="TYPE", cut=True), Column(title="NULL")]
    described = [
        [column["name"], column["type"], "yes" if column["nullable"] else "no"]
        for column in schema_to_json(topic.schema)["columns"]
    ]
    return [
        session.paint(topic.name, "bold"),
        *(f"  {name:<11} {value}" for name, value in facts),
        "",
        *session.table(columns, described),
        "",
        *session.table(*_partition_table(found)),
    ]


def _partition_table(found: hw.Description) -> tuple[list[Column], list[list[str]]]:
    titles = ["PARTITION", "START", "NEXT", "ROWS", "SIZE", "SEGMENTS"]
    columns = [*(Column(title=title, right=True) for title in titles), Column(title="LAST APPEND")]
    rows = [
        [
            str(one.partition),
            str(one.offset_start),
            str(one.offset_next),
            f"{one.rows:,}",
            format_bytes(one.bytes),
            str(one.segments),
            shown(one.appended_at_us),
        ]
        for one in found.partitions
    ]
    return columns, rows


def _appended_at(found: hw.Description) -> int | None:
    return max((one.appended_at_us or 0 for one in found.partitions), default=0) or None


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


# -- changes ----------------------------------------------------------------------------------------------------------


def _wanted_schema(topic: hw.Topic, schema: str | None, further: list[str]) -> Any:
    """The schema that is asked for, None to leave it. Any: Arrow has no types for a checker."""
    if schema is None and not further:
        return None
    base = topic.schema if schema is None else given_schema(schema)
    for text in further:
        for column in given_schema(text):
            base = base.append(column)
    return base


def _preview(session: Session, before: hw.Topic, wanted: Any, changes: Record, *, force: bool) -> None:
    """What `alter` would do. The schema's rules are asked; the other settings are shown as they were given."""
    from headwater.schema import evolve, parse_schema

    lines = [f"{name}: {getattr(before, name)} → {value}" for name, value in changes.items() if value is not None]
    if wanted is not None:
        lines += [str(change) for change in evolve(before.name, before.schema, parse_schema(wanted), force=force)]
    session.show({"topic": before.name, "changed": False, "changes": lines}, [f"would change {one}" for one in lines])


def _show_changes(session: Session, before: hw.Topic, after: hw.Topic) -> None:
    from headwater.schema import diff

    old, new = declared(before), declared(after)
    lines = [f"{name}: {old[name]} → {new[name]}" for name in new if old[name] != new[name] and name != "columns"]
    lines += [str(change) for change in diff(before.schema, after.schema)]
    session.show({"topic": after.name, "changed": bool(lines), "changes": lines}, lines)
    if not lines:
        session.say("Nothing changed: the topic was so already.")
