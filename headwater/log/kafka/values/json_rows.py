"""JSON values: one object per message, as other programs write and read it."""

from __future__ import annotations

from headwater.log.kafka.values.port import Decoded, Messages, Outgoing, Values
from headwater.log.kafka.values.rows import decoded, outgoing, values_of
from headwater.log.topic import Topic
from headwater.schema import RowBatch
from headwater.schema.encodings import json


class JsonRows(Values):
    """One JSON object per row. Fields that the schema does not have are ignored, missing ones are null."""

    format = "json"
    per_row = True

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def encode(self, rows: RowBatch, *, bytes_max: int) -> list[Outgoing]:
        return outgoing(self._topic, rows, json.encode_values, bytes_max=bytes_max)

    def decode(self, messages: Messages) -> Decoded:
        topic = self._topic
        return decoded(
            topic,
            self.format,
            messages,
            lambda live: json.decode_values(values_of(live), topic.schema, topic=topic.name),
        )
