"""What `Match` does where there is too much: too many rows, too many steps, rows too late, time that runs out."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.operators.match.language import parse
from headwater.operators.match.language.rule import Rule
from tests.operators.match.laws import Laws, Row

SECOND = 1_000_000
RUN = "MEASURES FIRST(A.id) AS first, COUNT(*) AS n PATTERN (A+ B) DEFINE A AS amount < 5, B AS amount >= 5"


def row(number: int, amount: int, *, key: str = "k") -> Row:
    return {"key": key, "id": number, "at": number * SECOND, "amount": amount, "price": None, "kind": None}


def run(rule: str | Rule, batches: list[list[Row]], **settings: Any) -> tuple[list[Row], dict[str, list[Row]]]:
    made = parse(rule) if isinstance(rule, str) else rule
    return Laws(made, **settings).streamed(batches, partitions=1)


def test_of_too_many_rows_the_oldest_start_is_given_up_and_told() -> None:
    batches = [[row(number, 1)] for number in range(1, 9)]
    found, sides = run(RUN, [*batches, [row(9, 7)], [row(20, 7, key="z")]], partials_max=4)
    # A match has four rows at most.
    assert [(one["key"], one["started_at"] // SECOND, one["reason"]) for one in sides["dropped"]] == [
        ("k", 1, "rows"),
        ("k", 2, "rows"),
        ("k", 3, "rows"),
        ("k", 4, "rows"),
        ("k", 5, "rows"),
    ]
    assert found == [{"key": "k", "first": 6, "n": 4}]
    # The same rows in one batch.
    assert run(
        RUN, [[one for batch in batches for one in batch] + [row(9, 7), row(20, 7, key="z")]], partials_max=4
    ) == (
        found,
        sides,
    )


def test_a_search_of_too_many_steps_is_given_up_and_the_others_go_on() -> None:
    # How A is chosen matters to B, so nothing can be remembered, and there are two to the twentieth ways.
    text = """
        MEASURES COUNT(*) AS n PATTERN ((A | C)+ B)
        DEFINE A AS amount < 5, C AS amount < 5, B AS amount > 5 AND COUNT(A.*) < 0
    """
    rows = [row(number, 1) for number in range(1, 21)]
    _, sides = run(text, [[*rows, row(21, 9)], [row(30, 1, key="z")]], steps_max=10_000)
    assert sides["dropped"][0] == {"key": "k", "started_at": SECOND, "reason": "steps"}
    assert len(sides["dropped"]) < len(rows)


@given(cuts=st.lists(st.integers(1, 14), max_size=6), steps_max=st.integers(20, 200))
def test_with_every_match_a_start_of_too_many_steps_gives_only_true_matches_and_is_told(
    cuts: list[int], steps_max: int
) -> None:
    """Which of them depends on batches: those leave that are found before the bound. Without a start that is dropped, all do."""
    text = """
        MEASURES FIRST(A.id) AS first, LAST(B.id) AS last, COUNT(*) AS n EVERY MATCH AFTER MATCH NO SKIP
        PATTERN (A (B | X)+ B) WITHIN INTERVAL '1' MINUTE DEFINE A AS id IN (1, 12), B AS amount > 5
    """
    rows = [row(number, number % 3 * 4) for number in range(1, 15)]
    edges = [0, *sorted(cuts), len(rows)]
    batches = [rows[begin:end] for begin, end in pairwise(edges)]
    end = [[row(100, 1, key="z")], [row(200, 1, key="z")]]
    found, sides = run(text, [*batches, *end], steps_max=steps_max)
    every, _ = run(text, [rows, *end])
    assert not Counter(map(repr, found)) - Counter(map(repr, every))
    dropped = {one["started_at"] // SECOND for one in sides.get("dropped", [])}
    assert all(one["reason"] == "steps" for one in sides.get("dropped", []))
    whole = [one for one in every if one["first"] not in dropped]
    assert Counter(map(repr, whole)) == Counter(repr(one) for one in found if one["first"] not in dropped)


def test_ways_that_failed_are_not_tried_again() -> None:
    text = "MEASURES COUNT(*) AS n PATTERN (((A | C | A)+ A* C*)+ B) DEFINE A AS amount < 5, C AS amount < 6, B AS amount > 8"
    rows = [row(number, 1) for number in range(1, 300)]
    found, sides = run(text, [[*rows, row(300, 7), row(301, 1), row(302, 9)], [row(400, 1, key="z")]])
    assert found == [{"key": "k", "n": 2}]
    assert "dropped" not in sides


def test_time_runs_out_without_a_next_event_of_the_key() -> None:
    text = RUN.replace("PATTERN (A+ B)", "PATTERN (A+ B) WITHIN INTERVAL '10' SECOND")
    made = Laws(parse(text), late_by_us=0)
    others = [[row(number, 9, key="z")] for number in (5, 11, 12, 13)]
    batches = [[row(1, 1), row(2, 2)], *others]
    # The row at 12 says that time is up, and wakes keys that have no rows themselves.
    for number in range(3, len(batches) + 1):
        _, sides = made.streamed(batches[:number], partitions=1, end=False)
        told = [(one["key"], one["first"], one["n"]) for one in sides.get("timed_out", [])]
        assert told == [("k", 1, 2), ("k", 2, 1)][: max(0, number - 3)]


def test_rows_behind_the_watermark_are_late() -> None:
    batches = [[row(10, 1)], [row(20, 1)], [row(5, 1), row(21, 9)], [row(30, 1, key="z")]]
    found, sides = run(RUN, batches)
    assert [(one["id"], one["late_by_us"]) for one in sides["late"]] == [(5, 15 * SECOND)]
    assert found == [{"key": "k", "first": 10, "n": 3}]
