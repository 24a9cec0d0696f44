"""One Spark session for all parts, and what a query costs in it.

Cost is counted over the whole tree of processes below this one: the JVM, the Python workers and planners that it
starts, and those that have ended meanwhile.
"""

from __future__ import annotations

import os
import statistics
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headwater
from benchmarks.harness import Bar, Bench, Result, Sample, median_rate
from headwater.spark.source.offsets import rows_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
MEMORY = "4g"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A query that came to its end: what it read, and what that cost."""

    rows: int
    seconds: float
    cpu_seconds: float
    #: Milliseconds of each batch by phase, as Spark reports them.
    phases: Sequence[Mapping[str, int]]

    @property
    def batch_seconds(self) -> float:
        """The time inside batches: without the start of the query, which a stream pays once."""
        return sum(phase["triggerExecution"] for phase in self.phases) / 1000

    def sample(self) -> Sample:
        return Sample(self.rows, self.batch_seconds, self.cpu_seconds)


class Workbench:
    """A session with Headwater's settings, for both sides."""

    def __init__(self, folder: Path, *, conf: Mapping[str, str] | None = None) -> None:
        self.state = folder / "state"
        self._checkpoints = folder / "checkpoints"
        self.spark: SparkSession = headwater.session(
            "bench",
            master=f"local[{CORES}]",
            state=self.state,
            conf={"spark.driver.memory": MEMORY, **(conf or {})},
        )

    def topic(self, log: Path | str, name: str, **options: object) -> DataFrame:
        """A topic as a stream."""
        reader = self.spark.readStream.format("headwater").option("log", str(log))
        for option, value in options.items():
            reader = reader.option(option, str(value))
        return reader.load(name)

    def checkpoint(self) -> Path:
        """A new place for a checkpoint."""
        return self._checkpoints / uuid.uuid4().hex

    def run(
        self,
        frame: DataFrame,
        *,
        rows: int,
        sink: str = "noop",
        mode: str = "append",
        options: Mapping[str, object] | None = None,
        span: int | None = None,
    ) -> Ran:
        """Run a stream until it has caught up, and see that it has read as many rows as it should have.

        Where offsets are no numbers of rows, `span` is the distance of its offsets instead.
        """
        writer = frame.writeStream.format(sink).outputMode(mode).trigger(availableNow=True)
        for option, value in {"checkpointLocation": self.checkpoint(), **(options or {})}.items():
            writer = writer.option(option, str(value))
        cpu, began = tree_cpu_seconds(), time.perf_counter()
        query = writer.start()
        query.awaitTermination()
        seconds, cpu = time.perf_counter() - began, tree_cpu_seconds() - cpu
        # Any: a report of Spark's is JSON with a class around it.
        reports: list[Any] = list(query.recentProgress)
        # By offsets where the topic is ours: rows that are combined in the reader are not known to Spark.
        read = sum(rows_read(report) or report.numInputRows for report in reports)
        if read != (rows if span is None else span):
            raise RuntimeError(f"{rows if span is None else span} rows should have been read, {read} were")
        phases = [dict(report.durationMs) for report in reports]
        return Ran(rows=rows, seconds=seconds, cpu_seconds=cpu, phases=phases)

    def run_each(
        self, frame: DataFrame, act: Callable[[DataFrame, int], None], *, checkpoint: Path | None = None
    ) -> None:
        """Run a stream until it has caught up, and let `act` have each batch."""
        writer = frame.writeStream.foreachBatch(act).trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint or self.checkpoint())).start().awaitTermination()


@cache
def workbench(bench: Bench) -> Workbench:
    """The workbench of this run; the first part that asks waits for the JVM."""
    bench.say("starting Spark")
    return Workbench(bench.folder / "spark")


def warm_up(bench: Bench, subjects: Mapping[str, Callable[[], Sample]]) -> None:
    """A round before the round that warms up: the JVM compiles what runs often, and goes on doing so for a while."""
    if not bench.quick:
        for measure in subjects.values():
            measure()


def tree_cpu_seconds(root: int | None = None) -> float:
    """How much CPU a process and all below it have used, with children that have ended."""
    return sum(_ticks(process) for process in _tree(os.getpid() if root is None else root)) / _TICKS_PER_SECOND


def _tree(process: int) -> set[int]:
    found = {process}
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            children = Path(f"/proc/{process}/task/{thread}/children").read_text()
            for child in children.split():
                found |= _tree(int(child))
    except (FileNotFoundError, ProcessLookupError):
        pass  # it has ended meanwhile, and its parent counts it
    return found


def _ticks(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, fields[11:15]))


def cpu_per_million(samples: Sequence[Sample]) -> float:
    """CPU-seconds for a million rows, in the median round."""
    return statistics.median(sample.cpu_seconds / sample.count * 1e6 for sample in samples)


def cpu_result(name: str, samples: Mapping[str, Sequence[Sample]], *, ours: str, peer: str, **more: Any) -> Result:
    """The line that compares by CPU; less is better. Any: whatever `Result` takes."""
    return Result(
        name=name,
        value=cpu_per_million(samples[ours]),
        unit="CPU-s/M rows",
        peer=peer,
        peer_value=cpu_per_million(samples[peer]),
        **more,
    )


def rate_result(
    name: str,
    samples: Mapping[str, Sequence[Sample]],
    *,
    peer: str,
    about: Mapping[str, Any],
    least: float | None = None,
) -> Result:
    """The line that compares by rows a second; the CPU of both stands beside it. Any: facts to be told."""
    more = {
        **about,
        "cpu_seconds_per_million": round(cpu_per_million(samples[name]), 3),
        "peer_cpu_seconds_per_million": round(cpu_per_million(samples[peer]), 3),
    }
    return Result(
        name=name,
        value=median_rate(samples[name]),
        unit="rows/s",
        peer=peer,
        peer_value=median_rate(samples[peer]),
        more=more,
        bars=[] if least is None else [Bar(figure="ratio", least=least)],
    )
