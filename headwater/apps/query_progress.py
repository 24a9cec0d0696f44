"""The progress of a running query, from Spark's progress reports and from the state of operators."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from headwater.apps.status import QueryStatus, State
from headwater.engine.errors import StateMissing
from headwater.engine.event_time import NEVER, merge_progress
from headwater.engine.state_maintenance import OperatorState, states
from headwater.spark.source.offsets import lag_of, rows_read

#: The period over which rates are computed.
RATE_SECONDS = 10.0
#: A partition that had rows in so many seconds does not hold the watermark back; it is only the slowest.
QUIET_SECONDS = 10.0
#: A partition that is less behind in event time is not named.
BEHIND_US = 1_000_000
_ORDINALS = ("first", "second", "third", "fourth")


class QueryProgress:
    """The progress of one query. Its status can be read from any thread."""

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

    def set_state(self, state: State, *, error: str | None = None, restarted: bool = False) -> None:
        """Set the state of the query; an error stays until the query works again."""
        with self._lock:
            restarts = self._status.restarts + (1 if restarted else 0)
            kept = error if error is not None else self._status.error
            if state in ("caught up", "stopped") or (state == "running" and error is None and not restarted):
                kept = None if state == "caught up" else kept
            self._status = replace(self._status, state=state, error=kept, restarts=restarts)

    # Any: a report is JSON.
    def update(self, report: Mapping[str, Any]) -> None:
        """Record the report of a finished batch."""
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
                # Spark reports these two for the batch alone.
                late=self._status.late + _native(report, "numRowsDroppedByWatermark"),
                evicted=self._status.evicted + _native(report, "numRowsRemoved"),
                state_rows=_native(report, "numRowsTotal"),
                state_bytes=_native(report, "memoryUsedBytes"),
                error=None,
            )

    def _rate(self) -> tuple[float, float]:
        """Return rows per second, and the share of the time in which batches ran."""
        now = time.monotonic()
        begin = now - RATE_SECONDS
        while self._recent and self._recent[0][0] < begin:
            self._recent.popleft()
        rows = sum(rows for _, rows, _ in self._recent)
        worked = sum(min(ended, now) - max(ended - seconds, begin) for ended, _, seconds in self._recent)
        return rows / RATE_SECONDS, min(1.0, worked / RATE_SECONDS)


def _with_state(status: QueryStatus, folder: Path, query: str) -> QueryStatus:
    """Add the state of keyed operators to that of Spark's own operators."""
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
def listener(progress: Mapping[str, QueryProgress]) -> Any:
    """Return a listener for Spark that updates the progress of each query, by the query's name, after each batch."""
    return _Listener(progress)


class _Listener:
    """Stands in for PySpark's listener, which copies every report field by field: hundreds of calls into Java a batch."""

    def __init__(self, progress: Mapping[str, QueryProgress]) -> None:
        self._progress = progress

    @cached_property
    def _jlistener(self) -> Any:  # what PySpark hands to Java
        from pyspark import SparkContext

        java: Any = SparkContext._jvm
        return java.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(_Events(self._progress))


class _Events:
    """The interface that Java calls."""

    def __init__(self, progress: Mapping[str, QueryProgress]) -> None:
        self._progress = progress

    # Any: an object of Java's, whose interface has these names.
    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        report = json.loads(event.progress().json())
        progress = self._progress.get(str(report.get("name")))
        if progress is not None:
            progress.update(report)

    def _ignore(self, _event: Any) -> None:
        pass

    onQueryStarted = onQueryIdle = onQueryTerminated = _ignore  # noqa: N815

    class Java:
        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def held_by(states: Iterable[OperatorState], inputs: Sequence[str], *, now_us: int) -> str:
    """Explain which partition or input holds the watermark back; empty if none does.

    The source progress of the operator with the earliest watermark shows which of its inputs is behind.
    """
    found = list(states)
    if not found:
        return ""
    slowest = min(found, key=lambda one: NEVER if one.watermark_us is None else one.watermark_us)
    progress = merge_progress(one.progress for one in found if one.operator == slowest.operator)
    places = [(latest, at, name, place) for name, some in progress.items() for place, (latest, at) in some.items()]
    if len(places) < 2:
        return ""
    latest, at, name, place = min(places)
    if latest <= NEVER:
        return f"{_input(name, inputs)} has had no rows yet, and there is no watermark until it has"
    quiet = (now_us - at) / 1e6
    if max(places)[0] - latest < BEHIND_US or quiet < QUIET_SECONDS:
        return ""
    return f"partition {place} of {_input(name, inputs)}, idle for {quiet:,.0f} s, holds the watermark"


def _input(name: str, inputs: Sequence[str]) -> str:
    """Name an input. An operator numbers its inputs, which may be in another order than the query's."""
    if len(inputs) == 1:
        return inputs[0]
    number = int(name) if name.isdigit() else 0
    return f"its {_ORDINALS[number] if number < len(_ORDINALS) else f'{number + 1}th'} input"
