"""The law of states: whatever the numbers do, and whenever the watcher is restarted, the history is what the definition says.

The model looks at the whole series at once. It knows no states that follow one another, only blocks of looks in a row
that found too much.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headwater.alerts.state import RESOLVED_SECONDS, AlertState, Measurement, step
from tests.alerts.numbers import Heard, Numbers, opened, slow, watcher_of
from tests.laws import costly


@dataclass(frozen=True)
class Glance:
    """One look: when, what it found (None: nothing could be found out), and whether the watcher was restarted before."""

    at: float
    is_over: bool | None
    restarts: bool = False


@st.composite
def series(draw: st.DrawFn) -> list[Glance]:
    pauses = st.sampled_from([1.0, 5.0, 30.0, 60.0, RESOLVED_SECONDS])
    at, found = 0.0, []
    for is_over, pause, restarts in draw(
        st.lists(st.tuples(st.sampled_from([True, True, False, None]), pauses, st.booleans()), max_size=14)
    ):
        at += pause
        found.append(Glance(at=at, is_over=is_over, restarts=restarts))
    return found


def expected(glances: list[Glance], *, for_seconds: float) -> list[tuple[float, str]]:
    """The records of the history, from the definition: the state at each look, and those looks at which it differs."""
    known = [one for one in glances if one.is_over is not None]
    states = [_state(known[: number + 1], for_seconds) for number in range(len(known))]
    records, before = [], "ok"
    for one, state in zip(known, states, strict=True):
        if state != before and not (before == "resolved" and state == "ok"):
            records.append((one.at, state))
        before = state
    return records


def _state(known: list[Glance], for_seconds: float) -> str:
    last = known[-1]
    if last.is_over:
        return "firing" if last.at - _block(known)[0].at >= for_seconds else "pending"
    # The block that ended last, and the look that found it over.
    ended = list(known)
    while ended and not ended[-1].is_over:
        ended.pop()
    if not ended:
        return "ok"
    over = known[len(ended)]
    block = _block(ended)
    fired = block[-1].at - block[0].at >= for_seconds
    return "resolved" if fired and (over is last or last.at - over.at < RESOLVED_SECONDS) else "ok"


def _block(known: list[Glance]) -> list[Glance]:
    block: list[Glance] = []
    for one in reversed(known):
        if not one.is_over:
            break
        block.insert(0, one)
    return block


@given(glances=series(), for_seconds=st.sampled_from([0.0, 5.0, 61.0]))
def test_the_history_is_what_the_definition_says(glances: list[Glance], for_seconds: float) -> None:
    rule, state, records = slow(for_seconds=for_seconds), None, []
    before: AlertState | None = state
    for one in glances:
        if one.is_over is not None:
            measurement = Measurement(subject="spend", value=0.0, is_over=one.is_over, message="")
            taken = step(rule, before, measurement, now_us=round(one.at * 1e6))
            before = taken.after
            if taken.change is not None:
                records.append((taken.change.at_us / 1e6, taken.change.state))
    assert records == expected(glances, for_seconds=for_seconds)


@costly(2)
@given(glances=series(), for_seconds=st.sampled_from([0.0, 5.0, 61.0]))
def test_a_restart_at_any_point_changes_nothing(glances: list[Glance], for_seconds: float) -> None:
    numbers, heard = Numbers(), Heard()
    began_us = numbers.now_us()
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as log:
        numbers.lags = {"spend": 0}
        watcher = watcher_of(log, numbers, heard)
        watcher.put(slow(for_seconds=for_seconds))
        for one in glances:
            numbers.clock.advance(seconds=one.at - (numbers.now_us() - began_us) / 1e6)
            numbers.lags = {} if one.is_over is None else {"spend": 100 if one.is_over else 0}
            if one.restarts:
                watcher = watcher_of(log, numbers, heard)
            watcher.look()
            watcher.deliver()
        history = watcher.history(limit=1_000)[::-1]
        wanted = expected(glances, for_seconds=for_seconds)
        assert [((one.at_us - began_us) / 1e6, one.state) for one in history if one.subject] == wanted
        # Each receiver hears once of each thing that fires, and once that it is over.
        loud = [("http://hook", "slow", state) for _, state in wanted if state in ("firing", "resolved")]
        assert heard.told == loud
        troubles = [one.state for one in history if not one.subject]
        assert troubles == ["unknown", "ok"] * (len(troubles) // 2) + ["unknown"] * (len(troubles) % 2)
