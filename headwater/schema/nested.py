"""Nested values: the items of lists and maps in one array, and nulls inside where the schema says there are none.

Arrow itself does not check nulls inside nested values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Leaf = Callable[[pa.Array], list[Any]]


def taken_apart(array: pa.Array) -> tuple[list[pa.Array], npt.NDArray[np.int64]]:
    """The items of a list array, or the keys and items of a map array, with the count of each row; 0 where null.

    >>> [items], counts = taken_apart(pa.array([[1, 2], None, [3]]))
    >>> items.to_pylist(), counts.tolist()
    ([1, 2, 3], [2, 0, 1])
    """
    if pa.types.is_fixed_size_list(array.type):
        return [array.flatten()], np.where(np.asarray(array.is_valid()), array.type.list_size, 0)
    offsets = array.offsets.to_numpy().astype(np.int64)
    # A slice still refers to the items of the whole, so what lies before and after it is cut off here.
    whole = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    parts = [part.slice(offsets[0], offsets[-1] - offsets[0]) for part in whole]
    counts = np.diff(offsets)
    if array.null_count:
        valid = np.asarray(array.is_valid())
        if counts[~valid].any():
            # Arrow lets a null row point at items; they mean nothing.
            shown = pa.array(np.repeat(valid, counts))
            parts = [part.filter(shown) for part in parts]
        counts = np.where(valid, counts, 0)
    return parts, counts


def to_values(array: pa.Array, leaf: Leaf) -> list[Any]:
    """The values of an array as Python's, where `leaf` converts each flat array within; maps become lists of pairs.

    >>> to_values(pa.array([[1], None]), lambda flat: [str(value) for value in flat.to_pylist()])
    [['1'], None]
    """
    kind = array.type
    if not pa.types.is_nested(kind):
        return leaf(array)
    if pa.types.is_struct(kind):
        names = [part.name for part in kind]
        columns = [to_values(array.field(i), leaf) for i in range(len(names))]
        rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return _with_nulls(rows if names else [{} for _ in range(len(array))], array)
    if pa.types.is_union(kind):
        return _of_union(array, leaf)
    parts, counts = taken_apart(array)
    columns = [to_values(part, leaf) for part in parts]
    flat = iter(zip(*columns, strict=True) if len(columns) == 2 else columns[0])
    return _with_nulls([list(islice(flat, count)) for count in counts.tolist()], array)


def _of_union(array: pa.Array, leaf: Leaf) -> list[Any]:
    """The value of each row, of whichever type it is."""
    kind = array.type
    columns = {code: to_values(array.field(i), leaf) for i, code in enumerate(kind.type_codes)}
    # From the buffers: Arrow's own accessors forget where a slice begins.
    here = slice(array.offset, array.offset + len(array))
    codes = np.frombuffer(array.buffers()[1], np.int8)[here].tolist()
    dense = kind.mode == "dense"
    places = np.frombuffer(array.buffers()[2], np.int32)[here].tolist() if dense else range(len(array))
    return [columns[code][place] for code, place in zip(codes, places, strict=True)]


def _with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    if not array.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]


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
        # The keys of a map are never null, which is checked elsewhere.
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
