"""The topics of a log on Kafka: their schemas and settings, which are records of an internal topic, and Kafka's own facts.

A record belongs to the topic of Kafka with its id: a topic that another program deleted and created again has none. A
topic without a record was created by another program: its rows are the keys and values of its messages.
"""

from __future__ import annotations

import fnmatch
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from headwater.clock import Clock
from headwater.config import Config
from headwater.errors import ArgumentInvalid, NotFound, NotPossible, did_you_mean
from headwater.log.errors import NameInvalid, TopicExists
from headwater.log.kafka.cluster import EARLIEST, LATEST, Cluster
from headwater.log.kafka.errors import CapabilityMissing
from headwater.log.kafka.raw import RawRows
from headwater.log.kafka.records import Records, create_topic
from headwater.log.kafka.values.formats import FORMATS, REGISTERED, values_of
from headwater.log.kafka.values.port import Values
from headwater.log.kafka.values.registry import Registry
from headwater.log.kafka.values.registry_rows import RegisteredAvroRows, RegisteredJsonRows
from headwater.log.topic import Retention, Topic, TopicChanges, TopicConfig, TopicSettings, parsed_settings
from headwater.log.topic_rules import INTERNAL, check_alter, check_columns, check_key_types, check_name
from headwater.schema import SCHEMALESS, evolve, parse_schema, schema_from_json, schema_to_json
from headwater.units import MIB

#: How long a process uses what it knows of a topic before it asks again.
FRESH_SECONDS = 1.0
#: Internal topics of the adapter itself, which are not shown.
OWN = "__headwater"
#: Kafka takes no smaller segments.
SEGMENT_BYTES_MIN = 1 * MIB
#: Kafka's limit of a message, less what surrounds a value.
MESSAGE_BYTES_MAX = 1_048_588 - 2_048


@dataclass(frozen=True)
class KafkaTopic:
    """A topic, and the topic of Kafka that holds its rows."""

    topic: Topic
    #: The name that it has on Kafka, and the id that Kafka gave it.
    kafka: str
    kafka_id: str
    schemas: Mapping[int, pa.Schema]
    format: str
    #: Whether another program created it.
    foreign: bool = False
    #: Where the schemas of its messages are, in the formats that need one.
    registry: Registry | None = None

    def schema_of(self, version: int) -> pa.Schema:
        found = self.schemas.get(version)
        if found is None:
            raise NotFound(kind="schema", name=f"{self.topic.name}, version {version}")
        return found

    @cached_property
    def values(self) -> Values:
        """The codec of its messages."""
        if self.topic.schemaless:
            return RawRows(self.topic.name, self.topic.schema)
        return values_of(self.topic, self.format, schema_of=self.schema_of, registry=self.registry)


class Catalogue:
    """The topics of one log."""

    def __init__(self, cluster: Cluster, records: Records, *, config: Config, clock: Clock) -> None:
        self._cluster = cluster
        self._records = records
        self._config = config
        self._clock = clock
        self._registry = (
            None
            if config.kafka_registry is None
            else Registry(config.kafka_registry, prefix=cluster.address.prefix, seconds_max=config.kafka_seconds_max)
        )
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, KafkaTopic]] = {}

    # -- finding ------------------------------------------------------------------------------------------------------

    def get(self, name: str, *, fresh: bool = True) -> KafkaTopic:
        """A topic as it is now; unless `fresh`, as it was a second ago at most."""
        known = self._known.get(name)
        if known is not None and not fresh and time.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        check_name("topic", name, internal=True)
        found = self._load(name)
        with self._lock:
            known = self._known.get(name)
            if known is not None and known[1] == found:
                found = known[1]  # the same object: codecs and plans are kept by it
            self._known[name] = (time.monotonic(), found)
        return found

    def _load(self, name: str) -> KafkaTopic:
        kafka = self._cluster.address.topic(name)
        facts = self._cluster.describe_topic(kafka)
        record = self._records.current().get(f"topic/{name}")
        if facts is None or (name.startswith(INTERNAL) and record is None):
            self._known.pop(name, None)
            raise NotFound(kind="topic", name=name, near=did_you_mean(name, self.names()))
        id, partitions = facts
        if record is None or record["kafka_id"] not in (None, id):
            return self._foreign(name, kafka, id, partitions)
        topic = Topic.from_json(record["topic"])
        return KafkaTopic(
            topic=replace(topic, id=topic.id or id, partitions=partitions),
            kafka=kafka,
            kafka_id=id,
            schemas={int(number): schema_from_json(body) for number, body in record["schemas"].items()},
            format=record["format"],
            registry=self._registry,
        )

    def _foreign(self, name: str, kafka: str, id: str, partitions: int) -> KafkaTopic:
        settings = self._cluster.topic_settings(kafka)
        policy = settings.get("cleanup.policy", "delete")
        seconds, size = int(settings.get("retention.ms", -1)), int(settings.get("retention.bytes", -1))
        topic = Topic(
            name=name,
            id=id,
            schema=SCHEMALESS,
            schemaless=True,
            partitions=partitions,
            key=("key",),
            compact="compact" in policy,
            retention=Retention(
                seconds_max=seconds / 1000 if seconds > 0 and "delete" in policy else None,
                bytes_max=size if size > 0 and "delete" in policy else None,
            ),
        )
        return KafkaTopic(topic=topic, kafka=kafka, kafka_id=id, schemas={1: SCHEMALESS}, format="raw", foreign=True)

    def id_now(self, name: str) -> str | None:
        """The id that Kafka gave to the topic that has this name now; None if there is none."""
        facts = self._cluster.describe_topic(self._cluster.address.topic(name))
        return None if facts is None else facts[0]

    def names(self, pattern: str = "*", *, internal: bool = False) -> list[str]:
        names = [self._cluster.address.name(topic) for topic in self._cluster.topic_names()]
        records = self._records.current() if internal else {}
        return sorted(
            name
            for name in names
            if name is not None
            and fnmatch.fnmatchcase(name, pattern)
            and (not name.startswith(INTERNAL) or (internal and f"topic/{name}" in records))
        )

    # -- changing -----------------------------------------------------------------------------------------------------

    def declare(self, name: str, schema: Any, *, exist_ok: bool, settings: TopicSettings) -> Topic:
        """Create a topic from the user's settings, or return the existing one if it is the same."""
        check_name("topic", name)
        if schema is None and settings.get("key") is None:
            settings["key"] = "key"
        columns = parse_schema(schema)
        wanted = Topic(
            name=name,
            id="",
            schema=columns,
            schemaless=schema is None,
            created_us=self._clock.now_us(),
            **vars(TopicConfig.of(settings, self._config)),
        )
        check_columns(name, columns, key=wanted.key, time=wanted.time_column)
        if self._cluster.describe_topic(self._cluster.address.topic(name)) is None and self._create(wanted):
            return self.get(name).topic
        found = self.get(name).topic
        if not exist_ok:
            raise TopicExists(topic=name, why="created earlier")
        if not found.schema.equals(wanted.schema) or found.key != wanted.key or found.partitions != wanted.partitions:
            raise TopicExists(topic=name, why="with another schema, key or number of partitions")
        return found

    def ensure(self, topic: Topic) -> None:
        """Create an internal topic unless it exists."""
        if not topic.name.startswith(INTERNAL):
            raise NameInvalid(kind="topic", name=topic.name, why="an internal topic's name begins with two underscores")
        check_name("topic", topic.name, internal=True)
        if f"topic/{topic.name}" not in self._records.current():
            self._create(topic)

    def _create(self, wanted: Topic) -> bool:
        """Create the topic; return False if it exists.

        The record is written first, without an id: a process that dies in between leaves a record without a topic, or
        a topic with its record.
        """
        _check_possible(wanted)
        format = self._format(wanted)
        self._register(wanted, format)
        record = _record(wanted, {1: wanted.schema}, None, format)
        key = f"topic/{wanted.name}"
        self._records.change(lambda _table: {key: record})
        kafka = self._cluster.address.topic(wanted.name)
        made = create_topic(
            self._cluster,
            kafka,
            partitions=wanted.partitions,
            settings=kafka_settings(wanted),
            replication=self._config.kafka_replication,
        )
        if made:
            facts = self._cluster.describe_topic(kafka)
            self._records.change(lambda _table: {key: record | {"kafka_id": None if facts is None else facts[0]}})
        return made

    def _format(self, topic: Topic) -> str:
        if topic.schemaless:
            return "raw"
        format = self._config.kafka_values
        if format not in FORMATS:
            raise ArgumentInvalid(name="kafka_values", value=format, expected=" or ".join(FORMATS))
        if format in REGISTERED and self._registry is None:
            raise ArgumentInvalid(
                name="kafka_registry",
                value=None,
                expected=f"the address of a schema registry, for values of {format!r}",
            )
        # Only a topic of one message per row can be compacted.
        return "json" if topic.compact and format == "frames" else format

    def _register(self, topic: Topic, format: str) -> None:
        """Register a schema where its format needs that: one that is not compatible is refused before anything changes."""
        if format in REGISTERED:
            values = values_of(topic, format, schema_of=lambda _: topic.schema, registry=self._registry)
            if isinstance(values, (RegisteredAvroRows, RegisteredJsonRows)):
                values.register()

    def alter(self, name: str, *, schema: Any, force: bool, changes: TopicChanges) -> Topic:
        settings = parsed_settings(changes)
        parsed = None if schema is None else parse_schema(schema)
        known = self.get(name)
        if known.foreign:
            raise NotPossible(
                why=f"Topic {name!r} was created by another program, and has no schema or settings here",
                instead="Change it with Kafka's own tools, or copy its rows to a topic of a schema",
            )
        altered = known.topic

        def decide(table: Mapping[str, Any]) -> Mapping[str, Any]:
            nonlocal altered
            record = table[f"topic/{name}"]
            old = replace(Topic.from_json(record["topic"]), partitions=known.topic.partitions)
            schemas = {int(number): schema_from_json(body) for number, body in record["schemas"].items()}
            new = replace(old, **settings)
            check_alter(old, new)
            _check_possible(new)
            if parsed is not None and evolve(name, old.schema, parsed, force=force):
                check_columns(name, parsed, key=old.key, time=old.time_column)
                check_key_types(name, old.key, old.schema, parsed)
                version = max(schemas) + 1
                schemas[version] = parsed
                new = replace(new, schema=parsed, schema_version=version)
            altered = new
            return {f"topic/{name}": _record(new, schemas, record["kafka_id"], record["format"])}

        # Kafka's settings first: it may refuse them, and then nothing has changed.
        preview = replace(known.topic, **settings)
        check_alter(known.topic, preview)
        _check_possible(preview)
        if parsed is not None and evolve(name, known.topic.schema, parsed, force=force):
            self._register(replace(preview, schema=parsed), known.format)
        self._alter_kafka(known, preview)
        self._records.change(decide)
        return self.get(name).topic

    def _alter_kafka(self, known: KafkaTopic, new: Topic) -> None:
        admin, kafka = self._cluster.admin(), known.kafka
        before, after = kafka_settings(known.topic), kafka_settings(new)
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in after.items()
            if before.get(name) != value
        ]
        if entries:
            resource = ConfigResource(ResourceType.TOPIC, kafka, incremental_configs=entries)
            with self._cluster.errors(what="settings of a topic", name=new.name):
                futures = admin.incremental_alter_configs([resource])
            self._cluster.answer(futures[resource], what=f"settings of topic {new.name!r}", name=new.name)
        if new.partitions > known.topic.partitions:
            with self._cluster.errors(what="partitions", name=new.name):
                wanted = admin.create_partitions([NewPartitions(kafka, new.partitions)])
            self._cluster.answer(wanted[kafka], what=f"partitions of topic {new.name!r}", name=new.name)
            self._cluster.wait_for_topic(kafka, partitions=new.partitions)

    def delete(self, name: str) -> None:
        """Delete the topic of Kafka, and wait until the brokers know it; then its record."""
        if name.startswith(INTERNAL):
            raise NotPossible(
                why=f"Topic {name!r} is internal, and cannot be deleted",
                instead=f"Set its retention to keep less: `headwater topic alter {name} --retention '7 days'`",
            )
        known = self.get(name)
        admin = self._cluster.admin()
        with self._cluster.errors(what="to delete a topic", name=name):
            futures = admin.delete_topics([known.kafka], operation_timeout=self._cluster.seconds_max)
        self._cluster.answer(futures[known.kafka], what=f"to delete topic {name!r}", name=name)
        deadline = time.monotonic() + self._cluster.seconds_max
        while True:
            facts = self._cluster.describe_topic(known.kafka)
            if facts is None or facts[0] != known.kafka_id:
                break
            if time.monotonic() > deadline:
                raise self._cluster.unreachable()
            time.sleep(0.02)
        self._known.pop(name, None)
        if not known.foreign:
            self._records.change(
                lambda table: {f"topic/{name}": None} if _is_of(table.get(f"topic/{name}"), known.kafka_id) else {}
            )

    def oldest(self, known: KafkaTopic) -> dict[int, int]:
        """The first offset of each partition."""
        found = self._cluster.offsets(known.kafka, range(known.topic.partitions), EARLIEST)
        return {number: offset for number, (offset, _) in found.items()}

    def ends(self, known: KafkaTopic) -> dict[int, int]:
        """The offset behind the last message of each partition that no open transaction hides."""
        found = self._cluster.offsets(known.kafka, range(known.topic.partitions), LATEST)
        return {number: offset for number, (offset, _) in found.items()}


# Any: a record is JSON.
def _record(topic: Topic, schemas: Mapping[int, pa.Schema], kafka_id: str | None, format: str) -> dict[str, Any]:
    return {
        "topic": topic.to_json(),
        "schemas": {str(number): schema_to_json(schema) for number, schema in schemas.items()},
        "kafka_id": kafka_id,
        "format": format,
    }


def _is_of(record: Any, kafka_id: str) -> bool:
    return record is not None and record["kafka_id"] in (None, kafka_id)


def _check_possible(topic: Topic) -> None:
    if topic.archive:
        raise CapabilityMissing(
            capability="archive",
            why="brokers delete what retention ends",
            instead="Set a longer retention, or use the brokers' own tiered storage",
        )


def kafka_settings(topic: Topic) -> dict[str, str]:
    """The settings of a topic as those of Kafka.

    >>> kafka_settings(Topic(name="t", id="1", schema=SCHEMALESS, retention=Retention.of("1 hour")))["retention.ms"]
    '3600000'
    """
    retention = topic.retention
    keeps_all = retention.seconds_max is None and retention.bytes_max is None
    policy = "delete" if not topic.compact else "compact" if keeps_all else "compact,delete"
    return {
        "cleanup.policy": policy,
        "retention.ms": "-1" if retention.seconds_max is None else str(round(retention.seconds_max * 1000)),
        "retention.bytes": "-1" if retention.bytes_max is None else str(retention.bytes_max),
        "delete.retention.ms": str(round(topic.tombstone_seconds_max * 1000)),
        "segment.bytes": str(max(topic.segment_bytes_max, SEGMENT_BYTES_MIN)),
        "segment.ms": str(max(1000, round(topic.segment_seconds_max * 1000))),
        "compression.type": "producer" if topic.codec == "none" else topic.codec,
        "message.timestamp.type": "LogAppendTime",
    }
