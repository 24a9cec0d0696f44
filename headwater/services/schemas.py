"""Schemas of topics, and Avro schemas registered under subjects: their versions, and the check of the next one.

A topic's schema is columns as text, and follows the rules of `headwater.schema.evolve`. A subject's schema is Avro, and
follows the compatibility level that was set for the subject. A draft of the next version can be checked before it is
registered. The paths of Confluent's schema registry are in `headwater/services/subjects.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
import pyarrow as pa

from headwater.errors import ArgumentInvalid, Conflict, HeadwaterError, NotFound, SchemaInvalid
from headwater.log.errors import NameInvalid
from headwater.log.topic import Topic
from headwater.log.topic_rules import check_columns, check_key_types
from headwater.schema import Change, diff, encodings, format_schema, parse_schema, schema_from_json
from headwater.schema.compatibility import conflicts, parse_avro, rows_of
from headwater.services.callers import Action
from headwater.services.host import Host
from headwater.services.route import Service, route
from headwater.services.schema_registry import EVERY_SUBJECT, RegisteredSchema, SchemaRegistry

Kind = Literal["topic", "subject"]
TOPIC_RULE = "Old rows stay readable: columns may be added if they admit null, widened, made nullable and moved."
_LEVEL_RULES = {
    "BACKWARD": "readers of the new schema can read what was written under the last one.",
    "FORWARD": "readers of the last schema can read what is written under the new one.",
    "FULL": "readers of either schema can read what is written under the other.",
    "NONE": "anything may follow anything.",
}
_ACTIONS: dict[Kind, Action] = {"topic": "admin", "subject": "write"}


@dataclass(frozen=True, kw_only=True)
class SchemaName:
    """A schema: that of a topic, or that of a subject, which belongs to the topic that it is named for."""

    name: str
    kind: Kind
    topic: str


@dataclass(frozen=True, kw_only=True)
class SchemaInfo:
    """A schema with its versions, the rule for the next version, and the action on the topic that registering needs."""

    name: str
    kind: Kind
    topic: str
    versions: list[int]
    rule: str
    action: Action
    level: str = ""
    """The compatibility level of a subject."""
    schemaless: bool = False


@dataclass(frozen=True, kw_only=True)
class SchemaVersion:
    """One version of a schema: its columns, and its text as it is edited; `id` is the number of an Avro schema in messages."""

    version: int
    columns: pa.Schema
    text: str
    id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The text of a next version; with `force`, the schema of a topic may drop columns."""

    schema: str = ""
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a draft would change, and why it may not be registered; it may if `refused` is empty."""

    changes: list[Change] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        return not self.refused


@dataclass(eq=False, kw_only=True)
class SchemaIncompatible(Conflict):
    """A schema is not compatible with the earlier versions of its subject."""

    subject: str
    why: str
    problem = "The schema may not follow the earlier versions of subject {subject!r}: {why}."
    remedy = "Change the draft, or set another compatibility level for the subject."


class Schemas(Service):
    """What can be done with schemas. Without a `kind`, a name means a topic, or a subject where no topic has the name."""

    @route("GET", "/schemas")
    def list_schemas(self) -> list[SchemaName]:
        """List the schemas of the topics that the caller sees, and of the subjects that belong to these."""
        topics = [SchemaName(name=name, kind="topic", topic=name) for name in self.log.topics()]
        subjects = [
            SchemaName(name=name, kind="subject", topic=topic_of(name)) for name in registry_of(self.host).subjects()
        ]
        found = [one for one in (*topics, *subjects) if self.caller.sees(one.topic)]
        return sorted(found, key=lambda one: (one.name, one.kind))

    @route("GET", "/schemas/{name}")
    def describe(self, name: str, *, kind: Kind | None = None) -> SchemaInfo:
        """Describe a schema: its versions, and what may follow them."""
        found = self._find(name, kind)
        if isinstance(found, Topic):
            return SchemaInfo(
                name=name,
                kind="topic",
                topic=name,
                versions=list(range(1, found.schema_version + 1)),
                rule=TOPIC_RULE,
                action=_ACTIONS["topic"],
                schemaless=found.schemaless,
            )
        level = registry_of(self.host).level_in_force(name)
        return SchemaInfo(
            name=name,
            kind="subject",
            topic=topic_of(name),
            versions=list(found),
            rule=f"{level}: {_LEVEL_RULES[level.removesuffix('_TRANSITIVE')]}",
            action=_ACTIONS["subject"],
            level=level,
        )

    @route("GET", "/schemas/{name}/versions/{version}")
    def version(self, name: str, version: int, *, kind: Kind | None = None) -> SchemaVersion:
        """Read one version of a schema."""
        found = self._find(name, kind)
        if isinstance(found, Topic):
            columns = self.log.schema(name, version)
            text = ",\n".join(format_schema(pa.schema([column])) for column in columns)
            return SchemaVersion(version=version, columns=columns, text=text)
        known = registry_of(self.host).versions(name, deleted=True)
        if version not in known:
            raise ArgumentInvalid(name="version", value=version, expected=f"one of {', '.join(map(str, found))}")
        avro = orjson.loads(known[version].schema)
        text = orjson.dumps(avro, option=orjson.OPT_INDENT_2).decode()
        return SchemaVersion(version=version, columns=rows_of(avro), text=text, id=known[version].id)

    @route("POST", "/schemas/{name}/check", audited=False)
    def check(self, name: str, draft: Draft, *, kind: Kind | None = None) -> Verdict:
        """Check what a draft of the next version would change, and whether it may be registered."""
        found = self._find(name, kind)
        try:
            return (
                self._check_topic(found, draft) if isinstance(found, Topic) else self._check_subject(name, found, draft)
            )
        except SchemaInvalid as error:
            return Verdict(refused=[str(error)])

    @route("POST", "/schemas/{name}/versions")
    def register(self, name: str, draft: Draft, *, kind: Kind | None = None) -> SchemaVersion:
        """Register the next version of a schema; a subject that does not exist yet is made."""
        kind = kind or self._kind(name)
        self.caller.require(_ACTIONS[kind], name if kind == "topic" else topic_of(name))
        if kind == "topic":
            version = self.log.alter(name, schema=schema_of_text(draft.schema), force=draft.force).schema_version
            return self.version(name, version, kind=kind)
        if not is_subject(name):
            raise NameInvalid(kind="subject", name=name[:100], why="it is empty, too long or not printable")
        schema = parse_avro(draft.schema)

        def check(live: list[RegisteredSchema]) -> None:
            if found := self._conflicts(name, schema, live):
                raise SchemaIncompatible(subject=name, why="; ".join(found))

        made = registry_of(self.host).register(name, draft.schema, check)
        return SchemaVersion(version=made.version, columns=rows_of(schema), text=made.schema, id=made.id)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _kind(self, name: str) -> Kind:
        is_topic = bool(self.log.topics(name)) or name not in registry_of(self.host).subjects()
        return "topic" if is_topic else "subject"

    def _find(self, name: str, kind: Kind | None) -> Topic | dict[int, RegisteredSchema]:
        """The topic, or the versions of the subject. A caller who may not see it does not learn whether it exists."""
        kind = kind or self._kind(name)
        self.caller.require_sight(name if kind == "topic" else topic_of(name))
        if kind == "topic":
            return self.log.topic(name)
        versions = registry_of(self.host).versions(name)
        if not versions:
            raise NotFound(kind="topic", name=name, near=" There is neither a topic nor a subject of this name.")
        return versions

    def _check_topic(self, topic: Topic, draft: Draft) -> Verdict:
        new = schema_of_text(draft.schema)
        changes = diff(topic.schema, new)
        refused = [
            f"{change.column}: {change.refused}."
            for change in changes
            if change.refused and not (draft.force and change.kind == "removed")
        ]
        try:
            check_columns(topic.name, new, key=topic.key, time=topic.time_column)
            check_key_types(topic.name, topic.key, topic.schema, new)
        except HeadwaterError as error:
            refused.append(str(error))
        return Verdict(changes=changes, refused=refused)

    def _check_subject(self, name: str, versions: dict[int, RegisteredSchema], draft: Draft) -> Verdict:
        schema, live = parse_avro(draft.schema), list(versions.values())
        before = rows_of(orjson.loads(live[-1].schema))
        return Verdict(changes=diff(before, rows_of(schema)), refused=self._conflicts(name, schema, live))

    # Any: Avro schemas are JSON values.
    def _conflicts(self, name: str, schema: Any, live: Sequence[RegisteredSchema]) -> list[str]:
        return conflicts(
            registry_of(self.host).level_in_force(name), schema, [orjson.loads(one.schema) for one in live]
        )


def registry_of(host: Host) -> SchemaRegistry:
    """The registry of a log, which all services share."""
    return host.share("schema registry", lambda: SchemaRegistry(host.log))


def is_subject(name: str) -> bool:
    """Whether a name is valid for a subject."""
    return bool(name.strip()) and len(name) <= 500 and name.isprintable() and name != EVERY_SUBJECT


def topic_of(subject: str) -> str:
    """The topic that a subject is named for.

    >>> topic_of("orders-value"), topic_of("orders-key"), topic_of("com.example.Order")
    ('orders', 'orders', 'com.example.Order')
    """
    for ending in ("-value", "-key"):
        if subject.endswith(ending) and len(subject) > len(ending):
            return subject.removesuffix(ending)
    return subject


def schema_of_text(text: str) -> pa.Schema:
    """Parse a schema: columns as text, the stored JSON form, an Avro record, or a mapping of names to types.

    >>> schema_of_text("id int64,\\n at timestamp").names, schema_of_text('{"id": "int64"}').names
    (['id', 'at'], ['id'])
    """
    if not text.lstrip().startswith("{"):
        return parse_schema(" ".join(text.split()))
    try:
        # Any: what the text says is not known before it is read.
        body: dict[str, Any] = orjson.loads(text)
    except ValueError as error:
        raise SchemaInvalid(schema=" ".join(text.split())[:60], why=f"it is not JSON ({error})") from error
    if "columns" in body:
        return parse_schema(schema_from_json(body))
    if body.get("type") == "record":
        return parse_schema(encodings.avro.arrow_schema(body))
    return parse_schema(body)
