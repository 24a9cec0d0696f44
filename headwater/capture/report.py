"""What the process that runs a capture tells about it: rates, the health of the source, the last error.

<home of the log>/captures/NAME.lock    flock: held by the process that runs the capture, for as long as it does
<home of the log>/captures/NAME.json    its last report; replaced by one rename, every two seconds at most

Others read the report instead of asking the database. A report without a lock is that of a process that has ended.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import orjson

from headwater.capture.capture import Capture
from headwater.capture.config import CaptureConfig
from headwater.capture.connectors import open_source
from headwater.capture.port import SourceHealth
from headwater.capture.store import CaptureStore
from headwater.errors import HeadwaterError
from headwater.filelock import LeaderLock, is_locked
from headwater.log.port import Log

#: How often a running capture measures its source and writes its report.
REPORT_SECONDS = 2.0
#: The time over which rows per second are measured.
RATE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class CaptureReport:
    """What the process that runs a capture has last told about it."""

    pid: int = 0
    app: str = ""
    """The app that declares the capture; empty if `headwater capture run` runs it."""
    started_us: int = 0
    at_us: int = 0
    pending: int | None = None
    unit: Literal["change", "byte"] = "change"
    """What `pending` counts."""
    delay_seconds: float | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    danger: str = ""
    """Why the database may soon delete changes that are not captured."""
    retained_bytes: int | None = None
    rows_per_second: Mapping[str, float] = field(default_factory=dict)
    """By table, in the last ten seconds."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """By table, since the process began."""
    restarts: int = 0
    error: str = ""
    """The last error in one line; empty after a piece was captured again."""

    def with_health(self, health: SourceHealth) -> CaptureReport:
        """The report with what a source tells of itself now."""
        return replace(
            self,
            pending=health.pending,
            unit=health.unit,
            delay_seconds=health.delay_seconds,
            details=dict(health.details),
            warnings=list(health.warnings),
            danger=health.danger,
            retained_bytes=health.retained_bytes,
        )


def report_of(log: Log, name: str) -> tuple[CaptureReport, bool]:
    """The last report of a capture, and whether a process of this machine runs the capture now."""
    running = is_locked(_path(log, name, "lock"))
    try:
        body = orjson.loads(_path(log, name, "json").read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return CaptureReport(), running
    known = {one.name for one in fields(CaptureReport)}
    return CaptureReport(**{key: value for key, value in body.items() if key in known}), running


def current_report(log: Log, config: CaptureConfig) -> tuple[CaptureReport, bool, str]:
    """The report of a capture with the health of its source now, whether a process runs it, and why its source cannot be asked.

    The process that runs a capture has the health in its report. Where none does, the database is asked.
    """
    report, running = report_of(log, config.name)
    if running and not config.paused and (report.error or report.pending is not None):
        return report, running, ""
    position = CaptureStore(log).progress(config.name).position
    try:
        with contextlib.closing(open_source(config)) as source:
            health = source.health(source.first_position() if position is None else position)
    except HeadwaterError as error:
        unknown = replace(report, pending=None, delay_seconds=None, retained_bytes=None, danger="")
        return unknown, running, str(error)
    return report.with_health(health), running, ""


def remove_report(log: Log, name: str) -> None:
    """Delete the report of a capture that is dropped."""
    _path(log, name, "json").unlink(missing_ok=True)


class Reporter:
    """Writes the reports of one capture while this process runs it.

    The lock only says that a process runs the capture; that one process at most appends is ensured by the epoch of its
    producer. So a process that takes a capture over gets the lock as soon as the other process has stopped.
    """

    def __init__(self, log: Log, name: str, *, app: str = "", monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._name = name
        self._monotonic = monotonic
        self._lock = LeaderLock(_path(log, name, "lock"))
        self._report = CaptureReport(pid=os.getpid(), app=app, started_us=time.time_ns() // 1000)
        self._capture: Capture | None = None
        self._before = Counter[str]()
        self._counts = Counter[str]()
        self._samples: deque[tuple[float, dict[str, int]]] = deque([(monotonic(), {})])
        self._due = 0.0

    def __enter__(self) -> Self:
        self._lock.acquire()
        self._write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.fail(error)
        self._lock.release()

    @property
    def danger(self) -> str:
        """Why the database may soon delete changes that are not captured, as last measured."""
        return self._report.danger

    @property
    def is_alone(self) -> bool:
        """Whether no other process runs the capture; takes the lock if it is free."""
        return self._lock.acquire()

    def yield_turn(self) -> None:
        """Release the lock for the process that has taken the capture over."""
        self._lock.release()

    def captured(self, capture: Capture) -> None:
        """Count the rows that are captured, and write a report if one is due."""
        if capture is not self._capture:  # it was opened again
            self._capture, self._before = capture, self._counts
        self._counts = self._before + capture.captured
        if self._monotonic() >= self._due or self._report.error:
            self._due = self._monotonic() + REPORT_SECONDS
            self._lock.acquire()
            self._measured(capture.health())

    def fail(self, error: Exception) -> None:
        """Report that the capture has failed, and will be restarted if its process goes on."""
        self._report = replace(self._report, error=" ".join(str(error).split()), restarts=self._report.restarts + 1)
        self._write()

    def _measured(self, health: SourceHealth) -> None:
        now = self._monotonic()
        while len(self._samples) > 1 and now - self._samples[0][0] > RATE_SECONDS:
            self._samples.popleft()
        began, before = self._samples[0]
        seconds = max(now - began, 1e-3)
        self._samples.append((now, dict(self._counts)))
        self._report = replace(
            self._report.with_health(health),
            rows_per_second={table: (count - before.get(table, 0)) / seconds for table, count in self._counts.items()},
            rows=dict(self._counts),
            error="",
        )
        self._write()

    def _write(self) -> None:
        self._report = replace(self._report, at_us=time.time_ns() // 1000)
        path = _path(self._log, self._name, "json")
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_bytes(orjson.dumps(asdict(self._report)))
        temporary.replace(path)


def _path(log: Log, name: str, suffix: str) -> Path:
    return log.home / "captures" / f"{name}.{suffix}"
