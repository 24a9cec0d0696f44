"""Rows as frames by partition: what every adapter that stores frames does before it writes."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.clock import Clock
from headwater.config import Config
from headwater.errors import ArgumentInvalid
from headwater.log.client_config import Rows
from headwater.log.errors import RowTooLarge, partition_not_found
from headwater.log.frame import Draft, draft_rows
from headwater.log.topic import Topic
from headwater.schema import RowBatch, partition_of, to_batches
from headwater.schema.rows import with_headers

Key = tuple[Any, ...]


def drafts_of(
    topic: Topic,
    rows: Rows,
    *,
    config: Config,
    clock: Clock,
    turn: Callable[[], int],
    partition: int | None = None,
    headers: Any = None,
    sent_at_us: int | None = None,
) -> dict[int, list[Draft]]:
    """The frames of `rows`, by partition; rows without a key go to the partition of the next `turn`."""
    sent = clock.now_us() if sent_at_us is None else sent_at_us
    batches = batches_of(topic, rows, config=config, turn=turn, partition=partition, headers=headers)
    drafts: dict[int, list[Draft]] = {}
    for number, part in batches:
        drafts.setdefault(number, []).extend(_frames(topic, part, sent, config.frame_bytes_max))
    return drafts


def batches_of(
    topic: Topic,
    rows: Rows,
    *,
    config: Config,
    turn: Callable[[], int],
    partition: int | None = None,
    headers: Any = None,
) -> list[tuple[int, RowBatch]]:
    """The rows as batches of one partition each, in order, with the number of the partition."""
    if partition is not None and not 0 <= partition < topic.partitions:
        raise partition_not_found(topic=topic.name, partition=partition, partitions=topic.partitions)
    batches = to_batches(rows, topic.schema, topic=topic.name, rows_max=config.frame_rows_max, key=topic.key)
    if headers is not None:
        batches = with_headers(batches, headers)
    if topic.compact and topic.schemaless:
        batches = [_with_null_values_as_tombstones(batch) for batch in batches]
    return [part for batch in batches for part in _split(topic, batch, partition, turn)]


def _frames(topic: Topic, part: RowBatch, sent_at_us: int, bytes_max: int) -> list[Draft]:
    """Encode rows as one frame, or as several if one would be too large."""
    made = draft_rows(
        part.data,
        schema_version=topic.schema_version,
        codec=topic.codec,
        time=topic.time_column,
        sent_at_us=sent_at_us,
        headers=part.headers,
        tombstones=part.tombstones,
    )
    if made.size <= bytes_max:
        return [made]
    if made.rows == 1:
        raise RowTooLarge(topic=topic.name, size=made.size, size_max=bytes_max)
    rows = max(1, min(made.rows // 2, made.rows * bytes_max // made.size))
    pieces = [select(part, methodcaller("slice", start, rows)) for start in range(0, made.rows, rows)]
    return [frame for piece in pieces for frame in _frames(topic, piece, sent_at_us, bytes_max)]


def _split(topic: Topic, batch: RowBatch, partition: int | None, turn: Callable[[], int]) -> list[tuple[int, RowBatch]]:
    if batch.data.num_rows == 0:
        return []
    if partition is not None or topic.partitions == 1:
        return [(partition or 0, batch)]
    if not topic.key:
        return [(turn() % topic.partitions, batch)]
    numbers = partition_of([batch.data.column(column) for column in topic.key], topic.partitions)
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    ends = [*starts[1:], len(order)]
    return [
        (int(number), select(batch, methodcaller("take", pa.array(order[start:end]))))
        for number, start, end in zip(present, starts, ends, strict=True)
    ]


# Any: Arrow's batches and arrays have the same methods, and no types.
def select(batch: RowBatch, act: Callable[[Any], Any]) -> RowBatch:
    """Apply a selection of rows to the data, the headers and the tombstones."""
    return RowBatch(
        data=act(batch.data),
        headers=None if batch.headers is None else act(batch.headers),
        tombstones=None if batch.tombstones is None else act(batch.tombstones),
    )


def _with_null_values_as_tombstones(batch: RowBatch) -> RowBatch:
    values = batch.data.column("value")
    if batch.tombstones is not None or not values.null_count:
        return batch
    return RowBatch(batch.data, batch.headers, values.is_null())


def key_of(topic: Topic, rows: Rows) -> Key:
    """The key of rows that all have the same one."""
    if not topic.key:
        expected = "a topic that was created with a key"
        raise ArgumentInvalid(name="expected_key_offset", value="an offset", expected=expected)
    keys: set[Key] = set()
    for batch in to_batches(rows, topic.schema, topic=topic.name, key=topic.key):
        keys.update(zip(*(batch.data.column(name).to_pylist() for name in topic.key), strict=True))
    if len(keys) != 1:
        raise ArgumentInvalid(name="rows", value=f"rows of {len(keys)} keys", expected="rows of one key")
    return keys.pop()
