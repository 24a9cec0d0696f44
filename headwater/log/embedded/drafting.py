"""From rows to frames: which partition each row goes to, and how its frame is cut."""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.config import Config
from headwater.errors import ArgumentInvalid, RowTooLarge, SchemaConflict
from headwater.log.embedded.frame import HEADERS_TYPE, Draft, draft_rows
from headwater.log.embedded.topics import TopicHandle
from headwater.log.port import Topic
from headwater.schema import RowBatch, partition_of, to_batches

PARTITIONS_MAX = 10_000


def declare(
    name: str, schema: pa.Schema, *, schemaless: bool, key: str | Sequence[str] | None, **settings: Any
) -> Topic:
    """A new topic, checked."""
    if schemaless and key is None:
        key = ("key",)
    keys = (key,) if isinstance(key, str) else tuple(key or ())
    topic = Topic(name=name, id=uuid.uuid4().hex, schema=schema, schemaless=schemaless, key=keys, **settings)
    check_columns(name, schema, key=keys, time=topic.time)
    if not isinstance(topic.partitions, int) or not 1 <= topic.partitions <= PARTITIONS_MAX:
        raise ArgumentInvalid(name="partitions", value=topic.partitions, expected=f"1 to {PARTITIONS_MAX}")
    for setting, allowed in (("durability", ("fsync", "os", "memory")), ("codec", ("none", "lz4", "zstd"))):
        if getattr(topic, setting) not in allowed:
            raise ArgumentInvalid(name=setting, value=getattr(topic, setting), expected=", ".join(map(repr, allowed)))
    _check_compact(topic)
    return topic


def check_alter(old: Topic, new: Topic) -> None:
    """Refuse changes that would put rows where nobody looks for them."""
    if new.partitions < old.partitions:
        raise ArgumentInvalid(
            name="partitions",
            value=new.partitions,
            expected=f"at least {old.partitions}: partitions hold rows and cannot go",
        )
    if new.partitions > PARTITIONS_MAX:
        raise ArgumentInvalid(name="partitions", value=new.partitions, expected=f"at most {PARTITIONS_MAX}")
    if new.compact and new.key and new.partitions != old.partitions:
        raise ArgumentInvalid(
            name="partitions",
            value=new.partitions,
            expected="the number it was made with: a compacted topic's keys would move and keep two last rows",
        )
    _check_compact(new)


def check_columns(topic: str, schema: pa.Schema, *, key: Sequence[str], time: str | None) -> None:
    """The key and the time must be columns, of types that can be hashed and compared."""
    for column in key:
        if column not in schema.names:
            raise SchemaConflict(
                topic=topic, column=column, why=f"is the key, but the schema has no such column{_near(column, schema)}"
            )
        if pa.types.is_nested(schema.field(column).type):
            raise SchemaConflict(topic=topic, column=column, why="is the key, and a nested column cannot be one")
    if time is not None:
        if time not in schema.names:
            raise SchemaConflict(
                topic=topic,
                column=time,
                why=f"is the event time, but the schema has no such column{_near(time, schema)}",
            )
        if not pa.types.is_timestamp(schema.field(time).type):
            raise SchemaConflict(topic=topic, column=time, why="is the event time, but is not a timestamp")


def check_key_types(topic: str, key: Sequence[str], old: pa.Schema, new: pa.Schema) -> None:
    """Refuse to turn a whole-number key into a fraction: its rows would belong to other partitions from then on."""
    for column in key:
        if pa.types.is_integer(old.field(column).type) and pa.types.is_floating(new.field(column).type):
            why = "is the key, and as a fraction it would go to another partition"
            raise SchemaConflict(topic=topic, column=column, why=why)


def draft(
    handle: TopicHandle, rows: Any, *, partition: int | None, headers: Any, sent_at_us: int, config: Config
) -> dict[int, list[Draft]]:
    """The frames of `rows`, by partition."""
    topic = handle.topic
    batches = to_batches(rows, topic.schema, topic=topic.name, rows_max=config.frame_rows_max, key=topic.key)
    if headers is not None:
        batches = with_headers(batches, headers)
    if topic.compact and topic.schemaless:
        batches = [_with_null_values_as_tombstones(batch) for batch in batches]
    drafts: dict[int, list[Draft]] = {}
    for batch in batches:
        for number, part in _split(handle, topic, batch, partition):
            drafts.setdefault(number, []).extend(_frames(topic, part, sent_at_us, config.frame_bytes_max))
    return drafts


def _frames(topic: Topic, part: RowBatch, sent_at_us: int, bytes_max: int) -> list[Draft]:
    """One frame, or several where one would be too large to hand around."""
    made = draft_rows(
        part.data,
        schema_version=topic.schema_version,
        codec=topic.codec,
        time=topic.time,
        sent_at_us=sent_at_us,
        headers=part.headers,
        tombstones=part.tombstones,
    )
    if made.size <= bytes_max:
        return [made]
    if made.rows == 1:
        raise RowTooLarge(topic=topic.name, size=made.size, size_max=bytes_max)
    rows = max(1, min(made.rows // 2, made.rows * bytes_max // made.size))
    starts = range(0, made.rows, rows)
    return [frame for start in starts for frame in _frames(topic, _sliced(part, start, rows), sent_at_us, bytes_max)]


def _split(handle: TopicHandle, topic: Topic, batch: RowBatch, partition: int | None) -> list[tuple[int, RowBatch]]:
    if batch.data.num_rows == 0:
        return []
    if partition is not None or topic.partitions == 1:
        return [(partition or 0, batch)]
    if not topic.key:
        handle.turn += 1
        return [(handle.turn % topic.partitions, batch)]
    numbers = partition_of([batch.data.column(column) for column in topic.key], topic.partitions)
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    ends = [*starts[1:], len(order)]
    return [
        (int(number), _taken(batch, pa.array(order[start:end])))
        for number, start, end in zip(present, starts, ends, strict=True)
    ]


def _taken(batch: RowBatch, rows: pa.Array) -> RowBatch:
    return RowBatch(
        data=batch.data.take(rows),
        headers=None if batch.headers is None else batch.headers.take(rows),
        tombstones=None if batch.tombstones is None else batch.tombstones.take(rows),
    )


def _sliced(batch: RowBatch, start: int, rows: int) -> RowBatch:
    return RowBatch(
        data=batch.data.slice(start, rows),
        headers=None if batch.headers is None else batch.headers.slice(start, rows),
        tombstones=None if batch.tombstones is None else batch.tombstones.slice(start, rows),
    )


def with_headers(batches: list[RowBatch], headers: Any) -> list[RowBatch]:
    """The rows with further headers: one mapping for all, or one for each."""
    total = sum(batch.data.num_rows for batch in batches)
    given = [headers] * total if isinstance(headers, Mapping) else list(headers)
    if len(given) != total:
        raise ArgumentInvalid(
            name="headers", value=f"{len(given)} mappings", expected=f"one mapping, or one for each of {total} rows"
        )
    result = []
    start = 0
    for batch in batches:
        count = batch.data.num_rows
        own = batch.headers.to_pylist() if batch.headers is not None else [None] * count
        merged = [
            [*(theirs or []), *((name, _bytes(value)) for name, value in (ours or {}).items())] or None
            for theirs, ours in zip(own, given[start : start + count], strict=True)
        ]
        result.append(RowBatch(batch.data, pa.array(merged, type=HEADERS_TYPE), batch.tombstones))
        start += count
    return result


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise ArgumentInvalid(name="headers", value=value, expected="text or bytes as the value of each header")


def _with_null_values_as_tombstones(batch: RowBatch) -> RowBatch:
    values = batch.data.column("value")
    if batch.tombstones is not None or not values.null_count:
        return batch
    return RowBatch(batch.data, batch.headers, values.is_null())


def _check_compact(topic: Topic) -> None:
    if topic.compact and not topic.key:
        raise ArgumentInvalid(
            name="compact", value=True, expected="a key as well: compaction keeps the last row of each key"
        )


def _near(column: str, schema: pa.Schema) -> str:
    near = difflib.get_close_matches(column, schema.names, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
