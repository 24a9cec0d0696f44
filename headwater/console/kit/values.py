"""Values of rows as text: numbers with all their digits, times in UTC, JSON in colours, bytes as hexadecimal digits.

Values go to the browser as text, because JavaScript would round 64-bit integers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from headwater.console.kit.table import Column, toned
from headwater.console.kit.words import clipped
from headwater.schema import encodings

#: Longer texts are cut in tables; the row itself shows all of them.
TEXT_MAX = 300
NULL = "null"
#: Strings, the marks of structure, and all else: numbers and words. Spaces between them are left out.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_OPEN, _CLOSE = "{[", "}]"


def rows_of(table: pa.Table) -> list[list[str | None]]:
    """The rows as texts, in the order of the columns.

    >>> rows_of(pa.table({"id": [73314510714175488], "at": [None], "name": ["Ada"]}))
    [['73314510714175488', None, 'Ada']]
    """
    if not table.num_columns:
        return []
    named = table.rename_columns([str(number) for number in range(table.num_columns)])  # names may be repeated
    kinds = [column.type for column in table.schema]
    lines = (line for batch in named.to_batches() for line in encodings.json.encode_rows(batch))
    rows = map(orjson.loads, lines)
    return [[_text(row.get(str(place)), kind) for place, kind in enumerate(kinds)] for row in rows]


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
    """Columns of a table for those of a schema: numbers are aligned right, except identifiers (`left`).

    Each is named by its place, for names may be repeated.
    """
    return [
        Column(
            name=str(place),
            label=column.name or "–",
            align="right" if is_number(column.type) and column.name not in left else "left",
            sortable=sortable,
        )
        for place, column in enumerate(schema)
    ]


def cells_of(texts: Sequence[str | None], before: Sequence[str | None] | None = None) -> list[Any]:
    """Cells of these texts; those that differ from `before` are marked as fresh."""
    cells: list[Any] = []
    for place, text in enumerate(texts):
        is_fresh = before is not None and (place >= len(before) or before[place] != text)
        value = NULL if text is None else clipped(text, TEXT_MAX)
        cells.append(toned(value, "fresh") if is_fresh else toned(value, "quiet") if text is None else value)
    return cells


# -- JSON and bytes ---------------------------------------------------------------------------------------------------


def is_json(text: str) -> bool:
    """Whether a text is a JSON object or array.

    >>> is_json('{"id": 1}'), is_json("hello"), is_json("12")
    (True, False, False)
    """
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def pretty(text: str) -> str:
    """JSON over many lines. Only the layout changes: numbers keep their digits, and repeated keys stay.

    >>> print(pretty('{"id":73314510714175488,"rest":[1.10,{}]}'))
    {
      "id": 73314510714175488,
      "rest": [
        1.10,
        {}
      ]
    }
    """
    parts: list[str] = []
    depth, before = 0, ""
    for token in _TOKEN.findall(text):
        if token in _CLOSE:
            depth -= 1
            if before not in _OPEN or not before:
                parts.append("\n" + "  " * depth)
        elif before and before in "{[,":
            parts.append("\n" + "  " * depth)
        if token in _OPEN:
            depth += 1
        parts.append(": " if token == ":" else token)
        before = token
    return "".join(parts)


def coloured(text: str) -> str:
    """JSON as HTML, with names, strings, numbers and literals in their colours.

    >>> coloured('{"a": 1, "b": "<i>"}')
    '{<span class="json-key">&quot;a&quot;</span>: <span class="json-number">1</span>, <span class="json-key">&quot;b&quot;</span>: <span class="json-text">&quot;&lt;i&gt;&quot;</span>}'
    """
    parts, at = [], 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        parts.append(text[at : match.start()])
        at = match.end()
        kind = _kind(token, text[at : at + 1])
        parts.append(f'<span class="{kind}">{escape(token)}</span>' if kind else token)
    return "".join([*parts, escape(text[at:])])


def _kind(token: str, after: str) -> str:
    if token.startswith('"'):
        return "json-key" if after == ":" else "json-text"
    if token in "{}[],:":
        return ""
    return "json-number" if token[0].isdigit() or token[0] == "-" else "json-literal"


def dump(data: bytes) -> str:
    """Bytes in rows of sixteen, with the characters that they may be.

    >>> print(dump(b"Headwater"))
    00000000  48 65 61 64 77 61 74 65  72                       Headwater
    """
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        digits = f"{row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}"
        characters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        lines.append(f"{at:08x}  {digits}  {characters}")
    return "\n".join(lines)
