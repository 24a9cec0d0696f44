"""What the process that runs a sync tells about it, and the last comparison of its target.

<home of the log>/syncs/NAME.lock               flock: held by the process that runs the sync, for as long as it does
<home of the log>/syncs/NAME.json               its last report; replaced by one rename, every two seconds at most
<home of the log>/syncs/NAME.comparison.json    the last comparison of its target

Others read the report instead of opening the target, which may allow one process at a time. A report without a lock is that of
a process that has ended.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from headwater.filelock import LeaderLock, is_locked
from headwater.log.clients.groups import lag_of
from headwater.log.port import Log
from headwater.sync.comparison import Difference, TableComparison
from headwater.sync.port import TargetTable
from headwater.sync.sync import Sync

#: How often a running sync writes its report.
REPORT_SECONDS = 2.0
#: The time over which rows per second are measured.
RATE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class SyncedTable:
    """One table of a sync: its topic, and how many offsets of the topic are not applied yet."""

    topic: str
    table: str
    pending: int
    delay_seconds: float = 0.0
    """How long the oldest of these rows has waited."""


@dataclass(frozen=True, kw_only=True)
class SyncReport:
    """What the process that runs a sync has last told about it."""

    pid: int = 0
    at_us: int = 0
    rows: int = 0
    """Applied since the process began."""
    rows_per_second: float = 0.0
    """In the last ten seconds."""
    tables: list[SyncedTable] = field(default_factory=list)
    """What was not applied yet when the report was written."""
    error: str = ""
    """The error that ended the process, in one line."""


@dataclass(frozen=True, kw_only=True)
class RecordedComparison:
    """A comparison of a target: when it began, with what, and what it found."""

    at_us: int
    source: bool = False
    """Whether it compared with the captured database, not with the topics."""
    repaired: bool = False
    """Whether the rows that differed were corrected."""
    tables: list[TableComparison] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many rows differed."""
        return sum(one.missing + one.extra + one.different for one in self.tables)

    @property
    def verb(self) -> str:
        """What these rows do now: `1 row differs`, `2 rows differ`, `2 rows corrected`."""
        return "corrected" if self.repaired else "differs" if self.count == 1 else "differ"


def report_of(log: Log, name: str) -> tuple[SyncReport, bool]:
    """The last report of a sync, and whether a process of this machine runs the sync now."""
    running = is_locked(_path(log, name, "lock"))
    body = _read(_path(log, name, "json"))
    known = {one.name for one in fields(SyncReport)}
    report = SyncReport(**{key: value for key, value in body.items() if key in known})
    return replace(report, tables=[SyncedTable(**one) for one in body.get("tables", ())]), running


def synced_table(log: Log, table: TargetTable, offsets: Mapping[int, int]) -> SyncedTable:
    """What a table lacks whose next offsets are these."""
    lags = lag_of(log, "", table.topic, dict(offsets))
    return SyncedTable(
        topic=table.topic,
        table=table.name,
        pending=sum(one.rows for one in lags),
        delay_seconds=max((one.seconds for one in lags), default=0.0),
    )


def last_comparison(log: Log, name: str) -> RecordedComparison | None:
    """The last comparison of a sync's target; None if there was none on this machine."""
    body = _read(_path(log, name, "comparison.json"))
    if not body:
        return None
    tables = [
        TableComparison(**one | {"differences": [Difference(**each) for each in one["differences"]]})
        for one in body["tables"]
    ]
    return RecordedComparison(**body | {"tables": tables})


def record_comparison(log: Log, name: str, comparison: RecordedComparison) -> None:
    """Keep a comparison as the last one of a sync."""
    _write(_path(log, name, "comparison.json"), asdict(comparison))


def remove_report(log: Log, name: str) -> None:
    """Delete the report and the comparison of a sync that is dropped."""
    for suffix in ("json", "comparison.json"):
        _path(log, name, suffix).unlink(missing_ok=True)


class Reporter:
    """Writes the reports of one sync while this process runs it.

    The lock only says that a process runs the sync; that one process at most applies rows is ensured by the epoch in the
    target. So a process that takes a sync over gets the lock as soon as the other process has stopped.
    """

    def __init__(self, log: Log, name: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._name = name
        self._monotonic = monotonic
        self._lock = LeaderLock(_path(log, name, "lock"))
        self._report = SyncReport(pid=os.getpid())
        self._samples: deque[tuple[float, int]] = deque([(monotonic(), 0)])
        self._due = 0.0

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._report = replace(self._report, rows_per_second=0.0)
        if isinstance(error, Exception):
            self._report = replace(self._report, error=" ".join(str(error).split()))
        self._write()
        self._lock.release()

    def applied(self, sync: Sync) -> None:
        """Count the rows that are applied, and write a report if one is due."""
        now = self._monotonic()
        self._report = replace(self._report, rows=sync.rows)
        if now < self._due:
            return
        self._due = now + REPORT_SECONDS
        self._lock.acquire()
        while len(self._samples) > 1 and now - self._samples[0][0] > RATE_SECONDS:
            self._samples.popleft()
        began, before = self._samples[0]
        self._samples.append((now, sync.rows))
        rate = (sync.rows - before) / max(now - began, 1e-3)
        tables = [synced_table(self._log, one, sync.offsets.get(one.topic, {})) for one in sync.tables()]
        self._report = replace(self._report, rows_per_second=rate, tables=tables)
        self._write()

    def _write(self) -> None:
        self._report = replace(self._report, at_us=time.time_ns() // 1000)
        _write(_path(self._log, self._name, "json"), asdict(self._report))


# Any: JSON.
def _read(path: Path) -> dict[str, Any]:
    try:
        body: dict[str, Any] = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
    return body


# Any: JSON.
def _write(path: Path, body: dict[str, Any]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(orjson.dumps(body))
    temporary.replace(path)


def _path(log: Log, name: str, suffix: str) -> Path:
    return log.home / "syncs" / f"{name}.{suffix}"
