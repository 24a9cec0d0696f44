"""The line of a rule's states says at each moment the worst state that any of its subjects was in."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import cast

from hypothesis import given
from hypothesis.strategies import DrawFn, composite, integers, lists, sampled_from, tuples

from headwater.alerts import AlertState, Change, Summary
from headwater.alerts.state import Event, State
from headwater.console.alerts.display import evaluated_parts, intervals, line_of, state_line
from tests.alerts.numbers import Heard, Numbers, opened, slow, watcher_of

#: What may follow what, for a subject whose rule has a time.
FOLLOWS: dict[str, tuple[Event, ...]] = {"ok": ("pending",), "pending": ("firing", "ok"), "firing": ("resolved",)}
STATES = ("firing", "unknown", "pending", "ok")


def _change(subject: str, state: Event, at: int) -> Change:
    return Change(
        id=f"{subject}{at}",
        at_us=at,
        rule="r",
        subject=subject,
        state=state,
        value=0.0,
        threshold=0.0,
        severity="info",
        message="",
        offset=at,
    )


@composite
def histories(draw: DrawFn) -> list[tuple[int, str, Event, str]]:
    """Changes of up to three subjects at different times, each with the state that it leads to."""
    now = dict.fromkeys("abc"[: draw(integers(1, 3))], "ok")
    history: list[tuple[int, str, Event, str]] = []
    for at in range(1, draw(integers(0, 25)) + 1):
        subject = draw(sampled_from(sorted(now)))
        event = draw(sampled_from(FOLLOWS[now[subject]]))
        now[subject] = "ok" if event == "resolved" else event
        history.append((at * 10, subject, event, now[subject]))
    return history


def _worst(history: list[tuple[int, str, Event, str]], at: int) -> str:
    """From the definition: replay everything up to a moment."""
    states: dict[str, str] = {}
    for when, subject, _, state in history:
        if when <= at:
            states[subject] = state
    return min(states.values(), key=STATES.index, default="ok")


@given(history=histories(), start=integers(0, 100))
def test_each_moment_has_the_worst_state_of_any_subject(history: list[tuple[int, str, Event, str]], start: int) -> None:
    end = 400
    states = {}
    for when, subject, event, _ in history:
        states[subject] = AlertState(rule="r", subject=subject, state=cast("State", event), since_us=when)
    states = {name: state for name, state in states.items() if state.state != "ok"}
    changes = [_change(subject, event, when) for when, subject, event, _ in history if when >= start]
    line = intervals(reversed(changes), states.values(), start_us=start, end_us=end)
    assert line[0][0] == start
    assert line[-1][1] == end
    assert all(interval[1] == other[0] and interval[2] != other[2] for interval, other in pairwise(line))
    first = {change.subject: change for change in reversed(changes)}
    # The record of firing does not say whether its subject was pending before the line begins.
    unsure = max((change.at_us for change in first.values() if change.state == "firing"), default=start)
    for begin, stop, state in line:
        for moment in range(begin, stop):
            expected = _worst(history, moment)
            assert state == expected or (state == "ok" and expected == "pending" and moment < unsure)


def test_of_a_paused_rule_nothing_is_known_after_its_last_evaluation() -> None:
    ended = [_change("a", "firing", 10), _change("a", "resolved", 20)]
    line = intervals(ended, [], start_us=0, end_us=100)
    assert evaluated_parts(line, [(0, 30)], paused=True) == [
        (0, 10, "ok"),
        (10, 20, "firing"),
        (20, 30, "ok"),
        (30, 100, "paused"),
    ]
    assert evaluated_parts([(0, 100, "ok")], [], paused=True) == [(0, 100, "paused")]
    assert 'class="good"' not in state_line([(0, 100, "paused")], label="Today")


def test_the_line_tells_how_long_it_fired() -> None:
    line = intervals([_change("a", "firing", 60_000_000)], [], start_us=0, end_us=120_000_000)
    assert line == [(0, 60_000_000, "ok"), (60_000_000, 120_000_000, "firing")]
    assert 'aria-label="Today: fired for 1 min"' in state_line(line, label="Today")


@given(
    history=histories(),
    periods=lists(tuples(integers(0, 400), integers(0, 60)).map(lambda given: (given[0], given[0] + given[1]))),
)
def test_a_state_is_drawn_only_where_the_rule_was_evaluated(
    history: list[tuple[int, str, Event, str]], periods: list[tuple[int, int]]
) -> None:
    end = 400_000_000
    periods = sorted((begin * 1_000_000, until * 1_000_000) for begin, until in periods)
    changes = [_change(subject, event, when * 1_000_000) for when, subject, event, _ in history]
    whole = intervals(changes, [], start_us=0, end_us=end)
    line = evaluated_parts(whole, periods)
    assert (line[0][0], line[-1][1]) == (0, end)
    assert all(interval[1] == other[0] and interval[2] != other[2] for interval, other in pairwise(line))
    for begin, stop, state in line:
        for second in range(begin, stop, 1_000_000):
            # The period that was written last goes on up to now: its end is written once a minute.
            last = bool(periods) and end - periods[-1][1] <= 90_000_000 and periods[-1][0] <= second
            is_known = last or any(since <= second < until for since, until in periods)
            true = next(one for first, last, one in whole if first <= second < last)
            assert state == (true if is_known else "not evaluated")


def test_a_rule_six_minutes_old_has_no_green_day_behind_it(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        numbers = Numbers(lags={"spend": 0})
        watcher = watcher_of(log, numbers, Heard())
        watcher.put(slow())
        for _ in range(73):
            watcher.look()
            numbers.clock.advance(seconds=5)
        line = _day(watcher.state("slow"), numbers)
        assert [state for _, _, state in line] == ["not evaluated", "ok"]
        assert 0 <= line[-1][1] - line[-1][0] - 360_000_000 <= 20_000_000
        assert "did not fire, evaluated for 6 min" in state_line(line, label="Last 24 hours")


def test_the_night_in_which_no_process_ran_is_not_green_and_another_process_knows_it(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        numbers = Numbers(lags={"spend": 0})
        before = watcher_of(log, numbers, Heard())
        before.put(slow())
        for _ in range(60):
            before.look()
            numbers.clock.advance(seconds=60)
        numbers.clock.advance(seconds=8 * 3_600)
        after = watcher_of(log, numbers, Heard())
        for _ in range(30):
            after.look()
            numbers.clock.advance(seconds=60)
        for process in (after, watcher_of(log, numbers, Heard())):  # one that only reads
            assert [state for _, _, state in _day(process.state("slow"), numbers)] == [
                "not evaluated",
                "ok",
                "not evaluated",
                "ok",
            ]
        after.pause("slow")
        after.look()
        numbers.clock.advance(seconds=3_600)
        assert [state for _, _, state in _day(after.state("slow"), numbers)][-2:] == ["ok", "paused"]


def _day(summary: Summary, numbers: Numbers) -> list[tuple[int, int, str]]:
    return line_of(summary, [], seconds=86_400, step=10.0, now_us=numbers.clock.now_us())
