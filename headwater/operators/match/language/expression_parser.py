"""Parse conditions and measures: sqlglot reads the SQL, and each name is resolved among the rows of a match.

sqlglot turns functions that it knows into nodes of its own. Here each stays a name and its arguments, since FIRST,
LAST, COUNT and the like mean something else among the rows of a match, and since Spark gets all the others back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Literal

import pyarrow as pa

from headwater.operators.errors import PatternInvalid
from headwater.operators.match.language.row_functions import ONE_ROW, misplaced
from headwater.operators.match.language.rule import (
    Call,
    Classifier,
    Constant,
    Expression,
    Fold,
    FoldName,
    MatchNumber,
    MatchRowtime,
    Reference,
    classifiers,
    inner,
    references_in,
    shifted,
    unqualified,
)
from headwater.operators.match.language.source import Source
from headwater.optional import require

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
Invalid = Callable[[str, str], Exception]
UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
#: Put before the name of a function that FINAL stands before. A name cannot hold it otherwise.
FINAL = "FINAL "


@dataclass(frozen=True)
class Scope:
    """What names may be used: the variables of the pattern and unions of them, by their names in lower case."""

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
class _Context:
    """What a name stands inside of: FIRST or LAST, with their offset, or an aggregate."""

    end: Literal["first", "last"] = "last"
    offset: int = 0
    final: bool = False
    navigated: bool = False
    shifted: bool = False
    folded: bool = False


@dataclass
class ExpressionParser:
    """Reads the expressions of one text, and remembers where each part stands in it."""

    source: Source
    places: dict[int, tuple[Expression, int]] = field(default_factory=dict)

    def read(self, start: int, end: int, scope: Scope) -> Expression:
        node = syntax(self.source, start, end)
        return _Resolver(self, scope, start).tree(node, _Context())

    def place(self, tree: Expression) -> int | None:
        """Where this very part stands in the text."""
        found = self.places.get(id(tree))
        return found[1] if found else None


def check_functions(
    parser: ExpressionParser,
    tree: Expression,
    variable: str,
    subsets: Mapping[str, tuple[str, ...]],
    *,
    otherwise: int = 0,
) -> None:
    """Raise where a condition needs a function of several rows that nothing can compute."""
    wrong = misplaced(tree, variable, subsets)
    if wrong is not None:
        at = parser.place(wrong)
        why = f"{wrong.name.upper()} looks at several rows, or at one that may not be there"
        raise parser.source.error(otherwise if at is None else at, why, ONE_ROW)


@dataclass
class _Resolver:
    parser: ExpressionParser
    scope: Scope
    start: int
    depth: int = 0

    # Any: sqlglot's nodes, which are told apart by the names of their classes since sqlglot is loaded late.
    def tree(self, node: Any, within: _Context) -> Expression:
        if self.depth == DEPTH_MAX:
            raise self._error(node, "this is nested too deep", f"at most {DEPTH_MAX} levels")
        self.depth += 1
        made = self._made(node, within)
        self.depth -= 1
        self.parser.places.setdefault(id(made), (made, self._at(node)))
        return made

    def _made(self, node: Any, within: _Context) -> Expression:
        kind = type(node).__name__
        if is_constant(node):
            return constant(node, lambda why, expected: self._error(node, why, expected))
        if kind in BINARY:
            return self._binary(node, BINARY[kind], within)
        known: dict[str, Callable[[Any, _Context], Expression]] = {
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

    def _binary(self, node: Any, name: str, within: _Context) -> Expression:
        parts = [node.expression, node.this]
        # a AND b AND c is one; parentheses are kept as they are written.
        while name in ("and", "or", "concat") and type(parts[-1]) is type(node):
            last = parts.pop()
            parts += [last.expression, last.this]
        return Call(name, tuple(self.tree(part, within) for part in reversed(parts)))

    def _is(self, node: Any, within: _Context) -> Expression:
        value = self.tree(node.this, within)
        if type(node.expression).__name__ == "Null":
            return Call("is_null", (value,))
        return Call("<=>", (value, self.tree(node.expression, within)))

    def _in(self, node: Any, within: _Context) -> Expression:
        if not node.expressions:
            raise self._error(node, "IN has no values", "a list of values, as in x IN (1, 2)")
        return Call("in", tuple(self.tree(one, within) for one in (node.this, *node.expressions)))

    def _between(self, node: Any, within: _Context) -> Expression:
        value = self.tree(node.this, within)
        low, high = self.tree(node.args["low"], within), self.tree(node.args["high"], within)
        return Call("and", (Call(">=", (value, low)), Call("<=", (value, high))))

    def _case(self, node: Any, within: _Context) -> Expression:
        of: list[Expression] = []
        for arm in node.args["ifs"]:
            condition = self.tree(arm.this, within)
            of += [condition if node.this is None else Call("=", (self.tree(node.this, within), condition))]
            of += [self.tree(arm.args["true"], within)]
        default = node.args.get("default")
        return Call("case", (*of, *([self.tree(default, within)] if default is not None else [])))

    def _cast(self, node: Any, within: _Context) -> Expression:
        name = node.args["to"].this.name
        kind = KINDS.get(name)
        if kind is None:
            raise self._error(node, f"CAST to {name} is not known in patterns", f"one of {', '.join(KINDS)}")
        return Call("cast", (self.tree(node.this, within),), kind)

    def _column(self, node: Any, within: _Context) -> Expression:
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
            raise self.parser.source.unknown(self._at(node), "variable", node.name, self.scope.names())
        return found

    def _function(self, node: Any, within: _Context) -> Expression:
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
        if name == "MATCH_ROWTIME":
            self._arguments(node, name, 0, 0)
            if self.scope.own is not None:
                raise self._error(
                    node, "the last row is not known while a row is tried", "MATCH_ROWTIME in MEASURES alone"
                )
            return MatchRowtime()
        if name == "IF":
            name = "CASE"
        return Call(name.lower(), tuple(self.tree(one, within) for one in node.expressions))

    def _classifier(self, node: Any, within: _Context, *, final: bool) -> Expression:
        arguments = self._arguments(node, "CLASSIFIER", 0, 1)
        variable = None
        if arguments:
            if type(arguments[0]).__name__ != "Column" or arguments[0].args.get("table") is not None:
                raise self._error(arguments[0], "CLASSIFIER takes a variable", "a variable or nothing")
            variable = self._variable(arguments[0].this)
        if within.shifted or within.end == "first" or within.offset:
            raise self._error(node, "CLASSIFIER is known of the last row alone", "it outside of FIRST, PREV and NEXT")
        return Classifier(variable, final or within.final)

    def _navigation(self, node: Any, name: str, within: _Context, *, final: bool) -> Expression:
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
        variables = {one.variable if not one.here else self.scope.own for one in references_in(moved)}
        variables |= {one.variable for one in classifiers(moved)}
        if not variables:
            raise self._error(node, f"{name} of no column", "a column, as in LAST(A.price)")
        if len(variables) > 1:
            raise self._error(node, f"{name} of columns of several variables", "columns of one variable")
        return moved

    def _fold(self, node: Any, name: str, within: _Context, *, final: bool) -> Expression:
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
        of = self.tree(argument, replace(_Context(), folded=True))
        variables = {one.variable for one in references_in(of)} | {one.variable for one in classifiers(of)}
        if len(variables) > 1:
            raise self._error(
                argument, f"{name} over several variables", "columns of one variable, or a SUBSET of them"
            )
        row = self._follow(of, unqualified(of))
        return Fold(FOLDS[name], row, variables.pop() if variables else None, distinct, final)

    def _follow(self, old: Expression, new: Expression) -> Expression:
        """What a tree was made into stands where the tree stood, and so do its parts."""
        at = self.parser.place(old)
        self.parser.places.setdefault(id(new), (new, self.start if at is None else at))
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
        return self.parser.source.error(self._at(node), why, expected)


# Any: sqlglot's nodes, told apart by the names of their classes.
def is_constant(node: Any) -> bool:
    kind = type(node).__name__
    if kind in ("Neg", "Cast", "TryCast"):
        return type(node.this).__name__ == "Literal" and (kind == "Neg" or _is_written(node))
    return kind in ("Literal", "Boolean", "Null", "Interval")


def _is_written(node: Any) -> bool:
    """DATE '…' and 5L come as casts of constants; CAST('5' AS INT) is a real one."""
    name = node.args["to"].this.name
    if node.this.is_string:
        return type(node).__name__ == "Cast" and name in ("DATE", "TIMESTAMPTZ", "TIMESTAMP")
    return name in ("BIGINT", "DOUBLE")


def constant(node: Any, invalid: Invalid) -> Constant:
    """What is written, with its type; an error where it cannot be."""
    kind = type(node).__name__
    if kind == "Null":
        return Constant(None, pa.null())
    if kind == "Boolean":
        return Constant(bool(node.this), pa.bool_())
    if kind == "Interval":
        return Constant(_interval(node, invalid), pa.duration("us"))
    if kind == "Neg":
        inner = _literal(node.this)
        return Constant(-inner.value, inner.kind)  # type: ignore[operator]  # a number: the text has no sign
    if kind in ("Cast", "TryCast"):
        return _cast(node, invalid)
    return _literal(node)


def _literal(node: Any) -> Constant:
    if node.is_string:
        return Constant(str(node.this), pa.string())
    text = str(node.this)
    return Constant(int(text), pa.int64()) if text.isdigit() else Constant(float(text), pa.float64())


def _cast(node: Any, invalid: Invalid) -> Constant:
    name, text = node.args["to"].this.name, str(node.this.this)
    if name == "DOUBLE":
        return Constant(float(text), pa.float64())
    if name == "BIGINT":
        return Constant(int(text), pa.int64())
    try:
        if name == "DATE":
            return Constant((date.fromisoformat(text) - date(1970, 1, 1)).days, pa.date32())
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise invalid(f"{text!r} is no moment", "one such as '2026-03-01 12:30:00'") from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return Constant((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds, pa.timestamp("us", "UTC"))


def _interval(node: Any, invalid: Invalid) -> int:
    unit = node.args.get("unit")
    name = str(unit.name).upper().removesuffix("S") if unit is not None and type(unit).__name__ == "Var" else ""
    text = str(node.this.name) if node.this is not None else ""
    try:
        length = Decimal(text) * UNITS[name]
    except (KeyError, InvalidOperation) as error:
        units = ", ".join(UNITS)
        raise invalid("this is no length of time", f"one such as INTERVAL '10' MINUTE, in {units}") from error
    if length != length.to_integral_value():
        raise invalid(f"{text} {name} is no whole number of microseconds", "a length without a smaller part")
    return int(length)


# Any: sqlglot is loaded when first needed, and its parser class is made then.
@cache
def _reader() -> tuple[Any, Any, Any]:
    require("sqlglot", extra="match")
    from sqlglot import errors
    from sqlglot.dialects.spark import Spark

    class Parser(Spark.Parser):  # type: ignore[misc,valid-type]
        FUNCTIONS: dict[str, Any] = {}
        FUNCTION_PARSERS = {
            name: parse for name, parse in Spark.Parser.FUNCTION_PARSERS.items() if name in ("CAST", "EXTRACT")
        }
        NO_PAREN_FUNCTIONS: dict[Any, Any] = {}
        NO_PAREN_FUNCTION_PARSERS = {
            name: parse for name, parse in Spark.Parser.NO_PAREN_FUNCTION_PARSERS.items() if name == "CASE"
        }

    return Spark(), Parser, errors


def syntax(source: Source, start: int, end: int) -> Any:
    """What stands between two places of the text, as sqlglot's tree. Its places are those of the whole text."""
    dialect, parser, errors = _reader()
    # What stands before is blanked, and not cut off, so that lines and places stay.
    text = "".join(one if one == "\n" else " " for one in source.text[:start]) + source.text[start:end]
    if not text.strip():
        raise source.error(start, "there is no expression", "a condition or a value")
    try:
        tokens = _prepared(dialect.tokenize(text))
        found = parser(dialect=dialect).parse(tokens, text)
    except errors.TokenError as error:
        raise source.error(start, "this cannot be read as SQL: a quote is not closed", "the closing quote") from error
    except RecursionError:
        raise source.error(start, "this is nested too deep", "a condition of fewer levels") from None
    except errors.ParseError as error:
        raise _unread(source, error, end=end) from error
    if len(found) != 1 or found[0] is None:
        raise source.error(start, "this is more than one expression", "one condition or value")
    return found[0]


def _prepared(tokens: list[Any]) -> list[Any]:
    """Without RUNNING and FINAL, which are remembered in the function's name; with 'it''s' as one text."""
    out: list[Any] = []
    for place, token in enumerate(tokens):
        word = token.text.upper()
        call = place + 2 < len(tokens) and tokens[place + 2].text == "(" and tokens[place + 1].text.isidentifier()
        if word in ("RUNNING", "FINAL") and call and token.token_type.name == "VAR":
            if word == "FINAL":
                tokens[place + 1] = _renamed(tokens[place + 1], FINAL + tokens[place + 1].text)
            continue
        joined = out and token.token_type.name == "STRING" == out[-1].token_type.name
        if joined and out[-1].end + 1 == token.start:
            out[-1] = _renamed(out[-1], f"{out[-1].text}'{token.text}", end=token.end)
            continue
        out.append(token)
    return out


def _renamed(token: Any, text: str, *, end: int | None = None) -> Any:
    return type(token)(token.token_type, text, token.line, token.col, token.start, token.end if end is None else end)


def _unread(source: Source, error: Any, *, end: int) -> PatternInvalid:
    """sqlglot's error, at its place; it counts columns by the end of the word."""
    fact = error.errors[0]
    begin = 0
    for _ in range(fact["line"] - 1):
        begin = source.text.index("\n", begin) + 1
    stop = min(begin + fact["col"], end)
    why = fact["description"]
    if why.startswith("Expecting"):
        return source.error(stop, "something is missing", f"'{why[10:]}' here")
    if "missing for" in why:
        return source.error(stop, "something is missing", "a value here")
    return source.error(
        stop - len(fact["highlight"]), f"{fact['highlight']!r} does not fit here", "a condition or value"
    )
