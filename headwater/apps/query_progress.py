"""The progress of a query: its checkpoint, the state of its operators, and what only Spark's progress reports say."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from headwater.apps.checkpoint import Offsets, keep_beginning
from headwater.apps.home import Home
from headwater.apps.status import QueryStatus, State
from headwater.engine.errors import StateMissing
from headwater.engine.event_time import NEVER, merge_progress
from headwater.engine.state_maintenance import OperatorState, states
from headwater.errors import NotFound
from headwater.log import Lag, Log
from headwater.log.clients.groups import lag_of
from headwater.log.errors import UNREACHABLE

#: The period over which rates are computed.
RATE_SECONDS = 10.0
#: A partition that had rows in so many seconds does not hold the watermark back; it is only the slowest.
QUIET_SECONDS = 10.0
#: A partition that is less behind in event time is not named.
BEHIND_US = 1_000_000
_ORDINALS = ("first", "second", "third", "fourth")


class QueryProgress:
    """The progress of one query that this process runs. Its status can be read from any thread.

    How far the query is comes from its checkpoint; only what no file says comes from Spark's reports.
    """

    def __init__(self, status: QueryStatus, *, home: Home, log: Log, start: str = "earliest") -> None:
        self._status = status
        self._home = home
        self._log = log
        self._start = start
        self._lock = threading.Lock()
        self._has_beginning = False
        #: Since when the query runs, in seconds since 1970; None while it does not.
        self.started_at: float | None = None

    def status(self) -> QueryStatus:
        return measured(self._status, self._home, self._log, start=self._start, started_at=self.started_at)

    def set_state(self, state: State, *, error: str | None = None, restarted: bool = False) -> None:
        """Set the state of the query; an error stays until the query works again."""
        with self._lock:
            kept = None if state in ("running", "caught up") else error or self._status.error
            restarts = self._status.restarts + (1 if restarted else 0)
            self._status = replace(self._status, state=state, error=kept, restarts=restarts)

    def committed_batch(self) -> int | None:
        """Return the number of the last committed batch."""
        return self._home.read_checkpoint(self._status.name, self._status.version).batch

    def keep_beginning(self) -> None:
        """Record where the query began, if that is not recorded yet."""
        if not self._has_beginning:
            self._has_beginning = keep_beginning(self._home.checkpoint(self._status.name, self._status.version))

    # Any: a report is JSON.
    def update(self, report: Mapping[str, Any]) -> None:
        """Record what only Spark knows of a finished batch: its phases, and the state of Spark's own operators."""
        phases = {name: float(value) for name, value in (report.get("durationMs") or {}).items()}
        with self._lock:
            self._status = replace(
                self._status,
                phases_ms=phases,
                # Spark reports these two for the batch alone.
                late=self._status.late + _native(report, "numRowsDroppedByWatermark"),
                evicted=self._status.evicted + _native(report, "numRowsRemoved"),
                state_rows=_native(report, "numRowsTotal"),
                state_bytes=_native(report, "memoryUsedBytes"),
            )


def measured(
    status: QueryStatus, home: Home, log: Log, *, start: str = "earliest", started_at: float | None = None
) -> QueryStatus:
    """Return the status with all that the disk says of the query: batch, rows, lag, rate, watermark and state.

    The lag is the end of the inputs less the position that the checkpoint has committed. It holds for every query,
    whether it runs (since `started_at`), starts, restarts or has stopped. Before its first batch, a query is at `start`.
    """
    checkpoint, now = home.read_checkpoint(status.name, status.version), time.time()
    lags = _lags(log, status.inputs, checkpoint.position, start=start)
    lag_rows = None if lags is None else sum(lag.rows for lag in lags)
    found = replace(
        status,
        state=_state(status.state, lag_rows),
        batch=checkpoint.batch,
        rows_total=checkpoint.rows_read,
        rows_per_second=checkpoint.rate(now=now, seconds=RATE_SECONDS),
        lag_rows=lag_rows,
        lag_seconds=None if lags is None else max((lag.seconds for lag in lags), default=0.0),
        watermark_us=checkpoint.watermark_us,
    )
    if started_at is not None:
        seconds = checkpoint.batch_seconds(since=started_at)
        busy = checkpoint.busy(now=now, seconds=RATE_SECONDS, since=started_at)
        found = replace(found, batch_ms=None if seconds is None else seconds * 1_000, busy=busy)
    query = home.query_id(status.name, status.version)
    return found if query is None else _with_state(found, home.state, query)


def _state(state: State, lag_rows: int | None) -> State:
    """A query that runs has caught up where nothing is left to read; one that came to its end where nothing was left."""
    if state == "running" and lag_rows == 0:
        return "caught up"
    return "stopped" if state == "caught up" and lag_rows else state


def _lags(log: Log, inputs: Sequence[str], position: Offsets | None, *, start: str) -> list[Lag] | None:
    """The lag in each partition of the inputs; None if where the query begins is not known, or the input is gone or away."""
    if position is None and start != "earliest":
        return None
    lags: list[Lag] = []
    for topic in dict.fromkeys((*inputs, *(position or ()))):
        try:
            lags += lag_of(log, "", topic, (position or {}).get(topic, {}))
        except (NotFound, *UNREACHABLE):
            return None
    return lags


def _with_state(status: QueryStatus, folder: Path, query: str) -> QueryStatus:
    """Add the state of keyed operators to that of Spark's own operators."""
    try:
        found = list(states(folder, query=query))
    except StateMissing:  # an operator that has just begun, or a version that was replaced as we looked
        return status
    if not found:
        return status
    marks = [one.watermark_us for one in found if one.watermark_us is not None and not one.has_ended]
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


# Any: what `addListener` wants is PySpark's own class.
def listener(progress: Mapping[str, QueryProgress], *, ended: Callable[[], None]) -> Any:
    """Return a listener for Spark that updates the progress of each query, by the query's name, after each batch.

    It calls `ended` when a query has ended, for whatever reason.
    """
    return _Listener(_Events(progress, ended))


class _Listener:
    """Stands in for PySpark's listener, which copies every report field by field: hundreds of calls into Java a batch."""

    def __init__(self, events: _Events) -> None:
        self._events = events

    @cached_property
    def _jlistener(self) -> Any:  # what PySpark hands to Java
        from pyspark import SparkContext

        java: Any = SparkContext._jvm
        return java.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(self._events)


class _Events:
    """The interface that Java calls."""

    def __init__(self, progress: Mapping[str, QueryProgress], ended: Callable[[], None]) -> None:
        self._progress = progress
        self._ended = ended

    # Any: an object of Java's, whose interface has these names.
    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        report = json.loads(event.progress().json())
        progress = self._progress.get(str(report.get("name")))
        if progress is not None:
            progress.update(report)

    def onQueryTerminated(self, _event: Any) -> None:  # noqa: N802
        self._ended()

    def _ignore(self, _event: Any) -> None:
        pass

    onQueryStarted = onQueryIdle = _ignore  # noqa: N815

    class Java:
        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def held_by(states: Iterable[OperatorState], inputs: Sequence[str], *, now_us: int) -> str:
    """Explain which partition or input holds the watermark back; empty if none does.

    The source progress of the operator with the earliest watermark shows which of its inputs is behind.
    """
    found = list(states)
    if found and all(one.has_ended for one in found):
        return "all input has ended, so nothing waits for event time"
    found = [one for one in found if not one.has_ended]
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
