"""What rules look at in these tests: numbers that a test sets, under a clock that it moves; and a sender that remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headwater.alerts import Delivery, Rule, Watcher
from headwater.alerts.measurements import CaptureHealth, GatewayHealth, QueueHealth
from headwater.alerts.time_limit import Stoppable
from headwater.apps.status import QueryStatus
from headwater.clock import ManualClock
from headwater.config import Config
from headwater.log import Lag, Log
from headwater.log import open as open_log


@dataclass
class Numbers:
    """Measures that a test has written down."""

    clock: ManualClock = field(default_factory=ManualClock)
    lags: dict[str, int] = field(default_factory=dict)
    """How many rows each query is behind; one that is not there is not known."""
    letters: dict[str, float] = field(default_factory=dict)
    groups: list[Lag] = field(default_factory=list)
    statuses: list[QueryStatus] = field(default_factory=list)
    captured: list[CaptureHealth] = field(default_factory=list)
    queued: list[QueueHealth] = field(default_factory=list)
    gated: list[GatewayHealth] = field(default_factory=list)
    table: pa.Table | Exception = field(default_factory=lambda: pa.table({"card": pa.array([], pa.int64())}))

    def now_us(self) -> int:
        return self.clock.now_us()

    def group_lags(self) -> Sequence[Lag]:
        return self.groups

    def query_statuses(self) -> Sequence[QueryStatus]:
        behind = [QueryStatus(name=name, kind="view", lag_rows=rows) for name, rows in self.lags.items()]
        return [*behind, *self.statuses]

    def dead_letters(self) -> Mapping[str, float]:
        return self.letters

    def topics(self) -> Sequence[str]:
        return ["orders", *self.letters]

    def captures(self) -> Sequence[CaptureHealth]:
        return self.captured

    def queues(self) -> Sequence[QueueHealth]:
        return self.queued

    def gateways(self) -> Sequence[GatewayHealth]:
        return self.gated

    def run_sql(self, statement: str, *, rows_max: int, stoppable: Stoppable | None = None) -> pa.Table:  # noqa: ARG002
        if isinstance(self.table, Exception):
            raise self.table
        return self.table.slice(0, rows_max)


@dataclass
class Heard:
    """A sender that remembers what it was given; `away` are receivers that cannot be reached, `wrong` those that refuse."""

    told: list[tuple[str, str, str]] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    away: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)

    def send(self, delivery: Delivery, *, now_us: int) -> Delivery:
        self.attempts.append(delivery.target)
        if delivery.target in self.away:
            return delivery.postponed("no answer", now_us=now_us)
        if delivery.target in self.wrong:
            return delivery.refused("the receiver answered 410")
        alert = delivery.content()["alert"]
        self.told.append((delivery.target, alert["rule"], alert["state"]))
        return delivery.sent()


def opened(folder: Path) -> Log:
    return open_log(folder / "log", config=Config(maintenance="manual"))


def watcher_of(log: Log, numbers: Numbers, heard: Heard | None = None) -> Watcher:
    return Watcher(log, numbers, sender=heard or Heard())


def slow(**more: object) -> Rule:
    """A rule on the lag of the query `spend`."""
    given = {"name": "slow", "kind": "lag", "query": "spend", "threshold": 10.0, "webhooks": ["http://hook"], **more}
    return Rule.from_dict(given)
