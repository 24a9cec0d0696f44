"""Which SQL may be run by readers: one statement that only reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.errors import StatementInvalid

if TYPE_CHECKING:
    import duckdb

_COMMENT = re.compile(r"\s*(?:--[^\n]*(?:\n|\Z)|/\*.*?\*/)\s*", re.DOTALL)
_READING = ("select", "with", "values", "from", "table", "(")


def check_reading(statement: str) -> None:
    """Refuse what cannot be a query by its first word; stores run what is left in a transaction that only reads.

    >>> check_reading("-- all of it\\nselect * from spend")
    """
    rest = _COMMENT.sub(" ", statement).strip().lower()
    if not rest:
        raise StatementInvalid(statement=statement, why="it is empty")
    if not rest.startswith(_READING):
        raise StatementInvalid(statement=shortened(statement), why=f"{rest.split()[0].upper()} is no query")


def check_single(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Refuse what DuckDB does not parse, and anything but one query."""
    import duckdb

    check_reading(statement)
    try:
        found = connection.extract_statements(statement)
    except duckdb.Error as error:
        raise invalid(statement, error) from error
    if len(found) != 1:
        raise StatementInvalid(statement=shortened(statement), why=f"there are {len(found)} statements in it")
    if found[0].type != duckdb.StatementType.SELECT:
        raise StatementInvalid(statement=shortened(statement), why=f"{found[0].type.name} is no query")


def invalid(statement: str, error: Exception) -> StatementInvalid:
    """The database's own word on a statement, without the drawing below it."""
    why = str(error).split("\n\nLINE ")[0].strip().splitlines()
    text = " ".join(line.strip() for line in why if line.strip()).rstrip(".")
    return StatementInvalid(statement=shortened(statement), why=hinted(text))


def hinted(why: str) -> str:
    """The database's own word, with what most often is the matter where it cannot read something.

    >>> hinted('syntax error at or near ">"')
    'syntax error at or near ">" (a column with a name that SQL keeps for itself goes in double quotes: "at")'
    """
    hint = ' (a column with a name that SQL keeps for itself goes in double quotes: "at")'
    return why + hint if "syntax error" in why else why


def shortened(statement: str) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= 200 else text[:199] + "…"
