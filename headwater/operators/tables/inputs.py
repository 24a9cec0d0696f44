"""What an operator on tables takes: a changelog, a keyed topic whose rows replace one another, or a stream of insertions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators.changelog import DELETE, INSERT, OP, UPDATE_AFTER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOMBSTONE = "_tombstone"
#: Where a row stands in its topic, as far as rows know it.
PLACES = ("_topic", "_partition", "_offset")
Names = str | tuple[str, ...] | list[str]
# Any: a DataFrame, or a table of an app, which has `changes` and `key`.
TableLike = Any


def frame_of(table: TableLike) -> DataFrame:
    """The changes of a table, whichever way it is given."""
    frame: DataFrame = table.changes if hasattr(table, "changes") else table
    return frame


def key_of(table: TableLike, key: Names | None) -> tuple[str, ...] | None:
    """The primary key: as told, or as an app's table knows it."""
    known = getattr(table, "key", None) if hasattr(table, "changes") else None
    return names_of(key) if key is not None else known


def names_of(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def check_names(setting: str, names: Iterable[str], rows: DataFrame, *, operator: str) -> None:
    """Refuse columns that the rows do not have, that come twice, or that are the system's."""
    seen: set[str] = set()
    for name in names:
        if name.startswith("_"):
            raise ArgumentInvalid(name=setting, value=name, expected="columns of your own: `_` begins the system's")
        if name not in rows.columns:
            raise ColumnUnknown(topic=operator, column=name, columns=", ".join(own_columns(rows)))
        if name in seen:
            raise ArgumentInvalid(name=setting, value=name, expected="each column once")
        seen.add(name)


def own_columns(rows: DataFrame) -> list[str]:
    """The columns that are not the system's."""
    return [name for name in rows.columns if not name.startswith("_")]


def has_place(rows: DataFrame) -> bool:
    """Whether rows know where they stand in their topic."""
    return "_offset" in rows.columns


def check_key(rows: DataFrame, key: tuple[str, ...] | None, *, operator: str) -> None:
    """A table that was read from a topic says what replaces a row, not what is withdrawn: then a key is needed."""
    if key is None and has_place(rows) and {OP, TOMBSTONE} & set(rows.columns):
        expected = f"the primary key of the table that {operator} reads: its rows replace one another"
        raise ArgumentInvalid(name="key", value=None, expected=expected)
    if key is not None:
        if not key:
            raise ArgumentInvalid(name="key", value=key, expected="at least one column")
        check_names("key", key, rows, operator=operator)


def operation(rows: DataFrame, *, keyed: bool) -> Column:
    """What each row does to the table: rows without a word of it replace what their key has, or are added."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    plain = F.lit(UPDATE_AFTER if keyed else INSERT)
    told = F.coalesce(F.col(OP), plain) if OP in rows.columns else plain
    if TOMBSTONE in rows.columns:
        told = F.when(F.coalesce(F.col(TOMBSTONE), F.lit(False)), F.lit(DELETE)).otherwise(told)
    return told.alias(OP)


def places(rows: DataFrame) -> list[str]:
    return [name for name in PLACES if name in rows.columns]
