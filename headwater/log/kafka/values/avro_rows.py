"""Avro values without a registry: one record per message, written with the schema of a version of the topic.

A message does not say which schema it was written with. Our own have the version in a header, unless it is the first;
a message without that header is one of the first version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby

import pyarrow as pa

from headwater.errors import EncodingInvalid
from headwater.log.kafka.values.port import HEADER_PREFIX, Decoded, Incoming, Messages, Outgoing, Values
from headwater.log.kafka.values.rows import decoded, joined, outgoing, values_of
from headwater.log.topic import Topic
from headwater.schema import RowBatch
from headwater.schema.encodings import avro

#: The header with the version of the schema that a record was written with.
VERSION_HEADER = f"{HEADER_PREFIX}schema"


class AvroRows(Values):
    """One Avro record per row."""

    format = "avro"
    per_row = True

    def __init__(self, topic: Topic, schema_of: Callable[[int], pa.Schema]) -> None:
        self._topic = topic
        self._schema_of = schema_of

    def encode(self, rows: RowBatch, *, bytes_max: int) -> list[Outgoing]:
        version = self._topic.schema_version
        headers = () if version == 1 else ((VERSION_HEADER, str(version).encode()),)
        encode = partial(avro.encode, name=avro.avro_name(self._topic.name))
        return outgoing(self._topic, rows, encode, bytes_max=bytes_max, headers=headers)

    def decode(self, messages: Messages) -> Decoded:
        return decoded(self._topic, self.format, messages, self._decode)

    def _decode(self, messages: Messages) -> pa.RecordBatch:
        if messages.headers is None:
            return self._decode_version(1, values_of(messages))
        parts = [
            self._decode_version(version, values_of(Messages(list(same))))
            for version, same in groupby(messages, key=_version)
        ]
        return joined(parts, self._topic.schema)

    def _decode_version(self, version: int, values: list[bytes]) -> pa.RecordBatch:
        try:
            schema = self._schema_of(version)
        except LookupError as error:
            why = f"the topic has no version {version} of its schema"
            raise EncodingInvalid(encoding="Avro", position="the headers", why=why) from error
        writer = avro.avro_schema(schema, avro.avro_name(self._topic.name))
        return avro.decode(values, writer, self._topic.schema)


def _version(message: Incoming) -> int:
    for name, value in message.headers:
        if name == VERSION_HEADER and value is not None and value.isdigit():
            return int(value)
    return 1
