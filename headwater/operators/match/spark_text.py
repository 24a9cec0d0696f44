"""Trees as text for Spark: conditions on one row before the search, and arithmetic on measures after it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from headwater.operators.match.expression import Call, Constant, Expression, Reference

INFIX = ("+", "-", "*", "=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or", "like")
#: A division by zero is null here, as it is in the search.
SAFE = {"/": "try_divide", "%": "try_mod"}


def spark_text(tree: Expression, name: Callable[[Expression], str]) -> str:
    """The tree as Spark's SQL; `name` gives the column of each leaf that is no constant."""
    if isinstance(tree, Constant):
        return constant(tree)
    if not isinstance(tree, Call):
        return quoted(name(tree))
    of = [spark_text(one, name) for one in tree.of]
    if tree.name in INFIX:
        return "(" + f" {tree.name} ".join(of) + ")"
    if tree.name == "not":
        return f"(NOT {of[0]})"
    if tree.name == "negative":
        return f"(- {of[0]})"
    if tree.name == "is_null":
        return f"({of[0]} IS NULL)"
    if tree.name == "in":
        return f"({of[0]} IN ({', '.join(of[1:])}))"
    if tree.name == "between":
        return f"({of[0]} BETWEEN {of[1]} AND {of[2]})"
    if tree.name == "case":
        return _case(of)
    if tree.name == "cast" and tree.kind is not None:
        return f"CAST({of[0]} AS {type_text(tree.kind)})"
    return f"{SAFE.get(tree.name, tree.name)}({', '.join(of)})"


def row_text(tree: Expression) -> str:
    """A tree that is about the row at hand alone."""

    def column(leaf: Expression) -> str:
        assert isinstance(leaf, Reference)
        return leaf.column

    return spark_text(tree, column)


def _case(of: list[str]) -> str:
    pairs = zip(of[0::2], of[1::2], strict=False)
    branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
    otherwise = f" ELSE {of[-1]}" if len(of) % 2 else ""
    return f"CASE {branches}{otherwise} END"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def constant(tree: Constant) -> str:
    value, kind = tree.value, tree.kind
    if value is None:
        return "NULL" if pa.types.is_null(kind) else f"CAST(NULL AS {type_text(kind)})"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if pa.types.is_timestamp(kind):
        made = f"timestamp_micros({value})"
        return made if kind.tz else f"CAST({made} AS TIMESTAMP_NTZ)"
    if pa.types.is_duration(kind):
        return f"make_dt_interval(0, 0, 0, CAST({Decimal(str(value)) / 1_000_000} AS DECIMAL(18, 6)))"
    if pa.types.is_floating(kind):
        return f"CAST('{value}' AS DOUBLE)"
    if pa.types.is_decimal(kind):
        return f"CAST('{value}' AS {type_text(kind)})"
    if pa.types.is_date(kind):
        return f"date_from_unix_date({value})"
    return f"CAST({value} AS {type_text(kind)})"


def type_text(kind: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind).simpleString()
