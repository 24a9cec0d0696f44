"""What is wrong with a pattern is said once, clearly, and at its place."""

from __future__ import annotations

import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from headwater.operators.errors import PatternInvalid
from headwater.operators.match.language import check, expression_parser, parse
from headwater.operators.match.language.builder import begin
from headwater.operators.match.language.rule import AfterMatch, Call, Reference, Variable
from headwater.optional import PackageMissing

SCHEMA = pa.schema(
    {
        "user": pa.string(),
        "id": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "amount": pa.int64(),
        "price": pa.float64(),
        "kind": pa.string(),
        "paid": pa.bool_(),
    }
)

#: Each text, a caret under the place that the error must name, a part of what it says, and what was probably meant.
WRONG = [
    ("", "^", "there is no PATTERN", None),
    ("DEFINE A AS x < 1", "                 ^", "there is no PATTERN", None),
    ("PATERN (A)", "^", "'PATERN' begins no clause", "PATTERN"),
    ("PATTERN A", "^", "not all that PATTERN needs", None),
    ("MATCH_RECOGNIZE PATTERN (A)", "                ^", "'PATTERN' does not fit here", None),
    ("MATCH_RECOGNIZE (PATTERN (A)", "                ^", "never closed", None),
    ("PATTERN (A", "        ^", "never closed", None),
    ("PATTERN (A))", "           ^", "closes nothing", None),
    ("PATTERN (A) PATTERN (B)", "            ^", "second time", None),
    ("PATTERN (A{3,2})", "          ^", "3 to 2 times", None),
    ("PATTERN (A{})", "           ^", "'}' does not fit here", None),
    ("PATTERN (A{x})", "           ^", "'x' does not fit here", None),
    ("PATTERN (A{1.5})", "           ^", "1.5 times", None),
    ("PATTERN (A{2)", "            ^", "')' does not fit here", None),
    ("PATTERN (A |)", "            ^", "')' does not fit here", None),
    ("PATTERN (* A)", "         ^", "'*' does not fit here", None),
    ("PATTERN (A **)", "            ^", "'*' does not fit here", None),
    ("PATTERN (A 5)", "           ^", "'5' does not fit here", None),
    ("PATTERN ({- A)", "             ^", "')' does not fit here", None),
    ("PATTERN (PERMUTE())", "                 ^", "')' does not fit here", None),
    ("PATTERN (A B) foo", "              ^", "'foo' does not fit here", None),
    ("PATTERN (A{20000})", "          ^", "20,000 parts", None),
    ("PATTERN (A ((B{100}){100}){100})", "                          ^", "1,000,000 parts", None),
    ("PATTERN (PERMUTE(A, B, C, D, E, F, G, H))", "         ^", "322,560 parts", None),
    ("PATTERN (A) WITHIN 5", "            ^", "not all that WITHIN needs", None),
    ("PATTERN (A) WITHIN INTERVAL 'x' MINUTE", "                   ^", "no length of time", None),
    ("PATTERN (A) WITHIN INTERVAL '1' MONTH", "                   ^", "no length of time", None),
    ("PATTERN (A) WITHIN INTERVAL '0' SECOND", "                   ^", "no length of time", None),
    ("PATTERN (A) GAP INTERVAL -1 SECOND", "                ^", "no length of time", None),
    ("ORDER BY at DESC PATTERN (A)", "            ^", "backwards", None),
    ("ORDER BY at, id DESC PATTERN (A)", "                ^", "backwards", None),
    ("ORDER BY at, 5 PATTERN (A)", "             ^", "'5' does not fit here", None),
    ("PATTERN (A) DEFINE A AS MATCH_ROWTIME() > 5", "                        ^", "the last row is not known", None),
    (
        "PATTERN (A B) DEFINE B AS concat(A.x, x) = 'y'",
        "                          ^",
        "CONCAT looks at several rows",
        None,
    ),
    (
        "PATTERN (A B) DEFINE B AS x > 1 AND coalesce(upper(A.x), '') = 'Y' AND greatest(SUM(A.y), 2) > 1",
        "                                                                       ^",
        "GREATEST looks at several rows",
        None,
    ),
    ("ORDER BY at NULLS FIRST PATTERN (A)", "            ^", "'NULLS' does not fit here", None),
    ("PARTITION BY a + b PATTERN (A)", "               ^", "'+' does not fit here", None),
    ("PARTITION BY a, PATTERN (A)", "               ^", "something is missing", None),
    ("MEASURES A.x PATTERN (A)", "            ^", "no name", None),
    ("MEASURES A.x AS a, A.y AS a PATTERN (A)", "                          ^", "there already", None),
    ("MEASURES B.x AS a PATTERN (A)", "         ^", "no variable B", None),
    ("MEASURES A.x.y AS a PATTERN (A)", "         ^", "a part of a column", None),
    ("MEASURES A.* AS a PATTERN (A)", "         ^", "'*' stands for rows", None),
    ("MEASURES SUM(A.*) AS a PATTERN (A)", "         ^", "SUM of '*'", None),
    ("MEASURES CLASSIFIER(A, B) AS a PATTERN (A)", "         ^", "2 arguments", None),
    ("MEASURES FINAL UPPER(A.x) AS a PATTERN (A)", "               ^", "FINAL means nothing", None),
    (
        "MEASURES x AS a PATTERN (A) AFTER MATCH SKIP TO B",
        "                                                ^",
        "no variable B",
        None,
    ),
    (
        "PATTERN (rise fall) AFTER MATCH SKIP TO LAST fal",
        "                                             ^",
        "no variable fal",
        "fall",
    ),
    ("PATTERN (A B) AFTER MATCH SKIP TO FIRST A", "                                        ^", "for ever", None),
    ("PATTERN (A B) AFTER MATCH SKIP TO A", "                                  ^", "for ever", None),
    ("AFTER MATCH SKIP PATTERN (A)", "                ^", "no way to go on", None),
    ("AFTER MATCH SKIP TO LAST ROW PATTERN (A)", "                         ^", "no variable ROW", None),
    ("AFTER MATCH JUMP PATTERN (A)", "            ^", "no way to go on", None),
    ("EVERY MATCH PATTERN (A)", "^", "leaves its first row", None),
    ("ALL ROWS PER MATCH SHOW ALL PATTERN (A)", "                   ^", "'SHOW' does not fit here", None),
    ("ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN ({- A -})", "^", "neither matched nor unmatched", None),
    ("PATTERN (A) SUBSET U = (A, B)", "                           ^", "no variable B", None),
    ("PATTERN (A) SUBSET A = (A)", "                   ^", "there already", None),
    ("PATTERN (A) SUBSET U = A", "                   ^", "no subset", None),
    ("PATTERN (A) DEFINE B AS x < 1", "                   ^", "no variable B", None),
    ("PATTERN (A) DEFINE A AS x < 1, A AS x > 1", "                               ^", "defined already", None),
    ("PATTERN (A) DEFINE A x > 1", "            ^", "not all that DEFINE needs", None),
    ("PATTERN (A) DEFINE A AS", "                       ^", "no expression", None),
    ("PATTERN (A) DEFINE A AS x >", "                           ^", "missing", None),
    ("PATTERN (A) DEFINE A AS x = 'abc", "                            ^", "quote is never closed", None),
    ("PATTERN (A) DEFINE A AS x y", "                        ^", "Alias", None),
    (
        "PATTERN (rise) DEFINE rise AS x < LAST(ris.x)",
        "                                       ^",
        "no variable ris",
        "rise",
    ),
    ("PATTERN (A) DEFINE A AS FINAL LAST(x) < 1", "                              ^", "FINAL cannot be known", None),
    ("PATTERN (A) DEFINE A AS x < PREV(x, -1)", "                                     ^", "fixed number", None),
    ("PATTERN (A) DEFINE A AS x < PREV(x, x)", "                                    ^", "fixed number", None),
    ("PATTERN (A) DEFINE A AS PREV(PREV(x)) > 3", "                             ^", "inside another", None),
    ("PATTERN (A) DEFINE A AS FIRST(PREV(x)) > 3", "                              ^", "inside another", None),
    ("PATTERN (A) DEFINE A AS FIRST(3) > 3", "                        ^", "of no column", None),
    ("PATTERN (A B) DEFINE A AS LAST(A.x + B.x) > 3", "                          ^", "several variables", None),
    ("PATTERN (A B) DEFINE A AS SUM(A.x + B.x) > 3", "                              ^", "several variables", None),
    ("PATTERN (A) DEFINE A AS SUM(LAST(x)) > 3", "                            ^", "inside an aggregate", None),
    ("PATTERN (A) DEFINE A AS PREV(SUM(x)) > 3", "                             ^", "inside another", None),
    ("MEASURES PREV(A.x || CLASSIFIER(A)) AS a PATTERN (A)", "                     ^", "of the last row alone", None),
    ("MEASURES SUM() AS a PATTERN (A)", "         ^", "0 arguments", None),
    ("PATTERN (A) DEFINE A AS SUM(x) OVER () > 1", "                        ^", "Window", None),
    ("PATTERN (A) DEFINE A AS x IN ()", "                        ^", "no values", None),
    ("PATTERN (A) DEFINE A AS x IN (SELECT 1)", "                        ^", "no values", None),
]


@pytest.mark.parametrize(("text", "caret", "why", "meant"), WRONG, ids=[text[:48] for text, *_ in WRONG])
def test_errors_point_at_the_place(text: str, caret: str, why: str, meant: str | None) -> None:
    with pytest.raises(PatternInvalid) as caught:
        parse(text)
    error = caught.value
    assert error.place == f"{text}\n{caret}"
    assert (error.line, error.column) == (1, len(caret))
    assert why in error.why
    assert error.meant == (f"Did you mean {meant}?" if meant else "")


#: What only the columns can tell.
MISFIT = [
    ("PATTERN (A) DEFINE A AS amont < 5", "                        ^", "no column amont", "amount"),
    (
        "PATTERN (A B) DEFINE B AS 2 * PREV(amont + 1) > 5",
        "                                   ^",
        "no column amont",
        "amount",
    ),
    ("MEASURES SUM(A.price * A.amont) AS x PATTERN (A)", "                       ^", "no column amont", "amount"),
    ("PATTERN (A) DEFINE A AS amount < 'x'", "                        ^", "a number with a text", None),
    ("PATTERN (A) DEFINE A AS kind IN ('x', 1)", "                        ^", "a text with a number", None),
    ("PATTERN (A) DEFINE A AS at > 5", "                        ^", "a time with a number", None),
    ("PATTERN (A) DEFINE A AS amount + kind > 1", "                        ^", "a number and a text", None),
    ("PATTERN (A) DEFINE A AS amount", "                        ^", "the condition of A is a number", None),
    ("PATTERN (A) DEFINE A AS amount > 1 AND kind", "                                       ^", "AND of a text", None),
    ("PATTERN (A) DEFINE A AS SUM(kind) > 1", "                        ^", "SUM of a text", None),
    ("MEASURES CASE WHEN paid THEN 1 ELSE 'x' END AS y PATTERN (A)", "                   ^", "this CASE gives", None),
    ("PARTITION BY usr PATTERN (A)", "             ^", "no column usr", "user"),
    ("ORDER BY amount PATTERN (A)", "         ^", "amount is a number", None),
    ("ORDER BY at, amont PATTERN (A)", "         ^", "no column amont", "amount"),
    ("PATTERN (A NOTHING(B))", "        ^", "never certain", None),
    ("PATTERN (A NOTHING(B) C) WITHIN INTERVAL '1' DAY", "        ^", "before other parts", None),
    (
        "PARTITION BY user MEASURES A.amount AS user PATTERN (A)",
        "                           ^",
        "a column user already",
        None,
    ),
    ("MEASURES A.amount AS kind ALL ROWS PER MATCH PATTERN (A)", "         ^", "a column kind already", None),
]


@pytest.mark.parametrize(("text", "caret", "why", "meant"), MISFIT, ids=[text[:48] for text, *_ in MISFIT])
def test_errors_of_columns_point_at_the_place(text: str, caret: str, why: str, meant: str | None) -> None:
    rule = parse(text)
    with pytest.raises(PatternInvalid) as caught:
        parse(text, SCHEMA)
    assert caught.value.place == f"{text}\n{caret}"
    assert why in caught.value.why
    assert caught.value.meant == (f"Did you mean {meant}?" if meant else "")
    with pytest.raises(PatternInvalid, match="wrong in line 1"):
        check(rule, SCHEMA)


def test_an_error_names_its_line() -> None:
    with pytest.raises(PatternInvalid) as caught:
        parse("PATTERN (A B)\n\nDEFINE A AS amount < 5,\n\tB AS amount > LAST(C.amount)")
    assert str(caught.value) == (
        "The pattern is wrong in line 4, column 21: the pattern has no variable C.\n"
        "\tB AS amount > LAST(C.amount)\n\t                   ^\nGive one of the variables A, B."
    )


@pytest.mark.parametrize(
    "text",
    [
        f"PATTERN ({'(' * 500}A{')' * 500})",
        f"PATTERN (A) DEFINE A AS {'(' * 3000}amount{')' * 3000} > 1",
        f"PATTERN (A) DEFINE A AS {'+'.join(['amount'] * 3000)} > 1",
    ],
)
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    with pytest.raises(PatternInvalid, match="too deep"):
        parse(text)


def test_a_long_list_of_conditions_is_not_deep() -> None:
    rule = parse(f"PATTERN (A) DEFINE A AS {' AND '.join(['amount > 1'] * 500)}", SCHEMA)
    assert isinstance(rule.define["A"].tree, Call)
    assert len(rule.define["A"].tree.of) == 500


def test_columns_are_found_whatever_the_case_of_their_letters() -> None:
    rule = parse("PARTITION BY USER ORDER BY At MEASURES A.AMOUNT AS last PATTERN (A) DEFINE A AS Amount < 5", SCHEMA)
    assert (rule.by, rule.order_by) == (("user",), "at")
    assert rule.define["A"].sql == "amount < 5"
    assert rule.measures[0].tree == Reference("amount", "A")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("A.amount + 1", pa.int64()),
        ("A.amount + A.price", pa.float64()),
        ("A.amount / 2", pa.float64()),
        ("A.at - FIRST(A.at)", pa.duration("us")),
        ("A.at + INTERVAL '1' HOUR", pa.timestamp("us", "UTC")),
        ("A.amount > 1", pa.bool_()),
        ("UPPER(A.kind)", pa.string()),
        ("CASE WHEN A.paid THEN 1 ELSE 2.5 END", pa.float64()),
        ("COALESCE(A.amount, NULL)", pa.int64()),
        ("SUM(A.price) * 2", pa.float64()),
        ("CAST(A.amount AS STRING)", pa.string()),
        ("some_function_of_spark(A.kind)", None),
    ],
)
def test_types_are_known(value: str, kind: pa.DataType | None) -> None:
    tree = parse(f"MEASURES {value} AS value PATTERN (A)", SCHEMA).measures[0].tree
    assert isinstance(tree, Call)
    assert tree.kind == kind


def test_a_rule_of_the_builder_is_checked_as_well() -> None:
    rule = begin("small", "amont < 5").next("big", "amount > 5").rule(order_by="at", by="user")
    with pytest.raises(PatternInvalid, match="amont") as caught:
        check(rule, SCHEMA)
    assert caught.value.place == "amont < 5\n^"
    assert caught.value.why == "in the condition of small: the input has no column amont"
    good = begin("small", "amount < 5").rule(order_by="at")
    with pytest.raises(PatternInvalid, match="no variable big"):
        check(replace(good, after=AfterMatch("to_last", "big")), SCHEMA)


def test_without_sqlglot_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    expression_parser._reader.cache_clear()
    with pytest.raises(PackageMissing, match=r"headwater\[match\]"):
        parse("PATTERN (A) DEFINE A AS amount < 5")
    assert parse("PATTERN (A)").pattern == Variable("A")
