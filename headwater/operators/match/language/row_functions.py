"""Which functions a condition may use: between rows, only those that the search itself can compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from headwater.operators.match.language.rule import (
    Call,
    Classifier,
    Constant,
    Expression,
    Fold,
    Reference,
    calls_in,
    is_simple,
    leaves,
    map_leaves,
    references_in,
)

_COMPUTED = "+ - * / % negative abs = <> < <= > >= <=> and or not is_null in case coalesce cast between"
#: What the search itself can compute.
COMPUTED = frozenset(_COMPUTED.split())
#: What is not null only because its arguments are.
NULL_AWARE = frozenset(["is_null", "coalesce", "case", "<=>", "in", "and", "or", "if", "nvl", "ifnull", "nullif"])
#: What to write instead of a function that would need several rows.
ONE_ROW = "such functions of a single row; between rows: arithmetic, comparisons, AND, OR, NOT, CASE"


def at_hand(tree: Expression, variable: str, subsets: Mapping[str, tuple[str, ...]]) -> Expression:
    """A condition of a variable in which the row at hand is called so, however it was written."""

    def own(name: str | None) -> bool:
        return name is None or name == variable or variable in subsets.get(name, ())

    def seen(one: Expression) -> Expression:
        if isinstance(one, Reference) and own(one.variable) and one.end == "last" and one.offset == 0:
            return Reference(one.column, shift=one.shift, here=True)
        if isinstance(one, Reference) and one.here:
            return Reference(one.column, shift=one.shift, here=True)
        if isinstance(one, Classifier) and own(one.variable):
            return Constant(variable, pa.string())
        return one

    return map_leaves(tree, seen)


def is_computed(tree: Call) -> bool:
    """Whether the search itself can compute a function, of whatever rows."""
    return tree.name in COMPUTED and not (tree.name == "cast" and tree.kind in (pa.string(), pa.large_string()))


def is_of_one_row(tree: Call) -> bool:
    """Whether a function can be computed row by row before the search: it looks at one row, which is there."""
    found = list(references_in(tree))
    places = {replace(one, column="") for one in found}
    others = [one for one in leaves(tree) if not isinstance(one, (Reference, Constant))]
    aware = any(call.name in NULL_AWARE for call in calls_in(tree))
    return len(places) == 1 and not others and not (aware and not (found[0].here and found[0].shift == 0))


def misplaced(tree: Expression, variable: str, subsets: Mapping[str, tuple[str, ...]]) -> Call | None:
    """The first function in the condition of a variable that nothing can compute; None: there is none."""
    if is_simple(at_hand(tree, variable, subsets)) or isinstance(tree, Fold) or not isinstance(tree, Call):
        return None
    if is_computed(tree):
        inside = (misplaced(one, variable, subsets) for one in tree.of)
        return next((one for one in inside if one is not None), None)
    seen = at_hand(tree, variable, subsets)
    return None if isinstance(seen, Call) and is_of_one_row(seen) else tree
