"""Apps at work in a thread: on Spark, or with queries that are plain Python, for what a runner does to any query."""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

import headwater as hw
from headwater.apps.declaration import Query
from headwater.apps.execution import RunningQuery
from headwater.apps.home import Version
from headwater.apps.plan import schemas_of
from headwater.apps.runner import Runner
from headwater.apps.view_maintenance import keep_output
from headwater.log import Log
from tests.apps.checkpoints import commit_batch, plan_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_MAX = 240.0
Row = dict[str, Any]
Offsets = dict[str, dict[str, int]]


@contextlib.contextmanager
def supervised(runner: Runner) -> Iterator[Runner]:
    """Supervise the queries of a runner in a thread while the block runs. What the thread raises is raised here."""
    failure: list[BaseException] = []

    def supervise() -> None:
        try:
            runner.supervise()
        except BaseException as error:
            failure.append(error)

    with runner.ready():
        thread = threading.Thread(target=supervise)
        thread.start()
        try:
            yield runner
        finally:
            runner.request_stop()
            thread.join(SECONDS_MAX)
        if failure:
            raise failure[0]


class PlainQuery:
    """A version of a query that is a function from all rows so far to all rows of its output.

    It looks for input whenever its state is asked for, in the thread that asks: nothing happens between two looks. As a
    query of Spark it commits its rows and its offsets in one transaction under the identity in its checkpoint.
    """

    def __init__(
        self,
        query: Query,
        version: Version,
        *,
        log: Log,
        columns: Mapping[str, str],
        checkpoint: Path,
        stop: str | None,
        ends: bool,
    ) -> None:
        self._declared = query
        self._topic = str(version.topic)
        self._log = log
        self._checkpoint = checkpoint
        self._stop: Offsets | None = None if stop is None else json.loads(stop)
        self._ends = ends or stop is not None
        self._error: Exception | None = None
        self._stopped = False
        self.id = _identity(checkpoint)
        self.planned = SimpleNamespace(schemas=schemas_of(log, query.reads))
        if self._topic not in log.topics():
            log.create(self._topic, columns, key=query.key or None, compact=query.kind == "view")

    is_coming_up = False
    is_idle = True

    @property
    def is_active(self) -> bool:
        if self._stopped or self._error is not None:
            return False
        try:
            self._run_batch()
        except Exception as error:
            self._error = error
            return False
        self._stopped = self._ends
        return not self._ends

    def error(self) -> Exception | None:
        return self._error

    def drain(self) -> None:
        assert self.is_active or self._error is not None

    def open_windows(self) -> int:
        return 0

    def stop(self) -> None:
        self._stopped = True

    def _run_batch(self) -> None:
        told = self._log.transaction_metadata(self.id) or {"batch": -1, "sources": [{"topics": {}}]}
        begin: Offsets = told["sources"][0]["topics"]
        end = self._stop or {
            name: {str(number): offset for number, offset in self._log.end_offsets(name).items()}
            for name in self._declared.reads
        }
        if begin == end:
            return
        before, after = self._output(begin), self._output(end)
        batch = told["batch"] + 1
        topics = {topic: {int(number): offset for number, offset in ends.items()} for topic, ends in end.items()}
        plan_batch(self._checkpoint, batch, topics, began={topic: dict.fromkeys(topics[topic], 0) for topic in topics})
        rows = _changes(before, after, self._declared.key) if self._declared.kind == "view" else _added(before, after)
        with self._log.stage(self.id, sequence=batch, attempt="a") as stage:
            schema = self._log.topic(self._topic).schema
            if rows:
                columns = pa.schema([*schema, ("_tombstone", pa.bool_())])
                stage.append(self._topic, pa.RecordBatch.from_pylist(rows, schema=columns))
            staged = stage.finish()
        metadata = {"query": self.id, "batch": batch, "sources": [{"topics": end, "at_us": 0}]}
        self._log.commit_staged([staged], producer=self.id, sequence=batch, metadata=metadata)
        commit_batch(self._checkpoint, batch)

    def _output(self, offsets: Offsets) -> list[Row]:
        """What the function makes of the rows before these offsets."""
        inputs = []
        for name in self._declared.reads:
            found = self._log.read(name).rows()
            ends = offsets.get(name, {})
            inputs.append([row for row in found if row["_offset"] < ends.get(str(row["_partition"]), 0)])
        # Any: the function of a query is typed for Spark's DataFrames.
        function: Any = self._declared.function
        rows: list[Row] = function(*inputs)
        return rows


def _identity(checkpoint: Path) -> str:
    """The id of a query, kept where Spark keeps it."""
    file = checkpoint / "metadata"
    if not file.exists():
        checkpoint.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"id": str(uuid.uuid4())}))
    return str(json.loads(file.read_text())["id"])


def _added(before: list[Row], after: list[Row]) -> list[Row]:
    """The rows that are in the second list and not in the first: of several partitions, not always the last ones."""
    known = Counter(map(repr, before))
    added = []
    for row in after:
        if known[repr(row)]:
            known[repr(row)] -= 1
        else:
            added.append(row)
    return added


def _changes(before: list[Row], after: list[Row], key: tuple[str, ...]) -> list[Row]:
    """The rows that turn one table into another."""

    def keyed(rows: list[Row]) -> dict[tuple[Any, ...], Row]:
        return {tuple(row[name] for name in key): row for row in rows}

    old, new = keyed(before), keyed(after)
    gone = [{**dict(zip(key, place, strict=True)), "_tombstone": True} for place in old.keys() - new.keys()]
    return [*(row for place, row in new.items() if old.get(place) != row), *gone]


class PlainRunner(Runner):
    """A runner whose queries are plain Python: all that it does to queries, without Spark."""

    # Any: the settings of a runner.
    def __init__(self, app: hw.App, *, columns: Mapping[str, Mapping[str, str]], **settings: Any) -> None:
        super().__init__(app, plan_first=False, **settings)
        self._columns_of = columns
        self._planned = True  # a function of Python needs no plan

    def start_version(self, query: Query, version: Version, *, stop: str | None = None) -> RunningQuery:
        plain = PlainQuery(
            query,
            self._begun(version),
            log=self.log,
            columns=dict(self._columns_of[query.name]),
            checkpoint=self.home.checkpoint(query.name, version.number),
            stop=stop,
            ends=self._until_caught_up,
        )
        if version.topic == query.output:
            keep_output(self.keeper, self.log, query, producer=plain.id)
        return cast(RunningQuery, plain)  # it has what a runner asks of one


def running(app: hw.App, spark: SparkSession) -> contextlib.AbstractContextManager[Runner]:
    """The app at work on a session."""
    return supervised(Runner(app, spark=spark))
