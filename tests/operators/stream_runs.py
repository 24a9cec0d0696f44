"""Operators in real streaming queries: topics of three partitions, a batch for each list of rows, a worker that is killed,
and a query that is restarted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.log import Log
from headwater.log import open as open_log
from headwater.operators import read_side_output

Rows = Sequence[dict[str, Any]]
#: One batch: the rows of each topic.
Batch = Mapping[str, Rows]
Build = Callable[..., DataFrame]
PARTITIONS = 3
SECONDS_MAX = 600
#: Streams whose queries may run: the fixture in `conftest.py` stops them after each test.
RUNNING: list[Stream] = []


class Stream:
    """Topics, and a query over them whose outputs are collected per batch. `build` gets a DataFrame for each topic.

    The query starts with the first rows and stays. Between two calls of `run` it is held at the end of a batch, so that
    each call is one batch, with all rows of the call and no others. A batch that is repeated must give the same rows:
    the stream compares.
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
        #: What gets each batch after its rows were collected.
        self.sink: Callable[[DataFrame, int], None] | None = None
        self.kills = 0
        self.repeats = 0
        self._kill_due = False
        self._query: StreamingQuery | None = None
        self._changed = threading.Condition()
        self._is_held = False
        self._is_stopping = False
        with self.log() as log:
            for name, declared in topics.items():
                log.create(name, **{"partitions": PARTITIONS, "durability": "os", **declared})

    def run(self, batch: Batch | None = None, *, kill: bool = False) -> None:
        """Append rows and process them as one batch; without any rows, nothing is done. Without an argument, what
        another writer has put into the log is a batch. With `kill`, a worker dies by SIGKILL when the operator has done
        its work, in this batch or the next that has rows, and the batch is computed again: one partition, or several,
        have the state of the first attempt."""
        self._kill_due |= kill
        if batch is not None and not any(batch.values()):
            return
        self.append(batch or {})
        if self._kill_due:
            self._kill_due = False
            self._marker.touch()
        self._advance()

    def restart(self) -> None:
        """Stop the query and start it from its checkpoint, from which the end of the last batch is lost: as if the
        driver had died after the batch was computed and before Spark wrote that down. So the batch is repeated."""
        self.stop()
        last = max(self.batches)
        self._checkpoint("commits", last).unlink()
        self._checkpoint("commits", f".{last}.crc").unlink(missing_ok=True)
        before = self.repeats
        self._advance()
        assert self.repeats == before + 1, "the last batch was not repeated"

    def stop(self) -> None:
        """Stop the query when Spark has written down the end of its last batch."""
        if self._query is None:
            return
        self._release(stopping=True)
        deadline = time.monotonic() + SECONDS_MAX
        while self._query.isActive and self.batches and not self._checkpoint("commits", max(self.batches)).exists():
            assert time.monotonic() < deadline, f"no end of the batch in {SECONDS_MAX} seconds"
            time.sleep(0.01)
        self._query.stop()
        self._query = None

    def append(self, batch: Batch) -> None:
        with self.log() as log:
            for topic, rows in batch.items():
                if rows:
                    log.append(topic, list(rows))

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

    @property
    def query_id(self) -> str:
        return str(json.loads(self._checkpoint("metadata").read_text())["id"])

    @property
    def state(self) -> Path:
        """The folder in which the session keeps the state of all queries."""
        return Path(str(self.spark.conf.get("spark.headwater.state")))

    def side(self, operator: str, side: str) -> list[dict[str, Any]]:
        """The rows of a side output of one operator."""
        tables = read_side_output(self.state, self.query_id, operator, side)
        return [row for table in tables for row in table.to_pylist()]

    def log(self) -> Log:
        return open_log(self.folder / "log")

    # -- the running query --------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Let the query do one batch, until it is held at the end of it."""
        if self._query is None:
            self._query = self._started()
        else:
            self._release(stopping=False)
        query, deadline = self._query, time.monotonic() + SECONDS_MAX
        with self._changed:
            while not self._changed.wait_for(lambda: self._is_held, timeout=0.2):
                if not query.isActive:
                    self._query = None
                    query.awaitTermination()  # raises what ended it
                assert time.monotonic() < deadline, f"no batch in {SECONDS_MAX} seconds"

    def _started(self) -> StreamingQuery:
        self._is_held = self._is_stopping = False
        RUNNING.append(self)
        rows = self.build(*(self.source(name) for name in self.topics))
        return (
            killed_once(rows, self._marker)
            .writeStream.foreachBatch(self._collect)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start()
        )

    @property
    def _marker(self) -> Path:
        """While this file is there, the next worker that has computed its rows dies."""
        return self.folder / "kill"

    def _checkpoint(self, *names: object) -> Path:
        return self.folder.joinpath("checkpoint", *map(str, names))

    def _release(self, *, stopping: bool) -> None:
        with self._changed:
            self._is_held, self._is_stopping = False, stopping
            self._changed.notify_all()

    def _collect(self, rows: DataFrame, number: int) -> None:
        if self._marker.exists():
            # Spark gives a task to another worker on a cluster, and has no second attempt on one machine.
            with contextlib.suppress(PySparkException, Py4JJavaError):
                rows.collect()
                raise AssertionError("no worker was killed")
            assert not self._marker.exists(), "the batch failed before a worker was killed"
            self.kills += 1
        found = [row.asDict(recursive=True) for row in rows.collect()]
        self.repeats += number in self.batches
        before = self.batches.setdefault(number, found)
        assert sorted(map(repr, before)) == sorted(map(repr, found)), f"batch {number} came out otherwise"
        if self.sink is not None:
            self.sink(rows, number)
        with self._changed:
            self._is_held = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_held or self._is_stopping)


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
