"""The states of a rule over time as a coloured line: ok, pending, firing, unknown or paused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from headwater.alerts import AlertState, Change
from headwater.alerts.state import WHOLE_RULE
from headwater.console.kit.words import moment, span

#: From the worst to the best, with the colour of each.
STATES = {"firing": "bad", "unknown": "info", "pending": "warn", "ok": "good", "paused": "off"}
#: What each record of the history leads to; a test leads nowhere.
_LEADS_TO = {"firing": "firing", "reminder": "firing", "pending": "pending", "unknown": "unknown"}

Stretch = tuple[int, int, str]


def stretches(
    changes: Iterable[Change], states: Iterable[AlertState], *, start_us: int, end_us: int, paused: bool = False
) -> list[Stretch]:
    """From when to when a rule was in which state, the worst of its subjects; it is known from `start_us` on.

    `changes` are those since then in any order, `states` how its subjects stand now. Of a rule that is `paused` nothing
    is known after its last change.
    """
    ordered = sorted((one for one in changes if one.state != "test"), key=lambda one: (one.at_us, one.offset))
    current = {one.subject: _before_window(one, start_us) for one in states}
    for change in reversed(ordered):
        current[change.subject] = _before(change)
    found: list[Stretch] = []
    at_us = start_us
    for change in ordered:
        found.append((at_us, change.at_us, _worst(current.values())))
        current[change.subject] = _LEADS_TO.get(change.state, "ok")
        at_us = change.at_us
    found.append((at_us, end_us, "paused" if paused else _worst(current.values())))
    return _joined(found)


def _before_window(standing: AlertState, start_us: int) -> str:
    return _LEADS_TO.get(standing.state, "ok") if standing.since_us < start_us else "ok"


def _before(change: Change) -> str:
    """The state that a change has left, as far as it tells."""
    if change.state in ("resolved", "reminder"):
        return "firing"
    if change.state == "ok":
        return "unknown" if change.subject == WHOLE_RULE else "pending"
    return "ok"


def _worst(states: Iterable[str]) -> str:
    present = set(states)
    return next((one for one in STATES if one in present), "ok")


def _joined(found: Sequence[Stretch]) -> list[Stretch]:
    joined: list[Stretch] = []
    for begin, end, state in found:
        if end <= begin:
            continue
        if joined and joined[-1][2] == state:
            joined[-1] = (joined[-1][0], end, state)
        else:
            joined.append((begin, end, state))
    return joined


def state_line(found: Sequence[Stretch], *, label: str, tall: bool = False) -> str:
    """The line as HTML: each part has a tooltip with its state, and the label describes the line to screen readers."""
    if not found:
        return ""
    begin, whole = found[0][0], max(1, found[-1][1] - found[0][0])
    parts = []
    for start, end, state in found:
        left, width = (start - begin) / whole * 100, (end - start) / whole * 100
        title = f"{state} for {span((end - start) / 1e6)}, from {moment(start)[:16]}"
        parts.append(
            f'<i class="{STATES[state]}" style="left:min({left:.2f}%,100% - 2px);width:{width:.2f}%" title="{escape(title)}"></i>'
        )
    fired = sum((end - start) / 1e6 for start, end, state in found if state == "firing")
    told = f"{label}: fired for {span(fired)}" if fired else f"{label}: did not fire"
    size = " tall" if tall else ""
    return f'<span class="state-line{size}" role="img" aria-label="{escape(told)}">{"".join(parts)}</span>'
