"""What is known of a running query: from Spark's progress reports, and from what operators keep."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from headwater.errors import StateMissing
from headwater.operators.keyed.inspect import states
from headwater.runtime.holding import held_by
from headwater.runtime.status import QueryStatus, State
from headwater.sources.lag import lag_of, rows_read

#: The rate is taken over so many seconds.
RATE_SECONDS = 10.0


class Watch:
    """Collects the progress of one query; its status may be asked for from any thread."""

    def __init__(self, status: QueryStatus, *, state: Path) -> None:
        self._status = status
        self._state = state
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, int, float]] = deque()
        self._query_id: str | None = None
        #: Whether rows are combined before Spark sees them, so that it does not know how many there were.
        self.combines = False

    def status(self) -> QueryStatus:
        with self._lock:
            rate, busy = self._rate()
            found = replace(self._status, rows_per_second=rate, busy=busy)
        return found if self._query_id is None else _with_state(found, self._state, self._query_id)

    def set(self, state: State, *, error: str | None = None, restarted: bool = False) -> None:
        """The query is in another state now; an error stays until the query does well again."""
        with self._lock:
            restarts = self._status.restarts + (1 if restarted else 0)
            kept = error if error is not None else self._status.error
            if state in ("caught up", "stopped") or (state == "running" and error is None and not restarted):
                kept = None if state == "caught up" else kept
            self._status = replace(self._status, state=state, error=kept, restarts=restarts)

    # Any: a report is JSON.
    def progress(self, report: Mapping[str, Any]) -> None:
        """A batch has come to its end."""
        rows = rows_read(report) if self.combines else int(report.get("numInputRows") or 0)
        lag = lag_of(report)
        phases = {name: float(value) for name, value in (report.get("durationMs") or {}).items()}
        with self._lock:
            self._query_id = str(report.get("id"))
            self._recent.append((time.monotonic(), rows, float(phases.get("triggerExecution", 0.0)) / 1_000))
            self._status = replace(
                self._status,
                state="running" if sum(lag.values()) else "caught up",
                batch=int(report["batchId"]),
                batch_ms=float(phases.get("triggerExecution", 0.0)),
                phases_ms=phases,
                rows_total=self._status.rows_total + rows,
                lag_rows=sum(lag.values()),
                watermark_us=_watermark_us(report),
                # Spark tells these two of the batch alone.
                late=self._status.late + _native(report, "numRowsDroppedByWatermark"),
                evicted=self._status.evicted + _native(report, "numRowsRemoved"),
                state_rows=_native(report, "numRowsTotal"),
                state_bytes=_native(report, "memoryUsedBytes"),
                error=None,
            )

    def _rate(self) -> tuple[float, float]:
        """Rows a second, and the share of the time in which batches were at work."""
        now = time.monotonic()
        begin = now - RATE_SECONDS
        while self._recent and self._recent[0][0] < begin:
            self._recent.popleft()
        rows = sum(rows for _, rows, _ in self._recent)
        worked = sum(min(ended, now) - max(ended - seconds, begin) for ended, _, seconds in self._recent)
        return rows / RATE_SECONDS, min(1.0, worked / RATE_SECONDS)


def _with_state(status: QueryStatus, folder: Path, query: str) -> QueryStatus:
    """The status with what keyed operators keep added to what Spark's own do."""
    try:
        found = list(states(folder, query=query))
    except StateMissing:  # an operator that has just begun, or a version that was replaced as we looked
        return status
    if not found:
        return status
    marks = [one.watermark_us for one in found if one.watermark_us is not None]
    known = [*marks, *([] if status.watermark_us is None else [status.watermark_us])]
    return replace(
        status,
        state_rows=status.state_rows + sum(one.rows for one in found),
        state_bytes=status.state_bytes + sum(one.bytes for one in found),
        late=status.late + sum(one.counts.get("late", 0) for one in found),
        evicted=status.evicted + sum(one.counts.get("evicted", 0) for one in found),
        rejected=sum(one.counts.get("rejected", 0) for one in found),
        watermark_us=min(known) if known else None,
        watermark_held_by=held_by(found, status.inputs, now_us=round(time.time() * 1e6)),
    )


def _native(report: Mapping[str, Any], name: str) -> int:
    return sum(int(operator.get(name) or 0) for operator in report.get("stateOperators") or [])


def _watermark_us(report: Mapping[str, Any]) -> int | None:
    text = (report.get("eventTime") or {}).get("watermark")
    if not text:
        return None
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return None if moment.year <= 1970 else round(moment.timestamp() * 1e6)


# Any: what `addListener` wants is PySpark's own class.
def listener(watches: Mapping[str, Watch]) -> Any:
    """A listener for Spark that tells each watch of the batches of its query, by the query's name."""
    return _Listener(watches)


class _Listener:
    """Stands in for PySpark's listener, which copies every report field by field: hundreds of calls into Java a batch."""

    def __init__(self, watches: Mapping[str, Watch]) -> None:
        self._watches = watches

    @cached_property
    def _jlistener(self) -> Any:  # what PySpark hands to Java
        from pyspark import SparkContext

        java: Any = SparkContext._jvm
        return java.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(_Events(self._watches))


class _Events:
    """What Java calls."""

    def __init__(self, watches: Mapping[str, Watch]) -> None:
        self._watches = watches

    # Any: an object of Java's, whose interface has these names.
    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        report = json.loads(event.progress().json())
        watch = self._watches.get(str(report.get("name")))
        if watch is not None:
            watch.progress(report)

    def _ignore(self, _event: Any) -> None:
        pass

    onQueryStarted = onQueryIdle = onQueryTerminated = _ignore  # noqa: N815

    class Java:
        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
