"""Run one version of a query: start it, write its output exactly once, stop it between two batches."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.apps.dead_letters import post_rejected
from headwater.apps.declaration import Mode
from headwater.apps.interactive_query import Parts, combined_parts
from headwater.apps.plan import QueryPlan
from headwater.engine.columns import EVENT_TIMER
from headwater.engine.errors import StateMissing
from headwater.engine.micro_batch import MicroBatch
from headwater.engine.open_logs import shared_log
from headwater.engine.state_maintenance import rows_of
from headwater.engine.window_step import START
from headwater.errors import ArgumentInvalid
from headwater.faults import reach
from headwater.operators import SideOutputs
from headwater.sinks import Fanout, TopicSink
from headwater.spark.batch_offsets import driver_batch
from headwater.spark.java_classes import are_known
from headwater.spark.topic_query import TopicQuery
from headwater.spark.topic_target import Target
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: How long a stop waits for the current batch; a batch that is not finished by then is repeated at the next start.
STOP_SECONDS_MAX = 60.0


class Stopped(Exception):
    """A batch began after the stop; the next start runs it."""


class Gate:
    """Let batches pass until the gate is closed; then the next batch waits, so that none is interrupted."""

    def __init__(self, admit: Callable[[], None] = lambda: None) -> None:
        #: Raises if this process may no longer run batches.
        self._admit = admit
        self._closed = threading.Event()
        self._waiting = threading.Event()
        self._open = threading.Event()

    def enter(self) -> None:
        if self._closed.is_set():
            self._waiting.set()
            self._open.wait(STOP_SECONDS_MAX)
            raise Stopped
        self._admit()

    def close(self) -> None:
        self._closed.set()

    def is_waiting(self) -> bool:
        return self._waiting.is_set()

    def release(self) -> None:
        self._open.set()


@dataclass(frozen=True, kw_only=True)
class Output:
    """Write the rows of a batch to the query's topic in one transaction, and to its sinks."""

    planned: QueryPlan
    log: str
    state: Path
    gate: Gate
    answering: Parts | None = None
    written: Callable[[], None] = field(default=lambda: None)

    def begin(self, batch: MicroBatch) -> None:  # noqa: ARG002 - the form of all that is called around a batch
        self.gate.enter()
        reach("app.batch")

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch in `foreachBatch`, as a query with sinks does."""
        batch = driver_batch(rows.sparkSession)
        if batch is None or batch.number != batch_id:
            raise ArgumentInvalid(name="batch_id", value=batch_id, expected="a call by `writeStream.foreachBatch`")
        self.begin(batch)
        query, topic = self.planned.query, self.planned.version.topic
        several = topic is not None and bool(query.sinks)
        if several:
            rows = rows.persist()
        try:
            if topic is not None:
                TopicSink(log=self.log, topic=topic, extra_parts=self._extra_parts())(rows, batch_id)
                reach("app.topic_written")
            if query.sinks:
                told = [sink.for_query(query.name, log=self.log, state=self.state) for sink in query.sinks]
                Fanout(sinks=tuple(told))(rows, batch_id)
                reach("app.sinks_written")
        finally:
            if several:
                rows.unpersist()
        self.end(batch)

    def end_of_topic(self, batch: MicroBatch) -> None:
        """Finish a batch of a query without sinks, whose rows are in its topic."""
        reach("app.topic_written")
        self.end(batch)

    def topic_query(self, checkpoint: Path) -> TopicQuery:
        """What writes the batches of a query without sinks."""
        return TopicQuery(
            target=Target.of(log=self.log, topic=self.planned.version.topic),
            checkpoint=str(checkpoint),
            extra_parts=self._extra_parts(),
            begins=self.begin,
            ends=self.end_of_topic,
        )

    def _extra_parts(self) -> Parts | None:
        return combined_parts(*self._sides(), self.answering)

    def end(self, batch: MicroBatch) -> None:
        """Write rows that operators could not use to the dead-letter topic of their input."""
        if self.planned.operators and not self._is_trial:
            post_rejected(
                shared_log(self.log),
                state=self.state,
                operators=[one.name for one in self.planned.operators],
                inputs=self.planned.query.reads,
                query=self.planned.query.name,
                batch=batch,
            )
        self.written()

    @property
    def _is_trial(self) -> bool:
        """Whether the version is a trial beside the active one, which writes the same dead letters and side outputs."""
        return self.planned.version.topic != self.planned.query.output

    def _sides(self) -> list[SideOutputs]:
        if self._is_trial:
            return []
        found = {side: self.planned.operator_of(side) for side in self.planned.query.side_outputs}
        return [
            SideOutputs(state=self.state, operator=operator.name, topics={side: self.planned.query.side_outputs[side]})
            for side, operator in found.items()
            if operator is not None
        ]


class RunningQuery:
    """A started query. Its batches pass a gate, so that a stop never interrupts a batch."""

    def __init__(
        self,
        planned: QueryPlan,
        *,
        log: str,
        state: Path,
        checkpoint: Path,
        available_now: bool,
        answering: Parts | None = None,
        admit: Callable[[], None] = lambda: None,
    ) -> None:
        self.planned = planned
        self._state = state
        self._gate = Gate(admit)
        output = Output(planned=planned, log=log, state=state, gate=self._gate, answering=answering)
        self.query = _started(planned, output, checkpoint, available_now=available_now)
        self.stopping = False
        self._has_come_up = False

    @property
    def is_active(self) -> bool:
        return bool(self.query.isActive)

    @property
    def is_coming_up(self) -> bool:
        """Whether Spark is still starting what the query needs: a process for each of its sources."""
        if not self._has_come_up:
            self._has_come_up = not str(self.query.status["message"]).startswith("Initializing")
        return not self._has_come_up and self.is_active

    @property
    def is_idle(self) -> bool:
        """Whether the query has looked for rows, and waits for the next ones."""
        return str(self.query.status["message"]).startswith("Waiting")

    def error(self) -> Exception | None:
        """Return why the query has failed; None if it runs or was stopped."""
        if self.stopping:
            return None
        found: Exception | None = self.query.exception()
        return found

    def drain(self) -> None:
        """Process all input that exists now; `error` has the failure, if there is one."""
        from pyspark.errors import PySparkException

        with contextlib.suppress(PySparkException):
            self.query.processAllAvailable()

    def open_windows(self) -> int:
        """Count the windows in the state of the query's operators."""
        count = 0
        for operator in self.planned.operators:
            if EVENT_TIMER in operator.state.names and START in operator.output.names:
                with contextlib.suppress(StateMissing):  # it had no batch yet
                    count += rows_of(self._state, query=str(self.query.id), operator=operator.name).num_rows
        return count

    def stop(self, *, seconds_max: float = STOP_SECONDS_MAX) -> None:
        """Wait until the current batch is committed, then stop."""
        self.stopping = True
        self._gate.close()
        deadline = time.monotonic() + seconds_max
        while self.is_active and time.monotonic() < deadline and not self._gate.is_waiting():
            if not self.query.status["isTriggerActive"]:
                break
            time.sleep(0.02)
        stopper = threading.Thread(target=self._stop_query, daemon=True)
        stopper.start()
        stopper.join(
            0.2
        )  # Spark marks the query as ended first, so what the gate raises next is not taken for an error
        self._gate.release()
        stopper.join(seconds_max)

    def _stop_query(self) -> None:
        from pyspark.errors import PySparkException

        with contextlib.suppress(PySparkException):
            self.query.stop()


def _started(planned: QueryPlan, output: Output, checkpoint: Path, *, available_now: bool) -> StreamingQuery:
    """Start the query in its output mode; a view uses append mode if Spark cannot update it."""
    from pyspark.errors import AnalysisException

    query = planned.query
    modes: list[Mode] = [query.mode] if query.mode is not None else ["append"]
    if query.mode is None and query.kind == "view":
        modes = ["update", "append"]
    for mode in modes:
        settings = partial(_with_settings, planned=planned, mode=mode, available_now=available_now)
        try:
            if not query.sinks and are_known(planned.rows.sparkSession):
                return output.topic_query(checkpoint).start(planned.rows, settings)
            writer = settings(planned.rows.writeStream.foreachBatch(output))
            return writer.option("checkpointLocation", str(checkpoint)).start()
        except AnalysisException:
            if mode == modes[-1]:
                raise
    raise AssertionError("a query has at least one mode")


def _with_settings(
    writer: DataStreamWriter, *, planned: QueryPlan, mode: Mode, available_now: bool
) -> DataStreamWriter:
    query = planned.query
    writer = writer.outputMode(mode).queryName(f"{query.name}-v{planned.version.number}")
    if available_now:
        return writer.trigger(availableNow=True)
    if query.trigger is not None:
        return writer.trigger(processingTime=f"{parse_seconds(query.trigger)} seconds")
    return writer
