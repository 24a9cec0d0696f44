"""The builder: what its words mean is said by choosing rows one by one, without any of its code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ArgumentInvalid
from headwater.operators.errors import PatternInvalid
from headwater.operators.match.language import parse, render
from headwater.operators.match.language.builder import Pattern, begin
from headwater.operators.match.language.rule import AfterMatch, Repeat, Sequence, Variable
from tests.operators.match.naive import search

KINDS = "abcx"


def rows_of(letters: str) -> list[dict[str, Any]]:
    """One row a second; each letter is a row's kind, and a digit behind it its amount."""
    cells: list[list[Any]] = []
    for letter in letters.replace(" ", ""):
        if letter.isdigit():
            cells[-1][1] = int(letter)
        else:
            cells.append([letter, 0])
    return [{"at": at * 1_000_000, "kind": kind, "amount": amount} for at, (kind, amount) in enumerate(cells)]


def found(pattern: Pattern, letters: str) -> list[str]:
    """The matches among rows, written as characters again."""
    rows = rows_of(letters)
    outcome = search(pattern.rule(order_by="at"), rows)
    shown = [f"{row['kind']}{row['amount'] or ''}" for row in rows]
    return [" ".join(shown[one.row] for one in match.taken) for match in outcome.matches]


def is_kind(kind: str) -> str:
    return f"kind = '{kind}'"


# -- contiguity, by the examples that Flink's documentation explains it with ---------------------------------------------


@pytest.mark.parametrize(
    ("join", "matches"),
    [
        (lambda start: start.next("b", is_kind("b")), []),
        (lambda start: start.followed_by("b", is_kind("b")), ["a b1"]),
        (lambda start: start.followed_by_any("b", is_kind("b")), ["a b1", "a b2"]),
    ],
)
def test_the_three_ways_to_follow(join: Callable[[Pattern], Pattern], matches: list[str]) -> None:
    assert found(join(begin("a", is_kind("a"))).after("none"), "a c b1 b2") == matches


@pytest.mark.parametrize(
    ("inside", "matches"),
    [
        ("consecutive", ["c a1 b", "c a1 a2 b", "c a1 a2 a3 b"]),
        ("relaxed", ["c a1 b", "c a1 a2 b", "c a1 a2 a3 b", "c a1 a2 a3 a4 b"]),
        (
            "allow_combinations",
            [
                "c a1 b",
                "c a1 a2 b",
                "c a1 a3 b",
                "c a1 a4 b",
                "c a1 a2 a3 b",
                "c a1 a2 a4 b",
                "c a1 a3 a4 b",
                "c a1 a2 a3 a4 b",
            ],
        ),
    ],
)
def test_the_three_ways_to_repeat(inside: str, matches: list[str]) -> None:
    loop = begin("c", is_kind("c")).followed_by("a", is_kind("a")).one_or_more()
    pattern = getattr(loop, inside)().followed_by("b", is_kind("b")).after("none")
    assert sorted(found(pattern, "c d a1 a2 a3 d a4 b")) == sorted(matches)


def test_repetitions_are_consecutive_and_greedy_unless_said_otherwise() -> None:
    pattern = begin("a", is_kind("a")).one_or_more().followed_by("b", is_kind("b"))
    assert found(pattern, "a1 a2 c a3 b") == ["a1 a2 b"]
    assert found(begin("a", is_kind("a")).one_or_more().relaxed(), "a1 c a2") == ["a1 a2"]
    assert found(begin("a", is_kind("a")).one_or_more().reluctant(), "a1 a2") == ["a1", "a2"]


def test_not_next_looks_and_does_not_take() -> None:
    pattern = begin("a", is_kind("a")).not_next("x", is_kind("x"))
    assert found(pattern, "a1 b a2 x a3") == ["a1", "a3"]


def test_nothing_may_come_between_two_steps() -> None:
    pattern = begin("a", is_kind("a")).not_followed_by("x", is_kind("x")).followed_by("b", is_kind("b"))
    assert found(pattern, "a1 c b1 a2 x b2") == ["a1 b1"]


@pytest.mark.parametrize("leave_out", [lambda step: step.optional(), lambda step: step.times(0, 2)])
def test_a_negation_before_a_step_that_is_left_out_holds_until_the_next(
    leave_out: Callable[[Pattern], Pattern],
) -> None:
    before = begin("a", is_kind("a")).not_followed_by("x", is_kind("x"))
    pattern = leave_out(before.followed_by("c", is_kind("c"))).followed_by("d", is_kind("d"))
    assert [found(pattern, rows) for rows in ("a x d", "a b d", "a c x d")] == [[], ["a d"], ["a c d"]]
    at_end = leave_out(before.followed_by("c", is_kind("c"))).within("3 seconds")
    assert [found(at_end, rows) for rows in ("a b x c", "a b b b", "a c x")] == [[], ["a"], ["a c"]]


def test_a_negation_behind_a_loop_holds_from_its_last_row_on() -> None:
    loop = begin("a", is_kind("a")).one_or_more().relaxed()
    behind = loop.not_followed_by("x", is_kind("x")).followed_by("b", is_kind("b"))
    assert found(behind, "a1 x a2 b") == ["a1 a2 b"]
    assert found(behind, "a1 a2 x b") == []
    # With `until`, x may not lie between the repetitions either: as Flink reads it.
    inside = loop.until(is_kind("x")).not_followed_by("x", is_kind("x")).followed_by("b", is_kind("b"))
    assert found(inside, "a1 x a2 b") == ["a2 b"]


def test_one_match_from_each_row_leaves_the_shorter_loops_out() -> None:
    loop = begin("a", is_kind("a")).one_or_more().relaxed().followed_by("b", is_kind("b"))
    assert found(loop.after("none"), "a1 a2 b") == ["a1 a2 b", "a1 b", "a2 b"]
    # What Flink's `greedy()` gives.
    assert found(loop.after("to_next"), "a1 a2 b") == ["a1 a2 b", "a2 b"]


def test_nothing_may_come_until_the_time_is_over() -> None:
    pattern = begin("a", is_kind("a")).not_followed_by("x", is_kind("x")).within("2 seconds")
    assert found(pattern, "a1 c x a2 c c x a3") == ["a2", "a3"]


def test_until_ends_repetitions_before_its_row() -> None:
    strict = begin("a").one_or_more().until(is_kind("x"))
    assert found(strict, "a b x c") == ["a b", "c"]
    relaxed = begin("a", is_kind("a")).one_or_more().relaxed().until(is_kind("x"))
    assert found(relaxed, "a1 b a2 x a3") == ["a1 a2", "a3"]


def test_conditions_look_at_earlier_steps() -> None:
    pattern = begin("low", is_kind("a")).followed_by("high", "amount > 2 * LAST(low.amount)")
    assert found(pattern, "a3 b5 b7") == ["a3 b7"]


def test_a_group_is_repeated_as_a_whole() -> None:
    pattern = begin(begin("a", is_kind("a")).next("b", is_kind("b"))).times(2).next("c", is_kind("c"))
    assert found(pattern, "a b a b c a b c") == ["a b a b c"]
    optional = begin("c", is_kind("c")).next(begin("a", is_kind("a")).next("b", is_kind("b"))).optional()
    assert found(optional, "c a c a b") == ["c", "c a b"]


def test_what_goes_on_after_a_match() -> None:
    pattern = begin("a", is_kind("a")).one_or_more().next("b", is_kind("b"))
    assert found(pattern, "a1 a2 b") == ["a1 a2 b"]
    assert found(pattern.after("to_next"), "a1 a2 b") == ["a1 a2 b", "a2 b"]
    pair = begin("a", is_kind("a")).next("b")
    assert found(pair, "a1 a2 a3") == ["a1 a2"]
    assert found(pair.after("to_last", "b"), "a1 a2 a3") == ["a1 a2", "a2 a3"]


# -- the law -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """One row of a chain: its kind, how it follows the row before, and kinds that must not lie between."""

    kind: str
    link: str
    absent: str = ""


@st.composite
def chains(draw: st.DrawFn) -> tuple[Pattern, list[list[Wanted]]]:
    """A random chain in the builder's words, and in the rows that it wants: several where a step may come often."""
    pattern: Pattern | None = None
    options: list[list[list[Wanted]]] = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from("abc"))
        link = draw(st.sampled_from(["next", "followed_by", "followed_by_any"])) if number else "next"
        absent = draw(st.sampled_from("xabc")) if number and link != "next" and draw(st.booleans()) else ""
        name = f"s{number}"
        if pattern is None:
            pattern = begin(name, is_kind(kind))
        else:
            pattern = pattern.not_followed_by(f"n{number}", is_kind(absent)) if absent else pattern
            pattern = getattr(pattern, link)(name, is_kind(kind))
        least = draw(st.integers(1, 2))
        most = least + draw(st.integers(0, 1))
        inside = draw(st.sampled_from(["consecutive", "relaxed", "allow_combinations"]))
        pattern = getattr(pattern.times(least, most), inside)()
        again = {"consecutive": "next", "relaxed": "followed_by", "allow_combinations": "followed_by_any"}[inside]
        first = Wanted(kind, link, absent)
        rounds = [[first, *[Wanted(kind, again)] * more] for more in range(least - 1, most)]
        if draw(st.integers(0, 3)) == 0 and number:
            # The negation before a step that is left out holds until the next row.
            pattern, rounds = pattern.optional(), [*rounds, [Wanted("", "left out", absent)]]
        options.append(rounds)
    assert pattern is not None
    within = pattern.within("1 hour")  # a negation may come to stand at the end
    return within.after("none"), [[one for part in way for one in part] for way in product(*options)]


def chosen(wanted: list[Wanted], kinds: str, start: int) -> list[tuple[int, ...]]:
    """All ways to choose rows for what is wanted, the first of them `start`."""
    ways: list[tuple[int, ...]] = [()]
    absent = ""
    for one in wanted:
        absent += one.absent
        if one.link == "left out":
            continue
        places = range(len(kinds))
        ways = [(*way, place) for way in ways for place in places if _follows(one, absent, way, place, kinds, start)]
        absent = ""
    return [way for way in ways if not way or not set(absent) & set(kinds[way[-1] + 1 :])]


def _follows(one: Wanted, absent: str, way: tuple[int, ...], place: int, kinds: str, start: int) -> bool:
    if kinds[place] != one.kind:
        return False
    if not way:
        return place == start
    between = kinds[way[-1] + 1 : place]
    if place <= way[-1] or set(absent) & set(between):
        return False
    return one.link == "followed_by_any" or (one.kind not in between if one.link == "followed_by" else not between)


@given(chain=chains(), kinds=st.text(KINDS, max_size=9))
def test_every_way_to_choose_the_rows_of_a_chain_is_found(
    chain: tuple[Pattern, list[list[Wanted]]], kinds: str
) -> None:
    pattern, wants = chain
    expected = {way for wanted in wants for start in range(len(kinds)) for way in chosen(wanted, kinds, start) if way}
    outcome = search(pattern.rule(order_by="at"), rows_of(kinds))
    assert {tuple(one.row for one in match.taken) for match in outcome.matches if match.taken} == expected


@given(chain=chains())
def test_what_is_built_can_be_written_as_text(chain: tuple[Pattern, list[list[Wanted]]]) -> None:
    rule = chain[0].measures(first="FIRST(s0.amount)", count="COUNT(*)").rule(order_by="at", by="user")
    assert parse(render(rule)) == rule


# -- values --------------------------------------------------------------------------------------------------------------


def test_a_pattern_never_changes() -> None:
    start = begin("a", "amount < 5")
    start.times(3)
    start.next("b")
    assert start == begin("a", "amount < 5")
    assert hash(start) == hash(begin("a", "amount < 5"))
    assert start.times(2).rule().pattern == Repeat(Variable("a"), 2, 2)


def test_a_pattern_shows_itself() -> None:
    pattern = begin("small", "amount < 5").times(2).or_more().next("big", "amount > 500").within("10 minutes")
    assert repr(pattern) == "Pattern(small{2,} big WITHIN INTERVAL '10' MINUTE)"
    rule = pattern.measures(total="SUM(small.amount)").rule(order_by="at", by="card")
    assert rule.pattern == Sequence((Repeat(Variable("small"), 2, None), Variable("big")))
    assert (rule.within_us, rule.order_by, rule.by, rule.after) == (600_000_000, "at", ("card",), AfterMatch())
    assert rule.define["small"].simple
    assert [measure.sql for measure in rule.measures] == ["SUM(small.amount)"]


def test_conditions_add_up() -> None:
    rule = begin("a", "amount < 5").where("kind = 'x'").or_where("kind IS NULL").rule()
    assert rule.define["a"].sql == "((amount < 5) AND (kind = 'x')) OR (kind IS NULL)"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: begin("two words"),
        lambda: begin("a", "").rule(),
        lambda: begin("a").times(0),
        lambda: begin("a").times(3, 2),
        lambda: begin("a").times(20_000).rule(),
        lambda: begin("a").not_next("x").times(2),
        lambda: begin("a").not_followed_by("x").rule(),
        lambda: begin("a").not_followed_by("x").next("b").rule(),
        lambda: begin("a").not_followed_by("x").followed_by("b").optional().rule(),
        lambda: begin("a").not_followed_by("x").followed_by(begin("b").optional()).followed_by("c").rule(),
        lambda: begin("a").until("amount > 1").rule(),
        lambda: begin("a").next("b").after("to_first", "a").rule(),
        lambda: begin("a").next("b").after("to_last", "c").rule(),
        lambda: begin("a").after("to_last"),
        lambda: begin("a").after("somewhere"),
        lambda: begin("a").rows("some"),
        lambda: begin("a").within("soon"),
        lambda: begin("a", "amount < 1").next("a", "amount > 1").rule(),
        lambda: begin("a").next("A").rule(),
        lambda: begin("a").subset("u", "b").rule(),
        lambda: begin("a").next(begin("b").within("1 minute")),
        lambda: begin(begin("a").not_followed_by("x")).within("1 minute").rule(),
        lambda: begin(begin("a")).where("amount > 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: Callable[[], Any]) -> None:
    with pytest.raises(ArgumentInvalid):
        wrong()


def test_a_function_that_nothing_can_compute_is_found_when_the_pattern_is_written() -> None:
    with pytest.raises(PatternInvalid) as caught:
        begin("a").next("b", "amount > 1 AND concat(a.kind, kind) = 'xy'").rule()
    assert caught.value.place.splitlines()[1] == "               ^"


def test_an_error_in_a_condition_points_at_its_place() -> None:
    with pytest.raises(PatternInvalid) as caught:
        begin("small", "amount < LAST(smal.amount)").rule()
    assert caught.value.place.splitlines()[1] == "              ^"
    assert caught.value.meant == "Did you mean small?"
