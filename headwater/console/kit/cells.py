"""Values of rows as texts: whole numbers to the last digit, times in UTC, nested values as JSON. JavaScript rounds nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from headwater.console.kit.table import Column, toned
from headwater.schema import encodings

#: Longer texts are cut in tables; the row itself shows all of them.
TEXT_MAX = 300
NULL = "null"


def rows_of(table: pa.Table) -> list[list[str | None]]:
    """The rows as texts, in the order of the columns.

    >>> rows_of(pa.table({"id": [73314510714175488], "at": [None], "name": ["Ada"]}))
    [['73314510714175488', None, 'Ada']]
    """
    if not table.num_columns:
        return []
    named = table.rename_columns([str(number) for number in range(table.num_columns)])  # names may come twice
    kinds = [column.type for column in table.schema]
    found = []
    for batch in named.to_batches():
        for line in encodings.json.encode_rows(batch):
            row = orjson.loads(line)
            found.append([_text(row.get(str(place)), kind) for place, kind in enumerate(kinds)])
    return found


# Any: a value of JSON.
def _text(value: Any, kind: pa.DataType) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _time(value) if pa.types.is_timestamp(kind) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _decimal(value, kind)
    return str(value) if isinstance(value, int) else orjson.dumps(value).decode()


def _decimal(value: float, kind: pa.DataType) -> str:
    """The shortest text that means this very number among those of its type.

    >>> _decimal(12345678901.25, pa.float64()), _decimal(2.0, pa.float64()), _decimal(0.10000000149011612, pa.float32())
    ('12345678901.25', '2', '0.1')
    """
    text = str(np.float32(value)) if pa.types.is_float32(kind) else repr(value)
    return text.removesuffix(".0")


def _time(text: str) -> str:
    """A time as people write it, without the `T` and the `Z` of ISO 8601.

    >>> _time("2026-11-15T10:00:00.250000Z"), _time("2026-11-15T10:00:00Z")
    ('2026-11-15 10:00:00.25', '2026-11-15 10:00:00')
    """
    plain = text.replace("T", " ").removesuffix("Z").removesuffix("+00:00")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def columns_of(schema: Iterable[pa.Field], *, sortable: bool = False, left: Sequence[str] = ()) -> list[Column]:
    """A table's columns for those of rows: numbers stand at the right, but not those that only name something.

    Each is named by its place, for names may come twice.
    """
    return [
        Column(
            name=str(place),
            label=one.name or "–",
            align="right" if is_number(one.type) and one.name not in left else "left",
            sortable=sortable,
        )
        for place, one in enumerate(schema)
    ]


def shown(texts: Sequence[str | None], before: Sequence[str | None] | None = None) -> list[Any]:
    """Cells of these texts; one that was another `before` is marked as fresh."""
    cells: list[Any] = []
    for place, text in enumerate(texts):
        is_fresh = before is not None and (place >= len(before) or before[place] != text)
        value = NULL if text is None else text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
        cells.append(toned(value, "fresh") if is_fresh else toned(value, "quiet") if text is None else value)
    return cells


def named(schema: pa.Schema, texts: Sequence[str | None]) -> dict[str, str]:
    """A row as names and texts."""
    return {one.name: NULL if text is None else text for one, text in zip(schema, texts, strict=True)}
