"""Evaluate expressions over the columns of rows: by Arrow, or as SQL text by Spark.

Arrow computes where rules change, and no plan of Spark's can be made of them. `is_plain` says on which conditions both
certainly agree: comparisons of like values, and AND, OR and NOT of them. Arithmetic is not among them, because Spark
raises on overflow and Arrow wraps around; nor are functions of texts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ArgumentInvalid
from headwater.operators.match.language.rule import Call, Constant, Expression, Reference

Value = Any  # an Arrow array or scalar: PyArrow's own types say no more
Leaf = Callable[[Expression], Value]
COMPARISONS = frozenset(["=", "<>", "<", "<=", ">", ">=", "<=>", "between"])
TRUTH = "truth"
NUMBERS = frozenset(["whole", "real"])
INFIX = ("+", "-", "*", "=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or", "like")
#: A division by zero is null here, as it is in the search.
SAFE = {"/": "try_divide", "%": "try_mod"}


def over_rows(tree: Expression, rows: pa.Table) -> pa.Array:
    """The value of a tree that is about the row at hand alone, for each row."""

    def leaf(one: Expression) -> Value:
        assert isinstance(one, Reference)
        return rows.column(one.column).combine_chunks()

    return evaluate(tree, leaf, rows.num_rows)


def evaluate(tree: Expression, leaf: Leaf, count: int) -> pa.Array:
    """The value of a tree for each of `count` rows; `leaf` gives that of references, folds and the like."""
    found = _value(tree, leaf)
    if isinstance(found, pa.Scalar):
        if pa.types.is_temporal(found.type):
            return pa.array([found.value] * count, pa.int64()).cast(found.type)
        return pa.array([found.as_py()] * count, found.type)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _value(tree: Expression, leaf: Leaf) -> Value:
    if isinstance(tree, Constant):
        return pa.scalar(tree.value, tree.kind)
    if not isinstance(tree, Call):
        return leaf(tree)
    values = [_value(one, leaf) for one in tree.of]
    if tree.name == "cast":
        return pc.cast(values[0], tree.kind, safe=False)
    function = FUNCTIONS.get(tree.name)
    if function is None:
        expected = f"one of {', '.join(sorted(FUNCTIONS))}"
        raise ArgumentInvalid(name="function", value=tree.name, expected=expected)
    return function(*values)


def _ordered(
    function: Callable[[Value, Value], Value], *, held: Callable[[Value, Value], Value]
) -> Callable[..., Value]:
    """A comparison in which, as in Spark, NaN equals itself and is larger than all else; `held` says where it decides."""

    def of(left: Value, right: Value) -> Value:
        if not (pa.types.is_floating(left.type) or pa.types.is_floating(right.type)):
            return function(left, right)
        left, right = pc.cast(left, pa.float64(), safe=False), pc.cast(right, pa.float64(), safe=False)
        return pc.or_(function(left, right), held(pc.is_nan(left), pc.is_nan(right)))

    return of


_equal = _ordered(pc.equal, held=pc.and_)
_less = _ordered(pc.less, held=lambda left, right: pc.and_not(right, left))
_less_equal = _ordered(pc.less_equal, held=lambda _left, right: right)


def _remainder(left: Value, right: Value) -> Value:
    """With the sign of what is divided, as in SQL."""
    right = _without_zero(right)
    quotient = pc.divide(left, right)
    if not pa.types.is_integer(quotient.type):
        quotient = pc.trunc(quotient)
    return pc.subtract(left, pc.multiply(quotient, right))


def _without_zero(value: Value) -> Value:
    return pc.if_else(pc.equal(value, pa.scalar(0, value.type)), pa.scalar(None, value.type), value)


def _case(*of: Value) -> Value:
    result = of[-1] if len(of) % 2 else pa.scalar(None, of[1].type)
    for at in range(len(of) // 2 * 2 - 2, -1, -2):
        result = pc.if_else(pc.fill_null(of[at], False), of[at + 1], result)
    return result


def _same(left: Value, right: Value) -> Value:
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(pc.fill_null(_equal(left, right), False), both)


FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": lambda left, right: pc.divide(pc.cast(left, pa.float64()), _without_zero(pc.cast(right, pa.float64()))),
    "%": _remainder,
    "negative": pc.negate,
    "abs": pc.abs,
    "=": _equal,
    "<>": lambda left, right: pc.invert(_equal(left, right)),
    "<": _less,
    "<=": _less_equal,
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: _less_equal(right, left),
    "<=>": _same,
    "and": lambda *values: functools.reduce(pc.and_kleene, values),
    "or": lambda *values: functools.reduce(pc.or_kleene, values),
    "not": pc.invert,
    "is_null": pc.is_null,
    "in": lambda value, *options: functools.reduce(pc.or_kleene, [_equal(value, one) for one in options]),
    "between": lambda value, low, high: pc.and_kleene(_less_equal(low, value), _less_equal(value, high)),
    "like": lambda text, pattern: pc.match_like(text, pattern.as_py()),
    "case": _case,
    "coalesce": pc.coalesce,
    "upper": pc.utf8_upper,
    "lower": pc.utf8_lower,
    "length": pc.utf8_length,
    "trim": pc.utf8_trim_whitespace,
    "concat": lambda *parts: pc.binary_join_element_wise(*parts, ""),
    "least": lambda *values: pc.min_element_wise(*values, skip_nulls=False),
    "greatest": lambda *values: pc.max_element_wise(*values, skip_nulls=False),
    "round": pc.round,
    "floor": pc.floor,
    "ceil": pc.ceil,
    "sqrt": pc.sqrt,
    "ln": pc.ln,
    "exp": pc.exp,
    "power": pc.power,
    "sign": pc.sign,
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}


def is_plain(tree: Expression, rows: pa.Schema) -> bool:
    """Whether a condition on the row at hand may be computed by either.

    >>> from headwater.operators.match.language import parse
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


def spark_text(tree: Expression, name: Callable[[Expression], str]) -> str:
    """The tree as Spark's SQL; `name` gives the column of each leaf that is no spark_constant."""
    if isinstance(tree, Constant):
        return spark_constant(tree)
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
        return _spark_case(of)
    if tree.name == "cast" and tree.kind is not None:
        return f"CAST({of[0]} AS {type_text(tree.kind)})"
    return f"{SAFE.get(tree.name, tree.name)}({', '.join(of)})"


def row_text(tree: Expression) -> str:
    """A tree that is about the row at hand alone."""

    def column(leaf: Expression) -> str:
        assert isinstance(leaf, Reference)
        return leaf.column

    return spark_text(tree, column)


def _spark_case(of: list[str]) -> str:
    pairs = zip(of[0::2], of[1::2], strict=False)
    branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
    otherwise = f" ELSE {of[-1]}" if len(of) % 2 else ""
    return f"CASE {branches}{otherwise} END"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def spark_constant(tree: Constant) -> str:
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
