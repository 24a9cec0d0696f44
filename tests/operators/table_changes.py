"""Tables that change, as topics tell of them, and joins and aggregates over them without Spark."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headwater.engine.table_input import Follow
from headwater.operators.table_join import ON, PREFIXES, SPREAD, JoinPlan
from tests.operators.batches import streamed, together

#: A change of a table: the values of its key, and those of the other columns; `None` deletes the row.
Change = tuple[tuple[Any, ...], tuple[Any, ...] | None]


def cut(draw: st.DrawFn, changes: Sequence[Any], *, batches: int = 4) -> list[list[Any]]:
    """The changes in batches, some of which may be empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(changes)), min_size=batches - 1, max_size=batches - 1)))
    return [list(changes[start:stop]) for start, stop in zip([0, *cuts], [*cuts, len(changes)], strict=True)]


def table_after(changes: Sequence[Change]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What holds after all changes, by the definition: of each key the last row."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for key, rest in changes:
        found.pop(key, None)
        if rest is not None:
            found[key] = rest
    return found


def topic(batches: Sequence[Sequence[Change]], schema: pa.Schema, *, keys: int) -> list[pa.Table]:
    """The changes as rows of a keyed topic of two partitions: `keys` columns of the schema are its key."""
    offsets = [0, 0]
    tables = []
    for batch in batches:
        rows = []
        for key, rest in batch:
            partition = zlib.crc32(repr(key).encode()) % 2
            values = (*key, *(rest if rest is not None else [None] * (len(schema) - keys)))
            place = {"_partition": partition, "_offset": offsets[partition]}
            rows.append(
                {**dict(zip(schema.names, values, strict=True)), "_op": "+U" if rest is not None else "-D", **place}
            )
            offsets[partition] += 1
        places = [pa.field("_op", pa.string()), pa.field("_partition", pa.int32()), pa.field("_offset", pa.int64())]
        tables.append(pa.Table.from_pylist(rows, pa.schema([*schema, *places])))
    return tables


def joined(
    plan: JoinPlan,
    lefts: Sequence[pa.Table],
    rights: Sequence[pa.Table],
    *,
    partitions: int = 2,
    replay: int | None = None,
) -> list[pa.Table]:
    """The changes of a join, batch by batch: what `TableJoin` makes of Spark's DataFrames."""
    sides = []
    for number, (table, batches) in enumerate(((plan.left, lefts), (plan.right, rights))):
        prefix = PREFIXES[number]
        named = [
            batch.rename_columns([prefix + one if one[0] != "_" else one for one in batch.column_names])
            for batch in batches
        ]
        if not table.is_settled:
            key = tuple(prefix + name for name in table.key)
            named = streamed(Follow(name=f"side{number}", key=key, emit=plan.emit).contract, named, replay=replay)
        sides.append([grouped(batch, number, prefix, table.on, table.key) for batch in named])
    batches = [together(left, right) for left, right in zip(*sides, strict=True)]
    outputs = streamed(plan.contract, batches, partitions=partitions, replay=replay)
    return outputs if plan.is_settled else [plan.reordered(one) for one in outputs]


def grouped(rows: pa.Table, number: int, prefix: str, on: Sequence[str], key: Sequence[str]) -> pa.Table:
    """Rows with what they are joined on: those that have a null there meet no other."""
    spreads: list[int | None] = []
    for row in rows.to_pylist():
        keys = [row[prefix + name] for name in key]
        apart = zlib.crc32(repr(keys).encode()) + 1
        meets = all(row[prefix + name] is not None for name in on)
        spreads.append(None if None in keys else 0 if meets else apart if number == 0 else -apart)
    for place, name in enumerate(on):
        column = rows.column(prefix + name)
        nothing = "" if pa.types.is_string(column.type) else 0
        rows = rows.append_column(f"{ON}{place}", column.fill_null(nothing))
    return rows.append_column(SPREAD, pa.array(spreads, pa.int64()))


def rows_of(table: Mapping[tuple[Any, ...], dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The rows of a table as tuples, in an order that nulls do not upset."""
    return sorted((tuple(row.values()) for row in table.values()), key=repr)
