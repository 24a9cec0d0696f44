"""Operators in real streaming queries: topics of four partitions, a batch for each list of rows, and one batch done again
after its worker was killed."""

from __future__ import annotations

import functools
import inspect
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from hypothesis import Phase
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headwater.log import EmbeddedLog
from headwater.log import open as open_log
from tests.laws import costly

Rows = Sequence[dict[str, Any]]
Test = TypeVar("Test", bound=Callable[..., None])
#: One batch: the rows of each topic.
Batch = Mapping[str, Rows]
Build = Callable[..., DataFrame]
PARTITIONS = 4


def ONCE(test: Test) -> Test:  # noqa: N802 - it reads as the settings that it stands for
    """A real query takes seconds: one example, none is made smaller, and it is one of the Spark tests.

    The first example that Hypothesis makes is always the simplest, which is mostly nothing at all. The second one counts.
    """
    given: Any = test  # Any: what Hypothesis adds to a test has no type
    inner = given.hypothesis.inner_test
    drawn = sorted(set(inspect.signature(inner).parameters) - set(inspect.signature(test).parameters))
    simplest: list[str] = []

    @functools.wraps(inner)
    def second(**arguments: Any) -> None:
        shown = repr([arguments[name] for name in drawn])
        if not simplest:
            simplest.append(shown)
        if shown != simplest[0]:
            inner(**arguments)

    given.hypothesis.inner_test = second
    made: Test = costly(1_000, phases=[Phase.generate])(test)
    return made


class Stream:
    """Topics, and a query over them whose outputs are collected per batch. `build` gets a DataFrame for each topic.

    A batch that is done again must give the same rows: `run` compares.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, build: Build, topics: Mapping[str, Mapping[str, Any]], **options: Any
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.build = build
        self.topics = topics
        self.options = options
        self.batches: dict[int, list[dict[str, Any]]] = {}
        self.kill_due = False
        self.kills = 0
        with open_log(self.folder / "log") as log:
            for name, declared in topics.items():
                log.create(name, **{"partitions": PARTITIONS, "durability": "os", **declared})

    def append(self, batch: Batch) -> None:
        with open_log(self.folder / "log") as log:
            for topic, rows in batch.items():
                if rows:
                    log.append(topic, list(rows))

    def run(self, batch: Batch = {}, *, kill: bool = False) -> None:  # noqa: B006 - it is only read
        """Append rows and process them. With `kill`, the worker dies by SIGKILL when the operator has done its work, in
        this batch or the next that has rows."""
        self.append(batch)
        self.kill_due |= kill
        if self.kill_due and any(batch.values()):
            self.kill_due = False
            marker = self.folder / "kill"
            marker.touch()
            try:
                self._process()
            except (StreamingQueryException, PythonException):
                self.kills += 1
            assert not marker.exists(), "no worker was killed"
        self._process()

    def _process(self) -> None:
        query = (
            killed_once(self.build(*(self.source(name) for name in self.topics)), self.folder / "kill")
            .writeStream.foreachBatch(self._collect)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _collect(self, rows: DataFrame, number: int) -> None:
        found = [row.asDict(recursive=True) for row in rows.collect()]
        before = self.batches.setdefault(number, found)
        assert sorted(map(repr, before)) == sorted(map(repr, found)), f"batch {number} came out otherwise"

    def source(self, name: str) -> DataFrame:
        """A topic as a stream."""
        reader = self.spark.readStream.format("headwater").option("log", str(self.folder / "log"))
        for option, value in self.options.items():
            reader = reader.option(option, value)
        return reader.load(name)

    def bounded(self) -> list[dict[str, Any]]:
        """The same over everything that lies in the topics, as a batch job."""
        reader = self.spark.read.format("headwater").option("log", str(self.folder / "log"))
        if "metadata" in self.options:
            reader = reader.option("metadata", self.options["metadata"])
        frames = [reader.load(name) for name in self.topics]
        return [row.asDict(recursive=True) for row in self.build(*frames).collect()]

    def rows(self) -> list[dict[str, Any]]:
        """All output, batch after batch."""
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    def log(self) -> EmbeddedLog:
        return open_log(self.folder / "log")


def killed_once(rows: DataFrame, marker: Path) -> DataFrame:
    """The same rows; the first worker that has any to pass on while the marker is there dies."""
    path = str(marker)

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    return rows.mapInArrow(pass_on, rows.schema)
