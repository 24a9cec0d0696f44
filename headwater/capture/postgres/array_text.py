"""Arrays as PostgreSQL writes them, `{1,2,NULL,"a b"}`, as Arrow lists.

Arrays without quotes and inner braces are split for all rows at once; the others are parsed one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Items = Callable[[pa.Array], tuple[pa.Array, pa.BooleanArray | None]]

_PLAIN = r'^\{[^"{}\\]*\}$'
_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def parse_arrays(text: pa.Array, kind: pa.DataType, convert: Items) -> tuple[pa.Array, pa.BooleanArray | None]:
    """Convert arrays of one dimension; return also which did not fit, because they have more or an item does not fit.

    >>> numbers = pa.array(["{1,2,NULL}", "{}", None, "{{1},{2}}"])
    >>> lists, misfits = parse_arrays(numbers, pa.int32(), lambda items: (items.cast(pa.int32()), None))
    >>> lists.to_pylist(), misfits.to_pylist()
    ([[1, 2, None], [], None, None], [False, False, False, True])
    """
    is_plain = pc.all(pc.match_substring_regex(text, _PLAIN)).as_py() is not False
    lists, misfits = _split(text) if is_plain else _parsed(text)
    values, bad = convert(lists.flatten())
    if bad is not None and pc.any(bad).as_py():
        misfits = misfits | _rows_of(lists, bad)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    absent = misfits | lists.is_null().to_numpy(zero_copy_only=False)
    made = pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(absent))
    return made.cast(pa.list_(kind)), pa.array(misfits) if misfits.any() else None


def _split(text: pa.Array) -> tuple[pa.Array, np.ndarray]:
    inner = pc.utf8_slice_codeunits(text, 1, -1)
    lists = pc.split_pattern(inner, ",")
    is_empty = pc.fill_null(pc.equal(inner, ""), False)
    lists = pc.if_else(is_empty, pa.scalar([], pa.list_(pa.string())), lists)
    items = lists.flatten()
    items = pc.if_else(pc.equal(items, "NULL"), pa.scalar(None, pa.string()), items)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    mask = pa.array(lists.is_null().to_numpy(zero_copy_only=False))
    return pa.ListArray.from_arrays(offsets, items, mask=mask), np.zeros(len(text), bool)


def _parsed(text: pa.Array) -> tuple[pa.Array, np.ndarray]:
    lists: list[list[str | None] | None] = []
    misfits = np.zeros(len(text), bool)
    for place, value in enumerate(text.to_pylist()):
        parsed = None if value is None else _items(value)
        misfits[place] = value is not None and parsed is None
        lists.append(parsed)
    return pa.array(lists, pa.list_(pa.string())), misfits


def _items(text: str) -> list[str | None] | None:
    """The items of one array; None if it has more than one dimension."""
    body = text[text.index("{") + 1 : -1]  # behind bounds such as [0:2]=
    items: list[str | None] = []
    for match in _ITEM.finditer(body):
        quoted, bare = match.groups()
        if quoted is not None:
            items.append(_ESCAPE.sub(r"\1", quoted))
        else:
            items.append(None if bare == "NULL" else bare)
    unquoted = _ITEM.sub("", body)
    return None if "{" in unquoted else items


def _rows_of(lists: pa.Array, bad: pa.Array) -> np.ndarray:
    rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    found = np.zeros(len(lists), bool)
    found[rows[bad.to_numpy(zero_copy_only=False)]] = True
    return found
