"""The changes of a topic as changes of a table: read between two positions, without their envelope, and collapsed.

A target has one row for each key, so only the last row of a key in a step counts. The rows of a key are in one
partition, in order; if partitions were added, the time of the append says which row is newer.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.port import Batch, Log
from headwater.log.topic import Topic
from headwater.sync.port import Step, TargetTable

TOMBSTONE = "_tombstone"
AT = "_at"
#: The columns of a row whose values the database did not send, in the envelope and here.
UNCHANGED_FIELD, UNCHANGED = "unchanged", "_unchanged"
_NAMES = pa.list_(pa.string())
_PLACE = ("_partition", "_offset", "_appended_at")
_ENVELOPE = ("before", "after", "op", "ts_ms")
Places = npt.NDArray[np.int64]


def is_enveloped(schema: pa.Schema) -> bool:
    """Whether rows have the envelope of Debezium."""
    return set(_ENVELOPE) <= set(schema.names) and pa.types.is_struct(schema.field("after").type)


def table_columns(topic: Topic) -> pa.Schema:
    """The columns of the table that a topic holds."""
    fields = list(topic.schema.field("after").type) if is_enveloped(topic.schema) else list(topic.schema)
    return pa.schema([pa.field(one.name, one.type) for one in fields])


@dataclass(frozen=True, kw_only=True)
class TopicChanges:
    """Rows of a topic in order, and the offsets behind them.

    `rows` has the columns of the table, `_tombstone`, `_at` (microseconds), `_partition` and `_offset`.
    """

    rows: pa.Table
    offsets: Mapping[int, int]
    more: bool


def read_changes(
    log: Log,
    topic: Topic,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    rows_max: int,
    transactions: bool = False,
) -> TopicChanges:
    """Read what follows a position, at most `rows_max` rows; with `transactions`, with the id of each row's transaction."""
    oldest = log.start_offsets(topic.name)
    offsets = {number: max(starts.get(number, 0), oldest.get(number, 0)) for number in ends}
    behind = [number for number, end in ends.items() if offsets[number] < end]
    names = [*topic.schema.names, TOMBSTONE, *_PLACE, *(["_headers"] if transactions else [])]
    streams = [
        log.read_range(topic.name, number, start=offsets[number], stop=ends[number], columns=names) for number in behind
    ]
    parts: list[pa.RecordBatch] = []
    count = 0
    for batch in heapq.merge(*map(_with_rows, streams), key=_appended_at):
        data = batch.data.slice(0, rows_max - count)
        parts.append(data)
        count += data.num_rows
        offsets[batch.partition] = (
            batch.offset_next if data.num_rows == batch.data.num_rows else data.column("_offset")[-1].as_py() + 1
        )
        if count >= rows_max:
            break
    else:
        offsets |= {number: ends[number] for number in behind}  # compaction may have removed the last rows
    more = any(offsets[number] < ends[number] for number in behind)
    rows = _plain(topic, parts)
    if transactions:
        rows = rows.append_column("_transaction", _transactions(topic, parts))
    return TopicChanges(rows=rows, offsets=offsets, more=more)


def _transactions(topic: Topic, batches: Sequence[pa.RecordBatch]) -> pa.Array:
    """The id of the transaction of each row: in the envelope, or in a header; null where there is none."""
    if not batches:
        return pa.array([], pa.string())
    table = pa.Table.from_batches(batches).combine_chunks()
    if is_enveloped(topic.schema) and "transaction" in topic.schema.names:
        return pc.struct_field(table.column("transaction").combine_chunks(), "id")
    headers = table.column("_headers").combine_chunks()
    return pc.map_lookup(headers, pa.scalar("_transaction"), "last").cast(pa.string())


def _with_rows(batches: Iterator[Batch]) -> Iterator[Batch]:
    return (batch for batch in batches if batch.punctuation_us is None and batch.data.num_rows)


def _appended_at(batch: Batch) -> tuple[int, int]:
    return batch.data.column("_appended_at")[0].value, batch.partition


def _plain(topic: Topic, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The rows without the envelope."""
    columns = table_columns(topic)
    place = [("_partition", pa.int32()), ("_offset", pa.int64())]
    schema = pa.schema([*columns, (TOMBSTONE, pa.bool_()), (AT, pa.int64()), *place])
    unchanged = is_enveloped(topic.schema) and UNCHANGED_FIELD in topic.schema.names
    if not batches:
        return schema.append(pa.field(UNCHANGED, _NAMES)).empty_table() if unchanged else schema.empty_table()
    table = pa.Table.from_batches(batches).combine_chunks()
    gone = table.column(TOMBSTONE).fill_null(False)
    at = table.column("_appended_at").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    if is_enveloped(topic.schema):
        after = table.column("after").combine_chunks()
        gone = pc.or_(gone, after.is_null())
        at = pc.coalesce(pc.multiply(table.column("ts_ms"), 1000), at)
        # The key is beside the envelope, too, where a deletion has it.
        arrays = [
            table.column(one.name) if one.name in topic.key else pc.struct_field(after, [place])
            for place, one in enumerate(columns)
        ]
    else:
        arrays = [table.column(one.name) for one in columns]
    rows = pa.Table.from_arrays(
        [*arrays, gone, at, table.column("_partition").cast(pa.int32()), table.column("_offset")], schema=schema
    )
    if not unchanged:
        return rows
    names = pc.if_else(gone, pa.scalar([], _NAMES), table.column(UNCHANGED_FIELD).cast(_NAMES))
    return _filled(rows.append_column(UNCHANGED, names), topic.key)


def _filled(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Fill in values that the database did not send because they had not changed, from an earlier row of the key."""
    names: list[list[str]] = [one or [] for one in rows.column(UNCHANGED).to_pylist()]
    if not any(names):
        return rows
    columns = {name: rows.column(name).to_pylist() for name in {one for some in names for one in some}}
    gone = rows.column(TOMBSTONE).to_pylist()
    last: dict[object, int] = {}
    for place, one in enumerate(zip(*(rows.column(name).to_pylist() for name in key), strict=True)):
        before = last.get(one)
        if names[place] and before is not None and not gone[before]:
            for name in names[place]:
                columns[name][place] = columns[name][before]
            names[place] = [name for name in names[place] if name in names[before]]
        last[one] = place
    for name, values in columns.items():
        field = rows.schema.field(name)
        rows = rows.set_column(rows.schema.get_field_index(name), field, pa.array(values, field.type))
    place_of = rows.schema.get_field_index(UNCHANGED)
    return rows.set_column(place_of, rows.schema.field(place_of), pa.array(names, _NAMES))


def is_partial(steps: Sequence[Step], table: TargetTable) -> bool:
    """Whether a row lacks values that are in no earlier row of its key."""
    return any(step.rows.num_columns < len(table.columns) for step in steps)


def null_keys(rows: pa.Table, key: Sequence[str]) -> Places:
    """The places of rows whose key is not complete."""
    bad = np.zeros(rows.num_rows, dtype=np.bool_)
    for name in key:
        bad |= np.asarray(rows.column(name).is_null())
    return np.flatnonzero(bad).astype(np.int64)


def collapsed(rows: pa.Table, table: TargetTable) -> list[Step]:
    """One step with the last row of each key.

    >>> table = TargetTable(topic="t", topic_id="", name="t", columns=pa.schema([("id", pa.int64()), ("n", pa.int64())]), key=("id",))
    >>> rows = pa.table({"id": [1, 2, 1, 2], "n": [1, 2, 3, None], "_tombstone": [False, False, False, True]})
    >>> [step] = collapsed(rows, table)
    >>> step.rows.to_pylist(), step.gone.to_pylist()
    ([{'id': 1, 'n': 3}], [{'id': 2}])
    """
    if not rows.num_rows:
        return []
    keys = [_comparable(rows.column(name)) for name in table.key]
    numbered = pa.table([*keys, pa.array(np.arange(rows.num_rows, dtype=np.int64))], names=[*table.key, "_row"])
    last = numbered.group_by(list(table.key)).aggregate([("_row", "max")]).column("_row_max")
    if len(last) < rows.num_rows:
        rows = rows.take(last.combine_chunks().sort())
    gone = rows.column(TOMBSTONE)
    there = rows.filter(pc.invert(gone))
    removed = rows.filter(gone).select(table.key)
    names = table.columns.names
    if (
        UNCHANGED not in rows.column_names
        or not pc.any(pc.greater(pc.list_value_length(there.column(UNCHANGED)), 0)).as_py()
    ):
        return [Step(gone=removed, rows=there.select(names))]
    # Rows that lack values have a step of their own, without these columns: the target keeps what it has there.
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, missing in enumerate(there.column(UNCHANGED).to_pylist()):
        groups.setdefault(tuple(sorted(missing or ())), []).append(place)
    steps = [Step(gone=removed, rows=there.slice(0, 0).select(names))]
    for absent, places in groups.items():
        some = there.take(pa.array(places, pa.int64()))
        steps.append(Step(gone=removed.slice(0, 0), rows=some.select([name for name in names if name not in absent])))
    return steps


def in_order(rows: pa.Table, table: TargetTable) -> list[Step]:
    """Steps in the order of the topic: runs of insertions or of deletions in which no key is there twice.

    A constraint of the target that spans rows, such as a second unique column, may hold only in this order.
    """
    steps, start, seen = [], 0, set[object]()
    gone = rows.column(TOMBSTONE).to_pylist()
    keys = list(zip(*(_comparable(rows.column(name)).to_pylist() for name in table.key), strict=True))
    for place, key in enumerate(keys):
        if place > start and (key in seen or gone[place] != gone[start]):
            steps += collapsed(rows.slice(start, place - start), table)
            start, seen = place, set()
        seen.add(key)
    return steps + collapsed(rows.slice(start), table)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # A negative zero equals zero, and one not-a-number equals another, in SQL as in the log's partitioner.
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(
        pc.is_nan(column), pa.scalar(float("nan"), column.type), pc.add(column, pa.scalar(0, column.type))
    )
