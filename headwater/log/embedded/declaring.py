"""Topics of the embedded log: made, changed, described and deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import (
    ArgumentInvalid,
    TopicExists,
    TopicInternal,
)
from headwater.log.embedded import drafting
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.topics import INTERNAL, check_name, with_schema
from headwater.log.port import (
    Codec,
    Description,
    Durability,
    PartitionInfo,
    Retention,
    Topic,
)
from headwater.log.retention import parse_retention
from headwater.schema import evolve, parse_schema
from headwater.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    pass


from headwater.log.embedded.core import Core


class Declaring(Core):
    """What topics there are."""

    def create(
        self,
        topic: str,
        schema: Any = None,
        *,
        partitions: int | None = None,
        key: str | Sequence[str] | None = None,
        time: str | None = None,
        retention: Retention | timedelta | str | None = None,
        compact: bool = False,
        durability: Durability | None = None,
        codec: Codec | None = None,
        segment_bytes_max: int | str | None = None,
        segment_seconds_max: float | str | None = None,
        tombstone_seconds_max: float | str | None = None,
        archive: bool = False,
        exist_ok: bool = False,
    ) -> Topic:
        """Make a topic. Without a schema its rows are `key` and `value`, both bytes."""
        self._check_open()
        check_name("topic", topic)
        wanted = drafting.declare(
            topic,
            parse_schema(schema),
            schemaless=schema is None,
            partitions=self.config.partitions if partitions is None else partitions,
            key=key,
            time=time,
            retention=parse_retention(retention, self.config),
            compact=compact,
            durability=durability or self.config.durability,
            codec=codec or self.config.codec,
            segment_bytes_max=parse_bytes(segment_bytes_max or self.config.segment_bytes_max),
            segment_seconds_max=parse_seconds(segment_seconds_max or 7 * 86_400.0),
            tombstone_seconds_max=parse_seconds(86_400.0 if tombstone_seconds_max is None else tombstone_seconds_max),
            archive=archive,
            created_us=self.clock.now_us(),
        )
        if self._catalogue.has(topic):
            return self._existing(wanted, exist_ok)
        try:
            return self._catalogue.create(wanted).topic
        except TopicExists:  # another process was quicker
            return self._existing(wanted, exist_ok)

    def alter(
        self,
        topic: str,
        *,
        schema: Any = None,
        force: bool = False,
        partitions: int | None = None,
        retention: Retention | timedelta | str | None = None,
        compact: bool | None = None,
        segment_bytes_max: int | str | None = None,
        segment_seconds_max: float | str | None = None,
        tombstone_seconds_max: float | str | None = None,
        archive: bool | None = None,
        codec: Codec | None = None,
    ) -> Topic:
        """Change a topic while it is in use; other processes see it at their next call."""
        self._check_open()

        def change(old: Topic, schemas: dict[int, pa.Schema]) -> tuple[Topic, dict[int, pa.Schema]]:
            changes: dict[str, Any] = {
                "partitions": partitions,
                "retention": None if retention is None else parse_retention(retention, self.config),
                "compact": compact,
                "segment_bytes_max": None if segment_bytes_max is None else parse_bytes(segment_bytes_max),
                "segment_seconds_max": None if segment_seconds_max is None else parse_seconds(segment_seconds_max),
                "tombstone_seconds_max": None
                if tombstone_seconds_max is None
                else parse_seconds(tombstone_seconds_max),
                "archive": archive,
                "codec": codec,
            }
            new = replace(old, **{name: value for name, value in changes.items() if value is not None})
            drafting.check_alter(old, new)
            if schema is None:
                return new, schemas
            parsed = parse_schema(schema)
            if evolve(topic, old.schema, parsed, force=force):
                drafting.check_columns(topic, parsed, key=old.key, time=old.time)
                drafting.check_key_types(topic, old.key, old.schema, parsed)
                return with_schema(new, schemas, parsed)
            return new, schemas

        return self._catalogue.alter(topic, change)

    def delete(self, topic: str) -> None:
        """Remove a topic and all its rows. Readers that are in the middle keep what they have mapped.

        Topics of the log's own, whose names begin with two underscores, stay: others rely on them.
        """
        self._check_open()
        if topic.startswith(INTERNAL):
            raise TopicInternal(topic=topic)
        self._catalogue.delete(topic)
        self._offsets.forget_topic(topic)

    def topics(self, pattern: str = "*", *, internal: bool = False) -> list[str]:
        """The names of all topics that match a pattern such as `orders.*`."""
        self._check_open()
        return self._catalogue.names(pattern, internal=internal)

    def topic(self, name: str) -> Topic:
        return self._handle(name).current()

    def schema(self, topic: str, version: int | None = None) -> pa.Schema:
        handle = self._handle(topic)
        current = handle.current()
        if version is None:
            return current.schema
        if version not in handle.schemas:
            raise ArgumentInvalid(name="version", value=version, expected=f"1 to {current.schema_version}")
        return handle.schemas[version]

    def describe(self, topic: str) -> Description:
        """What the topic is and what each partition holds."""
        handle = self._handle(topic)
        return Description(topic=handle.current(), partitions=[_info(partition) for partition in handle.partitions()])

    def create_internal(self, topic: Topic) -> None:
        """Make one of our own topics, whose names begin with two underscores; costs next to nothing where it is there."""
        if self._catalogue.has(topic.name):
            return
        try:
            self._catalogue.create(topic)
        except TopicExists:
            return

    def _existing(self, wanted: Topic, exist_ok: bool) -> Topic:
        found = self._handle(wanted.name).current()
        if not exist_ok:
            raise TopicExists(topic=wanted.name, why="made earlier")
        if not found.schema.equals(wanted.schema) or found.key != wanted.key or found.partitions != wanted.partitions:
            raise TopicExists(topic=wanted.name, why="with another schema, key or number of partitions")
        return found


def _info(partition: Partition) -> PartitionInfo:
    visible = partition.visible()
    sizes = []
    for segment in partition.segments():
        with contextlib.suppress(FileNotFoundError):  # removed or written anew while we looked
            sizes.append(segment.path.stat().st_size)
    return PartitionInfo(
        partition=partition.number,
        offset_start=partition.start(),
        offset_next=visible.offset,
        bytes=sum(sizes),
        segments=len(sizes),
        appended_at_us=visible.appended_at_us or None,
    )
