"""Patterns as text: what each clause means, by the naive matcher; and that text and rule are one and the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.operators.errors import PatternInvalid, SkipImpossible
from headwater.operators.match.language import check, parse, render, text_of
from headwater.operators.match.language.rule import (
    AfterMatch,
    Alternation,
    Anchor,
    Call,
    Classifier,
    Constant,
    Exclusion,
    Fold,
    Node,
    Permute,
    Reference,
    Repeat,
    Rule,
    Sequence,
    Variable,
    skips_to_start,
)
from tests.laws import costly
from tests.operators.match.laws import Laws
from tests.operators.match.naive import output, partials, rules, search
from tests.operators.match.test_builder import rows_of
from tests.operators.match.test_type_check import SCHEMA

A, B, C = Variable("A"), Variable("B"), Variable("C")

#: Rows of one letter are of the variable with that letter.
DEFINE_KINDS = "DEFINE " + ", ".join(f"{letter.upper()} AS kind = '{letter}'" for letter in "abc")


def pattern_of(text: str) -> Node:
    return parse(f"PATTERN ({text})").pattern


def matches(pattern: str, letters: str, more: str = "") -> list[str]:
    """The rows of each match, with the variables that they are mapped to."""
    known = [one for one in "ABC" if one in pattern]
    define = "DEFINE " + ", ".join(f"{one} AS kind = '{one.lower()}'" for one in known)
    found = search(parse(f"PATTERN ({pattern}) {more} {define if known else ''}"), rows_of(letters)).matches
    return [" ".join(f"{one.variable}{one.row}" for one in match.taken) for match in found]


# -- text and rule -------------------------------------------------------------------------------------------------------


@costly(3)
@given(rule=rules(classified=True, rare=True))
def test_what_is_written_is_read_as_the_same_rule(rule: Rule) -> None:
    target = rule.after.variable
    assume(target is None or not skips_to_start(rule.pattern, rule.after.where, rule.subsets.get(target, (target,))))
    assert parse(render(rule)) == rule


@given(
    text=st.text(alphabet="ABab(){}|*+?,-^$ 0123'\"`.<=", max_size=20), clause=st.sampled_from(["PATTERN", "DEFINE"])
)
def test_any_text_is_read_or_refused(text: str, clause: str) -> None:
    whole = f"PATTERN ({text})" if clause == "PATTERN" else f"PATTERN (A b) DEFINE A AS {text}"
    try:
        parse(whole)
    except PatternInvalid as error:
        line, caret = error.place.split("\n")
        assert caret.strip() == "^"
        assert len(caret) <= len(line) + 1


def test_the_words_around_the_clauses_may_be_left_out() -> None:
    body = "PARTITION BY card ORDER BY at PATTERN (A) DEFINE A AS amount < 5"
    assert parse(f"MATCH_RECOGNIZE (\n  {body}\n)") == parse(body) == parse(body.lower().replace("a)", "A)"))


def test_columns_may_have_the_names_of_clauses() -> None:
    rule = parse("MEASURES A.pattern AS define, A.gap AS within PATTERN (A) DEFINE A AS A.gap > 1 AND A.within < 2")
    assert [measure.name for measure in rule.measures] == ["define", "within"]
    assert rule.define["A"].simple
    assert parse(render(rule)) == rule


def test_comments_and_quoted_names_are_read() -> None:
    rule = parse("PATTERN (`a b` /* then */ B) -- so far\nDEFINE `a b` AS `odd column` = 'it''s' -- the end")
    assert rule.pattern == Sequence((Variable("a b"), B))
    assert rule.define["a b"].tree == Call("=", (Reference("odd column", here=True), Constant("it's", pa.string())))
    assert parse(render(rule)) == rule


# -- PATTERN -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("", Sequence(())),
        ("()", Sequence(())),
        ("A", A),
        ("(A)", A),
        ("A B", Sequence((A, B))),
        ("A | B C", Alternation((A, Sequence((B, C))))),
        ("A (B | C)", Sequence((A, Alternation((B, C))))),
        ("A* B+ C?", Sequence((Repeat(A, 0, None), Repeat(B, 1, None), Repeat(C, 0, 1)))),
        ("A*? B+? C??", Sequence((Repeat(A, 0, None, False), Repeat(B, 1, None, False), Repeat(C, 0, 1, False)))),
        ("A{2} B{2,} C{,3}", Sequence((Repeat(A, 2, 2), Repeat(B, 2, None), Repeat(C, 0, 3)))),
        ("A{1,3} B{1,3}?", Sequence((Repeat(A, 1, 3), Repeat(B, 1, 3, False)))),
        ("A{,}", Repeat(A, 0, None)),
        ("(A B){2}", Repeat(Sequence((A, B)), 2, 2)),
        ("(A+)?", Repeat(Repeat(A, 1, None), 0, 1)),
        ("PERMUTE(A, B C)", Permute((A, Sequence((B, C))))),
        ("A {- B+ -} C", Sequence((A, Exclusion(Repeat(B, 1, None)), C))),
        ("^ A $", Sequence((Anchor("start"), A, Anchor("end")))),
        ("a A", Sequence((Variable("a"), Variable("a")))),
    ],
)
def test_the_grammar_of_patterns(text: str, node: Node) -> None:
    assert pattern_of(text) == node


@pytest.mark.parametrize(
    ("pattern", "letters", "expected"),
    [
        ("A B", "abab", ["A0 B1", "A2 B3"]),
        ("A+ B", "aab", ["A0 A1 B2"]),
        ("A+?", "aa", ["A0", "A1"]),
        ("A B?", "ab", ["A0 B1"]),
        ("A B??", "ab", ["A0", ""]),
        ("A B*? C", "abbc", ["A0 B1 B2 C3"]),
        ("A{2,3}", "aaaaa", ["A0 A1 A2", "A3 A4"]),
        ("A{2,3}?", "aaaaa", ["A0 A1", "A2 A3"]),
        ("A | B", "ab", ["A0", "B1"]),
        ("A | A B", "ab", ["A0"]),
        ("A B | A", "ab", ["A0 B1"]),
        ("PERMUTE(A, B, C)", "cab", ["C0 A1 B2"]),
        ("^ A", "aa", ["A0"]),
        ("A $", "aa", ["A1"]),
        ("(A | B)* C", "abac", ["A0 B1 A2 C3"]),
        ("(A? B?)* C", "abc", ["A0 B1 C2"]),
    ],
)
def test_the_preferred_match_is_found(pattern: str, letters: str, expected: list[str]) -> None:
    assert [one for one in matches(pattern, letters) if one] == [one for one in expected if one]


def test_a_variable_without_a_condition_fits_every_row() -> None:
    assert [match.taken[-1].row for match in search(parse("PATTERN (A any_row)"), rows_of("xy")).matches] == [1]


def test_permute_prefers_the_order_in_which_it_is_written() -> None:
    rule = parse("PATTERN (PERMUTE(X, Y)) MEASURES CLASSIFIER() AS last")
    assert output(rule, rows_of("ab")) == [{"last": "Y"}]


# -- the other clauses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "after", "expected"),
    [
        ("", AfterMatch("past_last"), ["A0 A1 B2"]),
        ("AFTER MATCH SKIP PAST LAST ROW", AfterMatch("past_last"), ["A0 A1 B2"]),
        ("AFTER MATCH SKIP TO NEXT ROW", AfterMatch("to_next"), ["A0 A1 B2", "A1 B2"]),
        ("AFTER MATCH SKIP TO FIRST B", AfterMatch("to_first", "B"), ["A0 A1 B2"]),
        ("AFTER MATCH SKIP TO B", AfterMatch("to_last", "B"), ["A0 A1 B2"]),
        ("AFTER MATCH NO SKIP", AfterMatch("none"), ["A0 A1 B2", "A1 B2"]),
    ],
)
def test_where_the_search_goes_on(words: str, after: AfterMatch, expected: list[str]) -> None:
    assert parse(f"PATTERN (A+ B) {words}").after == after
    assert matches("A+ B", "aab", words) == expected


def test_strategies_by_the_sums_of_prices() -> None:
    # After the example by which Flink explains them; there the last row may still be followed by others.
    rows = [{"at": at, "amount": price} for at, price in enumerate((7, 9, 10, 5, 10, 7, 14))]
    text = "MEASURES SUM(A.amount) AS total, COUNT(*) AS n {} PATTERN (A+ C) DEFINE A AS SUM(A.amount) < 30"
    past = output(parse(text.format("AFTER MATCH SKIP PAST LAST ROW")), rows)
    assert [(row["total"], row["n"]) for row in past] == [(26, 4), (17, 3)]
    each = output(parse(text.format("AFTER MATCH SKIP TO NEXT ROW")), rows)
    assert [row["total"] for row in each] == [26, 24, 25, 22, 17, 7]
    with pytest.raises(PatternInvalid, match="for ever"):
        parse(text.format("AFTER MATCH SKIP TO FIRST A"))


def test_a_v_of_prices_that_rises_past_its_start() -> None:
    # After the example by which Trino explains the clauses.
    text = """
        MEASURES A.amount AS starting, LAST(B.amount) AS bottom, LAST(U.amount) AS top
        PATTERN (A B+ C+ D+) SUBSET U = (C, D)
        DEFINE B AS amount < PREV(amount),
               C AS amount > PREV(amount) AND amount <= A.amount,
               D AS amount > PREV(amount)
    """
    assert output(parse(text), rows_of("p5 p3 p2 p4 p6 p9 p1")) == [{"starting": 5, "bottom": 2, "top": 9}]


def test_every_match_that_begins_at_a_row() -> None:
    assert matches("A+", "aa", "AFTER MATCH NO SKIP EVERY MATCH") == ["A0 A1", "A0", "A1"]


def test_skipping_to_a_row_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SkipImpossible):
        matches("A B? C", "ac", "AFTER MATCH SKIP TO B")
    with pytest.raises(SkipImpossible):
        matches("A+ B", "ab", "AFTER MATCH SKIP TO LAST A")


def test_a_match_must_be_over_in_time() -> None:
    assert parse("PATTERN (A) WITHIN INTERVAL '10' MINUTE").within_us == 600_000_000
    assert parse("PATTERN (A) WITHIN INTERVAL 2 HOURS").within_us == 7_200_000_000
    assert parse("PATTERN (A) GAP INTERVAL '0.5' SECOND").between_us == 500_000
    # Rows come one a second: at two seconds, the moment of the limit itself, a row still belongs to the match.
    assert matches("A+", "aaaa", "WITHIN INTERVAL '2' SECOND") == ["A0 A1 A2", "A3"]


def test_neighbours_may_be_told_to_come_soon() -> None:
    rows = [{"at": at * 1_000_000, "kind": "a", "amount": 0} for at in (0, 2, 4, 9, 10)]
    found = search(parse("PATTERN (A+) GAP INTERVAL '3' SECOND DEFINE A AS kind = 'a'"), rows).matches
    assert [[one.row for one in match.taken] for match in found] == [[0, 1, 2], [3, 4]]


def test_further_columns_order_the_rows_of_one_moment() -> None:
    text = "MEASURES ARRAY_AGG(id) AS ids PATTERN (A{4})"
    rows = [
        {"key": "k", "id": number, "at": at * 1_000_000, "amount": amount, "price": price, "kind": None}
        for number, (at, amount, price) in enumerate([(1, 2, 0.5), (1, 1, 2.5), (1, 1, 1.5), (0, 9, None)])
    ]
    for order, ids in (("at", [3, 0, 1, 2]), ("at, amount", [3, 1, 2, 0]), ("at ASC, amount, price ASC", [3, 2, 1, 0])):
        rule = parse(f"ORDER BY {order} {text}")
        assert parse(render(rule)) == rule
        for batches in ([rows], [rows[:2], rows[2:]]):
            assert Laws(rule, late_by_us=10_000_000).streamed(batches)[0] == [{"key": "k", "ids": ids}]


def test_the_event_time_of_a_match_is_that_of_its_last_row() -> None:
    rule = parse("MEASURES MATCH_ROWTIME() AS ended_at PATTERN (A B) DEFINE A AS amount = 1")
    assert parse(render(rule)) == rule
    rows = [
        {"key": "k", "id": number, "at": number * 1_000_000, "amount": amount, "price": None, "kind": None}
        for number, amount in enumerate([1, 2, 2, 1, 5])
    ]
    assert [row["ended_at"] for row in Laws(rule).bounded(rows)[0]] == [1_000_000, 4_000_000]


def test_a_partial_match_is_reported_when_its_time_is_over() -> None:
    rule = parse(
        f"MEASURES COUNT(*) AS n, MATCH_NUMBER() AS m PATTERN (A B+ C) WITHIN INTERVAL '3' SECOND {DEFINE_KINDS}"
    )
    assert partials(rule, rows_of("abbbbb")) == [{"n": 4, "m": None}]
    assert partials(rule, rows_of("abx")) == []
    assert partials(rule, rows_of("ab")) == [{"n": 2, "m": None}]


ROWS = "MEASURES COUNT(*) AS n, FINAL COUNT(*) AS total, CLASSIFIER() AS c, MATCH_NUMBER() AS m"


def shown(words: str, pattern: str, letters: str) -> list[tuple[Any, ...]]:
    known = ", ".join(f"{one} AS kind = '{one.lower()}'" for one in "ABC" if one in pattern)
    rule = parse(f"{ROWS} {words} PATTERN ({pattern}) DEFINE {known}")
    return [(row.get("kind"), row["n"], row["total"], row["c"], row["m"]) for row in output(rule, rows_of(letters))]


def test_one_row_or_all_rows_of_a_match() -> None:
    assert shown("ONE ROW PER MATCH", "A B+", "abb") == [(None, 3, 3, "B", 1)]
    assert shown("ALL ROWS PER MATCH", "A B+", "abb") == [
        ("a", 1, 3, "A", 1),
        ("b", 2, 3, "B", 1),
        ("b", 3, 3, "B", 1),
    ]


def test_empty_matches_and_rows_without_a_match() -> None:
    assert shown("", "A*", "ba") == [(None, 0, 0, None, 1), (None, 1, 1, "A", 2)]
    assert shown("ALL ROWS PER MATCH SHOW EMPTY MATCHES", "A*", "ba") == [("b", 0, 0, None, 1), ("a", 1, 1, "A", 2)]
    assert shown("ALL ROWS PER MATCH OMIT EMPTY MATCHES", "A*", "ba") == [("a", 1, 1, "A", 2)]
    assert shown("ALL ROWS PER MATCH WITH UNMATCHED ROWS", "A+", "ba") == [
        ("a", 1, 1, "A", 1),
        ("b", None, None, None, None),
    ]


def test_rows_are_left_out_and_counted_all_the_same() -> None:
    assert shown("ALL ROWS PER MATCH", "A {- B -} C", "abc") == [("a", 1, 3, "A", 1), ("c", 3, 3, "C", 1)]


def test_subsets_are_variables_together() -> None:
    text = f"""
        MEASURES COUNT(ab.*) AS n, LAST(ab.amount) AS amount, CLASSIFIER(ab) AS c
        PATTERN (A+ B+ C) SUBSET ab = (A, B) {DEFINE_KINDS}
    """
    assert output(parse(text), rows_of("a1 a2 b3 c4")) == [{"n": 3, "amount": 3, "c": "B"}]


# -- values --------------------------------------------------------------------------------------------------------------


def measured(value: str, letters: str = "a1 a2 b3 b5 c9") -> Any:
    rule = parse(f"MEASURES {value} AS value PATTERN (A+ B+ C) {DEFINE_KINDS}")
    (row,) = output(rule, rows_of(letters))
    return row["value"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("A.amount", 2),
        ("amount", 9),
        ("FIRST(A.amount)", 1),
        ("FIRST(A.amount, 1)", 2),
        ("FIRST(A.amount, 2)", None),
        ("LAST(B.amount, 1)", 3),
        ("LAST(amount, 4)", 1),
        ("FIRST(B.amount * 10 + 1)", 31),
        ("PREV(A.amount)", 1),
        ("PREV(FIRST(B.amount), 2)", 1),
        ("NEXT(FIRST(A.amount), 3)", 5),
        ("PREV(FIRST(A.amount))", None),
        ("PREV(amount, 0)", 9),
        ("COUNT(*)", 5),
        ("COUNT(B.*)", 2),
        ("SUM(B.amount)", 8),
        ("SUM(B.amount * 2)", 16),
        ("AVG(A.amount)", 1.5),
        ("MIN(amount) + MAX(amount)", 10),
        ("STDDEV(A.amount)", 0.5**0.5),
        ("ARRAY_AGG(A.amount)", [1, 2]),
        ("ARRAY_AGG(CLASSIFIER())", ["A", "A", "B", "B", "C"]),
        ("COUNT(DISTINCT kind)", 3),
        ("CLASSIFIER()", "C"),
        ("CLASSIFIER(A)", "A"),
        ("LAST('is ' || CLASSIFIER(A) || A.kind)", "is Aa"),
        ("COUNT()", 5),
        ("COUNT(1)", 5),
        ("MATCH_NUMBER()", 1),
        ("A.amount BETWEEN 1 AND 2", True),
        ("A.amount NOT IN (1, NULL)", None),
        ("CASE WHEN A.amount > 5 THEN 'much' ELSE 'little' END", "little"),
        ("CASE A.amount WHEN 2 THEN 'two' END", "two"),
        ("IF(A.amount > 5, 1, 0)", 0),
        ("COALESCE(FIRST(A.amount, 7), -1)", -1),
        ("A.kind || B.kind || 'x'", "abx"),
        ("NOT A.amount IS NULL", True),
        ("A.kind IS DISTINCT FROM 'a'", False),
        ("UPPER(A.kind)", "A"),
        ("7 % 4 - 2 * 3", -3),
        ("CAST(A.amount AS DOUBLE) / 4", 0.5),
    ],
)
def test_what_measures_are_worth(value: str, expected: Any) -> None:
    assert measured(value) == (pytest.approx(expected) if isinstance(expected, float) else expected)
    tree = parse(f"MEASURES {value} AS value PATTERN (A+ B+ C)").measures[0].tree
    assert parse(f"MEASURES {text_of(tree)} AS value PATTERN (A+ B+ C)").measures[0].tree == tree


@pytest.mark.parametrize(
    ("condition", "simple"),
    [
        ("amount < 5", True),
        ("A.amount < 5", True),
        ("a.amount < 5", True),
        ("LAST(A.amount) < 5", True),
        ("U.amount < 5", True),
        ("UPPER(kind) LIKE 'X%' OR amount IS NULL", True),
        ("TRUE", True),
        ("amount < B.amount", False),
        ("amount < PREV(amount)", False),
        ("amount < LAST(A.amount, 1)", False),
        ("FIRST(A.amount) < 5", False),
        ("COUNT(A.*) < 5", False),
        ("MATCH_NUMBER() < 5", False),
    ],
)
def test_conditions_on_the_row_at_hand_are_known_as_such(condition: str, simple: bool) -> None:
    rule = parse(f"PATTERN (A B) SUBSET U = (A, B) DEFINE A AS {condition}")
    assert rule.define["A"].simple is simple
    assert parse(render(rule)) == rule


def test_conditions_look_at_the_rows_so_far() -> None:
    falling = parse("PATTERN (start fall+ rise+) DEFINE fall AS amount < PREV(amount), rise AS amount > PREV(amount)")
    found = search(falling, rows_of("a5 a3 a1 a4 a6 a2")).matches
    assert [[one.variable for one in match.taken] for match in found] == [["start", "fall", "fall", "rise", "rise"]]
    summed = parse("PATTERN (A+) DEFINE A AS SUM(A.amount) <= 6")
    assert [len(match.taken) for match in search(summed, rows_of("a3 a3 a3 a1")).matches] == [2, 2]


@pytest.mark.parametrize(
    "value",
    [
        "A.x RLIKE 'a|b'",
        "A.x NOT ILIKE 'a%'",
        "A.x DIV 2",
        "EXTRACT(HOUR FROM A.at)",
        "SUBSTRING(A.x, 1, 2)",
        "date_trunc('hour', A.at) = TIMESTAMP '2026-03-01 12:30:00'",
        "A.day >= DATE '2026-03-01'",
        "A.at + INTERVAL '1.5' SECOND < TIMESTAMP '2026-03-01 12:30:00.000001+02:00'",
        "INTERVAL '0' SECOND",
        "A.x = 'a\\\\b''c'",
        "5L + 5.5D - 1e3 + -(7)",
        "A.x::bigint",
        "A.x <=> NULL",
        "A.x IS NOT TRUE",
        "TRUE AND (FALSE AND NULL) AND TRUE",
        "1 - (2 - 3) - 4",
        "A.`select` + A.`odd ``name`",
    ],
)
def test_values_are_written_as_they_were_read(value: str) -> None:
    tree = parse(f"MEASURES {value} AS value PATTERN (A)").measures[0].tree
    assert parse(f"MEASURES {text_of(tree)} AS value PATTERN (A)").measures[0].tree == tree


def test_trees_say_what_is_meant() -> None:
    rule = parse(
        "MEASURES FINAL LAST(A.x, 2) AS a, PREV(FIRST(B.y), 3) AS b, SUM(A.x + 1) AS c, CLASSIFIER(B) AS d PATTERN (A B)"
    )
    one, two, three, four = (measure.tree for measure in rule.measures)
    assert one == Reference("x", "A", "last", 2, final=True)
    assert two == Reference("y", "B", "first", 0, shift=-3)
    assert isinstance(three, Fold)
    assert (three.variable, three.of) == ("A", Call("+", (Reference("x", here=True), Constant(1, pa.int64()))))
    assert four == Classifier("B")


@given(rule=rules())
def test_a_rule_that_is_checked_can_still_be_read(rule: Rule) -> None:
    checked = check(rule, SCHEMA)
    assert render(checked) == render(rule)
