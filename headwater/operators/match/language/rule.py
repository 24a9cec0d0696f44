"""A rule as typed trees: what both languages are read into, and what the engine runs.

Rows of a key are searched in the order of event time. A pattern maps neighbouring rows to variables; which mapping is
preferred where several fit follows from the tree: alternatives from left to right, a greedy repetition the longer
first, a reluctant one the shorter.

A condition that refers to nothing but the row at hand is left to Spark, or where rules change, computed over whole
columns. All others are computed while the search runs, by the programs that are made from these trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

#: Where the search goes on after a match.
GoesOn = Literal["past_last", "to_next", "to_first", "to_last", "none"]
#: The largest pattern. Larger ones would take more time to prepare than to match. `A{1000}` is well within.
SIZE_MAX = 10_000
#: Aggregates over the rows of a match.
FoldName = Literal["count", "sum", "avg", "min", "max", "stddev", "first", "last", "array_agg"]
#: Which rows of a match come out.
RowsShown = Literal["one", "all", "all_show_empty", "all_omit_empty", "all_with_unmatched"]


@dataclass(frozen=True)
class Variable:
    """One row for which the variable's condition holds. A variable without a condition fits every row."""

    name: str


@dataclass(frozen=True)
class Sequence:
    """One part right after the other; without parts it fits the empty row of rows."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alternation:
    """The first of the options that fits."""

    options: tuple[Node, ...]


@dataclass(frozen=True)
class Permute:
    """All parts, in any order; of several orders the one that keeps nearest to the order written."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """`least` to `most` times (`None`: without limit)."""

    of: Node
    least: int
    most: int | None
    greedy: bool = True


@dataclass(frozen=True)
class Exclusion:
    """Rows that are matched, and left out of ALL ROWS PER MATCH: `{- … -}`."""

    of: Node


@dataclass(frozen=True)
class Anchor:
    """The first row of a key, or behind its last: `^` and `$`."""

    where: Literal["start", "end"]


@dataclass(frozen=True)
class Skip:
    """Any number of rows that belong to no variable, up to the part that follows: relaxed contiguity.

    `unless` are the variables that may not be skipped: for `followed_by(B)` it is B, so that the first B is taken;
    for `followed_by_any(B)` it is nothing, and every B is tried; `not_followed_by(X)` adds X.
    The fewer rows are skipped the better.
    """

    unless: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotNext:
    """The row that comes next does not fit any of these variables; it is looked at, and not taken.

    Where no row comes while the match may last, it holds.
    """

    variables: tuple[str, ...]


@dataclass(frozen=True)
class Nothing:
    """Until the time of the whole match is over, no row fits any of these variables: the end of a pattern.

    It is decided by the watermark, without a row that comes after. It needs `within`.
    """

    variables: tuple[str, ...]


Node = Variable | Sequence | Alternation | Permute | Repeat | Exclusion | Anchor | Skip | NotNext | Nothing


@dataclass(frozen=True)
class AfterMatch:
    """Where the search goes on: behind the last row, at the row after the first, or at a row of a variable.

    `"none"` begins a match at each row, whatever matches there are already (Flink's NO_SKIP, which also keeps several
    matches that begin at one row; so do `to_next` of Flink's engine and its two discarding strategies by `flink=True`).
    """

    where: GoesOn = "past_last"
    variable: str | None = None


def parts(node: Node) -> tuple[Node, ...]:
    """The patterns inside a pattern."""
    match node:
        case Sequence() | Permute():
            return node.parts
        case Alternation():
            return node.options
        case Repeat() | Exclusion():
            return (node.of,)
        case _:
            return ()


def mapped(node: Node) -> tuple[str, ...]:
    """The variables that rows can be mapped to, in the order in which they are first written."""
    own = (node.name,) if isinstance(node, Variable) else ()
    return tuple(dict.fromkeys([*own, *(name for part in parts(node) for name in mapped(part))]))


def named(node: Node) -> tuple[str, ...]:
    """All variables, also those that are only looked for: by `Skip`, `NotNext` and `Nothing`."""
    own: tuple[str, ...] = ()
    match node:
        case Variable():
            own = (node.name,)
        case Skip():
            own = node.unless
        case NotNext() | Nothing():
            own = node.variables
    return tuple(dict.fromkeys([*own, *(name for part in parts(node) for name in named(part))]))


def can_be_empty(node: Node) -> bool:
    """Whether it can fit without taking a row."""
    match node:
        case Variable():
            return False
        case Sequence() | Permute():
            return all(can_be_empty(part) for part in node.parts)
        case Alternation():
            return any(can_be_empty(option) for option in node.options)
        case Repeat():
            return node.least == 0 or can_be_empty(node.of)
        case Exclusion():
            return can_be_empty(node.of)
        case _:
            return True


def firsts(node: Node) -> tuple[str, ...]:
    """The variables that the first row taken can be mapped to."""
    if isinstance(node, Variable):
        return (node.name,)
    if isinstance(node, Repeat) and node.most == 0:
        return ()
    found: list[str] = []
    for part in parts(node):
        found += firsts(part)
        if isinstance(node, Sequence) and not can_be_empty(part):
            break
    return tuple(dict.fromkeys(found))


def rows_most(node: Node, variables: tuple[str, ...]) -> float:
    """How many rows can be mapped to these variables in one match."""
    inside = [rows_most(part, variables) for part in parts(node)]
    match node:
        case Variable():
            return float(node.name in variables)
        case Alternation():
            return max(inside)
        case Repeat():
            return 0.0 if inside[0] == 0 else inside[0] * (float("inf") if node.most is None else node.most)
        case _:
            return sum(inside)


def skips_to_start(node: Node, where: str, variables: tuple[str, ...]) -> bool:
    """Whether SKIP TO these variables must always come back to the first row of the match."""
    begins = set(firsts(node)) <= set(variables)
    return begins and (where == "to_first" or (where == "to_last" and rows_most(node, variables) <= 1))


def holds(node: Node, kind: type[Node]) -> bool:
    """Whether a part of this kind is anywhere in it."""
    return isinstance(node, kind) or any(holds(part, kind) for part in parts(node))


def size(node: Node) -> int:
    """The number of parts, with everything written out: A{2,4} has four, PERMUTE(A, B, C) eighteen."""
    match node:
        case Sequence():
            return sum(size(part) for part in node.parts)
        case Alternation():
            return sum(size(option) for option in node.options)
        case Permute():
            return math.factorial(len(node.parts)) * sum(size(part) for part in node.parts)
        case Repeat():
            return size(node.of) * max(node.least + 1 if node.most is None else node.most, 1)
        case Exclusion():
            return size(node.of)
        case _:
            return 1


@dataclass(frozen=True)
class Constant:
    """A constant. Times and intervals are whole numbers of microseconds, with their Arrow type."""

    value: object
    kind: pa.DataType


@dataclass(frozen=True)
class Reference:
    """A column of one row of the match so far.

    `variable` None: of all rows. `end` and `offset` choose among the rows mapped to the variable: FIRST(A.x, 1) is the
    second, LAST(A.x, 1) the last but one; plain A.x is LAST(A.x, 0). `shift` then moves by physical rows of the key:
    PREV(x, 2) is -2, NEXT(x) is +1. `here`: the row at hand itself, whatever it will be mapped to.
    `running` or `final` matter for ALL ROWS PER MATCH; in DEFINE everything is running.
    """

    column: str
    variable: str | None = None
    end: Literal["first", "last"] = "last"
    offset: int = 0
    shift: int = 0
    here: bool = False
    final: bool = False


@dataclass(frozen=True)
class Fold:
    """An aggregate over the rows mapped to a variable (None: to any), the row at hand included where it is mapped so."""

    name: FoldName
    of: Expression | None
    variable: str | None = None
    distinct: bool = False
    final: bool = False


@dataclass(frozen=True)
class Call:
    """An operator or function: + - * / % = <> < <= > >= and or not is_null in like case abs coalesce … in lower case."""

    name: str
    of: tuple[Expression, ...]
    kind: pa.DataType | None = None


@dataclass(frozen=True)
class Classifier:
    """The variable that the row is mapped to (of a variable: its last row)."""

    variable: str | None = None
    final: bool = False


@dataclass(frozen=True)
class MatchNumber:
    """The number of the match within its key, from 1."""


@dataclass(frozen=True)
class MatchRowtime:
    """The event time of the last row of the match. When the event time is known, it becomes a reference to its column."""


Expression = Constant | Reference | Fold | Call | Classifier | MatchNumber | MatchRowtime


@dataclass(frozen=True)
class Condition:
    """What a variable demands. `sql` is the text as written, for people, for Spark where `simple`, and for errors."""

    sql: str
    tree: Expression
    #: Whether it refers to the row at hand alone.
    simple: bool


@dataclass(frozen=True)
class Measure:
    name: str
    sql: str
    tree: Expression


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One pattern with all that belongs to it: what both languages are turned into, and what the engine runs."""

    pattern: Node
    define: Mapping[str, Condition] = field(default_factory=dict)
    #: Unions of variables: SUBSET u = (a, b).
    subsets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    measures: tuple[Measure, ...] = ()
    rows: RowsShown = "one"
    after: AfterMatch = field(default_factory=AfterMatch)
    #: The longest time from the first row to the last; a match that takes longer is none (equal is allowed).
    within_us: int | None = None
    #: The longest time between two neighbouring rows of a match.
    between_us: int | None = None
    by: tuple[str, ...] = ()
    order_by: str | None = None
    #: The columns that order rows of one moment; without any, they stand in the order of their topic.
    then_by: tuple[str, ...] = ()
    #: Every match that begins at a row, and not only the preferred one: Flink's engine with `followed_by_any`.
    every: bool = False


def inner(tree: Expression) -> tuple[Expression, ...]:
    """The parts of a tree."""
    match tree:
        case Call():
            return tree.of
        case Fold():
            return () if tree.of is None else (tree.of,)
        case _:
            return ()


def classifiers(tree: Expression) -> list[Classifier]:
    """All its CLASSIFIER()."""
    own = [tree] if isinstance(tree, Classifier) else []
    return [*own, *(found for part in inner(tree) for found in classifiers(part))]


def map_leaves(tree: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The tree with other leaves. Folds are leaves."""
    if isinstance(tree, Call):
        return replace(tree, of=tuple(map_leaves(one, change) for one in tree.of))
    return change(tree)


def rowtime(column: str) -> Reference:
    """What MATCH_ROWTIME() stands for."""
    return Reference(column, final=True)


def shifted(tree: Expression, by: int) -> Expression:
    """The same of the row that lies `by` rows behind."""
    return map_leaves(tree, lambda leaf: replace(leaf, shift=by) if isinstance(leaf, Reference) else leaf)


def unqualified(tree: Expression) -> Expression:
    """What an aggregate computes from one row: its variable is said once, by the aggregate."""
    return map_leaves(
        tree, lambda leaf: replace(leaf, variable=None) if isinstance(leaf, (Reference, Classifier)) else leaf
    )


def is_simple(tree: Expression) -> bool:
    """Whether it refers to the row at hand alone, so that it can be known before any row is mapped."""
    return all(
        isinstance(leaf, Constant) or (isinstance(leaf, Reference) and leaf.here and leaf.shift == 0)
        for leaf in leaves(tree)
    )


def is_place_alone(leaf: Expression) -> bool:
    """Whether a leaf depends on where a row stands, and not on how the search came there."""
    return isinstance(leaf, (Constant, MatchNumber)) or (isinstance(leaf, Reference) and leaf.here)


def leaves(tree: Expression) -> Iterator[Expression]:
    """What a tree is made of, below its functions. Folds are leaves."""
    if isinstance(tree, Call):
        for one in tree.of:
            yield from leaves(one)
    else:
        yield tree


def calls_in(tree: Expression) -> Iterator[Call]:
    if isinstance(tree, Call):
        yield tree
        for one in tree.of:
            yield from calls_in(one)


def references_in(tree: Expression) -> Iterator[Reference]:
    """All references, also inside of folds."""
    for leaf in leaves(tree):
        if isinstance(leaf, Reference):
            yield leaf
        elif isinstance(leaf, Fold) and leaf.of is not None:
            yield from references_in(leaf.of)
