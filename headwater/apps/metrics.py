"""The metrics of an app for Prometheus: the statuses of its queries and the offsets of its topics, as text.

`docs/reference/metrics.md` lists the names; they are a contract. Text format 0.0.4, which every scraper understands.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from headwater.apps.status import QueryStatus, State
from headwater.errors import NotFound
from headwater.log import Log

STATES: tuple[str, ...] = get_args(State)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One name: what it means, how it behaves, and its samples."""

    name: str
    help: str
    kind: Literal["gauge", "counter"] = "gauge"
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: str) -> None:
        """Add a sample; None means unknown, and adds nothing."""
        if value is not None:
            self.samples.append((labels, value))

    def text(self) -> str:
        head = [f"# HELP {self.name} {escaped_help(self.help)}", f"# TYPE {self.name} {self.kind}"]
        return "\n".join([*head, *(f"{self.name}{_labels(labels)} {number(value)}" for labels, value in self.samples)])


def metrics(
    statuses: Sequence[QueryStatus], log: Log | None = None, *, sees: Callable[[str], bool] = lambda _: True
) -> str:
    """Return the text of a scrape; without a log, only the metrics of queries. Topics are filtered by `sees`.

    >>> [line for line in metrics([QueryStatus(name="spend", kind="view", app="shop")]).splitlines() if "restarts_total{" in line]
    ['headwater_query_restarts_total{app="shop",query="spend",version="1"} 0']
    """
    found = [*_of_queries(statuses), *(_of_log(log, sees) if log is not None else ())]
    return "\n".join(metric.text() for metric in found if metric.samples) + "\n"


def escaped_help(text: str) -> str:
    """Text after HELP: backslashes and line feeds are written out."""
    return text.replace("\\", r"\\").replace("\n", r"\n")


def escaped_label(text: str) -> str:
    """The value of a label: quotes as well.

    >>> escaped_label('say "no"\\n')
    'say \\\\"no\\\\"\\\\n'
    """
    return escaped_help(text).replace('"', r"\"")


def number(value: float) -> str:
    """A value as the format writes it.

    >>> number(3), number(0.5), number(float("inf")), number(float("nan"))
    ('3', '0.5', '+Inf', 'NaN')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**63 else repr(float(value))


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{escaped_label(value)}"' for name, value in labels.items()) + "}" if labels else ""


def _of_queries(statuses: Sequence[QueryStatus]) -> Iterable[Metric]:
    state = Metric(name="headwater_query_state", help="1 for the state that the query is in, 0 for the others.")
    phases = Metric(name="headwater_query_phase_seconds", help="How long the parts of the last batch took.")
    for one in statuses:
        for name in STATES:
            state.add(one.state == name, **_query(one), state=name)
        for phase, milliseconds in one.phases_ms.items():
            phases.add(milliseconds / 1000, **_query(one), phase=phase)
    yield state
    yield phases
    for name, kind, help, of in _NUMBERS:
        metric = Metric(name=f"headwater_query_{name}", kind=kind, help=help)
        for one in statuses:
            metric.add(of(one), **_query(one))
        yield metric


def _query(one: QueryStatus) -> dict[str, str]:
    """The labels of a query: two apps may have a query of the same name."""
    return {"app": one.app, "query": one.name, "version": str(one.version)}


Kind = Literal["gauge", "counter"]
#: Name, kind, what it means, and where it comes from.
_NUMBERS: tuple[tuple[str, Kind, str, Callable[[QueryStatus], float | None]], ...] = (
    ("rows_per_second", "gauge", "Rows read per second in the last ten seconds.", lambda one: one.rows_per_second),
    ("lag_rows", "gauge", "Rows of the inputs that the query has not read.", lambda one: one.lag_rows),
    ("lag_seconds", "gauge", "How long the oldest such row has waited.", lambda one: one.lag_seconds),
    ("batch", "gauge", "Number of the last committed batch.", lambda one: one.batch),
    ("batch_seconds", "gauge", "How long the last batch took.", lambda one: _divided(one.batch_ms, 1e3)),
    (
        "watermark_seconds",
        "gauge",
        "The watermark, in seconds since 1970.",
        lambda one: _divided(one.watermark_us, 1e6),
    ),
    ("state_rows", "gauge", "Rows that operators keep.", lambda one: one.state_rows),
    ("state_bytes", "gauge", "Bytes that operators keep.", lambda one: one.state_bytes),
    ("late_rows_total", "counter", "Rows that came after the watermark.", lambda one: one.late),
    ("rejected_rows_total", "counter", "Rows that an operator rejected.", lambda one: one.rejected),
    ("dead_letters_total", "counter", "Rows given up to a dead-letter topic.", lambda one: one.dead_letters),
    ("rows_total", "counter", "Rows read since the version of the query began.", lambda one: one.rows_total),
    ("restarts_total", "counter", "Restarts after a failure.", lambda one: one.restarts),
)


def _divided(value: float | None, by: float) -> float | None:
    return None if value is None else value / by


def _of_log(log: Log, sees: Callable[[str], bool]) -> Iterable[Metric]:
    ends = Metric(name="headwater_topic_end_offset", help="The first offset not yet used.")
    starts = Metric(name="headwater_topic_start_offset", help="The oldest offset that is kept.")
    size = Metric(name="headwater_topic_bytes", help="Bytes on disk.")
    for topic in filter(sees, log.topics()):
        with contextlib.suppress(NotFound):  # deleted while we looked
            for one in log.describe(topic).partitions:
                labels = {"topic": topic, "partition": str(one.partition)}
                ends.add(one.offset_next, **labels)
                starts.add(one.offset_start, **labels)
                size.add(one.bytes, **labels)
    rows = Metric(name="headwater_group_lag_rows", help="Rows that a consumer group has not committed.")
    seconds = Metric(name="headwater_group_lag_seconds", help="How long the oldest such row has waited.")
    for group in log.groups.names():
        with contextlib.suppress(NotFound):  # forgotten while we looked, or its topic deleted
            for lag in (one for one in log.groups.lag(group) if sees(one.topic)):
                labels = {"group": lag.group, "topic": lag.topic, "partition": str(lag.partition)}
                rows.add(lag.rows, **labels)
                seconds.add(lag.seconds, **labels)
    return ends, starts, size, rows, seconds
