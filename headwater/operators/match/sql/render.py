"""A rule as the text that is read as the same rule."""

from __future__ import annotations

from headwater.operators.match.expression import Rule
from headwater.operators.match.pattern import (
    Alternation,
    Anchor,
    Exclusion,
    Node,
    Nothing,
    NotNext,
    Permute,
    Repeat,
    Sequence,
    Skip,
    Variable,
)
from headwater.operators.match.sql.values_text import identifier, interval

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


def render(rule: Rule) -> str:
    """The clauses of the rule, one per line.

    >>> from headwater.operators.match.sql import parse
    >>> print(render(parse("pattern (a b+?) define a as amount < 5")))
    ONE ROW PER MATCH
    AFTER MATCH SKIP PAST LAST ROW
    PATTERN (a b+?)
    DEFINE a AS amount < 5
    """
    after = f"AFTER MATCH {_AFTER[rule.after.where]}"
    lines = [
        _listed("PARTITION BY", [identifier(name) for name in rule.by]),
        f"ORDER BY {identifier(rule.on)}" if rule.on is not None else "",
        _listed("MEASURES", [f"{one.sql} AS {identifier(one.name)}" for one in rule.measures]),
        _ROWS[rule.rows],
        f"{after} {identifier(rule.after.variable)}" if rule.after.variable else after,
        "EVERY MATCH" if rule.every else "",
        f"PATTERN ({_alternatives(rule.pattern)})",
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
            return " ".join(_part(part) for part in node.parts) if node.parts else "()"
        case Alternation():
            return " | ".join(_option(option) for option in node.options)
        case Permute():
            return f"PERMUTE({', '.join(pattern_text(part) for part in node.parts)})"
        case Repeat():
            grouped = isinstance(node.of, Repeat) or _is_many(node.of)
            return (f"({pattern_text(node.of)})" if grouped else pattern_text(node.of)) + _quantifier(node)
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


def _alternatives(node: Node) -> str:
    return "" if node == Sequence(()) else pattern_text(node)


def _is_many(node: Node) -> bool:
    """Whether it needs parentheses beside others; the empty pattern brings its own."""
    return isinstance(node, Alternation) or (isinstance(node, Sequence) and bool(node.parts))


def _part(node: Node) -> str:
    return f"({pattern_text(node)})" if _is_many(node) else pattern_text(node)


def _option(node: Node) -> str:
    return f"({pattern_text(node)})" if isinstance(node, Alternation) else pattern_text(node)


def _quantifier(node: Repeat) -> str:
    usual = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    text = usual.get((node.least, node.most))
    if text is None:
        text = f"{{{node.least}}}" if node.least == node.most else f"{{{node.least},{_limit(node.most)}}}"
    return text if node.greedy else f"{text}?"


def _limit(most: int | None) -> str:
    return "" if most is None else str(most)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(identifier(name) for name in names)


def _listed(head: str, items: list[str]) -> str:
    return f"{head} {', '.join(items)}" if items else ""
