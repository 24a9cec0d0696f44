"""The last offset of each key of a partition, for appends with `expected_key_offset`. Built on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.partition_reader import Decoder, PartitionReader, Projection
from headwater.log.embedded.topic import TopicHandle
from headwater.log.port import Topic
from headwater.schema import to_batches

Key = tuple[Any, ...]


class KeyOffsets:
    """The offset of the last row of each key, up to the visible end of one partition."""

    def __init__(self, handle: TopicHandle, partition: Partition) -> None:
        self._names = handle.current().key
        projection = Projection.of(handle.current(), [*self._names, "_offset"])
        self._decoder = Decoder(handle.current, handle.schema_of, partition.number, projection)
        self._reader = PartitionReader(partition, partition.start())
        self._offsets: dict[Key, int] = {}

    def last(self, key: Key) -> int | None:
        """The offset of the key's last row; None if it has none."""
        for header, payload in self._reader.frames():
            batch = self._decoder.batch(header, payload, start=self._reader.since, stop=None)
            if batch is not None and batch.punctuation_us is None:
                columns = [batch.data.column(name).to_pylist() for name in self._names]
                self._offsets.update(
                    zip(zip(*columns, strict=True), batch.data.column("_offset").to_pylist(), strict=True)
                )
        return self._offsets.get(key)


def only_key(topic: Topic, batches: Sequence[pa.RecordBatch]) -> Key:
    """The key of rows that all have the same one."""
    if not topic.key:
        raise ArgumentInvalid(
            name="expected_key_offset", value="an offset", expected="a topic that was made with a key"
        )
    keys: set[Key] = set()
    for batch in batches:
        keys.update(zip(*(batch.column(name).to_pylist() for name in topic.key), strict=True))
    if len(keys) != 1:
        raise ArgumentInvalid(name="rows", value=f"rows of {len(keys)} keys", expected="rows of one key")
    return keys.pop()


def key_of_rows(topic: Topic, rows: Any) -> Key:
    """The key of rows in any form that `Log.append` takes."""
    return only_key(topic, [batch.data for batch in to_batches(rows, topic.schema, topic=topic.name, key=topic.key)])
