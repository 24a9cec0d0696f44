"""Topics: listed, created, described, altered and deleted; and the offsets of their partitions."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

from headwater.config import Codec, Durability
from headwater.errors import ArgumentInvalid
from headwater.log.port import OFFSETS_TOPIC, Description, Expiry
from headwater.log.remote.wire import time_from_text
from headwater.log.topic import Retention, Topic, parsed_settings
from headwater.log.topic_rules import check_columns
from headwater.schema import EventTime, diff, evolve, parse_schema
from headwater.services.route import Service, route

PAGE_MAX = 1_000


@dataclass(frozen=True, kw_only=True)
class TopicChanges:
    """Settings of a topic that may change while it is in use; None leaves a setting as it is."""

    partitions: int | None = None
    time: EventTime | str | None = None
    retention: Retention | str | None = None
    compact: bool | None = None
    codec: Codec | None = None
    segment_bytes_max: int | str | None = None
    segment_seconds_max: float | str | None = None
    tombstone_seconds_max: float | str | None = None
    archive: bool | None = None

    # Any: each setting has its own type.
    def given(self) -> dict[str, Any]:
        """The settings that are not None, by their names."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}


@dataclass(frozen=True, kw_only=True)
class TopicSettings(TopicChanges):
    """Settings of a new topic; None is the default of the log."""

    key: str | list[str] | None = None
    durability: Durability | None = None


DEFAULTS = TopicSettings()
UNCHANGED = TopicChanges()


@dataclass(frozen=True, kw_only=True)
class TopicPage:
    """Names of topics; `next` is the `after` of the next page, null on the last."""

    topics: list[str]
    next: str | None = None


@dataclass(frozen=True, kw_only=True)
class TopicChange:
    """A topic after a change, and one line for each thing that changed or would change."""

    topic: Topic
    changes: list[str] = field(default_factory=list)


class Topics(Service):
    """What can be done with topics. A caller sees a topic if they have any scope for it."""

    @route("GET", "/topics")
    def page(self, pattern: str = "*", *, internal: bool = False, limit: int = 100, after: str = "") -> TopicPage:
        """List names of topics, a page at a time: `after` is the last name of the page before."""
        if not 1 <= limit <= PAGE_MAX:
            raise ArgumentInvalid(name="limit", value=limit, expected=f"1 to {PAGE_MAX:,}")
        names = [name for name in self.log.topics(pattern, internal=internal) if self.caller.sees(name)]
        begin = bisect_right(names, after) if after else 0
        page = names[begin : begin + limit]
        return TopicPage(topics=page, next=page[-1] if begin + limit < len(names) else None)

    def names(self, pattern: str = "*", *, internal: bool = False) -> list[str]:
        """List the names of all topics that the caller sees."""
        page = self.page(pattern, internal=internal, limit=PAGE_MAX)
        found = page.topics
        while page.next is not None:
            page = self.page(pattern, internal=internal, limit=PAGE_MAX, after=page.next)
            found += page.topics
        return found

    @route("POST", "/topics", scope="admin:{name}", status=201)
    def create(
        self,
        name: str,
        schema: pa.Schema | None = None,
        settings: TopicSettings = DEFAULTS,
        *,
        exist_ok: bool = False,
    ) -> Topic:
        """Create a topic. Without a schema its rows are a key and a value, both bytes."""
        return self.log.create(name, schema, exist_ok=exist_ok, **settings.given())

    @route("POST", "/internal-topics/{name}", scope="admin:*")
    def create_internal(self, name: str, id: str, schema: pa.Schema, settings: TopicSettings = DEFAULTS) -> None:
        """Create an internal topic, whose name begins with two underscores, unless it exists."""
        if not set(id) <= set("0123456789abcdef"):
            raise ArgumentInvalid(name="id", value=id, expected="digits from 0 to f")
        parsed = parsed_settings(settings.given())  # type: ignore[arg-type]  # the same names
        topic = Topic(name=name, id=id, schema=schema, created_us=self.log.clock.now_us(), **parsed)
        check_columns(name, schema, key=topic.key, time=topic.time_column)
        self.log.create_internal(topic)

    @route("GET", "/topics/{topic}", scope="see:{topic}")
    def get(self, topic: str) -> Topic:
        """Read how a topic is declared."""
        return self.log.topic(topic)

    @route("GET", "/topics/{topic}/describe", scope="see:{topic}")
    def describe(self, topic: str) -> Description:
        """Describe a topic: how it is declared, and what each of its partitions holds."""
        return self.log.describe(topic)

    @route("PATCH", "/topics/{topic}", scope="admin:{topic}")
    def alter(
        self,
        topic: str,
        changes: TopicChanges = UNCHANGED,
        *,
        schema: pa.Schema | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> TopicChange:
        """Change a topic while it is in use; with `force`, a schema may drop columns.

        With `dry_run`, the rules of schemas are checked, and other settings are shown as they were given.
        """
        before = self.log.topic(topic)
        if dry_run:
            lines = [f"{name}: {getattr(before, name)} → {value}" for name, value in changes.given().items()]
            if schema is not None:
                lines += map(str, evolve(topic, before.schema, parse_schema(schema), force=force))
            return TopicChange(topic=before, changes=lines)
        after = self.log.alter(topic, schema=schema, force=force, **changes.given())
        old, new = _flat(before), _flat(after)
        lines = [f"{name}: {old[name]} → {value}" for name, value in new.items() if old[name] != value]
        return TopicChange(topic=after, changes=lines + [str(one) for one in diff(before.schema, after.schema)])

    @route("DELETE", "/topics/{topic}", scope="admin:{topic}")
    def delete(self, topic: str) -> None:
        """Delete a topic and all its rows."""
        self.log.delete(topic)

    @route("GET", "/topics/{topic}/schemas/{version}", scope="see:{topic}")
    def schema(self, topic: str, version: int) -> pa.Schema:
        """Read the schema that a topic had in a version."""
        return self.log.schema(topic, version)

    # -- offsets ------------------------------------------------------------------------------------------------------

    @route("GET", "/topics/{topic}/offsets/start")
    def start_offsets(self, topic: str) -> dict[int, int]:
        """Read the oldest offset that each partition still has."""
        self._require_sight(topic)
        return self.log.start_offsets(topic)

    @route("GET", "/topics/{topic}/offsets/end")
    def end_offsets(self, topic: str) -> dict[int, int]:
        """Read the offset that the next row of each partition will get."""
        self._require_sight(topic)
        return self.log.end_offsets(topic)

    @route("GET", "/topics/{topic}/offsets/at")
    def offset_at(self, topic: str, time: str) -> dict[int, int]:
        """Find in each partition the first offset appended at or after a time (ISO 8601, or microseconds since 1970)."""
        self._require_sight(topic)
        asked = int(time) if time.lstrip("-").isdecimal() and len(time) < 19 else time_from_text(time)
        return self.log.offset_at(topic, asked)

    @route("GET", "/topics/{topic}/expiry")
    def expiry(self, topic: str, partition: int, offset: int) -> Expiry:
        """Say when retention will delete the rows around an offset."""
        self._require_sight(topic)
        if partition < 0 or offset < 0:
            raise ArgumentInvalid(name="offset", value=f"{partition}: {offset}", expected="nothing negative")
        return self.log.expiry(topic, partition, offset)

    def _require_sight(self, topic: str) -> None:
        # Consumers of any topic wait for rows of the topic that has the committed offsets, without reading it.
        if topic != OFFSETS_TOPIC:
            self.caller.require_sight(topic)


# Any: each setting has its own type.
def _flat(topic: Topic) -> dict[str, Any]:
    """The settings of a topic, with those of its retention beside the others."""
    found = {one.name: getattr(topic, one.name) for one in fields(topic) if one.name not in ("schema", "retention")}
    return found | {f"retention_{name}": value for name, value in vars(topic.retention).items()}
