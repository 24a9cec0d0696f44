"""Alert rules as pages show them: in words, in colours, and their states as a line of time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from headwater.alerts import AlertState, Change, Rule, Summary
from headwater.alerts.measurements import amount
from headwater.alerts.rule import TIME_KINDS
from headwater.alerts.state import WHOLE_RULE
from headwater.console.kit.table import Column, Row, link, mark, toned
from headwater.console.kit.words import counted, moment, span
from headwater.console.pages import path_to
from headwater.services.alerts import HistoryEntry
from headwater.units import format_seconds

KINDS = {
    "lag": "Lag of a group or a query",
    "watermark_delay": "Watermark delay of a query",
    "dead_letters": "Dead letters in a minute",
    "query_down": "A query is down",
    "view": "A SQL condition",
    "capture_delay": "Delay of a capture",
    "capture_retention": "What a database keeps for a capture",
    "queue_depth": "Depth of a queue",
    "queue_age": "Age of a queue's oldest message",
    "queue_redeliveries": "Redeliveries of a queue in a minute",
    "queue_unattended": "A queue without a consumer",
    "gateway_down": "A gateway is down",
    "gateway_lost": "Lost events of a gateway in a minute",
    "gateway_rejected": "Rejected events of a gateway in a minute",
}
#: The names and colours of the states of a rule, and of the records of its history.
STATES = {
    "ok": ("ok", "good"),
    "pending": ("pending", "warn"),
    "firing": ("firing", "bad"),
    "resolved": ("resolved", "good"),
    "unknown": ("unknown", "info"),
    "paused": ("paused", ""),
    "reminder": ("still firing", "bad"),
    "test": ("test", "info"),
}
#: The states of a subject, from the worst to the best.
WORST_FIRST = ("firing", "unknown", "pending", "resolved", "ok")
#: The state of a rule while no process evaluated it.
UNMEASURED = "not evaluated"
#: The states on the line of time, from the worst to the best, with their colours.
LINE_STATES = {"firing": "bad", "unknown": "info", "pending": "warn", "ok": "good", "paused": "off", UNMEASURED: "off"}
#: The state on the line after each record of the history; after all others it is ok.
_STATE_AFTER = {"firing": "firing", "reminder": "firing", "pending": "pending", "unknown": "unknown"}

#: The end of a current period of evaluation is written once a minute; it is known for a little longer.
CURRENT_SECONDS = 90.0

#: From when to when, in microseconds since 1970, and the state.
Interval = tuple[int, int, str]
HISTORY_COLUMNS = (
    Column(name="at", label="When", width="160px"),
    Column(name="what", label="What", width="110px"),
    Column(name="rule", label="Rule"),
    Column(name="message", label="Message"),
    Column(name="notified", label="Notified"),
)


def subject_of(rule: Rule) -> str:
    """What a rule watches.

    >>> subject_of(Rule(name="slow", kind="lag", group="billing", topic="orders", threshold=5))
    'lag of group billing in orders'
    """
    if rule.kind == "lag":
        within = f" in {rule.topic}" if rule.topic else ""
        return f"lag of query {rule.query}" if rule.query else f"lag of group {rule.group}{within}"
    if rule.kind == "view":
        return " ".join((rule.sql or "").split())
    queue = f"{rule.queue} for group {rule.group}" if rule.group else rule.queue
    words = {
        "watermark_delay": f"watermark of query {rule.query}",
        "dead_letters": f"dead letters of topic {rule.topic}",
        "query_down": f"query {rule.query}",
        "capture_delay": f"delay of capture {rule.capture}",
        "capture_retention": f"what the database of capture {rule.capture} keeps",
        "queue_depth": f"depth of queue {queue}",
        "queue_age": f"oldest message of queue {queue}",
        "queue_redeliveries": f"redeliveries of queue {queue}",
        "queue_unattended": f"consumers of queue {queue}",
        "gateway_down": f"gateway {rule.gateway}",
        "gateway_lost": f"what gateway {rule.gateway} loses",
        "gateway_rejected": f"what gateway {rule.gateway} rejects",
    }
    return words[rule.kind]


def limit_of(rule: Rule) -> str:
    """When a rule fires.

    >>> limit_of(Rule(name="slow", kind="lag", group="billing", threshold=5_000, for_seconds=60))
    'more than 5,000 rows for 1 min'
    """
    held = f" for {format_seconds(rule.for_seconds)}" if rule.for_seconds else ""
    if rule.kind in ("query_down", "gateway_down"):
        return f"not running{held}"
    if rule.kind == "queue_unattended":
        return f"no consumer{held}"
    if rule.kind == "view" and not rule.threshold:
        return f"{'each row' if rule.key else 'any row'}{held}"
    return f"more than {amount(rule, rule.threshold)}{held}"


def value_of(rule: Rule, state: AlertState) -> str:
    """The last measurement, in the rule's unit."""
    if rule.kind in ("query_down", "gateway_down"):
        return "down" if state.value else "runs"
    if rule.kind == "queue_unattended":
        return "no consumer" if state.value else "attended"
    if rule.kind == "view" and rule.key:
        return f"{state.value:g}"
    if rule.kind in TIME_KINDS or rule.unit == "seconds":
        return span(state.value)
    return amount(rule, state.value)


def worst_subject(summary: Summary) -> AlertState | None:
    """The subject in the worst state, and of those the one with the largest value."""
    return min(summary.subjects, key=lambda state: (WORST_FIRST.index(state.state), -state.value), default=None)


def receivers_of(rule: Rule) -> str:
    """The receivers of a rule's notifications.

    >>> receivers_of(Rule(name="slow", kind="lag", group="billing", emails=("ada@example.org",)))
    '1 e-mail, browsers'
    """
    receivers = [counted(len(rule.webhooks), "webhook")] if rule.webhooks else []
    receivers += [counted(len(rule.emails), "e-mail")] if rule.emails else []
    return ", ".join(receivers + (["browsers"] if rule.browser else [])) or "none"


def notified(entry: HistoryEntry) -> str:
    """Who was notified of a change, and how that went."""
    receivers = ["browsers"] if entry.browser else []
    for delivery in entry.deliveries:
        error = delivery.error
        outcome = {"sent": "", "waiting": f" is tried again: {error}", "failed": f" failed: {error}"}[delivery.state]
        if delivery.state == "waiting" and not delivery.attempts:
            outcome = " is next"
        receivers.append(f"{delivery.target}{outcome}")
    return ", ".join(receivers) or ("–" if not entry.is_told else "none")


def history_row(entry: HistoryEntry, *, with_rule: bool = True) -> Row:
    """A record of the history, with its rule or, on the page of the rule, with its subject."""
    name, tone = STATES[entry.state]
    failed = any(delivery.state == "failed" for delivery in entry.deliveries)
    about = link(entry.rule, path_to("alerts", entry.rule)) if with_rule else entry.subject or "–"
    receivers = toned(notified(entry), "bad" if failed else "quiet")
    return Row([moment(entry.at_us)[:19], mark(name, tone), about, entry.message, receivers], key=entry.id)


# -- the line of time -------------------------------------------------------------------------------------------------


def line_of(
    summary: Summary, changes: Iterable[Change], *, seconds: float, step: float, now_us: int | None = None
) -> list[Interval]:
    """The states of a rule in the last seconds; time advances in steps, so that an unchanged line is not sent again."""
    end_us = round(time.time() * 1e6) if now_us is None else now_us
    end_us -= end_us % round(step * 1e6)
    start_us = end_us - round(seconds * 1e6)
    states = list(summary.subjects)
    if summary.error is not None and summary.since_us is not None:
        whole = AlertState(rule=summary.name, subject=WHOLE_RULE, state="unknown", since_us=summary.since_us)
        states.insert(0, whole)
    recent = [change for change in changes if change.at_us >= start_us]
    line = intervals(recent, states, start_us=start_us, end_us=end_us)
    return evaluated_parts(line, summary.evaluated, paused=summary.state == "paused")


def evaluated_parts(
    line: Sequence[Interval], evaluated: Sequence[tuple[int, int]], *, paused: bool = False
) -> list[Interval]:
    """The line with states only in the periods in which the rule was evaluated; the current period goes up to its end.

    A rule that is `paused` has no current period.

    >>> evaluated_parts([(0, 60, "ok"), (60, 100, "firing")], [(40, 70)])
    [(0, 40, 'not evaluated'), (40, 60, 'ok'), (60, 100, 'firing')]
    """
    if not line:
        return []
    end_us = line[-1][1]
    is_current = not paused and bool(evaluated) and end_us - evaluated[-1][1] <= CURRENT_SECONDS * 1e6
    periods = [*evaluated[:-1], (evaluated[-1][0], end_us)] if is_current else list(evaluated)
    cuts = sorted(time for period in periods for time in period)
    parts: list[Interval] = []
    for begin, end, state in line:
        inside = [begin, *(cut for cut in cuts if begin < cut < end), end]
        for first, last in pairwise(inside):
            is_known = any(since <= first and last <= until for since, until in periods)
            parts.append((first, last, state if is_known else UNMEASURED))
    joined = _joined(parts)
    if paused and joined[-1][2] == UNMEASURED:
        joined[-1] = (*joined[-1][:2], "paused")
    return joined


def intervals(changes: Iterable[Change], states: Iterable[AlertState], *, start_us: int, end_us: int) -> list[Interval]:
    """From when to when a rule was in which state: that of its worst subject.

    `changes` are those since `start_us` in any order, `states` those of its subjects now.
    """
    ordered = sorted((change for change in changes if change.state != "test"), key=lambda c: (c.at_us, c.offset))
    current = {
        state.subject: _STATE_AFTER.get(state.state, "ok") if state.since_us < start_us else "ok" for state in states
    }
    for change in reversed(ordered):
        current[change.subject] = _state_before(change)
    line: list[Interval] = []
    at_us = start_us
    for change in ordered:
        line.append((at_us, change.at_us, _worst(current.values())))
        current[change.subject] = _STATE_AFTER.get(change.state, "ok")
        at_us = change.at_us
    line.append((at_us, end_us, _worst(current.values())))
    return _joined(line)


def _joined(line: Iterable[Interval]) -> list[Interval]:
    """The line without empty intervals, and with one interval where neighbours have the same state."""
    joined: list[Interval] = []
    for begin, end, state in line:
        if joined and joined[-1][2] == state:
            begin = joined.pop()[0]
        if end > begin:
            joined.append((begin, end, state))
    return joined


def _state_before(change: Change) -> str:
    """The state before a change, as far as the change says."""
    if change.state in ("resolved", "reminder"):
        return "firing"
    if change.state == "ok":
        return "unknown" if change.subject == WHOLE_RULE else "pending"
    return "ok"


def _worst(states: Iterable[str]) -> str:
    present = set(states)
    return next((state for state in LINE_STATES if state in present), "ok")


def state_line(line: Sequence[Interval], *, label: str, tall: bool = False) -> str:
    """The line as HTML: each part has a tooltip with its state, and the label describes the line to screen readers."""
    if not line:
        return ""
    begin, whole = line[0][0], max(1, line[-1][1] - line[0][0])
    parts = []
    for start, end, state in line:
        left, width = (start - begin) / whole * 100, (end - start) / whole * 100
        title = f"{state} for {span((end - start) / 1e6)}, from {moment(start)[:16]}"
        parts.append(
            f'<i class="{LINE_STATES[state]}" style="left:min({left:.2f}%,100% - 2px);width:{width:.2f}%" title="{escape(title)}"></i>'
        )
    fired = sum((end - start) / 1e6 for start, end, state in line if state == "firing")
    known = sum((end - start) / 1e6 for start, end, state in line if state != UNMEASURED)
    text = f"{label}: fired for {span(fired)}" if fired else f"{label}: did not fire"
    text += "" if known * 1e6 >= whole else f", evaluated for {span(known)}" if known else ", not evaluated"
    size = " tall" if tall else ""
    return f'<span class="state-line{size}" role="img" aria-label="{escape(text)}">{"".join(parts)}</span>'
