"""Conditions and measures as SQL again: what people read, and what Spark computes where they speak of one row alone."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa

from headwater.operators.match.expression import (
    Call,
    Classifier,
    Constant,
    Expression,
    Fold,
    MatchNumber,
    Reference,
)

_INFIX = "+ - * / % = <> < <= > >= <=> and or like ilike rlike div in is_null"
INFIX = tuple(_INFIX.split())

#: Names that SQL would take for something else.
_RESERVED = """
    all and any array as asc between both by case cast classifier create cross current_date current_time
    current_timestamp current_user date default desc distinct else end except exists extract false fetch final
    first following for from full group having ilike in inner intersect interval into is join last lateral left
    like limit map match_number minus natural next not null offset on or order outer over overlaps partition
    preceding prev primary range right rlike row rows running select session_user set show similar some struct
    table then time timestamp to trailing true union unique unknown update user using values when where window
    with within
"""
RESERVED = frozenset(_RESERVED.split())


def text_of(tree: Expression) -> str:
    """The tree as SQL that is read as the same tree."""
    match tree:
        case Constant():
            return _constant(tree)
        case Reference():
            return _reference(tree)
        case Fold():
            return _fold(tree)
        case Classifier():
            return f"{_final(tree.final)}CLASSIFIER({identifier(tree.variable) if tree.variable else ''})"
        case MatchNumber():
            return "MATCH_NUMBER()"
        case Call():
            return _call(tree)


def identifier(name: str) -> str:
    """A name, quoted where it must be."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) is not None and name.lower() not in RESERVED
    return name if plain else "`" + name.replace("`", "``") + "`"


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def interval(microseconds: int) -> str:
    """A length of time in the unit that fits it best."""
    for name, size in (("DAY", 86_400), ("HOUR", 3_600), ("MINUTE", 60), ("SECOND", 1)):
        if microseconds and microseconds % (size * 1_000_000) == 0:
            return f"INTERVAL '{microseconds // (size * 1_000_000)}' {name}"
    return f"INTERVAL '{Decimal(microseconds) / 1_000_000:f}' SECOND"


def _constant(tree: Constant) -> str:
    value, kind = tree.value, tree.kind
    if value is None:
        return "NULL"
    if pa.types.is_duration(kind):
        assert isinstance(value, int)
        return interval(value)
    if pa.types.is_timestamp(kind):
        moment = pa.scalar(value, pa.timestamp("us")).cast(pa.string()).as_py()
        return f"TIMESTAMP '{moment}'"
    if pa.types.is_date(kind):
        return f"DATE '{pa.scalar(value, pa.int32()).cast(pa.date32()).as_py().isoformat()}'"
    if isinstance(value, bool):
        return str(value).upper()
    return quoted(value) if isinstance(value, str) else repr(value)


def _reference(tree: Reference) -> str:
    column = identifier(tree.column)
    text = column if tree.variable is None or tree.here else f"{identifier(tree.variable)}.{column}"
    if not tree.here and (tree.end == "first" or tree.offset or tree.final):
        more = f", {tree.offset}" if tree.offset else ""
        text = f"{_final(tree.final)}{tree.end.upper()}({text}{more})"
    if tree.shift:
        more = f", {abs(tree.shift)}" if abs(tree.shift) > 1 else ""
        text = f"{'PREV' if tree.shift < 0 else 'NEXT'}({text}{more})"
    return text


def _fold(tree: Fold) -> str:
    prefix = f"{identifier(tree.variable)}." if tree.variable else ""
    if tree.of is None:
        return f"{_final(tree.final)}COUNT({prefix}*)"
    inner = _qualified(tree.of, tree.variable)
    return f"{_final(tree.final)}{tree.name.upper()}({'DISTINCT ' if tree.distinct else ''}{text_of(inner)})"


def _qualified(tree: Expression, variable: str | None) -> Expression:
    """What an aggregate computes per row, with its variable written before each column."""
    match tree:
        case Reference():
            return Reference(tree.column, variable)
        case Classifier():
            return Classifier(variable)
        case Call():
            return Call(tree.name, tuple(_qualified(one, variable) for one in tree.of), tree.kind)
        case _:
            return tree


def _final(final: bool) -> str:
    return "FINAL " if final else ""


def _call(tree: Call) -> str:
    name, of = tree.name, tree.of
    if name == "not":
        return f"NOT ({text_of(of[0])})"
    if name == "negative":
        return f"-({text_of(of[0])})"
    if name == "case":
        return _case(of)
    if name == "cast":
        return f"CAST({text_of(of[0])} AS {TYPES[str(tree.kind)]})"
    if name == "is_null":
        return f"{_inner(of[0])} IS NULL"
    if name == "in":
        return f"{_inner(of[0])} IN ({', '.join(text_of(one) for one in of[1:])})"
    if name in INFIX:
        return f" {name.upper()} ".join(_inner(one) for one in of)
    return f"{name.upper()}({', '.join(text_of(one) for one in of)})"


def _inner(tree: Expression) -> str:
    """An operand: in parentheses where it is an operation itself, so that no rule of precedence is needed."""
    operation = isinstance(tree, Call) and (tree.name in INFIX or tree.name in ("not", "negative", "case"))
    return f"({text_of(tree)})" if operation else text_of(tree)


def _case(of: tuple[Expression, ...]) -> str:
    pairs = zip(of[0::2], of[1::2], strict=False)
    arms = "".join(f" WHEN {text_of(condition)} THEN {text_of(result)}" for condition, result in pairs)
    return f"CASE{arms}{f' ELSE {text_of(of[-1])}' if len(of) % 2 else ''} END"


#: Arrow's types by the names that CAST knows.
TYPES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "date32[day]": "DATE",
    "timestamp[us, tz=UTC]": "TIMESTAMP",
}
