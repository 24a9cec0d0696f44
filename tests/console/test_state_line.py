"""The line of a rule's states says at each moment the worst state that any of its subjects was in."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

from hypothesis import given
from hypothesis.strategies import DrawFn, composite, integers, sampled_from

from headwater.alerts import AlertState, Change
from headwater.alerts.state import Event, State
from headwater.console.alerts.display import intervals, state_line

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


def test_of_a_paused_rule_nothing_is_known_after_its_last_change() -> None:
    ended = [_change("a", "firing", 10), _change("a", "resolved", 20)]
    line = intervals(ended, [], start_us=0, end_us=100, paused=True)
    assert line == [(0, 10, "ok"), (10, 20, "firing"), (20, 100, "paused")]
    assert intervals([], [], start_us=0, end_us=100, paused=True) == [(0, 100, "paused")]
    assert 'class="good"' not in state_line([(0, 100, "paused")], label="Today")


def test_the_line_tells_how_long_it_fired() -> None:
    line = intervals([_change("a", "firing", 60_000_000)], [], start_us=0, end_us=120_000_000)
    assert line == [(0, 60_000_000, "ok"), (60_000_000, 120_000_000, "firing")]
    assert 'aria-label="Today: fired for 1 min"' in state_line(line, label="Today")
