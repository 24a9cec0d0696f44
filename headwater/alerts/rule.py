"""An alert rule as a value: what is measured, the threshold, and who is notified."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Literal, Self, get_args

import orjson

from headwater.errors import ArgumentInvalid
from headwater.log.topic_rules import check_name

Kind = Literal[
    "lag",
    "watermark_delay",
    "dead_letters",
    "query_down",
    "view",
    "capture_delay",
    "capture_retention",
    "queue_depth",
    "queue_age",
    "queue_redeliveries",
    "queue_unattended",
    "gateway_down",
    "gateway_lost",
    "gateway_rejected",
]
Severity = Literal["info", "warning", "critical"]
Unit = Literal["rows", "seconds"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
UNITS: tuple[Unit, ...] = get_args(Unit)
#: The kinds whose threshold is a time.
TIME_KINDS: tuple[Kind, ...] = ("watermark_delay", "capture_delay", "queue_age")
#: The kinds without a threshold, and why.
YES_OR_NO: dict[Kind, str] = {
    "query_down": "a query runs, or it does not",
    "queue_unattended": "a group has a consumer, or it has none",
    "gateway_down": "a gateway runs, or it does not",
}
#: Receivers of one rule; more is a mistake.
TARGETS_MAX = 20
TEXT_MAX = 10_000
#: The fields that name what a rule of each kind measures; the others must be empty.
_ABOUT: dict[Kind, frozenset[str]] = {
    "lag": frozenset({"group", "topic", "query"}),
    "watermark_delay": frozenset({"query"}),
    "dead_letters": frozenset({"topic"}),
    "query_down": frozenset({"query"}),
    "view": frozenset({"sql", "key"}),
    "capture_delay": frozenset({"capture"}),
    "capture_retention": frozenset({"capture"}),
    "queue_depth": frozenset({"queue", "group"}),
    "queue_age": frozenset({"queue", "group"}),
    "queue_redeliveries": frozenset({"queue", "group"}),
    "queue_unattended": frozenset({"queue", "group"}),
    "gateway_down": frozenset({"gateway"}),
    "gateway_lost": frozenset({"gateway"}),
    "gateway_rejected": frozenset({"gateway"}),
}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A condition that must not last, and who is notified if it does.

    `lag` compares how far a consumer `group` (in one `topic` or all) is behind, in rows or seconds, or a `query` in rows;
    `watermark_delay` how many seconds a query's watermark is behind the clock; `dead_letters` how many dead letters of a
    topic came in the last minute; `query_down` whether a query does not run. Each is too much above `threshold`.
    `capture_delay` compares how many seconds old the oldest change is that a capture has not appended yet, and `capture_retention` how
    many bytes its database keeps for it. `queue_depth` compares how many messages of a `queue` wait for a worker (in one `group` or in each),
    `queue_age` how many seconds the oldest of them has waited, and `queue_redeliveries` how many messages were delivered again in the
    last minute; `queue_unattended` says whether no consumer takes messages. `gateway_down` says whether a `gateway` does not run, and
    `gateway_lost` and `gateway_rejected` compare how many events it lost or rejected in the last minute. Names may be patterns, such as `orders.*`; what they match is watched one by one.

    `view` runs one SELECT: more than `threshold` rows are too many. With `key`, columns of the result, each row is
    watched by itself, from the time when it appears to the time when it is gone.

    >>> Rule(name="slow", kind="lag", group="billing", threshold=10_000, for_seconds=60).matches("group", "billing")
    True
    >>> Rule(name="slow", kind="lag", threshold=10_000)
    Traceback (most recent call last):
    headwater.errors.ArgumentInvalid: `group` is None. Give a consumer group or a query, whose lag it is.
    """

    name: str
    kind: Kind
    group: str | None = None
    topic: str | None = None
    query: str | None = None
    capture: str | None = None
    queue: str | None = None
    gateway: str | None = None
    sql: str | None = None
    key: tuple[str, ...] = ()
    threshold: float = 0.0
    unit: Unit = "rows"
    for_seconds: float = 0.0
    severity: Severity = "warning"
    webhooks: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    browser: bool = True
    enabled: bool = True
    snoozed_until_us: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        for name in ("key", "webhooks", "emails"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        check_name("rule", self.name)
        _check_choice("kind", self.kind, KINDS)
        _check_choice("unit", self.unit, UNITS)
        _check_choice("severity", self.severity, SEVERITIES)
        self._check_numbers()
        self._check_about()
        self._check_targets()

    def _check_numbers(self) -> None:
        for name in ("threshold", "for_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
                raise ArgumentInvalid(name=name, value=value, expected="a number, 0 or more")
            object.__setattr__(self, name, float(value))
        if self.kind in YES_OR_NO and self.threshold:
            raise ArgumentInvalid(name="threshold", value=self.threshold, expected=f"none: {YES_OR_NO[self.kind]}")
        if self.unit != "rows" and self.kind != "lag":
            raise ArgumentInvalid(name="unit", value=self.unit, expected=f"none: a rule on {self.kind} has its own")
        if self.kind == "view" and self.key and self.threshold:
            expected = "0 where there is a `key`: each row that the statement finds is one too many"
            raise ArgumentInvalid(name="threshold", value=self.threshold, expected=expected)

    def _check_about(self) -> None:
        for name in ("group", "topic", "query", "capture", "queue", "gateway", "sql", "key"):
            value = getattr(self, name)
            if value and name not in _ABOUT[self.kind]:
                raise ArgumentInvalid(name=name, value=value, expected=f"none: a rule on {self.kind} does not use it")
            if value == "" or (isinstance(value, str) and len(value) > TEXT_MAX):
                raise ArgumentInvalid(name=name, value=value[:50], expected=f"1 to {TEXT_MAX:,} characters, or none")
        if self.kind == "lag":
            self._check_lag()
        needed = {
            "watermark_delay": "query",
            "dead_letters": "topic",
            "query_down": "query",
            "view": "sql",
            "capture_delay": "capture",
            "capture_retention": "capture",
            "queue_depth": "queue",
            "queue_age": "queue",
            "queue_redeliveries": "queue",
            "queue_unattended": "queue",
            "gateway_down": "gateway",
            "gateway_lost": "gateway",
            "gateway_rejected": "gateway",
        }
        required = needed.get(self.kind)
        if required is not None and getattr(self, required) is None:
            expected = (
                "one SELECT over views and topics" if required == "sql" else f"the name of a {required}, or a pattern"
            )
            raise ArgumentInvalid(name=required, value=None, expected=expected)

    def _check_lag(self) -> None:
        if self.group is None and self.query is None:
            expected = "a consumer group or a query, whose lag it is"
            raise ArgumentInvalid(name="group", value=None, expected=expected)
        if self.query is not None and (self.group is not None or self.topic is not None):
            expected = "either a query, or a consumer group with or without a topic"
            raise ArgumentInvalid(name="query", value=self.query, expected=expected)
        if self.query is not None and self.unit == "seconds":
            expected = "'rows': how long rows wait is measured for groups alone; for a query, see `watermark_delay`"
            raise ArgumentInvalid(name="unit", value=self.unit, expected=expected)

    def _check_targets(self) -> None:
        for url in self.webhooks:
            if not url.startswith(("http://", "https://")) or len(url) > TEXT_MAX:
                expected = "an address that begins with http:// or https://"
                raise ArgumentInvalid(name="webhooks", value=url[:200], expected=expected)
        for address in self.emails:
            if not 3 <= len(address) <= 320 or "@" not in address[1:-1] or not address.isprintable() or " " in address:
                raise ArgumentInvalid(name="emails", value=address[:200], expected="an address such as ada@example.org")
        for name in ("webhooks", "emails", "key"):
            if len(getattr(self, name)) > TARGETS_MAX:
                count = len(getattr(self, name))
                raise ArgumentInvalid(name=name, value=f"{count} of them", expected=f"at most {TARGETS_MAX}")
        if len(self.note) > TEXT_MAX:
            raise ArgumentInvalid(name="note", value=self.note[:50], expected=f"at most {TEXT_MAX:,} characters")

    def matches(self, field: Literal["group", "topic", "query", "capture", "queue", "gateway"], name: str) -> bool:
        """Whether a name matches the rule's pattern."""
        pattern: str | None = getattr(self, field)
        return pattern is None or fnmatchcase(name, pattern)

    def is_snoozed(self, now_us: int) -> bool:
        """Whether no notification is to be sent now."""
        return self.snoozed_until_us is not None and now_us < self.snoozed_until_us

    # Any: JSON.
    def as_dict(self) -> dict[str, Any]:
        found = asdict(self)
        return found | {name: list(found[name]) for name in ("key", "webhooks", "emails")}

    def as_json(self) -> str:
        return orjson.dumps(self.as_dict()).decode()

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """A rule from JSON; raise for an unknown field, since a misspelt one would silently do nothing."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise ArgumentInvalid(name=name, value=given[name], expected=f"only {', '.join(known)}")
        return cls(**given)

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.from_dict(orjson.loads(text))


def is_pattern(name: str) -> bool:
    """Whether a name is a pattern.

    >>> is_pattern("orders.*"), is_pattern("orders")
    (True, False)
    """
    return not set(name).isdisjoint("*?[")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentInvalid(name=name, value=value, expected=f"one of {', '.join(choices)}")
