"""The engine of `Match` finds what the naive matcher finds, however the rows come."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, assume, given
from hypothesis import strategies as st

from headwater.operators.errors import SkipImpossible
from headwater.operators.match.kernel import machine_code
from headwater.operators.match.language.rule import Rule
from tests.laws import costly
from tests.operators.match import naive
from tests.operators.match.laws import Laws, arrivals, comparable, expected, keyed, starts_dropped

Row = dict[str, Any]
SECOND = 1_000_000
PATIENT = costly(5, phases=[Phase.generate])


@pytest.fixture(scope="module", params=["interpreted", "machine code"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """All rows are searched in one of the two ways."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "interpreted":
            patch.setattr(machine_code, "_ready", {})
            patch.setattr(machine_code, "STEPS_MAX", sys.maxsize)
        patch.setattr(machine_code, "CALL_STEPS_MAX", sys.maxsize if request.param == "interpreted" else 0)
        patch.setattr(machine_code, "_steps", machine_code._Steps())
        yield


def outcome(rule: Rule, rows: list[Row], **settings: Any) -> tuple[list[str], list[str]] | None:
    """What must come out; None where the rule fails on these rows."""
    try:
        out, over = expected(rule, rows, **settings)
    except SkipImpossible:
        return None
    except naive.TooHard:
        assume(False)
    return comparable(out), comparable(over)


@PATIENT
@given(rule=naive.rules(), events=st.lists(naive.events(), min_size=1, max_size=3))
def test_rows_that_are_all_there_give_what_the_definition_says(rule: Rule, events: list[list[Row]]) -> None:
    rows = keyed(events)
    wanted = outcome(rule, rows)
    try:
        out, over = Laws(rule).bounded(rows)
    except SkipImpossible:
        assert wanted is None
        return
    assert wanted == (comparable(out), comparable(over))


@PATIENT
@given(
    data=st.data(),
    rule=naive.rules(),
    events=st.lists(naive.events(), min_size=1, max_size=3),
    late_by=st.sampled_from([0, 3, 10]),
    partitions=st.integers(1, 3),
)
def test_neither_the_order_nor_the_batches_nor_the_partitions_matter(
    data: st.DataObject, rule: Rule, events: list[list[Row]], late_by: int, partitions: int
) -> None:
    rows = keyed(events)
    wanted = outcome(rule, rows)
    batches = data.draw(arrivals(rows, late_by_us=late_by * SECOND))
    replay = data.draw(st.none() | st.integers(0, len(batches) - 1))
    try:
        out, sides = Laws(rule, late_by_us=late_by * SECOND).streamed(batches, partitions=partitions, replay=replay)
    except SkipImpossible:
        assert wanted is None
        return
    assert "late" not in sides
    assert wanted == (comparable(out), comparable(sides.get("timed_out", [])))


@PATIENT
@given(
    data=st.data(),
    rule=naive.rules(),
    events=st.lists(naive.events(), min_size=1, max_size=2),
    partials_max=st.integers(1, 5),
)
def test_beyond_the_limit_of_rows_batches_do_not_matter_either(
    data: st.DataObject, rule: Rule, events: list[list[Row]], partials_max: int
) -> None:
    rows = keyed(events)
    wanted = outcome(rule, rows, partials_max=partials_max)
    assume(wanted is not None)
    batches = data.draw(arrivals(rows, late_by_us=0))
    out, sides = Laws(rule, partials_max=partials_max).streamed(batches)
    assert wanted == (comparable(out), comparable(sides.get("timed_out", [])))
    dropped = starts_dropped(rule, rows, partials_max=partials_max)
    assert comparable(sides.get("dropped", [])) == comparable(dropped)


@PATIENT
@given(
    rule=naive.rules(),
    events=naive.events(),
    watermarks=st.lists(st.integers(0, 40).map(lambda second: second * SECOND), max_size=5, unique=True).map(sorted),
    partials_max=st.sampled_from([4, 1000, 1000]),
)
def test_what_is_certain_comes_out_with_the_batch_that_makes_it_so(
    rule: Rule, events: list[Row], watermarks: list[int], partials_max: int
) -> None:
    rows = keyed([events])
    settings = {"partials_max": partials_max}
    wanted = outcome(rule, rows, **settings)
    assume(wanted is not None)
    steps = Laws(rule, **settings).by_watermark(rows, watermarks)
    out: list[Row] = []
    over: list[Row] = []
    for reached_us, (more, sides) in zip([*watermarks, None], steps, strict=True):
        out, over = out + more, over + sides.get("timed_out", [])
        there = [row for row in rows if reached_us is None or row["at"] < reached_us]
        assert outcome(rule, there, reached_us=reached_us, **settings) == (comparable(out), comparable(over))
