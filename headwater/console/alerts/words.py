"""Alert rules in words and colours."""

from __future__ import annotations

from headwater.alerts import AlertState, Rule, Summary
from headwater.alerts.measurements import amount
from headwater.alerts.state import WHOLE_RULE
from headwater.console.kit.words import span
from headwater.services.alerts import HistoryEntry
from headwater.units import format_seconds

KINDS = {
    "lag": "Lag of a group or a query",
    "watermark_delay": "Watermark delay of a query",
    "dead_letters": "Dead letters in a minute",
    "query_down": "A query is down",
    "view": "A SQL condition",
}
#: What the states of a rule, and the records of its history, are called and coloured.
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
_ORDER = ("firing", "unknown", "pending", "resolved", "ok")


def about(rule: Rule) -> str:
    """What a rule looks at.

    >>> about(Rule(name="slow", kind="lag", group="billing", topic="orders", threshold=5))
    'lag of group billing in orders'
    """
    if rule.kind == "lag":
        return f"lag of query {rule.query}" if rule.query else f"lag of group {rule.group}{_within(rule)}"
    if rule.kind == "view":
        return " ".join((rule.sql or "").split())
    words = {
        "watermark_delay": f"watermark of query {rule.query}",
        "dead_letters": f"dead letters of topic {rule.topic}",
        "query_down": f"query {rule.query}",
    }
    return words[rule.kind]


def _within(rule: Rule) -> str:
    return f" in {rule.topic}" if rule.topic else ""


def limit(rule: Rule) -> str:
    """From when on it is too much.

    >>> limit(Rule(name="slow", kind="lag", group="billing", threshold=5_000, for_seconds=60))
    'more than 5,000 rows for 1 min'
    """
    held = f" for {format_seconds(rule.for_seconds)}" if rule.for_seconds else ""
    if rule.kind == "query_down":
        return f"not running{held}"
    if rule.kind == "view" and not rule.threshold:
        return f"{'each row' if rule.key else 'any row'}{held}"
    return f"more than {amount(rule, rule.threshold)}{held}"


def value(rule: Rule, standing: AlertState) -> str:
    """What was last measured, in the rule's own unit."""
    if rule.kind == "query_down":
        return "down" if standing.value else "runs"
    if rule.kind == "view" and rule.key:
        return f"{standing.value:g}"
    if rule.kind == "watermark_delay" or rule.unit == "seconds":
        return span(standing.value)
    return amount(rule, standing.value)


def worst(summary: Summary) -> AlertState | None:
    """The subject that stands worst, by its state and then by its value."""
    return min(summary.subjects, key=lambda one: (_ORDER.index(one.state), -one.value), default=None)


def states(summary: Summary) -> list[AlertState]:
    """How the subjects of a rule stand, and the rule as a whole where it cannot be looked at."""
    if summary.error is None or summary.since_us is None:
        return list(summary.subjects)
    whole = AlertState(rule=summary.name, subject=WHOLE_RULE, state="unknown", since_us=summary.since_us)
    return [whole, *summary.subjects]


def tells(rule: Rule) -> str:
    """The receivers of a rule's notifications.

    >>> tells(Rule(name="slow", kind="lag", group="billing", emails=("ada@example.org",)))
    '1 e-mail, browsers'
    """
    told = [
        f"{len(given)} {name}{'' if len(given) == 1 else 's'}"
        for given, name in ((rule.webhooks, "webhook"), (rule.emails, "e-mail"))
        if given
    ]
    return ", ".join(told + (["browsers"] if rule.browser else [])) or "none"


def told(entry: HistoryEntry) -> str:
    """Who was notified of a change, and how that went."""
    parts = ["browsers"] if entry.browser else []
    for one in entry.deliveries:
        how = {"sent": "", "waiting": f" is tried again: {one.error}", "failed": f" failed: {one.error}"}[one.state]
        if one.state == "waiting" and not one.attempts:
            how = " is next"
        parts.append(f"{one.target}{how}")
    return ", ".join(parts) or ("–" if not entry.is_told else "none")
