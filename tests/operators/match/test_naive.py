"""The naive matcher itself, beside Python's regular expressions: rows as characters, and the same preferences."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from headwater.operators.match.language import parse, pattern_text, render
from headwater.operators.match.language.builder import begin
from headwater.operators.match.language.rule import (
    Alternation,
    Anchor,
    Exclusion,
    Node,
    Permute,
    Repeat,
    Sequence,
    Variable,
    can_be_empty,
    mapped,
    parts,
)
from tests.operators.match.naive import search
from tests.operators.match.strategies import patterns
from tests.operators.match.test_builder import rows_of


def expression(node: Node) -> str:
    """The pattern as a regular expression over characters."""
    match node:
        case Variable():
            return node.name.lower()
        case Sequence():
            return "".join(f"(?:{expression(part)})" for part in node.parts)
        case Alternation():
            return "|".join(f"(?:{expression(option)})" for option in node.options)
        case Permute():
            return "|".join(f"(?:{order})" for order in _orders([expression(part) for part in node.parts]))
        case Repeat():
            most = "" if node.most is None else node.most
            return f"(?:{expression(node.of)}){{{node.least},{most}}}{'' if node.greedy else '?'}"
        case Exclusion():
            return expression(node.of)
        case Anchor():
            return r"\A" if node.where == "start" else r"\Z"
        case _:
            raise AssertionError(node)


def _orders(parts: list[str]) -> list[str]:
    if not parts:
        return [""]
    return [
        f"(?:{part}){rest}" for place, part in enumerate(parts) for rest in _orders(parts[:place] + parts[place + 1 :])
    ]


def repeats_nothing(node: Node) -> bool:
    """Whether a round of a repetition can be empty: there regular expressions and the standard differ."""
    own = isinstance(node, Repeat) and can_be_empty(node.of)
    return own or any(repeats_nothing(part) for part in parts(node))


@given(
    pattern=patterns(sql=True).filter(lambda node: not repeats_nothing(node)),
    letters=st.text("aaabbcd", max_size=10),
    next_row=st.booleans(),
)
def test_the_preferred_match_is_that_of_a_regular_expression(pattern: Node, letters: str, next_row: bool) -> None:
    define = ", ".join(f"{name} AS kind = '{name.lower()}'" for name in mapped(pattern))
    text = f"PATTERN ({pattern_text(pattern)}) {f'DEFINE {define}' if define else ''}"
    rule = parse(f"AFTER MATCH {'SKIP TO NEXT ROW' if next_row else 'SKIP PAST LAST ROW'} {text}")
    compiled = re.compile(expression(pattern))
    expected = []
    start = 0
    while start < len(letters):
        found = compiled.match(letters, start)
        expected += [(start, found.end())] if found else []
        start = found.end() if found and found.end() > start and not next_row else start + 1
    outcome = search(rule, rows_of(letters))
    assert [(match.start, match.start + len(match.taken)) for match in outcome.matches] == expected


def test_a_round_of_nothing_is_no_round() -> None:
    rule = parse("PATTERN ((A??)*) DEFINE A AS kind = 'a'")
    assert [len(match.taken) for match in search(rule, rows_of("aa")).matches] == [2]


def test_time_is_over_once_for_each_start() -> None:
    pattern = begin("a", "kind = 'a'").followed_by("b", "kind = 'b'").followed_by("c", "kind = 'c'").within("3 seconds")
    outcome = search(pattern.rule(order_by="at"), rows_of("a1 b a2 x x x c"))
    assert outcome.matches == []
    assert [[one.row for one in partial.taken] for partial in outcome.timed_out] == [[0, 1], [2]]
    # Without a limit nothing times out.
    assert search(begin("a", "kind = 'a'").next("b").rule(order_by="at"), rows_of("a")).timed_out == []


def test_an_empty_match_is_a_match_and_nothing_times_out() -> None:
    rule = parse("PATTERN ((A B)?) WITHIN INTERVAL '1' SECOND DEFINE A AS kind = 'a', B AS kind = 'b'")
    outcome = search(rule, rows_of("a"))
    assert [match.taken for match in outcome.matches] == [()]
    assert outcome.timed_out == []
    assert parse(render(rule)) == rule
