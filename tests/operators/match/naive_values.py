"""What a condition or a measure is worth, by its definition: one tree, one row after the other, no thought of speed."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headwater.operators.match.language.rule import Call, Classifier, Constant, Expression, Fold, MatchNumber, Reference

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Taken:
    """A row of the key (by its place) and the variable that it is mapped to."""

    row: int
    variable: str
    excluded: bool = False


@dataclass(frozen=True)
class Sight:
    """What a tree can see.

    `seen` are the rows mapped so far (RUNNING), `all` those of the whole match (FINAL), `here` the row at hand: in
    DEFINE the row that is tried, which is the last of `seen`; inside an aggregate the row that is added.
    """

    rows: Sequence[Row]
    seen: tuple[Taken, ...]
    all: tuple[Taken, ...]
    here: int | None
    number: int | None
    subsets: Mapping[str, tuple[str, ...]]

    def mapped(self, variable: str | None, *, final: bool) -> list[Taken]:
        names = None if variable is None else self.subsets.get(variable, (variable,))
        return [one for one in (self.all if final else self.seen) if names is None or one.variable in names]


def value(tree: Expression, sight: Sight) -> Any:
    """The value of a tree; None is SQL's null."""
    match tree:
        case Constant():
            return tree.value
        case Reference():
            return _reference(tree, sight)
        case Fold():
            return _fold(tree, sight)
        case Classifier():
            return _classifier(tree, sight)
        case MatchNumber():
            return sight.number
        case Call():
            return _call(tree, sight)


def _reference(tree: Reference, sight: Sight) -> Any:
    if tree.here:
        place = sight.here
    else:
        among = sight.mapped(tree.variable, final=tree.final)
        which = tree.offset if tree.end == "first" else len(among) - 1 - tree.offset
        place = among[which].row if 0 <= which < len(among) else None
    if place is None or not 0 <= place + tree.shift < len(sight.rows):
        return None
    return sight.rows[place + tree.shift][tree.column]


def _classifier(tree: Classifier, sight: Sight) -> Any:
    among = sight.mapped(tree.variable, final=tree.final)
    return among[-1].variable if among else None


def _fold(tree: Fold, sight: Sight) -> Any:
    among = sight.mapped(tree.variable, final=tree.final)
    if tree.of is None:
        return len(among)
    # Inside an aggregate the row that is added is the row at hand, and the only one in sight.
    found = [value(tree.of, replace(sight, seen=(one,), all=(one,), here=one.row)) for one in among]
    values = [one for one in found if one is not None]
    if tree.distinct:
        values = list(dict.fromkeys(values))
    return FOLDS[tree.name](values)


def _stddev(values: list[Any]) -> float | None:
    return statistics.stdev([float(one) for one in values]) if len(values) > 1 else None


FOLDS: Mapping[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": lambda values: sum(values) if values else None,
    "avg": lambda values: float(sum(values)) / len(values) if values else None,
    "min": lambda values: min(values) if values else None,
    "max": lambda values: max(values) if values else None,
    "stddev": _stddev,
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "array_agg": list,
}


def _call(tree: Call, sight: Sight) -> Any:
    if tree.name in LAZY:
        return LAZY[tree.name](tree, sight)
    values = [value(one, sight) for one in tree.of]
    if tree.name == "is_null":
        return values[0] is None
    if tree.name == "<=>":
        return values[0] == values[1]
    if any(one is None for one in values):
        return None
    if tree.name == "cast":
        return _cast(values[0], tree.kind)
    return STRICT[tree.name](*values)


def _and(tree: Call, sight: Sight) -> Any:
    values = [value(one, sight) for one in tree.of]
    return False if False in values else (None if None in values else True)


def _or(tree: Call, sight: Sight) -> Any:
    values = [value(one, sight) for one in tree.of]
    return True if True in values else (None if None in values else False)


def _in(tree: Call, sight: Sight) -> Any:
    wanted, *options = (value(one, sight) for one in tree.of)
    if wanted is None:
        return None
    return True if wanted in [one for one in options if one is not None] else (None if None in options else False)


def _case(tree: Call, sight: Sight) -> Any:
    for condition, result in zip(tree.of[0::2], tree.of[1::2], strict=False):
        if value(condition, sight) is True:
            return value(result, sight)
    return value(tree.of[-1], sight) if len(tree.of) % 2 else None


def _coalesce(tree: Call, sight: Sight) -> Any:
    return next((found for one in tree.of if (found := value(one, sight)) is not None), None)


LAZY: Mapping[str, Callable[[Call, Sight], Any]] = {
    "and": _and,
    "or": _or,
    "in": _in,
    "case": _case,
    "coalesce": _coalesce,
}


def _cast(of: Any, kind: pa.DataType | None) -> Any:
    assert kind is not None
    if pa.types.is_floating(kind):
        return float(of)
    return int(of) if pa.types.is_integer(kind) else str(of)


def _like(text: str, pattern: str) -> bool:
    parts = (".*" if one == "%" else "." if one == "_" else re.escape(one) for one in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _remainder(a: Any, b: Any) -> Any:
    """With the sign of what is divided, as in SQL."""
    if b == 0:
        return None
    return int(math.fmod(a, b)) if isinstance(a, int) and isinstance(b, int) else math.fmod(a, b)


STRICT: Mapping[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: None if b == 0 else a / b,
    "%": _remainder,
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "not": lambda a: not a,
    "negative": lambda a: -a,
    "abs": abs,
    "like": _like,
    "upper": str.upper,
    "lower": str.lower,
    "length": len,
    "concat": lambda *parts: "".join(parts),
    "least": min,
    "greatest": max,
}
