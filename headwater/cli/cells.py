"""Text as the value that a column wants: for CSV cells and for `--key`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False, "t": True, "f": False}
Convert = Callable[[str], Any]


def reader_of(column: pa.Field) -> Convert:
    """The function that reads a cell of this column. An empty cell is null, except where a text must not be null.

    >>> import pyarrow as pa
    >>> reader_of(pa.field("id", pa.int64()))("73314510714175488"), reader_of(pa.field("id", pa.int64()))("")
    (73314510714175488, None)
    """
    convert = _converter(column.type)
    empty = "" if convert is str and not column.nullable else None
    return lambda text: empty if text == "" else convert(text)


def _converter(kind: pa.DataType) -> Convert:
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_nested(kind):
        return json.loads
    # Decimals, times and bytes are read from text by the schema itself.
    return str


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise ValueError(f"{text!r} is neither true nor false")
    return value
