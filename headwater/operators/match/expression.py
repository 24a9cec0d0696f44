"""Conditions and measures as typed trees: what they refer to among the rows of a match.

A condition that refers to nothing but the row at hand is left to Spark, or where rules change, computed over whole
columns. All others are computed while the automaton runs, by the programs that are made from these trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from headwater.operators.match.pattern import AfterMatch, Node

#: Aggregates over the rows of a match.
FoldName = Literal["count", "sum", "avg", "min", "max", "stddev", "first", "last", "array_agg"]
#: Which rows of a match come out.
RowsShown = Literal["one", "all", "all_show_empty", "all_omit_empty", "all_with_unmatched"]


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


Expression = Constant | Reference | Fold | Call | Classifier | MatchNumber


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
    on: str | None = None
    #: Every match that begins at a row, and not only the preferred one: Flink's engine with `followed_by_any`.
    every: bool = False
