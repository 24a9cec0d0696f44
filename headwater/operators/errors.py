"""Ways in which an operator fails."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import NotPossible, QueryError, UsageError


@dataclass(eq=False, kw_only=True)
class PatternInvalid(UsageError):
    """The text of a pattern cannot be understood, or asks for what cannot be. It says where."""

    line: int
    column: int
    #: The line of the text, and below it a caret under the place.
    place: str
    why: str
    expected: str
    #: "Did you mean fall?", where a name is unknown and another is near.
    meant: str = ""
    problem = "The pattern is wrong in line {line}, column {column}: {why}. {meant}\n{place}"
    remedy = "Give {expected}."

    def __str__(self) -> str:
        text = f"{self.filled(self.problem)}\n{self.filled(self.remedy)}"
        return "\n".join(line.rstrip() for line in text.split("\n"))


@dataclass(eq=False, kw_only=True)
class SketchInvalid(UsageError):
    """A column that should hold sketches holds something else, or sketches that cannot be merged."""

    expected: str
    why: str
    problem = "The column has bytes that are no {expected!r} sketch: {why}."
    remedy = "Give a column that `agg.sketch.{expected}` made, or that Apache DataSketches serialised."


@dataclass(eq=False, kw_only=True)
class QueryInvalid(UsageError):
    """A stored query of `Percolate` cannot be understood, or asks for what the documents do not have."""

    query: str
    position: str
    why: str
    problem = "The query {query!r} cannot be used, at {position}: {why}."
    remedy = "Correct it there; `docs/reference/operators/percolate-queries.md` shows what may be written."


@dataclass(eq=False, kw_only=True)
class SkipImpossible(QueryError):
    """After a match the search was to go on at a variable where it cannot."""

    variable: str
    why: str
    problem = "AFTER MATCH SKIP TO {variable} is impossible: {why}."
    remedy = "Skip past the last row or to the next row, or to a variable that every match has behind its first row."


def unbounded(operator: str, *, bounds: str) -> NotPossible:
    """The error for a join of streams that would have to keep every row."""
    why = f"The join {operator!r} has no bound: it would keep every row of both inputs for ever"
    return NotPossible(why=why, instead=f"Give {bounds}")
