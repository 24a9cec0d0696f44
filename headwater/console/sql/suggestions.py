"""Statements to begin with, and names that fit what the user writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SUGGESTIONS_MAX = 8
EXAMPLES_MAX = 4
_WORD = re.compile(r"\w+$")
_TABLE = re.compile(r"\b(?:from|join)\s+(?:log\.|current\.|view\.)?\"?([\w.]+)", re.IGNORECASE)
_NUMBER = re.compile(r"u?int|float|double|decimal|long")


@dataclass(frozen=True, kw_only=True)
class TableName:
    """A topic or a view: its name as SQL takes it, and the types of its columns."""

    name: str
    sql_name: str
    kind: str
    columns: Mapping[str, str]


def examples(tables: Sequence[TableName]) -> list[str]:
    """Statements over the topics and views that exist.

    >>> orders = TableName(name="orders", sql_name="orders", kind="topic", columns={"user": "string", "amount": "float64"})
    >>> for text in examples([orders]): print(text)
    SELECT * FROM orders ORDER BY _appended_at DESC LIMIT 20
    SELECT user, count(*) AS rows, sum(amount) AS amount FROM orders GROUP BY user ORDER BY rows DESC
    SELECT date_trunc('minute', _appended_at) AS minute, count(*) AS rows FROM orders GROUP BY minute ORDER BY minute
    """
    found: list[str] = []
    for table in (*(one for one in tables if one.kind == "view"), *(one for one in tables if one.kind == "topic")):
        name, is_topic = table.sql_name, table.kind == "topic"
        found.append(f"SELECT * FROM {name} {'ORDER BY _appended_at DESC ' if is_topic else ''}LIMIT 20")
        texts = [column for column, kind in table.columns.items() if kind == "string"]
        numbers = [column for column, kind in table.columns.items() if _NUMBER.match(kind) and column[0] != "_"]
        if is_topic and texts:
            total = f", sum({numbers[-1]}) AS {numbers[-1]}" if numbers else ""
            found.append(
                f"SELECT {texts[0]}, count(*) AS rows{total} FROM {name} GROUP BY {texts[0]} ORDER BY rows DESC"
            )
        if is_topic:
            minute = "date_trunc('minute', _appended_at) AS minute"
            found.append(f"SELECT {minute}, count(*) AS rows FROM {name} GROUP BY minute ORDER BY minute")
    return found[:EXAMPLES_MAX]


def suggestions(text: str, tables: Sequence[TableName]) -> tuple[str, list[str]]:
    """The word that is being written, and the names that begin with it: columns of the statement's tables first.

    >>> orders = TableName(name="orders", sql_name="orders", kind="topic", columns={"user": "string", "amount": "float64"})
    >>> suggestions("SELECT * FROM ord", [orders]), suggestions("SELECT * FROM orders WHERE am", [orders])
    (('ord', ['orders']), ('am', ['amount']))
    """
    match = _WORD.search(text)
    word = match.group() if match is not None else ""
    if not word:
        return "", []
    named = {name.lower() for name in _TABLE.findall(text)}
    own = [column for table in tables if table.name.lower() in named for column in table.columns]
    names = dict.fromkeys([*own, *(table.sql_name for table in tables)])
    fitting = [name for name in names if name.lower().startswith(word.lower()) and name != word]
    return word, fitting[:SUGGESTIONS_MAX]
