"""The alert state of each subject of a rule: ok → pending → firing → resolved, decided by one pure function.

A rule watches any number of subjects: each group, query, topic or row by itself. Each has a state of its own, which
changes only when the rule is evaluated. It makes no difference which process evaluates it, or evaluated it before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headwater.alerts.rule import Rule, Severity

State = Literal["ok", "pending", "firing", "resolved", "unknown"]
#: The kind of a record of the history: a state that was entered, a reminder, or a test.
Event = Literal["ok", "pending", "firing", "resolved", "unknown", "reminder", "test"]
#: The subject of a rule that could not be evaluated; no other subject is empty.
WHOLE_RULE = ""
#: How long a subject that is over stays resolved.
RESOLVED_SECONDS = 900.0


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One subject, measured once."""

    subject: str
    value: float
    is_over: bool
    message: str


@dataclass(frozen=True, kw_only=True)
class AlertState:
    """The state of one subject of a rule, and since when."""

    rule: str
    subject: str
    state: State
    since_us: int
    value: float = 0.0
    threshold: float = 0.0
    message: str = ""
    #: Whether a notification was sent that it fires, so that one must follow when it is over.
    is_told: bool = False
    #: The change with which it began to fire; later notifications refer to it.
    firing_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One record of the history: a subject has changed its state."""

    id: str
    at_us: int
    rule: str
    subject: str
    state: Event
    value: float
    threshold: float
    severity: Severity
    message: str
    #: Whether notifications of it are sent, and whether browsers show one.
    is_told: bool = False
    browser: bool = False
    #: The id of the change with which it began to fire.
    firing_id: str = ""
    #: Its offset in the history, once it is written.
    offset: int = -1


@dataclass(frozen=True, kw_only=True)
class Transition:
    """The effect of an evaluation on one subject: its new state (None is ok), and the record of the history."""

    before: AlertState | None
    after: AlertState | None
    change: Change | None = None


def step(
    rule: Rule, before: AlertState | None, measurement: Measurement, *, now_us: int, is_watched: bool = True
) -> Transition:
    """The transition of a subject after a measurement. A rule that is no longer evaluated ends without a notification."""
    after = _next(rule, before, measurement, now_us)
    entered = after is not None and (before is None or after.state != before.state)
    left = after is None and before is not None and before.state != "resolved"
    may_tell = is_watched and not rule.is_snoozed(now_us)
    if not entered and not left:
        return _reminded(rule, before, after, now_us) if may_tell else Transition(before=before, after=after)
    state: Event = "ok" if after is None else after.state
    id = change_id(rule.name, measurement.subject, state, now_us)
    was_told = before is not None and before.is_told
    tells = may_tell and (state == "firing" or (state == "resolved" and was_told))
    firing_id = id if state == "firing" else before.firing_id if before is not None else ""
    if after is not None:
        after = replace(after, is_told=tells and state == "firing", firing_id=firing_id)
    change = _change(rule, measurement, id=id, state=state, now_us=now_us, tells=tells, firing_id=firing_id)
    return Transition(before=before, after=after, change=change)


def _next(rule: Rule, before: AlertState | None, measurement: Measurement, now_us: int) -> AlertState | None:
    state: State = "ok" if before is None else before.state
    since_us = now_us if before is None else before.since_us
    held = now_us - since_us
    if measurement.is_over:
        if state == "firing" or (state == "pending" and held < rule.for_seconds * 1e6):
            following: State = state
        else:
            following = "firing" if state == "pending" or not rule.for_seconds else "pending"
    elif state == "firing" or (state == "resolved" and held < RESOLVED_SECONDS * 1e6):
        following = "resolved"
    else:
        return None
    return AlertState(
        rule=rule.name,
        subject=measurement.subject,
        state=following,
        since_us=since_us if following == state else now_us,
        value=measurement.value,
        threshold=rule.threshold,
        message=measurement.message,
        is_told=before is not None and before.is_told,
        firing_id="" if before is None else before.firing_id,
    )


def _reminded(rule: Rule, before: AlertState | None, after: AlertState | None, now_us: int) -> Transition:
    """Send a reminder of what began to fire while the rule was snoozed."""
    if after is None or after.state != "firing" or after.is_told:
        return Transition(before=before, after=after)
    measurement = Measurement(subject=after.subject, value=after.value, is_over=True, message=after.message)
    id = change_id(rule.name, after.subject, "reminder", now_us)
    change = _change(rule, measurement, id=id, state="reminder", now_us=now_us, tells=True, firing_id=id)
    # Later notifications refer to the reminder.
    return Transition(before=before, after=replace(after, is_told=True, firing_id=id), change=change)


def unknown(rule: Rule, before: AlertState | None, trouble: str | None, *, now_us: int) -> Transition:
    """The transition of a rule that could not be evaluated because of `trouble`, or can be again (None)."""
    if (trouble is None) == (before is None):
        after = before if before is None or trouble is None else replace(before, message=trouble)
        return Transition(before=before, after=after)
    state: Event = "ok" if trouble is None else "unknown"
    measurement = Measurement(
        subject=WHOLE_RULE, value=0.0, is_over=False, message=trouble or "The rule can be evaluated again."
    )
    id = change_id(rule.name, WHOLE_RULE, state, now_us)
    change = _change(rule, measurement, id=id, state=state, now_us=now_us, tells=False, firing_id="")
    if trouble is None:
        return Transition(before=before, after=None, change=change)
    after = AlertState(rule=rule.name, subject=WHOLE_RULE, state="unknown", since_us=now_us, message=trouble)
    return Transition(before=before, after=after, change=change)


def tried(rule: Rule, *, now_us: int) -> Change:
    """The change of a test notification; no subject changes its state."""
    message = "This is a test: nothing is wrong."
    measurement = Measurement(subject=WHOLE_RULE, value=0.0, is_over=False, message=message)
    id = change_id(rule.name, WHOLE_RULE, "test", now_us)
    return _change(rule, measurement, id=id, state="test", now_us=now_us, tells=True, firing_id="")


def change_id(rule: str, subject: str, state: str, at_us: int) -> str:
    """The id of a change: the same when it is sent again."""
    return hashlib.sha256(f"{rule}\n{subject}\n{state}\n{at_us}".encode()).hexdigest()[:32]


def _change(
    rule: Rule, measurement: Measurement, *, id: str, state: Event, now_us: int, tells: bool, firing_id: str
) -> Change:
    return Change(
        id=id,
        at_us=now_us,
        rule=rule.name,
        subject=measurement.subject,
        state=state,
        value=measurement.value,
        threshold=rule.threshold,
        severity=rule.severity,
        message=measurement.message,
        is_told=tells,
        browser=tells and rule.browser,
        firing_id=firing_id,
    )


RuleState = Literal["paused", "unknown", "firing", "pending", "resolved", "ok"]
#: From the worst to the best; a rule has the first one that any of its subjects has.
_ORDER: tuple[RuleState, ...] = ("firing", "unknown", "pending", "resolved", "ok")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One rule and its state. `rule` is None if it cannot be parsed; then `error` has the reason."""

    name: str
    rule: Rule | None
    state: RuleState
    is_snoozed: bool = False
    since_us: int | None = None
    error: str | None = None
    subjects: tuple[AlertState, ...] = ()
    #: From when to when it was evaluated, oldest first. At other times its state is not known.
    evaluated: tuple[tuple[int, int], ...] = ()


def summary_of(
    rule: Rule, states: Sequence[AlertState], *, now_us: int, evaluated: tuple[tuple[int, int], ...] = ()
) -> Summary:
    """A rule and its state: the worst state of its subjects, unless it is paused."""
    whole = next((one for one in states if one.subject == WHOLE_RULE), None)
    subjects = tuple(one for one in states if one.subject != WHOLE_RULE)
    present = {one.state for one in states}
    state: RuleState = next((one for one in _ORDER if one in present), "ok") if rule.enabled else "paused"
    since = [one.since_us for one in states if one.state == state]
    return Summary(
        name=rule.name,
        rule=rule,
        state=state,
        is_snoozed=rule.is_snoozed(now_us),
        since_us=min(since) if since and state != "ok" else None,
        error=None if whole is None or not rule.enabled else whole.message,
        subjects=subjects,
        evaluated=evaluated,
    )
