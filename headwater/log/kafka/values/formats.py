"""The formats of values by their names, as the setting of a topic has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.log.kafka.values.avro_rows import AvroRows
from headwater.log.kafka.values.frames import Frames
from headwater.log.kafka.values.json_rows import JsonRows
from headwater.log.kafka.values.port import Values
from headwater.log.kafka.values.registry import Registry
from headwater.log.kafka.values.registry_rows import RegisteredAvroRows, RegisteredJsonRows
from headwater.log.topic import Topic

Format = Literal["frames", "json", "avro", "json-registry", "avro-registry"]
FORMATS: tuple[Format, ...] = get_args(Format)
#: Those that need a schema registry.
REGISTERED: tuple[Format, ...] = ("json-registry", "avro-registry")


def values_of(
    topic: Topic, format: str, *, schema_of: Callable[[int], pa.Schema], registry: Registry | None = None
) -> Values:
    """The codec of a topic; `schema_of` gives the schema of each version of the topic."""
    if topic.compact and format == "frames":
        expected = "a format of one message per row: Kafka keeps the last message of each key"
        raise ArgumentInvalid(name="values", value=format, expected=expected)
    match format:
        case "frames":
            return Frames(topic, schema_of)
        case "json":
            return JsonRows(topic)
        case "avro":
            return AvroRows(topic, schema_of)
        case "json-registry" | "avro-registry":
            if registry is None:
                expected = f"the address of a schema registry: topic {topic.name!r} has values of {format!r}"
                raise ArgumentInvalid(name="kafka_registry", value=None, expected=expected)
            return (RegisteredJsonRows if format == "json-registry" else RegisteredAvroRows)(topic, registry)
    raise ArgumentInvalid(name="values", value=format, expected=" or ".join(FORMATS))
