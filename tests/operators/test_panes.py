"""Panes: however rows come, what the panes of a window say in the end is what SQL says of all its rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.aggregation import Computation
from headwater.engine.contract import StepResult
from headwater.errors import ArgumentInvalid
from headwater.operators import Global, Hopping, Panes, Session, Tumbling, agg
from headwater.operators.panes import no_rows
from headwater.operators.trigger import (
    AfterCount,
    AfterWatermark,
    AllOf,
    EachOf,
    FirstOf,
    OrFinally,
    Repeatedly,
    Trigger,
    WhenClosed,
    every,
    rows,
)
from tests.laws import costly
from tests.operators.batches import bounded, streamed, table_of, with_arguments
from tests.operators.test_trigger import TRIGGERS
from tests.operators.test_windows import COMPUTE, SECOND, Row, arrivals, expected, flat, numbered, table, windows_of

Pane = dict[str, Any]
#: Triggers that never finish before the window is closed, so that no row is turned away.
LASTING = (
    st.builds(AfterWatermark, early=st.none() | TRIGGERS, late=TRIGGERS)
    | st.builds(Repeatedly, TRIGGERS)
    | st.just(WhenClosed())
)


def spread(outputs: Sequence[pa.Table]) -> dict[tuple[str, Any], list[Pane]]:
    """The panes of each user and window, in the order in which they came."""
    found: dict[tuple[str, Any], list[Pane]] = defaultdict(list)
    for pane in (row for output in outputs for row in output.to_pylist()):
        if pane["user"] != "end":
            found[pane["user"], pane["window_start"]].append(pane)
    return found


def merged(panes: list[Pane]) -> tuple[Any, ...]:
    """What discarding panes come to: each row is in one of them."""
    total = sum(pane["total"] or 0 for pane in panes)
    everything = sorted(amount for pane in panes for amount in pane["all"])
    start = round(panes[0]["window_start"].timestamp())
    return (panes[0]["user"], start, total, sum(pane["n"] for pane in panes), tuple(everything))


def check_order(panes: list[Pane]) -> None:
    """Panes are counted without gaps; early ones come first, then at most one on time, then late ones."""
    assert [pane["pane_index"] for pane in panes] == list(range(len(panes)))
    timings = [pane["pane_timing"] for pane in panes]
    assert timings == sorted(timings, key=["early", "on_time", "late"].index)
    assert timings.count("on_time") <= 1
    assert not any(pane["is_last"] for pane in panes[:-1])
    assert [pane["is_first"] for pane in panes] == [True, *[False] * (len(panes) - 1)]


def clock(count: int, seconds: int) -> list[int]:
    return [number * seconds * SECOND for number in range(count)]


HOW = {
    "batches": arrivals(late_by=20),
    "trigger": LASTING,
    "size": st.integers(1, 30),
    "period": st.integers(1, 40),
    "delay": st.sampled_from([0, 8, 20]),
    "watermark": st.sampled_from([{}, {"scope": "key", "key_idle_timeout": 5}]),
    "seconds": st.integers(0, 4),
    "emit": st.sampled_from(["changes", "every_change"]),
    "replay": st.integers(0, 6),
    "partitions": st.integers(1, 3),
}


def panes_of(
    mode: Any,
    *,
    trigger: Trigger,
    size: int,
    period: int,
    delay: int,
    watermark: Any,
    emit: Any,
    allowed_lateness: int = 20,
) -> Panes:
    return Panes(
        window=Hopping(size=size, every=period, time=EventTime("at", delay=delay, future_max=None, **watermark)),
        by="user",
        compute=COMPUTE,
        trigger=trigger,
        mode=mode,
        emit=emit,
        allowed_lateness=allowed_lateness,
    )


def run(operator: Panes, batches: list[list[Row]], seconds: int, replay: int, partitions: int) -> list[pa.Table]:
    tables = numbered(batches)
    return streamed(
        operator.contract, tables, replay=replay, partitions=partitions, processing_us=clock(len(tables), seconds)
    )


@costly(6)
@given(**HOW)
def test_the_last_accumulating_pane_is_what_sql_says(
    batches: list[list[Row]], size: int, period: int, seconds: int, replay: int, partitions: int, **how: Any
) -> None:
    operator = panes_of("accumulating", size=size, period=period, **how)
    found = spread(run(operator, batches, seconds, replay, partitions))
    for panes in found.values():
        check_order(panes)
        counts = [pane["n"] for pane in panes]
        assert counts == sorted(counts)
    everything = [row for batch in batches for row in batch]
    wanted = expected(everything, windows_of(size, period))
    assert {flat(panes[-1]) for panes in found.values()} == wanted
    whole, _ = bounded(operator.contract, table(everything))
    assert {flat(panes[-1]) for panes in spread([whole]).values()} == wanted


@costly(6)
@given(**HOW)
def test_discarding_panes_add_up_to_what_sql_says(
    batches: list[list[Row]], size: int, period: int, seconds: int, replay: int, partitions: int, **how: Any
) -> None:
    operator = panes_of("discarding", size=size, period=period, **how)
    found = spread(run(operator, batches, seconds, replay, partitions))
    for panes in found.values():
        check_order(panes)
    everything = [row for batch in batches for row in batch]
    wanted = {(*row[:2], *row[3:5], tuple(sorted(row[6]))) for row in expected(everything, windows_of(size, period))}
    assert {merged(panes) for panes in found.values()} == wanted
    whole, _ = bounded(operator.contract, table(everything))
    assert {merged(panes) for panes in spread([whole]).values()} == wanted


@costly(6)
@given(**HOW)
def test_a_changelog_of_retracting_panes_leads_to_what_sql_says(
    batches: list[list[Row]], size: int, period: int, seconds: int, replay: int, partitions: int, **how: Any
) -> None:
    operator = panes_of("retracting", size=size, period=period, **how)
    outputs = run(operator, batches, seconds, replay, partitions)
    everything = [row for batch in batches for row in batch]
    wanted = expected(everything, windows_of(size, period))
    found = table_of(outputs, ["user", "window_start"])
    assert {flat(row) for row in found.values() if row["user"] != "end"} == wanted
    whole, _ = bounded(operator.contract, table(everything))
    assert {flat(row) for row in table_of([whole], ["user", "window_start"]).values()} == wanted


@costly(2)
@given(
    batches=arrivals(late_by=7),
    early=st.none() | TRIGGERS,
    late=TRIGGERS,
    allowed_lateness=st.sampled_from([0, 10]),
    seconds=st.integers(0, 4),
)
def test_a_window_whose_rows_come_in_time_has_exactly_one_pane_on_time(
    batches: list[list[Row]], early: Trigger | None, late: Trigger, allowed_lateness: int, seconds: int
) -> None:
    how: Any = {"late": late, "allowed_lateness": allowed_lateness} if allowed_lateness else {}
    operator = Panes(
        window=Tumbling(size=10, time=EventTime("at", delay=7, future_max=None)),
        by="user",
        compute=COMPUTE,
        early=early,
        **how,
    )
    for panes in spread(run(operator, batches, seconds, 0, 2)).values():
        assert [pane["pane_timing"] for pane in panes].count("on_time") == 1
        assert panes[-1]["pane_timing"] == "on_time", "nothing is late, and nothing new is said when the window closes"
        assert panes[-1]["is_last"] or allowed_lateness


# -- cases from Beam's documentation ----------------------------------------------------------------------------------


def said(operator: Panes, batches: Sequence[Sequence[Row]], now: Sequence[int] | None = None) -> list[list[Any]]:
    """What user a's windows say in each batch: index, timing, total."""
    tables, offset = [], 0
    for batch in batches:
        tables.append(with_arguments(table(batch, first=offset).select(range(5)), operator.compute))
        offset += len(batch)
    times = [at * SECOND for at in now] if now is not None else None
    outputs = streamed(operator.contract, tables, processing_us=times, partitions=1)
    return [
        [
            (*([row["_op"]] if "_op" in row else []), row["pane_index"], row["pane_timing"], row["total"])
            for row in one.to_pylist()
            if row["user"] == "a"
        ]
        for one in outputs
    ]


def a_minute(**how: Any) -> Panes:
    return Panes(
        window=Tumbling(size=60, time=EventTime("at", future_max=None)),
        by="user",
        compute={"total": agg.sum("amount")},
        **how,
    )


BATCHES: list[list[Row]] = [
    [("a", 5, 1), ("a", 8, 2), ("a", 3, 3)],
    [("a", 15, 4), ("a", 19, 5), ("a", 23, 6)],
    [("a", 9, 7), ("a", 13, 8), ("a", 10, 9)],
]


def test_accumulating_and_discarding_and_retracting_as_the_programming_guide_has_them() -> None:
    found = {mode: said(a_minute(early=rows(3), mode=mode), BATCHES) for mode in ("accumulating", "discarding")}
    assert [panes[0][2] for panes in found["accumulating"]] == [16, 73, 105]
    assert [panes[0][2] for panes in found["discarding"]] == [16, 57, 32]
    assert said(a_minute(early=rows(3), mode="retracting"), BATCHES) == [
        [("+I", 0, "early", 16)],
        [("-U", 0, "early", 16), ("+U", 1, "early", 73)],
        [("-U", 1, "early", 73), ("+U", 2, "early", 105)],
    ]


def test_early_on_time_and_late_panes_of_one_window() -> None:
    operator = a_minute(early=every("5 seconds"), allowed_lateness="1 hour")
    batches: list[list[Row]] = [
        [("a", 1, 1)],
        [],  # five seconds later: an early pane
        [("a", 2, 2)],
        [("a", 100, 61)],
        [("a", 4, 3)],  # the watermark has passed the end: the pane on time first, and then the late row
        [],
        [("a", 8, 4), ("a", 16, 5)],  # two late rows in one batch: one pane
    ]
    assert said(operator, batches, now=[0, 5, 6, 7, 8, 9, 10]) == [
        [],
        [(0, "early", 1)],
        [],
        [],
        [(1, "on_time", 3), (2, "late", 7)],
        [],
        [(3, "late", 31)],
    ]


def test_each_late_arrival_gives_a_pane_of_its_own_with_emit_each() -> None:
    operator = a_minute(allowed_lateness="1 hour", emit="every_change", mode="discarding")
    batches: list[list[Row]] = [[("a", 1, 1), ("a", 0, 61)], [("a", 8, 5), ("a", 16, 4)]]
    assert said(operator, batches) == [[], [(0, "on_time", 1), (1, "late", 16), (2, "late", 8)]]


def test_a_count_fires_once_for_all_rows_of_a_batch() -> None:
    operator = a_minute(early=rows(2), mode="discarding")
    assert said(operator, [[("a", 1, 1)], [("a", 1, 2), ("a", 1, 3), ("a", 1, 4)], [("a", 1, 5)]]) == [
        [],
        [(0, "early", 4)],
        [],
    ]


def test_the_pane_on_time_comes_even_if_nothing_is_new() -> None:
    batches: list[list[Row]] = [[("a", 1, 1)], [("b", 0, 61)], []]
    assert said(a_minute(early=rows(1)), batches)[2] == [(1, "on_time", 1)]
    assert said(a_minute(early=rows(1), mode="discarding"), batches)[2] == [(1, "on_time", None)]
    assert said(a_minute(early=rows(1), on_time="non_empty"), batches)[2] == []
    changes = said(a_minute(early=rows(1), mode="retracting"), batches)[2]
    assert changes == [("-U", 0, "early", 1), ("+U", 1, "on_time", 1)]


def test_a_window_may_say_when_it_is_closed_even_if_nothing_is_new() -> None:
    batches: list[list[Row]] = [[("a", 1, 1)], [("b", 0, 61)], [("b", 0, 700)], []]
    late_too = a_minute(allowed_lateness="5 minutes", closing="always")
    assert said(late_too, batches)[2:] == [[(0, "on_time", 1)], [(1, "late", 1)]]
    assert said(a_minute(allowed_lateness="5 minutes"), batches)[2:] == [[(0, "on_time", 1)], []]


def test_final_results_only() -> None:
    batches: list[list[Row]] = [[("a", 1, 1)], [("a", 0, 61)], [("a", 2, 5)], [("b", 0, 500)], []]
    operator = a_minute(trigger=WhenClosed(), allowed_lateness="5 minutes")
    assert said(operator, batches) == [[], [], [], [], [(0, "on_time", 3), (0, "on_time", 0)]]


def test_late_rows_may_be_collected_until_the_window_closes() -> None:
    batches: list[list[Row]] = [[("a", 1, 1), ("b", 0, 61)], [("a", 2, 5)], [("a", 4, 6), ("b", 0, 500)], []]
    operator = a_minute(late=WhenClosed(), allowed_lateness="5 minutes")
    assert said(operator, batches) == [[], [(0, "on_time", 1)], [], [(1, "late", 7)]]


def test_a_window_of_late_rows_alone_has_no_pane_on_time() -> None:
    batches: list[list[Row]] = [[("b", 0, 100)], [("a", 1, 5)], [("a", 2, 6)]]
    assert said(a_minute(allowed_lateness="5 minutes"), batches) == [[], [(0, "late", 1)], [(1, "late", 3)]]


@pytest.mark.parametrize(
    ("trigger", "totals"),
    [
        # Ones, one row per batch: which of the panes come, and what they hold.
        (EachOf(AfterCount(1), AfterCount(3), Repeatedly(AfterCount(2))), [1, 4, 6, 8]),
        (OrFinally(Repeatedly(AfterCount(2)), until=AfterCount(5)), [2, 4, 5]),
        (Repeatedly(FirstOf(AfterCount(3), every(2))), [3, 6, 7]),
        (Repeatedly(AllOf(AfterCount(2), every(3))), [3, 7]),
        (AfterCount(2), [2]),
    ],
)
def test_triggers_put_together(trigger: Trigger, totals: list[int]) -> None:
    # Time passes before the rows of a batch come: a wait that is over in the fourth batch does not see the fourth row.
    now = [0, 0, 0, 3, 3, 3, 4, 6]
    found = said(a_minute(trigger=trigger), [[("a", 1, number)] for number in range(8)], now=now)
    assert [total for panes in found for _, _, total in panes] == totals


# -- rows that no window takes ----------------------------------------------------------------------------------------


def test_rows_of_a_closed_window_and_of_a_finished_trigger_go_to_the_side() -> None:
    sides: dict[str, list[pa.Table]] = {}
    operator = Panes(
        window=Tumbling(size=10, time=EventTime("at", future_max=None), late="side_output"),
        by="user",
        compute=COMPUTE,
        trigger=AfterCount(2),
        allowed_lateness=10,
    )
    batches = [
        table([("a", 1, 1), ("a", 2, 2)]),  # the trigger fires, and has finished
        table([("a", 3, 3), ("a", 4, 12)], first=2),
        table([("a", 5, 40)], first=4),
        table([("a", 6, 5), ("a", 7, 35)], first=5),  # of a window long closed, and of one that is open
    ]
    outputs = streamed(operator.contract, batches, sides=sides, partitions=1)
    panes = [(row["window_start"].second, row["total"], row["is_last"]) for one in outputs for row in one.to_pylist()]
    assert panes == [(0, 3, True), (10, 4, True)]
    late = [(row["amount"], row["late_by_us"] // SECOND) for one in sides["late"] for row in one.to_pylist()]
    assert late == [(3, -1), (6, 35)]
    assert "_of_total" not in sides["late"][0].column_names


def test_of_rows_that_are_dropped_a_sample_is_kept() -> None:
    sides: dict[str, list[pa.Table]] = {}
    late = table([("a", number, 5) for number in range(100)], first=1)
    operator = Panes(window=Tumbling(size=10, time=EventTime("at", future_max=None)), by="user", compute=COMPUTE)
    streamed(operator.contract, [table([("a", 1, 50)]), late], sides=sides, partitions=1)
    assert sides["late"][0].num_rows == 20


def test_state_goes_when_windows_close() -> None:
    operator = Panes(
        window=Hopping(size=20, every=10, time=EventTime("at", future_max=None)),
        by="user",
        compute=COMPUTE,
        early=FirstOf(rows(3), every("2 seconds")),
        allowed_lateness=10,
        mode="retracting",
    )
    contract = operator.contract(table([]).schema)
    found: list[int] = []

    def watched(state: Any, rows: Any, time: Any) -> Any:
        stepped = contract.step(state, rows, time)
        assert isinstance(stepped, StepResult)
        found.append(stepped.state.num_rows)
        return stepped

    batches = [table([("a", 1, number * 5)], first=number) for number in range(100)]
    times = [number * SECOND for number in range(100)]
    streamed(lambda _: replace(contract, step=watched), batches, processing_us=times, partitions=1)
    assert max(found) <= 5


def test_no_rows_come_to_what_sql_says_of_none() -> None:
    compute = {
        "n": agg.count(),
        "total": agg.sum("amount"),
        "mean": agg.mean("amount"),
        "all": agg.collect_list("amount"),
        "last": agg.last("amount"),
        "different": agg.count_distinct("amount"),
    }
    schema = with_arguments(table([]).select(range(5)), compute).schema
    computation = Computation.over(compute, schema)
    (row,) = computation.finish(no_rows(computation)).to_pylist()
    assert row == {"n": 0, "total": None, "mean": None, "all": [], "last": None, "different": 0}


# -- nonsense ---------------------------------------------------------------------------------------------------------

WINDOW = Tumbling(size=10, time="at")
COUNT = {"n": agg.count()}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Panes(window=WINDOW, compute=COUNT, mode="adding"), '"discarding" or "accumulating"'),  # type: ignore[arg-type]
        (lambda: Panes(window=WINDOW, compute=COUNT, emit="final"), '"changes" or "every_change"'),  # type: ignore[arg-type]
        (lambda: Panes(window=WINDOW, compute=COUNT, on_time="never"), "on_time"),  # type: ignore[arg-type]
        (lambda: Panes(window=WINDOW, compute={}), "aggregates"),
        (lambda: Panes(window=WINDOW, compute=COUNT, early="5 seconds"), "a trigger, such as"),  # type: ignore[arg-type]
        (lambda: Panes(window=WINDOW, compute=COUNT, late=rows(1)), "an `allowed_lateness` beside it"),
        (lambda: Panes(window=WINDOW, compute=COUNT, trigger=rows(1), early=rows(1)), "either it, or"),
        (lambda: Panes(window=WINDOW, compute=COUNT, allowed_lateness="-5 s"), "allowed_lateness"),
        (lambda: Panes(window="1 minute", compute=COUNT), "a Tumbling, a Hopping or a Global"),  # type: ignore[arg-type]
        (
            lambda: Panes(window=Session(gap=5, time="at", compute=COUNT), compute=COUNT),  # type: ignore[arg-type]
            "a Tumbling, a Hopping or a Global",
        ),
        (lambda: Panes(window=Tumbling(size=10, time="at", by="user"), compute=COUNT), "`by` of Panes"),
        (lambda: Panes(window=Tumbling(size=10, clock="processing"), compute=COUNT), "panes are of event time"),
        (
            lambda: Panes(window=Tumbling(size=10, time="at", emit="changes", completeness=True), compute=COUNT),
            "`emit`",
        ),
        (
            lambda: Panes(window=Tumbling(size=10, time="at", allowed_lateness=5), compute=COUNT),
            "`allowed_lateness` of Panes",
        ),
        (lambda: Panes(window=WINDOW, compute=COUNT, trigger=EachOf(*[rows(1)] * 70)), "at most 62"),
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make: Any, why: str) -> None:
    with pytest.raises(ArgumentInvalid, match=why):
        make()


@costly(2)
@given(
    batches=arrivals(late_by=20),
    count=st.integers(1, 5),
    mode=st.sampled_from(["accumulating", "discarding", "retracting"]),
    allowed_lateness=st.sampled_from([0, 10]),
    partitions=st.integers(1, 3),
)
def test_a_global_window_holds_all_rows_of_a_key(
    batches: list[list[Row]], count: int, mode: Any, allowed_lateness: int, partitions: int
) -> None:
    operator = Panes(
        window=Global(time=EventTime("at", future_max=None)),
        by="user",
        compute=COMPUTE,
        trigger=Repeatedly(AfterCount(count)),
        mode=mode,
        emit="every_change",
        on_time="non_empty",
        allowed_lateness=allowed_lateness,
    )
    users = [row[0] for batch in batches for row in batch]
    stream = streamed(operator.contract, numbered(batches), partitions=partitions)
    whole, sides = bounded(operator.contract, table([row for batch in batches for row in batch]))
    assert "late" not in sides
    for tables, ends in ((stream, False), ([whole], True)):
        panes = [row for one in tables for row in one.to_pylist()]
        assert all(pane["window_start"] is None and pane["window_end"] is None for pane in panes)
        for user in set(users):
            # A pane for every so many rows, whatever their time; at the end of the input, what is left.
            own = [pane for pane in panes if pane["user"] == user and pane.get("_op", "+I") in ("+I", "+U")]
            full, rest = divmod(users.count(user), count)
            sizes = [*[count] * full, *([rest] if rest and ends else [])]
            if mode != "discarding":
                sizes = [sum(sizes[: number + 1]) for number in range(len(sizes))]
            assert [pane["n"] for pane in own] == sizes
            assert [pane["is_first"] for pane in own] == [number == 0 for number in range(len(own))]


def test_a_global_window_needs_panes() -> None:
    with pytest.raises(ArgumentInvalid, match="a trigger must say when"):
        Global(time="at")(None)  # type: ignore[arg-type]
