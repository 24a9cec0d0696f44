"""Nested values: the items of lists and maps as one flat array, and nulls inside that the schema forbids.

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
    """The items of a list array, or the keys and items of a map array, and the number of items in each row.

    >>> [items], counts = taken_apart(pa.array([[1, 2], None, [3]]))
    >>> items.to_pylist(), counts.tolist()
    ([1, 2, 3], [2, 0, 1])
    """
    if pa.types.is_fixed_size_list(array.type):
        return [array.flatten()], np.where(np.asarray(array.is_valid()), array.type.list_size, 0)
    offsets = array.offsets.to_numpy().astype(np.int64)
    # A slice still refers to the items of the whole array: cut those before and after it.
    whole = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    parts = [part.slice(offsets[0], offsets[-1] - offsets[0]) for part in whole]
    counts = np.diff(offsets)
    if array.null_count:
        valid = np.asarray(array.is_valid())
        if counts[~valid].any():
            # In Arrow a null row may have items; drop them.
            shown = pa.array(np.repeat(valid, counts))
            parts = [part.filter(shown) for part in parts]
        counts = np.where(valid, counts, 0)
    return parts, counts


def to_values(array: pa.Array, leaf: Leaf) -> list[Any]:
    """The values of an array in Python, where `leaf` converts each flat array inside; maps become lists of pairs.

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
    """The values of a union."""
    kind = array.type
    columns = {code: to_values(array.field(i), leaf) for i, code in enumerate(kind.type_codes)}
    # From the buffers: Arrow's own accessors ignore the offset of a slice.
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
    """The place of a null that is not allowed: the row, and the path within its value."""

    row: int
    where: str


def holds_not_null(kind: pa.DataType) -> bool:
    """Whether a type has a part that is `not null`.

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
    """The first null that the array's type does not admit, or None. Costs nothing for flat types.

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
        # The fields of a null struct are null, which is allowed.
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
