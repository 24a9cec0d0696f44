"""How things stand under a rule: ok → pending → firing → resolved, decided by one pure function.

A rule watches any number of subjects: each group, query, topic or row by itself. Each has a standing of its own, which
changes only when somebody looks. Who looks, and whether it was another process that looked before, makes no difference.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

from headwater.alerts.rule import Rule, Severity

State = Literal["ok", "pending", "firing", "resolved", "unknown"]
#: What a record of the history says: a state that was entered, or that people were told once more, or for a test.
Event = Literal["ok", "pending", "firing", "resolved", "unknown", "reminder", "test"]
#: The subject of a rule that could not be looked at; no other subject is empty.
WHOLE_RULE = ""
#: So long something that is over is still shown as resolved.
RESOLVED_SECONDS = 900.0


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a look at one subject has found."""

    subject: str
    value: float
    is_over: bool
    message: str


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How one subject of a rule stands, and since when."""

    rule: str
    subject: str
    state: State
    since_us: int
    value: float = 0.0
    threshold: float = 0.0
    message: str = ""
    #: Whether people know that it fires, and so must hear that it is over.
    is_told: bool = False
    #: The change with which it began to fire: whatever is told later refers to it.
    firing_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One record of the history: a subject has come into another state."""

    id: str
    at_us: int
    rule: str
    subject: str
    state: Event
    value: float
    threshold: float
    severity: Severity
    message: str
    #: Whether people are told of it, and whether browsers are.
    is_told: bool = False
    browser: bool = False
    #: The id of the change with which it began to fire.
    firing_id: str = ""
    #: Its place in the history, once it is there.
    offset: int = -1


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a look changes for one subject: how it stands now (None is ok), and what is to be written down."""

    before: Standing | None
    after: Standing | None
    change: Change | None = None


def step(rule: Rule, before: Standing | None, reading: Reading, *, now_us: int, is_watched: bool = True) -> Step:
    """What a reading means for its subject. A rule that is no longer watched ends without a word to anybody."""
    after = _next(rule, before, reading, now_us)
    entered = after is not None and (before is None or after.state != before.state)
    left = after is None and before is not None and before.state != "resolved"
    may_tell = is_watched and not rule.is_snoozed(now_us)
    if not entered and not left:
        return _reminded(rule, before, after, now_us) if may_tell else Step(before=before, after=after)
    state: Event = "ok" if after is None else after.state
    id = change_id(rule.name, reading.subject, state, now_us)
    was_told = before is not None and before.is_told
    tells = may_tell and (state == "firing" or (state == "resolved" and was_told))
    firing_id = id if state == "firing" else before.firing_id if before is not None else ""
    if after is not None:
        after = replace(after, is_told=tells and state == "firing", firing_id=firing_id)
    change = _change(rule, reading, id=id, state=state, now_us=now_us, tells=tells, firing_id=firing_id)
    return Step(before=before, after=after, change=change)


def _next(rule: Rule, before: Standing | None, reading: Reading, now_us: int) -> Standing | None:
    state: State = "ok" if before is None else before.state
    since_us = now_us if before is None else before.since_us
    held = now_us - since_us
    if reading.is_over:
        if state == "firing" or (state == "pending" and held < rule.for_seconds * 1e6):
            following: State = state
        else:
            following = "firing" if state == "pending" or not rule.for_seconds else "pending"
    elif state == "firing" or (state == "resolved" and held < RESOLVED_SECONDS * 1e6):
        following = "resolved"
    else:
        return None
    return Standing(
        rule=rule.name,
        subject=reading.subject,
        state=following,
        since_us=since_us if following == state else now_us,
        value=reading.value,
        threshold=rule.threshold,
        message=reading.message,
        is_told=before is not None and before.is_told,
        firing_id="" if before is None else before.firing_id,
    )


def _reminded(rule: Rule, before: Standing | None, after: Standing | None, now_us: int) -> Step:
    """What began to fire while nobody was to be told is told when the silence is over."""
    if after is None or after.state != "firing" or after.is_told:
        return Step(before=before, after=after)
    reading = Reading(subject=after.subject, value=after.value, is_over=True, message=after.message)
    id = change_id(rule.name, after.subject, "reminder", now_us)
    change = _change(rule, reading, id=id, state="reminder", now_us=now_us, tells=True, firing_id=id)
    # For whoever is told only now, it begins with this.
    return Step(before=before, after=replace(after, is_told=True, firing_id=id), change=change)


def unknown(rule: Rule, before: Standing | None, trouble: str | None, *, now_us: int) -> Step:
    """What it means for a rule as a whole that it could not be looked at, or can be again (None)."""
    if (trouble is None) == (before is None):
        after = before if before is None or trouble is None else replace(before, message=trouble)
        return Step(before=before, after=after)
    state: Event = "ok" if trouble is None else "unknown"
    reading = Reading(
        subject=WHOLE_RULE, value=0.0, is_over=False, message=trouble or "The rule can be looked at again."
    )
    id = change_id(rule.name, WHOLE_RULE, state, now_us)
    change = _change(rule, reading, id=id, state=state, now_us=now_us, tells=False, firing_id="")
    if trouble is None:
        return Step(before=before, after=None, change=change)
    after = Standing(rule=rule.name, subject=WHOLE_RULE, state="unknown", since_us=now_us, message=trouble)
    return Step(before=before, after=after, change=change)


def tried(rule: Rule, *, now_us: int) -> Change:
    """The change that a test tells of; it is none, and leaves every subject as it stands."""
    message = "This is a test: nothing is wrong."
    reading = Reading(subject=WHOLE_RULE, value=0.0, is_over=False, message=message)
    id = change_id(rule.name, WHOLE_RULE, "test", now_us)
    return _change(rule, reading, id=id, state="test", now_us=now_us, tells=True, firing_id="")


def change_id(rule: str, subject: str, state: str, at_us: int) -> str:
    """The name of a change: the same for whoever tells of it again."""
    return hashlib.sha256(f"{rule}\n{subject}\n{state}\n{at_us}".encode()).hexdigest()[:32]


def _change(rule: Rule, reading: Reading, *, id: str, state: Event, now_us: int, tells: bool, firing_id: str) -> Change:
    return Change(
        id=id,
        at_us=now_us,
        rule=rule.name,
        subject=reading.subject,
        state=state,
        value=reading.value,
        threshold=rule.threshold,
        severity=rule.severity,
        message=reading.message,
        is_told=tells,
        browser=tells and rule.browser,
        firing_id=firing_id,
    )
