"""Nulls inside nested values, where the schema says there are none; Arrow itself does not check this."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.schema.nested import taken_apart


@dataclass(frozen=True)
class Breach:
    """Where a null stands that must not: the row, and the way to it within the row's value."""

    row: int
    where: str


def holds_not_null(kind: pa.DataType) -> bool:
    """Whether a type says `not null` anywhere inside.

    >>> holds_not_null(pa.list_(pa.field("item", pa.int64(), nullable=False))), holds_not_null(pa.list_(pa.int64()))
    (True, False)
    """
    return any(not part.nullable or holds_not_null(part.type) for part in _parts(kind))


def _parts(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        # The keys of a map are not null by nature, and refused elsewhere.
        return [kind.item_field]
    return [kind.value_field] if pa.types.is_list(kind) or pa.types.is_large_list(kind) else []


def breach(array: pa.Array) -> Breach | None:
    """A null where the array's own type says not null, or None if there is none. Costs nothing for flat types.

    >>> breach(pa.array([[1], [None]], pa.list_(pa.field("item", pa.int64(), nullable=False))))
    Breach(row=1, where='an item')
    """
    kind = array.type
    if not holds_not_null(kind):
        return None
    if pa.types.is_struct(kind):
        return _breach_of_struct(array)
    parts, counts = taken_apart(array)
    parents = pa.array(np.repeat(np.arange(len(array)), counts))
    if pa.types.is_map(kind):
        return _within(parts[1], kind.item_field, parents, "a map's value")
    return _within(parts[0], kind.value_field, parents, "an item")


def _breach_of_struct(array: pa.Array) -> Breach | None:
    rows = pa.array(range(len(array)), pa.int64())
    if array.null_count:
        # Below an absent struct everything is absent, and that is no breach.
        rows, array = rows.filter(array.is_valid()), array.filter(array.is_valid())
    found = [
        _within(child, part, rows, f"field {part.name!r}")
        for part, child in zip(array.type, array.flatten(), strict=True)
    ]
    return min((one for one in found if one is not None), key=lambda one: one.row, default=None)


def _within(values: pa.Array, part: pa.Field, parents: pa.Array, where: str) -> Breach | None:
    if not part.nullable and values.null_count:
        first = pc.index(values.is_null(), True).as_py()
        return Breach(parents[first].as_py(), where)
    inner = breach(values)
    return None if inner is None else Breach(parents[inner.row].as_py(), f"{inner.where} of {where}")
