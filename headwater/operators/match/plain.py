"""Conditions that Arrow and Spark certainly agree on: comparisons of like values, and truth made of them.

Arithmetic is not among them, for Spark refuses what is too large and Arrow goes round; nor are functions of texts.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.operators.match.expression import Call, Constant, Expression, Reference

COMPARISONS = frozenset(["=", "<>", "<", "<=", ">", ">=", "<=>", "between"])
TRUTH = "truth"
NUMBERS = frozenset(["whole", "real"])


def is_plain(tree: Expression, rows: pa.Schema) -> bool:
    """Whether a condition on the row at hand may be computed by either.

    >>> from headwater.operators.match.sql import parse
    >>> rule = parse("PATTERN (a b) DEFINE a AS x < 5 AND kind = 'a', b AS x + 1 < 5")
    >>> schema = pa.schema({"x": pa.int64(), "kind": pa.string()})
    >>> [is_plain(one.tree, schema) for one in rule.define.values()]
    [True, False]
    """
    return kind_of(tree, rows) == TRUTH


def kind_of(tree: Expression, rows: pa.Schema) -> str | None:
    """What a plain tree is worth, by a word for values that compare alike; None: it is not plain."""
    match tree:
        case Constant(value, kind):
            return None if value is None else _named(kind)
        case Reference(column):
            return _named(rows.field(column).type) if column in rows.names else None
        case Call(name):
            return _truth(name, [kind_of(one, rows) for one in tree.of])
    return None


def _truth(name: str, of: list[str | None]) -> str | None:
    kinds = set(of)
    if None in kinds:
        return None
    if name in ("and", "or", "not"):
        plain = kinds == {TRUTH}
    elif name == "is_null":
        plain = True
    elif name == "in":  # Spark looks for real numbers among many by their bits, and so tells 0.0 from -0.0
        plain = len(kinds) == 1 and "real" not in kinds
    elif name in COMPARISONS:
        plain = kinds <= NUMBERS or (len(kinds) == 1 and (TRUTH not in kinds or name in ("=", "<>")))
    else:
        plain = False
    return TRUTH if plain else None


def _named(kind: pa.DataType) -> str | None:
    if pa.types.is_signed_integer(kind):
        return "whole"
    if pa.types.is_float64(kind):
        return "real"
    if pa.types.is_string(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return TRUTH
    if pa.types.is_date32(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us"):
        return str(kind)
    return None
