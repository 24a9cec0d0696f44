"""From sqlglot's trees to ours: what each name refers to among the rows of a match."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from headwater.errors import PatternInvalid
from headwater.operators.match.expression import (
    Call,
    Classifier,
    Constant,
    Expression,
    Fold,
    FoldName,
    MatchNumber,
    Reference,
)
from headwater.operators.match.sql.constants import constant, is_constant
from headwater.operators.match.sql.dialect import FINAL, syntax
from headwater.operators.match.sql.parts import classifiers, inner, references, shifted, unqualified
from headwater.operators.match.sql.source import Source

#: How many operations may stand inside one another: all that goes through a tree does so by recursion.
DEPTH_MAX = 64
NAVIGATION = ("FIRST", "LAST", "PREV", "NEXT")
#: Aggregates by the names that people use for them.
FOLDS: dict[str, FoldName] = {
    "COUNT": "count",
    "SUM": "sum",
    "AVG": "avg",
    "MEAN": "avg",
    "MIN": "min",
    "MAX": "max",
    "STDDEV": "stddev",
    "STDDEV_SAMP": "stddev",
    "ARRAY_AGG": "array_agg",
    "COLLECT_LIST": "array_agg",
}
BINARY = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "Mod": "%",
    "EQ": "=",
    "NEQ": "<>",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "NullSafeEQ": "<=>",
    "And": "and",
    "Or": "or",
    "Like": "like",
    "ILike": "ilike",
    "RegexpLike": "rlike",
    "IntDiv": "div",
    "DPipe": "concat",
}


@dataclass(frozen=True)
class Scope:
    """What names may be used: the variables of the pattern and unions of them, by their names in small letters."""

    variables: Mapping[str, str]
    subsets: Mapping[str, tuple[str, ...]]
    #: The variable whose condition it is; None in MEASURES.
    own: str | None = None

    def names(self) -> list[str]:
        return [*self.variables.values(), *self.subsets]

    def find(self, name: str) -> str | None:
        unions = {one.lower(): one for one in self.subsets}
        return self.variables.get(name.lower()) or unions.get(name.lower())

    def is_here(self, variable: str | None) -> bool:
        """Whether the row that is tried is the last row of this variable, whatever came before."""
        return self.own is not None and (
            variable is None or variable == self.own or self.own in self.subsets.get(variable, ())
        )


@dataclass(frozen=True)
class _Within:
    """What a name stands inside of: FIRST or LAST, with their offset, or an aggregate."""

    end: Literal["first", "last"] = "last"
    offset: int = 0
    final: bool = False
    navigated: bool = False
    shifted: bool = False
    folded: bool = False


@dataclass
class Reader:
    """Reads the expressions of one text, and remembers where each part stands in it."""

    source: Source
    places: dict[int, tuple[Expression, int]] = field(default_factory=dict)

    def read(self, start: int, end: int, scope: Scope) -> Expression:
        node = syntax(self.source, start, end)
        return _Reading(self, scope, start).tree(node, _Within())

    def place(self, tree: Expression) -> int | None:
        """Where this very part stands in the text."""
        found = self.places.get(id(tree))
        return found[1] if found else None


@dataclass
class _Reading:
    reader: Reader
    scope: Scope
    start: int
    depth: int = 0

    # Any: sqlglot's nodes, which are told apart by the names of their classes since sqlglot is loaded late.
    def tree(self, node: Any, within: _Within) -> Expression:
        if self.depth == DEPTH_MAX:
            raise self._error(node, "this is nested too deep", f"at most {DEPTH_MAX} levels")
        self.depth += 1
        made = self._made(node, within)
        self.depth -= 1
        self.reader.places.setdefault(id(made), (made, self._at(node)))
        return made

    def _made(self, node: Any, within: _Within) -> Expression:
        kind = type(node).__name__
        if is_constant(node):
            return constant(node, lambda why, expected: self._error(node, why, expected))
        if kind in BINARY:
            return self._binary(node, BINARY[kind], within)
        known: dict[str, Callable[[Any, _Within], Expression]] = {
            "Column": self._column,
            "Anonymous": self._function,
            "Paren": lambda one, at: self.tree(one.this, at),
            "Not": lambda one, at: Call("not", (self.tree(one.this, at),)),
            "Neg": lambda one, at: Call("negative", (self.tree(one.this, at),)),
            "Is": self._is,
            "In": self._in,
            "Between": self._between,
            "Case": self._case,
            "Cast": self._cast,
            "TryCast": self._cast,
            "Extract": lambda one, at: Call(
                "date_part", (Constant(one.this.name.lower(), pa.string()), self.tree(one.expression, at))
            ),
            "NullSafeNEQ": lambda one, at: Call(
                "not", (Call("<=>", (self.tree(one.this, at), self.tree(one.expression, at))),)
            ),
        }
        if kind not in known:
            raise self._error(node, f"{kind} is not known in patterns", EXPECTED.get(kind, "a simpler expression"))
        return known[kind](node, within)

    def _binary(self, node: Any, name: str, within: _Within) -> Expression:
        parts = [node.expression, node.this]
        # a AND b AND c is one; parentheses are kept as they are written.
        while name in ("and", "or", "concat") and type(parts[-1]) is type(node):
            last = parts.pop()
            parts += [last.expression, last.this]
        return Call(name, tuple(self.tree(part, within) for part in reversed(parts)))

    def _is(self, node: Any, within: _Within) -> Expression:
        value = self.tree(node.this, within)
        if type(node.expression).__name__ == "Null":
            return Call("is_null", (value,))
        return Call("<=>", (value, self.tree(node.expression, within)))

    def _in(self, node: Any, within: _Within) -> Expression:
        if not node.expressions:
            raise self._error(node, "IN has no values", "a list of values, as in x IN (1, 2)")
        return Call("in", tuple(self.tree(one, within) for one in (node.this, *node.expressions)))

    def _between(self, node: Any, within: _Within) -> Expression:
        value = self.tree(node.this, within)
        low, high = self.tree(node.args["low"], within), self.tree(node.args["high"], within)
        return Call("and", (Call(">=", (value, low)), Call("<=", (value, high))))

    def _case(self, node: Any, within: _Within) -> Expression:
        of: list[Expression] = []
        for arm in node.args["ifs"]:
            condition = self.tree(arm.this, within)
            of += [condition if node.this is None else Call("=", (self.tree(node.this, within), condition))]
            of += [self.tree(arm.args["true"], within)]
        default = node.args.get("default")
        return Call("case", (*of, *([self.tree(default, within)] if default is not None else [])))

    def _cast(self, node: Any, within: _Within) -> Expression:
        name = node.args["to"].this.name
        kind = KINDS.get(name)
        if kind is None:
            raise self._error(node, f"CAST to {name} is not known in patterns", f"one of {', '.join(KINDS)}")
        return Call("cast", (self.tree(node.this, within),), kind)

    def _column(self, node: Any, within: _Within) -> Expression:
        if type(node.this).__name__ == "Star":
            raise self._error(node, "'*' stands for rows", "it inside COUNT alone, as in COUNT(A.*)")
        if node.args.get("db") is not None:
            raise self._error(node, "this names a part of a column", "a column of its own for it, made before")
        variable = self._variable(node.args["table"]) if node.args.get("table") is not None else None
        name = node.this.name
        if within.folded:
            return Reference(name, variable, here=True)
        if self.scope.is_here(variable) and within.end == "last" and within.offset == 0:
            return Reference(name, here=True)
        return Reference(name, variable, within.end, within.offset, final=within.final)

    def _variable(self, node: Any) -> str:
        found = self.scope.find(node.name)
        if found is None:
            raise self.reader.source.unknown(self._at(node), "variable", node.name, self.scope.names())
        return found

    def _function(self, node: Any, within: _Within) -> Expression:
        written = str(node.this)
        final, name = written.startswith(FINAL), written.removeprefix(FINAL).upper()
        if final and self.scope.own is not None:
            raise self._error(node, "FINAL cannot be known while a row is tried", "it in MEASURES alone")
        if name in NAVIGATION:
            return self._navigation(node, name, within, final=final)
        if name in FOLDS:
            return self._fold(node, name, within, final=final)
        if name == "CLASSIFIER":
            return self._classifier(node, within, final=final)
        if final:
            raise self._error(node, f"FINAL means nothing for {name}", "it before FIRST, LAST or an aggregate")
        if name == "MATCH_NUMBER":
            self._arguments(node, name, 0, 0)
            return MatchNumber()
        if name == "IF":
            name = "CASE"
        return Call(name.lower(), tuple(self.tree(one, within) for one in node.expressions))

    def _classifier(self, node: Any, within: _Within, *, final: bool) -> Expression:
        arguments = self._arguments(node, "CLASSIFIER", 0, 1)
        variable = None
        if arguments:
            if type(arguments[0]).__name__ != "Column" or arguments[0].args.get("table") is not None:
                raise self._error(arguments[0], "CLASSIFIER takes a variable", "a variable or nothing")
            variable = self._variable(arguments[0].this)
        if within.shifted or within.end == "first" or within.offset:
            raise self._error(node, "CLASSIFIER is known of the last row alone", "it outside of FIRST, PREV and NEXT")
        return Classifier(variable, final or within.final)

    def _navigation(self, node: Any, name: str, within: _Within, *, final: bool) -> Expression:
        arguments = self._arguments(node, name, 1, 2)
        moves = name in ("PREV", "NEXT")
        if within.folded:
            raise self._error(node, f"{name} inside an aggregate", "the columns of the row alone")
        if (within.shifted and moves) or within.navigated:
            raise self._error(
                node, f"{name} cannot stand inside another of its kind", "FIRST or LAST inside PREV or NEXT"
            )
        if moves and final:
            raise self._error(node, f"FINAL means nothing for {name}", "it before FIRST, LAST or an aggregate")
        count = self._count(arguments[1], name) if len(arguments) > 1 else int(moves)
        if moves:
            still = self.tree(arguments[0], replace(within, shifted=True))
            moved = self._follow(still, shifted(still, -count if name == "PREV" else count))
        else:
            end: Literal["first", "last"] = "first" if name == "FIRST" else "last"
            moved = self.tree(arguments[0], replace(within, end=end, offset=count, final=final, navigated=True))
        variables = {one.variable if not one.here else self.scope.own for one in references(moved)}
        variables |= {one.variable for one in classifiers(moved)}
        if not variables:
            raise self._error(node, f"{name} of no column", "a column, as in LAST(A.price)")
        if len(variables) > 1:
            raise self._error(node, f"{name} of columns of several variables", "columns of one variable")
        return moved

    def _fold(self, node: Any, name: str, within: _Within, *, final: bool) -> Expression:
        if within.folded or within.navigated or within.shifted:
            raise self._error(node, f"{name} inside another function of rows", "the columns of the row alone")
        if name == "COUNT" and not node.expressions:
            return Fold("count", None, final=final)
        (argument,) = self._arguments(node, name, 1, 1)
        distinct = type(argument).__name__ == "Distinct"
        argument = argument.expressions[0] if distinct else argument
        star = argument.this if type(argument).__name__ == "Column" else argument
        if type(star).__name__ == "Star":
            if name != "COUNT" or distinct:
                raise self._error(node, f"{name} of '*'", "a column, or COUNT(*)")
            table = argument.args.get("table")
            return Fold("count", None, self._variable(table) if table is not None else None, final=final)
        of = self.tree(argument, replace(_Within(), folded=True))
        variables = {one.variable for one in references(of)} | {one.variable for one in classifiers(of)}
        if len(variables) > 1:
            raise self._error(
                argument, f"{name} over several variables", "columns of one variable, or a SUBSET of them"
            )
        row = self._follow(of, unqualified(of))
        return Fold(FOLDS[name], row, variables.pop() if variables else None, distinct, final)

    def _follow(self, old: Expression, new: Expression) -> Expression:
        """What a tree was made into stands where the tree stood, and so do its parts."""
        at = self.reader.place(old)
        self.reader.places.setdefault(id(new), (new, self.start if at is None else at))
        for one, other in zip(inner(old), inner(new), strict=True):
            self._follow(one, other)
        return new

    def _arguments(self, node: Any, name: str, least: int, most: int) -> list[Any]:
        given = list(node.expressions)
        if not least <= len(given) <= most:
            wanted = str(least) if least == most else f"{least} or {most}"
            raise self._error(node, f"{name} has {len(given)} arguments", f"{wanted}")
        return given

    def _count(self, node: Any, name: str) -> int:
        value = constant(node, lambda why, expected: self._error(node, why, expected)) if is_constant(node) else None
        if value is None or not isinstance(value.value, int) or value.value < 0 or isinstance(value.value, bool):
            raise self._error(node, f"{name} moves by a fixed number of rows", "a whole number from 0 as the second")
        return value.value

    def _at(self, node: Any) -> int:
        """Where a node begins: sqlglot notes it for names, so of others it is that of the first name inside."""
        starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
        return min(starts) if starts else self.start

    def _error(self, node: Any, why: str, expected: str) -> PatternInvalid:
        return self.reader.source.error(self._at(node), why, expected)


EXPECTED = {
    "Window": "an aggregate without OVER: it goes over the rows of the match",
    "Filter": "an aggregate of a variable, or of CASE WHEN … END, without FILTER",
    "IgnoreNulls": "the function without IGNORE NULLS",
    "Subquery": "a join before the pattern",
    "Alias": "one expression: an operator or a comma is missing",
    "Bracket": "element_at(…) before the pattern",
    "Star": "it inside COUNT alone",
}
KINDS = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
