"""Render a rule as the SQL text that is parsed into the same rule."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa

from headwater.operators.match.language.rule import (
    Alternation,
    Anchor,
    Call,
    Classifier,
    Constant,
    Exclusion,
    Expression,
    Fold,
    MatchNumber,
    MatchRowtime,
    Node,
    Nothing,
    NotNext,
    Permute,
    Reference,
    Repeat,
    Rule,
    Sequence,
    Skip,
    Variable,
    map_leaves,
)

_ROWS = {
    "one": "ONE ROW PER MATCH",
    "all": "ALL ROWS PER MATCH",
    "all_show_empty": "ALL ROWS PER MATCH SHOW EMPTY MATCHES",
    "all_omit_empty": "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
    "all_with_unmatched": "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
}
_AFTER = {
    "past_last": "SKIP PAST LAST ROW",
    "to_next": "SKIP TO NEXT ROW",
    "to_first": "SKIP TO FIRST",
    "to_last": "SKIP TO LAST",
    "none": "NO SKIP",
}
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


def render(rule: Rule) -> str:
    """The clauses of the rule, one per line.

    >>> from headwater.operators.match.language import parse
    >>> print(render(parse("pattern (a b+?) define a as amount < 5")))
    ONE ROW PER MATCH
    AFTER MATCH SKIP PAST LAST ROW
    PATTERN (a b+?)
    DEFINE a AS amount < 5
    """
    after = f"AFTER MATCH {_AFTER[rule.after.where]}"
    lines = [
        _listed("PARTITION BY", [identifier(name) for name in rule.by]),
        _listed("ORDER BY", [identifier(name) for name in (rule.order_by, *rule.then_by) if name is not None]),
        _listed("MEASURES", [f"{one.sql} AS {identifier(one.name)}" for one in rule.measures]),
        _ROWS[rule.rows],
        f"{after} {identifier(rule.after.variable)}" if rule.after.variable else after,
        "EVERY MATCH" if rule.every else "",
        f"PATTERN ({'' if rule.pattern == Sequence(()) else pattern_text(rule.pattern)})",
        f"WITHIN {interval(rule.within_us)}" if rule.within_us is not None else "",
        f"GAP {interval(rule.between_us)}" if rule.between_us is not None else "",
        _listed("SUBSET", [f"{identifier(name)} = ({_names(of)})" for name, of in rule.subsets.items()]),
        _listed("DEFINE", [f"{identifier(name)} AS {one.sql}" for name, one in rule.define.items()]),
    ]
    return "\n".join(line for line in lines if line)


def pattern_text(node: Node) -> str:
    """A pattern as it stands in PATTERN."""
    match node:
        case Variable():
            return identifier(node.name)
        case Sequence():
            return " ".join(_grouped(part, _is_many(part)) for part in node.parts) if node.parts else "()"
        case Alternation():
            return " | ".join(_grouped(one, isinstance(one, Alternation)) for one in node.options)
        case Permute():
            return f"PERMUTE({', '.join(pattern_text(part) for part in node.parts)})"
        case Repeat():
            return _grouped(node.of, isinstance(node.of, Repeat) or _is_many(node.of)) + _quantifier(node)
        case Exclusion():
            return f"{{- {pattern_text(node.of)} -}}"
        case Anchor():
            return "^" if node.where == "start" else "$"
        case Skip():
            return f"SKIP({_names(node.unless)})"
        case NotNext():
            return f"NOT_NEXT({_names(node.variables)})"
        case Nothing():
            return f"NOTHING({_names(node.variables)})"


def _grouped(node: Node, grouped: bool) -> str:
    return f"({pattern_text(node)})" if grouped else pattern_text(node)


def _is_many(node: Node) -> bool:
    """Whether it needs parentheses beside others; the empty pattern brings its own."""
    return isinstance(node, Alternation) or (isinstance(node, Sequence) and bool(node.parts))


def _quantifier(node: Repeat) -> str:
    usual = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    text = usual.get((node.least, node.most))
    if text is None:
        text = (
            f"{{{node.least}}}"
            if node.least == node.most
            else f"{{{node.least},{'' if node.most is None else node.most}}}"
        )
    return text if node.greedy else f"{text}?"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(identifier(name) for name in names)


def _listed(head: str, items: list[str]) -> str:
    return f"{head} {', '.join(items)}" if items else ""


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
        case MatchRowtime():
            return "MATCH_ROWTIME()"
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

    def qualified(leaf: Expression) -> Expression:
        if isinstance(leaf, Reference):
            return Reference(leaf.column, tree.variable)
        return Classifier(tree.variable) if isinstance(leaf, Classifier) else leaf

    inner = map_leaves(tree.of, qualified)
    return f"{_final(tree.final)}{tree.name.upper()}({'DISTINCT ' if tree.distinct else ''}{text_of(inner)})"


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
