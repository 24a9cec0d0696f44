"""What trees are worth over whole columns, by Arrow: where rules change, and no plan of Spark's can be made of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ArgumentInvalid
from headwater.operators.match.expression import Call, Constant, Expression, Reference

Value = Any  # an Arrow array or scalar: PyArrow's own types say no more
Leaf = Callable[[Expression], Value]


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
        return pa.array([found.as_py()] * count, found.type) if not _is_time(found.type) else _repeated(found, count)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind))


def _repeated(value: pa.Scalar, count: int) -> pa.Array:
    return pa.array([value.value] * count, pa.int64()).cast(value.type)


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


def _different(left: Value, right: Value) -> Value:
    return pc.invert(_equal(left, right))


def _divide(left: Value, right: Value) -> Value:
    return pc.divide(pc.cast(left, pa.float64()), _without_zero(pc.cast(right, pa.float64())))


def _remainder(left: Value, right: Value) -> Value:
    """With the sign of what is divided, as in SQL."""
    right = _without_zero(right)
    quotient = pc.divide(left, right)
    if not pa.types.is_integer(quotient.type):
        quotient = pc.trunc(quotient)
    return pc.subtract(left, pc.multiply(quotient, right))


def _without_zero(value: Value) -> Value:
    return pc.if_else(pc.equal(value, pa.scalar(0, value.type)), pa.scalar(None, value.type), value)


def _in(value: Value, *options: Value) -> Value:
    return functools.reduce(pc.or_kleene, [_equal(value, one) for one in options])


def _case(*of: Value) -> Value:
    result = of[-1] if len(of) % 2 else pa.scalar(None, of[1].type)
    for at in range(len(of) // 2 * 2 - 2, -1, -2):
        result = pc.if_else(pc.fill_null(of[at], False), of[at + 1], result)
    return result


def _same(left: Value, right: Value) -> Value:
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(pc.fill_null(_equal(left, right), False), both)


def _like(text: Value, pattern: Value) -> Value:
    return pc.match_like(text, pattern.as_py())


def _concat(*parts: Value) -> Value:
    return pc.binary_join_element_wise(*parts, "")


def _extreme(function: Callable[..., Value]) -> Callable[..., Value]:
    def of(*values: Value) -> Value:
        return function(*values, skip_nulls=False)

    return of


def _chain(function: Callable[[Value, Value], Value]) -> Callable[..., Value]:
    def of(*values: Value) -> Value:
        return functools.reduce(function, values)

    return of


FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": _divide,
    "%": _remainder,
    "negative": pc.negate,
    "abs": pc.abs,
    "=": _equal,
    "<>": _different,
    "<": _less,
    "<=": _less_equal,
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: _less_equal(right, left),
    "<=>": _same,
    "and": _chain(pc.and_kleene),
    "or": _chain(pc.or_kleene),
    "not": pc.invert,
    "is_null": pc.is_null,
    "in": _in,
    "between": lambda value, low, high: pc.and_kleene(_less_equal(low, value), _less_equal(value, high)),
    "like": _like,
    "case": _case,
    "coalesce": pc.coalesce,
    "upper": pc.utf8_upper,
    "lower": pc.utf8_lower,
    "length": pc.utf8_length,
    "trim": pc.utf8_trim_whitespace,
    "concat": _concat,
    "least": _extreme(pc.min_element_wise),
    "greatest": _extreme(pc.max_element_wise),
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
