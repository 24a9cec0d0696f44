"""Guess a schema from the first rows, for `produce --create`. All columns admit null, for later rows may lack them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headwater.errors import SchemaInvalid

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 1_000
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
#: Columns that rows carry when they were read from a log.
_OURS = frozenset({"_partition", "_offset", "_appended_at", "_sent_at", "_headers", "_tombstone"})


def infer_schema(rows: Sequence[dict[str, Any]], *, texts_only: bool = False) -> pa.Schema:
    """The schema that these rows fit; cells of a CSV file are all texts, and are looked into.

    >>> infer_schema([{"id": 1, "at": "2026-01-01T10:00:00Z"}, {"id": 2.5}])
    id: double
    at: timestamp[us, tz=UTC]
    """
    import pyarrow as pa

    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _OURS]
    columns = {name: [row.get(name) for row in rows] for name in names}
    if texts_only:
        return pa.schema([(name, _type_of_cells(cells)) for name, cells in columns.items()])
    return pa.schema([(name, _type_of_values(name, values)) for name, values in columns.items()])


def _type_of_values(name: str, values: list[Any]) -> pa.DataType:
    import pyarrow as pa

    try:
        kind = pa.array(values).type
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        why = f"column {name!r} mixes values of different kinds ({str(error).splitlines()[0]})"
        raise SchemaInvalid(schema="of the first rows", why=why) from error
    return _type_of_texts(values) if pa.types.is_string(kind) else _without_unknown(kind)


def _without_unknown(kind: pa.DataType) -> pa.DataType:
    """The type, with text where no value says what there may be."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_unknown(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, _without_unknown(part.type)) for part in kind])
    return kind


def _type_of_texts(texts: list[str | None]) -> pa.DataType:
    import pyarrow as pa

    present = [text for text in texts if text]
    if present and all(_DATE.fullmatch(text) and _is_time(text) for text in present):
        return pa.date32()
    if present and all(_MOMENT.fullmatch(text) and _is_time(text) for text in present):
        return pa.timestamp("us", tz="UTC")
    return pa.string()


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _type_of_cells(cells: list[str | None]) -> pa.DataType:
    import pyarrow as pa

    present = [cell for cell in cells if cell]
    if present and all(re.fullmatch(r"[+-]?\d{1,18}", cell) for cell in present):
        return pa.int64()
    if present and all(_is_number(cell) for cell in present):
        return pa.float64()
    if present and all(cell.lower() in {"true", "false"} for cell in present):
        return pa.bool_()
    return _type_of_texts(cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
