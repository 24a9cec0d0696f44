"""Measurements of rules: one for each subject of a rule, with a message.

`Measures` is the port: a log with its apps implements it, and so does a table of numbers in a test.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from headwater.alerts.rule import TIME_KINDS, Kind, Rule, is_pattern
from headwater.alerts.state import Measurement
from headwater.alerts.time_limit import Stoppable
from headwater.errors import ArgumentInvalid, NotFound, did_you_mean
from headwater.log import Lag
from headwater.units import format_bytes, format_seconds
from headwater.views.errors import StatementInvalid

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.apps.status import QueryStatus


#: Subjects of one rule; a statement with more keys is an error.
SUBJECTS_MAX = 1_000
#: The subject of a statement whose rows are only counted.
ROWS = "rows"
_SAMPLE_CHARACTERS_MAX = 300
_DOWN = ("failed", "restarting", "stopped")


@dataclass(frozen=True, kw_only=True)
class CaptureHealth:
    """How far a capture is behind its database, as far as that is known."""

    name: str
    delay_seconds: float | None = None
    """The age of the oldest change that is not captured."""
    retained_bytes: int | None = None
    danger: str = ""
    """Why the database may soon delete changes that are not captured."""
    unknown_seconds: float = 0.0
    """How long ago the database was last asked with success, if it cannot be asked now."""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class QueueHealth:
    """What one group of a queue has to do, and who does it."""

    queue: str
    group: str
    depth: int = 0
    """Messages that wait for a worker."""
    oldest_seconds: float = 0.0
    """How long the oldest of them has waited."""
    redeliveries: int = 0
    """Deliveries in the last minute of messages that were delivered before."""
    consumers: int = 0


@dataclass(frozen=True, kw_only=True)
class GatewayHealth:
    """Whether a gateway runs, and what it could not bring to its end in the last minute."""

    name: str
    state: str
    error: str = ""
    lost: int = 0
    rejected: int = 0


class Measures(Protocol):
    """The current values of a log and its apps."""

    def now_us(self) -> int: ...
    def group_lags(self) -> Sequence[Lag]: ...
    def query_statuses(self) -> Sequence[QueryStatus]: ...
    def dead_letters(self) -> Mapping[str, float]:
        """How many dead letters each topic had in the last minute, by the topic's own name."""
        ...

    def topics(self) -> Sequence[str]: ...
    def captures(self) -> Sequence[CaptureHealth]: ...
    def queues(self) -> Sequence[QueueHealth]: ...
    def gateways(self) -> Sequence[GatewayHealth]: ...
    def run_sql(self, statement: str, *, rows_max: int, stoppable: Stoppable | None = None) -> pa.Table:
        """The first rows of a statement; `stoppable` is called with a function that stops it from another thread."""
        ...


class RunSql(Protocol):
    """Runs a statement."""

    def __call__(self, statement: str, *, rows_max: int) -> pa.Table: ...


class Sample:
    """The values at one moment: a value that several rules need is read once, and only if a rule needs it."""

    def __init__(self, measures: Measures, *, run_sql: RunSql | None = None) -> None:
        """`run_sql` runs statements instead of `measures`, for example with a time limit."""
        self._measures = measures
        self._run_sql: RunSql = run_sql or measures.run_sql

    @cached_property
    def now_us(self) -> int:
        return self._measures.now_us()

    @cached_property
    def group_lags(self) -> Sequence[Lag]:
        return self._measures.group_lags()

    @cached_property
    def query_statuses(self) -> Sequence[QueryStatus]:
        return self._measures.query_statuses()

    @cached_property
    def dead_letters(self) -> Mapping[str, float]:
        return self._measures.dead_letters()

    @cached_property
    def topics(self) -> Sequence[str]:
        return self._measures.topics()

    @cached_property
    def captures(self) -> Sequence[CaptureHealth]:
        return self._measures.captures()

    @cached_property
    def queues(self) -> Sequence[QueueHealth]:
        return self._measures.queues()

    @cached_property
    def gateways(self) -> Sequence[GatewayHealth]:
        return self._measures.gateways()

    def run_sql(self, statement: str, *, rows_max: int) -> pa.Table:
        return self._run_sql(statement, rows_max=rows_max)


def measurements(rule: Rule, sample: Sample) -> list[Measurement]:
    """The current measurements of a rule. A name that is not a pattern must exist."""
    return _KINDS[rule.kind](rule, sample)


# -- lag --------------------------------------------------------------------------------------------------------------


def _lag(rule: Rule, sample: Sample) -> list[Measurement]:
    return _query_lag(rule, sample) if rule.query is not None else _group_lag(rule, sample)


def _group_lag(rule: Rule, sample: Sample) -> list[Measurement]:
    behind: dict[tuple[str, str], float] = {}
    for lag in sample.group_lags:
        if rule.matches("group", lag.group) and rule.matches("topic", lag.topic):
            before = behind.get((lag.group, lag.topic), 0.0)
            # Rows of partitions are added; seconds are those of the partition with the longest lag.
            after = before + lag.rows if rule.unit == "rows" else max(before, lag.seconds)
            behind[lag.group, lag.topic] = after
    if not behind:
        _need_group(rule, sample)
    return [
        _measurement(rule, f"{group}/{topic}", value, f"Group {group!r} is {{}} behind in topic {topic!r}")
        for (group, topic), value in sorted(behind.items())
    ]


def _need_group(rule: Rule, sample: Sample) -> None:
    known = sorted({lag.group for lag in sample.group_lags})
    if rule.group is not None and not is_pattern(rule.group) and rule.group not in known:
        raise NotFound(kind="consumer group", name=rule.group, near=did_you_mean(rule.group, known))
    if rule.topic is not None and not is_pattern(rule.topic) and rule.topic not in sample.topics:
        raise NotFound(kind="topic", name=rule.topic, near=did_you_mean(rule.topic, sample.topics))


def _query_lag(rule: Rule, sample: Sample) -> list[Measurement]:
    found = []
    for subject, status in _queries(rule, sample):
        if status.lag_rows is not None:  # not known before a query knows where it begins
            found.append(_measurement(rule, subject, status.lag_rows, f"Query {subject!r} is {{}} behind"))
    return found


# -- queries ----------------------------------------------------------------------------------------------------------


def _watermark_delay(rule: Rule, sample: Sample) -> list[Measurement]:
    return [
        _measurement(
            rule,
            subject,
            max(0.0, (sample.now_us - status.watermark_us) / 1e6),
            f"The watermark of query {subject!r} is {{}} behind the clock",
        )
        for subject, status in _queries(rule, sample)
        if status.watermark_us is not None
    ]


def _query_down(rule: Rule, sample: Sample) -> list[Measurement]:
    found = []
    for subject, status in _queries(rule, sample):
        is_down = status.state in _DOWN
        why = f": {status.error}" if is_down and status.error else ""
        message = f"Query {subject!r} is {status.state}{why}"
        found.append(Measurement(subject=subject, value=float(is_down), is_over=is_down, message=message))
    return found


def _queries(rule: Rule, sample: Sample) -> Iterable[tuple[str, QueryStatus]]:
    """The queries of a rule, each with a unique name.

    If several apps have a query of this name, it is prefixed with the app; a version on trial has its number appended.
    """
    chosen = [status for status in sample.query_statuses if rule.matches("query", status.name)]
    if not chosen and rule.query is not None and not is_pattern(rule.query):
        raise NotFound(
            kind="query", name=rule.query, near=did_you_mean(rule.query, [one.name for one in sample.query_statuses])
        )
    apps: dict[str, set[str]] = {}
    for status in chosen:
        apps.setdefault(status.name, set()).add(status.app)
    versions = Counter((status.app, status.name) for status in chosen)
    return [
        (_subject(one, alone=len(apps[one.name]) == 1, versions=versions[one.app, one.name]), one) for one in chosen
    ]


def _subject(status: QueryStatus, *, alone: bool, versions: int) -> str:
    name = status.name if alone else f"{status.app}/{status.name}"
    return name if versions == 1 else f"{name} v{status.version}"


# -- dead letters -----------------------------------------------------------------------------------------------------


def _dead_letters(rule: Rule, sample: Sample) -> list[Measurement]:
    found = {topic: count for topic, count in sample.dead_letters.items() if rule.matches("topic", topic)}
    if not found and rule.topic is not None and not is_pattern(rule.topic):
        if rule.topic not in sample.topics:
            raise NotFound(kind="topic", name=rule.topic, near=did_you_mean(rule.topic, sample.topics))
        found = {rule.topic: 0.0}  # it has no dead letters
    return [
        _measurement(rule, topic, count, f"Topic {topic!r} had {{}} in the last minute")
        for topic, count in sorted(found.items())
    ]


# -- captures ---------------------------------------------------------------------------------------------------------


def _capture_delay(rule: Rule, sample: Sample) -> list[Measurement]:
    found = []
    for one in _captures(rule, sample):
        if one.delay_seconds is not None:
            words = f"Capture {one.name!r} is {{}} behind its database"
            found.append(_measurement(rule, one.name, one.delay_seconds, words))
        else:
            words = f"The delay of capture {one.name!r} is not known for {{}}: {one.error}"
            found.append(_measurement(rule, one.name, one.unknown_seconds, words))
    return found


def _capture_retention(rule: Rule, sample: Sample) -> list[Measurement]:
    found = []
    for one in _captures(rule, sample):
        if one.retained_bytes is None:  # not every database can tell
            continue
        measured = _measurement(
            rule, one.name, one.retained_bytes, f"The database of capture {one.name!r} keeps {{}} for it"
        )
        if one.danger:  # whatever the threshold: the database has a bound of its own
            measured = replace(measured, is_over=True, message=f"Capture {one.name!r} is at risk: {one.danger}")
        found.append(measured)
    return found


def _captures(rule: Rule, sample: Sample) -> list[CaptureHealth]:
    chosen = [one for one in sample.captures if rule.matches("capture", one.name)]
    if not chosen and rule.capture is not None and not is_pattern(rule.capture):
        near = did_you_mean(rule.capture, [one.name for one in sample.captures])
        raise NotFound(kind="capture", name=rule.capture, near=near)
    return chosen


# -- queues -----------------------------------------------------------------------------------------------------------


def _queue_depth(rule: Rule, sample: Sample) -> list[Measurement]:
    return [
        _measurement(rule, subject, one.depth, f"{_group_of(one)} has {{}} waiting")
        for subject, one in _queues(rule, sample)
    ]


def _queue_age(rule: Rule, sample: Sample) -> list[Measurement]:
    return [
        _measurement(rule, subject, one.oldest_seconds, f"{_group_of(one)} lets messages wait for {{}}")
        for subject, one in _queues(rule, sample)
    ]


def _queue_redeliveries(rule: Rule, sample: Sample) -> list[Measurement]:
    return [
        _measurement(rule, subject, one.redeliveries, f"{_group_of(one)} had {{}} in the last minute")
        for subject, one in _queues(rule, sample)
    ]


def _queue_unattended(rule: Rule, sample: Sample) -> list[Measurement]:
    found = []
    for subject, one in _queues(rule, sample):
        is_over = one.consumers == 0
        has = "no consumer" if is_over else _counted(one.consumers, "consumer")
        message = f"{_group_of(one)} has {has}, and {_counted(one.depth, 'message')} waiting"
        found.append(Measurement(subject=subject, value=float(is_over), is_over=is_over, message=message))
    return found


def _queues(rule: Rule, sample: Sample) -> list[tuple[str, QueueHealth]]:
    chosen = [one for one in sample.queues if rule.matches("queue", one.queue) and rule.matches("group", one.group)]
    if not chosen:
        names = sorted({one.queue for one in sample.queues})
        if rule.queue is not None and not is_pattern(rule.queue) and rule.queue not in names:
            raise NotFound(kind="queue", name=rule.queue, near=did_you_mean(rule.queue, names))
        groups = sorted({one.group for one in sample.queues if rule.matches("queue", one.queue)})
        if rule.group is not None and not is_pattern(rule.group):
            raise NotFound(kind="queue group", name=rule.group, near=did_you_mean(rule.group, groups))
    return [(f"{one.queue}/{one.group}", one) for one in chosen]


def _group_of(one: QueueHealth) -> str:
    return f"Group {one.group!r} of queue {one.queue!r}"


# -- gateways ---------------------------------------------------------------------------------------------------------


def _gateway_down(rule: Rule, sample: Sample) -> list[Measurement]:
    found = []
    for one in _gateways(rule, sample):
        is_down = one.state != "running"
        why = f": {one.error}" if is_down and one.error else ""
        message = f"Gateway {one.name!r} is {one.state}{why}"
        found.append(Measurement(subject=one.name, value=float(is_down), is_over=is_down, message=message))
    return found


def _gateway_lost(rule: Rule, sample: Sample) -> list[Measurement]:
    return [
        _measurement(rule, one.name, one.lost, f"Gateway {one.name!r} lost {{}} in the last minute")
        for one in _gateways(rule, sample)
    ]


def _gateway_rejected(rule: Rule, sample: Sample) -> list[Measurement]:
    return [
        _measurement(rule, one.name, one.rejected, f"Gateway {one.name!r} rejected {{}} in the last minute")
        for one in _gateways(rule, sample)
    ]


def _gateways(rule: Rule, sample: Sample) -> list[GatewayHealth]:
    chosen = [one for one in sample.gateways if rule.matches("gateway", one.name)]
    if not chosen and rule.gateway is not None and not is_pattern(rule.gateway):
        near = did_you_mean(rule.gateway, [one.name for one in sample.gateways])
        raise NotFound(kind="gateway", name=rule.gateway, near=near)
    return chosen


# -- views ------------------------------------------------------------------------------------------------------------


def _view(rule: Rule, sample: Sample) -> list[Measurement]:
    table = sample.run_sql(rule.sql or "", rows_max=SUBJECTS_MAX + 1)
    for name in rule.key:
        if name not in table.column_names:
            expected = f"columns of the statement's result, which has {', '.join(table.column_names)}"
            raise ArgumentInvalid(name="key", value=name, expected=expected)
    rows = table.to_pylist()
    if rule.key:
        return _keyed(rule, rows)
    count = f"more than {SUBJECTS_MAX:,}" if len(rows) > SUBJECTS_MAX else f"{len(rows):,}"
    example = f", such as {_shortened(rows[0])}" if rows else ""
    message = f"The statement finds {count} {'row' if len(rows) == 1 else 'rows'}{example}"
    return [
        Measurement(subject=ROWS, value=float(len(rows)), is_over=len(rows) > rule.threshold, message=message),
    ]


# Any: rows of a statement hold values of any type.
def _keyed(rule: Rule, rows: Sequence[dict[str, Any]]) -> list[Measurement]:
    found: dict[str, Measurement] = {}
    for row in rows:
        subject = ", ".join(f"{name}={_text(row[name])}" for name in rule.key)[:_SAMPLE_CHARACTERS_MAX]
        value = row.get("value")
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        found[subject] = Measurement(
            subject=subject,
            value=float(value) if is_number and value is not None else 1.0,
            is_over=True,
            message=_shortened(row),
        )
    if len(found) > SUBJECTS_MAX:
        why = f"it finds more than {SUBJECTS_MAX:,} keys, too many to notify of each"
        raise StatementInvalid(statement=(rule.sql or "")[:200], why=why)
    return list(found.values())


def _shortened(row: dict[str, Any]) -> str:
    text = ", ".join(f"{name} {_text(value)}" for name, value in row.items())
    return text if len(text) <= _SAMPLE_CHARACTERS_MAX else text[: _SAMPLE_CHARACTERS_MAX - 1] + "…"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


# -- messages ---------------------------------------------------------------------------------------------------------


def amount(rule: Rule, value: float) -> str:
    """A value in the rule's own unit.

    >>> amount(Rule(name="slow", kind="lag", group="billing"), 12_345), amount(Rule(name="l", kind="dead_letters", topic="a"), 1)
    ('12,345 rows', '1 dead letter')
    """
    if rule.kind in TIME_KINDS or rule.unit == "seconds":
        return format_seconds(round(value, 1))
    if rule.kind == "capture_retention":
        return format_bytes(round(value))
    return _counted(value, _NOUNS.get(rule.kind, "row"))


def _counted(value: float, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{value:,.0f} {noun if value == 1 else plural}"


def _measurement(rule: Rule, subject: str, value: float, words: str) -> Measurement:
    is_over = value > rule.threshold
    bound = f", more than {amount(rule, rule.threshold)}" if is_over and rule.threshold else ""
    message = words.replace("{}", amount(rule, value), 1) + bound
    return Measurement(subject=subject, value=float(value), is_over=is_over, message=message)


_NOUNS: dict[Kind, str] = {
    "dead_letters": "dead letter",
    "queue_depth": "message",
    "queue_redeliveries": "redelivery",
    "gateway_lost": "event",
    "gateway_rejected": "event",
}
_KINDS: dict[Kind, Callable[[Rule, Sample], list[Measurement]]] = {
    "lag": _lag,
    "watermark_delay": _watermark_delay,
    "dead_letters": _dead_letters,
    "query_down": _query_down,
    "view": _view,
    "capture_delay": _capture_delay,
    "capture_retention": _capture_retention,
    "queue_depth": _queue_depth,
    "queue_age": _queue_age,
    "queue_redeliveries": _queue_redeliveries,
    "queue_unattended": _queue_unattended,
    "gateway_down": _gateway_down,
    "gateway_lost": _gateway_lost,
    "gateway_rejected": _gateway_rejected,
}
