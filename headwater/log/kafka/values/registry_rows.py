"""JSON and Avro values in the framing of Confluent's clients: a zero byte, the number of a schema, and the value.

The schema of an Avro record is that of its number, which a registry has, so that producers and consumers may have
different ones. A JSON object needs no schema to be read: its number is only written.
"""

from __future__ import annotations

import json as standard_json
import struct
from itertools import groupby
from typing import Any

import pyarrow as pa

from headwater.errors import EncodingInvalid
from headwater.log.kafka.values.json_schema import json_schema
from headwater.log.kafka.values.port import Decoded, Messages, Outgoing, Values
from headwater.log.kafka.values.registry import Registry
from headwater.log.kafka.values.rows import decoded, joined, outgoing, values_of
from headwater.log.topic import Topic
from headwater.schema import RowBatch
from headwater.schema.encodings import avro, json

_FRAMING = struct.Struct(">bI")


class RegisteredAvroRows(Values):
    """One Avro record per row, with the number of its schema in a registry."""

    format = "avro-registry"
    per_row = True

    def __init__(self, topic: Topic, registry: Registry) -> None:
        self._topic = topic
        self._registry = registry

    def register(self) -> int:
        """Register the schema of the topic, unless it is known; returns its number."""
        schema = avro.avro_schema(self._topic.schema, avro.avro_name(self._topic.name))
        text = standard_json.dumps(schema, separators=(",", ":"))
        return self._registry.register(f"{self._topic.name}-value", text)

    def encode(self, rows: RowBatch, *, bytes_max: int) -> list[Outgoing]:
        name, head = avro.avro_name(self._topic.name), _head(self.register())

        def encode(data: pa.RecordBatch) -> list[bytes]:
            return [head + value for value in avro.encode(data, name)]

        return outgoing(self._topic, rows, encode, bytes_max=bytes_max)

    def decode(self, messages: Messages) -> Decoded:
        return decoded(self._topic, self.format, messages, self._decode)

    def _decode(self, messages: Messages) -> pa.RecordBatch:
        parts = []
        for number, same in groupby(values_of(messages), key=_number):
            writer = self._writer(number)
            parts.append(avro.decode([value[_FRAMING.size :] for value in same], writer, self._topic.schema))
        return joined(parts, self._topic.schema)

    # Any: an Avro schema is a JSON value.
    def _writer(self, number: int) -> Any:
        text = self._registry.schema(number)
        if text is None:
            why = f"the registry has no schema {number}"
            raise EncodingInvalid(encoding="Avro", position="the framing", why=why)
        return standard_json.loads(text)


class RegisteredJsonRows(Values):
    """One JSON object per row, with the number of its schema in a registry."""

    format = "json-registry"
    per_row = True

    def __init__(self, topic: Topic, registry: Registry) -> None:
        self._topic = topic
        self._registry = registry

    def register(self) -> int:
        """Register the schema of the topic, unless it is known; returns its number."""
        text = standard_json.dumps(json_schema(self._topic.schema, self._topic.name), separators=(",", ":"))
        return self._registry.register(f"{self._topic.name}-value", text, kind="JSON")

    def encode(self, rows: RowBatch, *, bytes_max: int) -> list[Outgoing]:
        head = _head(self.register())

        def encode(data: pa.RecordBatch) -> list[bytes]:
            return [head + value for value in json.encode_values(data)]

        return outgoing(self._topic, rows, encode, bytes_max=bytes_max)

    def decode(self, messages: Messages) -> Decoded:
        return decoded(self._topic, self.format, messages, self._decode)

    def _decode(self, messages: Messages) -> pa.RecordBatch:
        values = values_of(messages)
        for value in values:
            _number(value)
        return json.decode_values(
            [value[_FRAMING.size :] for value in values], self._topic.schema, topic=self._topic.name
        )


def _head(number: int) -> bytes:
    return _FRAMING.pack(0, number)


def _number(value: bytes) -> int:
    """The number of the schema of a value."""
    if len(value) < _FRAMING.size or value[0] != 0:
        why = "it does not begin with a zero byte and the number of a schema"
        raise EncodingInvalid(encoding="framing", position="the first bytes", why=why)
    return int.from_bytes(value[1:5], "big")
