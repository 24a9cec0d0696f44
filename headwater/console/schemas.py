"""Schemas of topics, and schemas registered under subjects: the same questions, asked in one way.

A topic's schema is columns as text, and follows our own rules of evolution. A subject's is Avro, and follows the level
that was set for it. Both have versions, differ from one to the next by columns, and can be tried before they are registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import orjson
import pyarrow as pa

from headwater.errors import HeadwaterError, SchemaInvalid, TopicNotFound
from headwater.log.embedded import drafting
from headwater.schema import Change, diff, encodings, format_schema, parse_schema, schema_from_json
from headwater.schema.notation import format_type
from headwater.server.compatibility import conflicts, parsed, rows_of
from headwater.server.registered import Registered, Registry
from headwater.server.subjects import level_of_subject, topic_of
from headwater.server.tokens import Action

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog

Kind = Literal["topic", "subject"]
FORCE_HELP = "Columns may go: rows keep what they hold, but readers no longer see it"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a draft would change, and why it may not be registered; nothing in `refused` means that it may."""

    changes: list[Change] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        return not self.refused


class Schemas(Protocol):
    """The versions of one schema."""

    name: str
    kind: Kind
    #: What registering needs, and on which topic.
    action: Action
    topic: str

    def versions(self) -> list[int]: ...
    def rule(self) -> str: ...
    def columns(self, version: int) -> pa.Schema: ...
    def text(self, version: int) -> str: ...
    def check(self, draft: str, *, force: bool) -> Verdict: ...
    def register(self, draft: str, *, force: bool) -> int: ...


class TopicSchemas:
    """The schema that a topic's rows have."""

    kind: Kind = "topic"
    action: Action = "admin"

    def __init__(self, log: EmbeddedLog, name: str) -> None:
        self.name = self.topic = name
        self._log = log
        log.topic(name)

    def versions(self) -> list[int]:
        return list(range(1, self._log.topic(self.name).schema_version + 1))

    def rule(self) -> str:
        return "Old rows stay readable: columns may be added if they admit null, widened, made nullable and moved."

    def columns(self, version: int) -> pa.Schema:
        return self._log.schema(self.name, version)

    def text(self, version: int) -> str:
        return ",\n".join(format_schema(pa.schema([column])) for column in self.columns(version))

    def check(self, draft: str, *, force: bool) -> Verdict:
        try:
            new = schema_of(draft)
        except HeadwaterError as error:
            return Verdict(refused=[str(error)])
        topic = self._log.topic(self.name)
        changes = diff(topic.schema, new)
        refused = [
            f"{change.column}: {change.refused}."
            for change in changes
            if change.refused and not (force and change.kind == "removed")
        ]
        try:
            drafting.check_columns(self.name, new, key=topic.key, time=topic.time)
            drafting.check_key_types(self.name, topic.key, topic.schema, new)
        except HeadwaterError as error:
            refused.append(str(error))
        return Verdict(changes=changes, refused=refused)

    def register(self, draft: str, *, force: bool) -> int:
        return self._log.alter(self.name, schema=schema_of(draft), force=force).schema_version


class SubjectSchemas:
    """The Avro schemas that are registered under a subject."""

    kind: Kind = "subject"
    action: Action = "write"

    def __init__(self, registry: Registry, name: str) -> None:
        self.name, self.topic = name, topic_of(name)
        self._registry = registry
        if not registry.versions(name):
            raise TopicNotFound(topic=name, near=" There is neither a topic nor a subject of this name.")

    def versions(self) -> list[int]:
        return list(self._registry.versions(self.name))

    def rule(self) -> str:
        return f"{level_of_subject(self._registry, self.name)}: {_LEVELS[self._level().removesuffix('_TRANSITIVE')]}"

    def columns(self, version: int) -> pa.Schema:
        return rows_of(orjson.loads(self._found(version).schema))

    def text(self, version: int) -> str:
        return orjson.dumps(orjson.loads(self._found(version).schema), option=orjson.OPT_INDENT_2).decode()

    def identity(self, version: int) -> int:
        return self._found(version).id

    def check(self, draft: str, *, force: bool) -> Verdict:
        del force  # the level says what may go
        try:
            schema = parsed(draft)
        except HeadwaterError as error:
            return Verdict(refused=[str(error)])
        live = list(self._registry.versions(self.name).values())
        before = rows_of(orjson.loads(live[-1].schema)) if live else pa.schema([])
        return Verdict(changes=diff(before, rows_of(schema)), refused=self._conflicts(schema, live))

    def register(self, draft: str, *, force: bool) -> int:
        del force
        schema = parsed(draft)

        def check(live: list[Registered]) -> None:
            if found := self._conflicts(schema, live):
                raise SchemaInvalid(schema=self.name, why="; ".join(found))

        return self._registry.register(self.name, draft, check).version

    def _conflicts(self, schema: object, live: Sequence[Registered]) -> list[str]:
        return conflicts(self._level(), schema, [orjson.loads(one.schema) for one in live])

    def _level(self) -> str:
        return level_of_subject(self._registry, self.name)

    def _found(self, version: int) -> Registered:
        known = self._registry.versions(self.name, deleted=True)
        return known[version]


_LEVELS = {
    "BACKWARD": "whoever knows the new schema can read what was written under the last one.",
    "FORWARD": "whoever knows the last schema can read what is written under the new one.",
    "FULL": "readers of either schema can read what is written under the other.",
    "NONE": "anything may follow anything.",
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One column in two versions; `""` where it is not there."""

    column: str
    old: str
    new: str
    change: str = ""
    refused: str = ""


def lines_between(old: pa.Schema, new: pa.Schema) -> list[Line]:
    """All columns of two versions side by side, those that go last; a change inside a column has a line of its own.

    >>> [(one.column, one.change) for one in lines_between(pa.schema([("a", pa.int32())]), pa.schema([("b", pa.int8()), ("a", pa.int64())]))]
    [('b', 'added'), ('a', 'widened')]
    """
    changes: dict[str, list[Change]] = {}
    for change in diff(old, new):
        changes.setdefault(change.column, []).append(change)
    found = []
    for name in [*new.names, *(name for name in old.names if name not in new.names)]:
        before, after = _written(old, name), _written(new, name)
        mine = changes.pop(name, [])
        within = [path for path in changes if path.startswith((f"{name}.", f"{name}[]", f"{name}{{}}"))]
        kind = _told(mine) or ("changed inside" if within else "")
        found.append(Line(column=name, old=before, new=after, change=kind, refused=_refused(mine)))
        for inside in within:
            mine = changes.pop(inside)
            found.append(
                Line(column=inside, old=mine[0].old, new=mine[0].new, change=_told(mine), refused=_refused(mine))
            )
    return found


def _written(schema: pa.Schema, name: str) -> str:
    if name not in schema.names:
        return ""
    column = schema.field(name)
    return format_type(column.type) + ("" if column.nullable else " not null")


def _told(changes: Sequence[Change]) -> str:
    return ", ".join(change.kind for change in changes)


def _refused(changes: Sequence[Change]) -> str:
    return "; ".join(change.refused for change in changes if change.refused)


def schema_of(text: str) -> pa.Schema:
    """A schema as people write it: columns as text, our own JSON, an Avro record, or a mapping of names to types.

    >>> schema_of("id int64,\\n at timestamp").names, schema_of('{"id": "int64"}').names
    (['id', 'at'], ['id'])
    """
    if not text.lstrip().startswith("{"):
        return parse_schema(" ".join(text.split()))
    try:
        body = orjson.loads(text)
    except ValueError as error:
        raise SchemaInvalid(schema=" ".join(text.split())[:60], why=f"it is not JSON ({error})") from error
    if "columns" in body:
        return parse_schema(schema_from_json(body))
    if body.get("type") == "record":
        return parse_schema(encodings.avro.arrow_schema(body))
    return parse_schema(body)
