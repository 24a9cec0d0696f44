"""A row as a person lays it out: `'%t[%p]@%o %k %v\\n'`.

%t topic, %p partition, %o offset, %k key, %v value, %h headers, %T time of the append, %% a percent sign, and the escapes
\\n, \\t, \\r, \\0, \\\\. The value of a topic with a schema is its columns as JSON; bytes are written as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors import ArgumentInvalid

HELP = r"Lay each row out: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %T append time; \n, \t."
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row on its way to a format; `columns` are the topic's own, already as JSON values or raw bytes."""

    topic: str
    partition: int
    offset: int
    appended_at: str
    # Any: JSON values.
    headers: dict[str, Any] | None
    columns: dict[str, Any]
    key: Sequence[str]
    raw: bool = False


def compile_format(text: str) -> Callable[[Row], bytes]:
    """The function that lays rows out.

    >>> row = Row(topic="t", partition=0, offset=7, appended_at="", headers=None, columns={"id": 1}, key=["id"])
    >>> compile_format("%t[%p]@%o %k %v\\\\n")(row)
    b't[0]@7 1 {"id":1}\\n'
    """
    pieces = list(_pieces(text))
    return lambda row: b"".join(piece if isinstance(piece, bytes) else piece(row) for piece in pieces)


def _pieces(text: str) -> list[bytes | Callable[[Row], bytes]]:
    pieces: list[bytes | Callable[[Row], bytes]] = []
    position = 0
    while position < len(text):
        letter, following = text[position], text[position + 1 : position + 2]
        if letter == "%":
            pieces.append(_field(text, following))
            position += 2
        elif letter == "\\" and following in _ESCAPES:
            pieces.append(_ESCAPES[following].encode())
            position += 2
        else:
            pieces.append(letter.encode())
            position += 1
    return pieces


def _field(text: str, letter: str) -> bytes | Callable[[Row], bytes]:
    if letter == "%":
        return b"%"
    if letter not in _FIELDS:
        raise ArgumentInvalid(
            name="--format",
            value=text,
            expected=f"only {', '.join(f'%{one}' for one in _FIELDS)} and %% after a percent",
        )
    return _FIELDS[letter]


def _key(row: Row) -> bytes:
    values = [row.columns.get(name) for name in row.key]
    return _text(values[0] if len(values) == 1 else values) if values else b""


def _value(row: Row) -> bytes:
    return _text(row.columns.get("value")) if row.raw else _json(row.columns)


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"" if value is None else value.encode() if isinstance(value, str) else _json(value)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


_FIELDS: dict[str, Callable[[Row], bytes]] = {
    "t": lambda row: row.topic.encode(),
    "p": lambda row: str(row.partition).encode(),
    "o": lambda row: str(row.offset).encode(),
    "k": _key,
    "v": _value,
    "h": lambda row: _json(row.headers or {}),
    "T": lambda row: row.appended_at.encode(),
}
