"""A pattern as a tree: what SQL's PATTERN says and what the builder builds, before it becomes an automaton.

Rows of a key are looked at in the order of event time. A pattern maps neighbouring rows to variables; which mapping is
preferred where several fit follows from the tree: alternatives from left to right, a greedy repetition the longer
first, a reluctant one the shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Where the search goes on after a match.
GoesOn = Literal["past_last", "to_next", "to_first", "to_last", "none"]


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
