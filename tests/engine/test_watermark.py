"""The watermark is what the source recorded with a batch: what stands before an operator does not matter, chains close in one
batch, and a stream that has ended is a bounded one.

Sources plan real topics and operators run on the engine, without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxRows

import headwater as hw
from headwater.config import Config
from headwater.engine.contract import Contract
from headwater.engine.event_time import EVER, WatermarkStrategy
from headwater.engine.micro_batch import MicroBatch
from headwater.engine.state_folder import LocalFolder
from headwater.engine.step import PartitionEngine
from headwater.engine.watermark_origin import Origin, recorded_progress, source_records
from headwater.log import Log
from headwater.operators import Dedupe, Hopping, Rolling, Session, Tumbling, agg
from headwater.spark.source.options import Options
from headwater.spark.source.reader import TopicStreamReader
from headwater.spark.source.topics import origin, read_schema, recorded_time
from tests.laws import costly
from tests.operators.batches import _placed, bounded, state_folder, with_arguments

SECOND = 1_000_000
DELAY = 5
TIME = hw.EventTime("at", delay=DELAY, future_max=None)
Row = tuple[int, str, int]


@dataclass
class Stage:
    """An operator in a chain: its rows have `user`, `at` and `n`, and so has what comes out."""

    name: str
    # Any: operators share no type.
    make: Any
    column: str
    compute: dict[str, Any] = field(default_factory=dict)

    def prepared(self, rows: pa.Table, number: int) -> pa.Table:
        """What stands before an operator: a projection that drops places, and behind another operator a filter."""
        rows = rows.select(["user", "at", "n"])
        if number:
            rows = rows.filter(pc.not_equal(rows.column("user"), "d"))
        return with_arguments(rows, self.compute)

    def contract(self, rows: pa.Schema, time: hw.EventTime) -> Contract:
        made: Contract = replace(self.make, time=time, name=self.name).contract(rows)
        return made

    def shown(self, output: pa.Table) -> pa.Table:
        n = output.column("m") if "m" in output.column_names else output.column("n")
        return pa.table({"user": output.column("user"), "at": output.column(self.column), "n": n})


def stages(kinds: Sequence[str]) -> list[Stage]:
    counted = {"m": agg.sum("n")}
    known: dict[str, Callable[[], tuple[Any, str, dict[str, Any]]]] = {
        "dedupe": lambda: (Dedupe(by=("user", "at"), within="1 minute"), "at", {}),
        "tumbling": lambda: (Tumbling(size="10 seconds", by="user", compute=counted), "window_start", counted),
        "hopping": lambda: (Hopping(size=20, every=10, by="user", compute=counted), "window_start", counted),
        "session": lambda: (Session(gap="3 seconds", by="user", compute=counted), "window_end", counted),
        "rolling": lambda: (Rolling(period="30 seconds", by="user", compute=counted), "at", counted),
    }
    found = []
    for number, kind in enumerate(kinds):
        make, column, compute = known[kind]()
        found.append(Stage(f"{kind}-{number}", make, column, compute))
    return found


@dataclass
class Query:
    """A chain of operators on a topic, in a stream."""

    log: Log
    state: Path
    chain: list[Stage]
    options: Options
    outputs: list[list[dict[str, Any]]] = field(default_factory=list)
    ends: list[dict[str, Any]] = field(default_factory=list)
    partitions: int = 2

    @property
    def reader(self) -> TopicStreamReader:
        return TopicStreamReader(self.options, read_schema(self.log, self.options), state=self.state)

    def run(self, *, repeated: int | None = None) -> None:
        """All batches that there are; one of them is done twice, as after a crash."""
        start = self.ends[-1] if self.ends else self.reader.initialOffset()
        while (end := self._planned(start)) != start:
            self.ends.append(end)
            number = len(self.ends) - 1
            first = self._batch(start, end, number)
            if number == repeated:
                assert self._batch(start, end, number) == first
            self.outputs.append(first)
            start = end

    def _planned(self, start: dict[str, Any]) -> dict[str, Any]:
        reader = self.reader  # another process for each batch: nothing is remembered but the offset
        reader._target = {name: self.log.end_offsets(name) for name in self.options.topics}  # so that it does not wait
        end: dict[str, Any] = json.loads(
            json.dumps(reader.latestOffset(start, ReadMaxRows(self.options.rows_max or 1)))
        )
        return end

    def _batch(self, start: dict[str, Any], end: dict[str, Any], number: int) -> list[dict[str, Any]]:
        batch, reader = MicroBatch(query="q", number=number), self.reader
        parts = reader.partitions(start, end)
        reader.tell(parts[0].record, batch)  # type: ignore[attr-defined]
        read = [one for part in parts for one in reader.read(part)]
        rows = pa.Table.from_batches(read) if read else reader._schema.empty_table()
        time = recorded_time({"t": self.log.topic("t")}, self.options)
        assert time is not None
        origins = ((Origin.of_text(origin(self.options, time)),),)
        records = source_records(self.state, batch)
        now_us = records[0].at_us
        for place, stage in enumerate(self.chain):
            made = stage.prepared(rows, place)
            contract = replace(stage.contract(made.schema, time), partitions=self.partitions, origins=origins)
            strategy = contract.event_time
            told = recorded_progress(records, origins, strategy, state=self.state, batch=batch, now_us=now_us)
            folder = LocalFolder(self.state / "q" / stage.name)
            done = [
                PartitionEngine(contract, folder, slot=slot).run(
                    part, batch=number, processing_us=now_us, broadcast={}, recorded=told
                )
                for slot, part in enumerate(_placed(made, contract))
            ]
            rows = stage.shown(pa.concat_tables(done))
            time = next(one for one in contract.output_times if one.column == stage.column)
            delay_us = WatermarkStrategy.of(time).delay_us
            origins = ((Origin(operator=stage.name, column=stage.column, delay_us=delay_us),),)
            time = replace(time, column="at")
        return sorted(rows.to_pylist(), key=repr)


@contextmanager
def query(kinds: Sequence[str], rows: Sequence[Row], cuts: Sequence[int], **options: Any) -> Iterator[Query]:
    """A query over a topic to which the rows were appended in pieces; batches cut the pieces once more."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(state_folder()))
        log = stack.enter_context(hw.open(folder / "log", config=Config(maintenance="manual")))
        schema = {"user": "string", "n": "int64", "at": "timestamp"}
        log.create("t", schema, partitions=2, time=TIME, durability="os")
        edges = sorted({0, *(cut % (len(rows) + 1) for cut in cuts), len(rows)})
        for first, last in pairwise(edges):
            for partition in (0, 1):
                piece = [one for one in rows[first:last] if one[0] == partition]
                log.append("t", [as_row(one) for one in piece], partition=partition)
        yield Query(log, folder / "state", stages(kinds), Options(log=str(log.address), topics=("t",), **options))


def as_row(row: Row) -> dict[str, Any]:
    return {"user": row[1], "n": 1, "at": row[2] * SECOND}


def in_bounds(steps: Sequence[tuple[int, str, int, int]]) -> list[Row]:
    """Rows of two partitions whose times go on, each within the delay of the latest of its partition."""
    latest = [100, 100]
    found: list[Row] = [(0, "a", 100), (1, "b", 100)]
    for partition, user, forward, back in steps:
        latest[partition] += forward
        found.append((partition, user, max(100, latest[partition] - back)))
    return found


ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from("abcd"), st.integers(0, 9), st.integers(0, DELAY)), max_size=25
).map(in_bounds)
CUTS = st.lists(st.integers(0, 30), max_size=4)
KINDS = st.lists(st.sampled_from(["dedupe", "tumbling", "hopping", "session", "rolling"]), min_size=1, max_size=3)


def bounded_result(chain: Sequence[Stage], rows: Sequence[Row]) -> list[dict[str, Any]]:
    columns = {"user": [one[1] for one in rows], "n": [1] * len(rows)}
    times = pa.array([one[2] * SECOND for one in rows], pa.timestamp("us", "UTC"))
    table = pa.table({**columns, "at": times})
    time = TIME
    for place, stage in enumerate(chain):
        made = stage.prepared(table, place)
        contract = stage.contract(made.schema, time)
        time = replace(next(one for one in contract.output_times if one.column == stage.column), column="at")
        table = stage.shown(bounded(partial(same, contract), made)[0])
    return sorted(table.to_pylist(), key=repr)


def same(contract: Contract, _rows: pa.Schema) -> Contract:
    return contract


@costly(3)
@given(rows=ROWS, cuts=CUTS, kinds=KINDS, rows_max=st.integers(2, 12), repeated=st.integers(0, 5))
def test_a_stream_that_has_ended_is_a_bounded_one(
    rows: list[Row], cuts: list[int], kinds: list[str], rows_max: int, repeated: int
) -> None:
    with query(kinds, rows, cuts, rows_max=rows_max, end_of_input=True) as stream:
        stream.run(repeated=repeated)
        found = sorted((row for batch in stream.outputs for row in batch), key=repr)
        assert found == bounded_result(stream.chain, rows)


@costly(3)
@given(rows=ROWS, cuts=CUTS, count=st.integers(1, 3), rows_max=st.integers(2, 12))
def test_a_chain_of_windows_closes_in_the_batch_that_completes_it(
    rows: list[Row], cuts: list[int], count: int, rows_max: int
) -> None:
    with query(["tumbling"] * count, rows, cuts, rows_max=rows_max) as stream:
        stream.run()
        for number, batch in enumerate(stream.outputs):
            marks = [watermark_at(rows, stream.ends[one]) for one in (number - 1, number) if one >= 0]
            expected = [
                one
                for one in bounded_result(stream.chain, rows)
                if sum(closes(one) <= mark for mark in marks) and not (len(marks) > 1 and closes(one) <= marks[0])
            ]
            assert batch == expected


def closes(result: dict[str, Any]) -> int:
    return int(result["at"].timestamp()) + 10


def watermark_at(rows: Sequence[Row], end: dict[str, Any]) -> int:
    """The slowest partition's latest time less the delay, by the rows themselves."""
    latest = []
    for partition in (0, 1):
        read = [at for number, _, at in rows if number == partition][: end["topics"]["t"][str(partition)]]
        latest += [max(read)] if read else []
    return min(latest) - DELAY


def test_a_punctuation_closes_windows_without_a_row() -> None:
    with query(["tumbling", "tumbling"], [(0, "a", 100), (1, "b", 103)], []) as stream:
        stream.run()
        assert stream.outputs == [[]]
        stream.log.punctuate("t", 110 * SECOND)
        stream.run()
        assert [row["user"] for row in stream.outputs[1]] == ["a", "b"]


def test_a_clock_from_the_future_moves_no_watermark_and_its_frame_is_read() -> None:
    with query(["tumbling"], [(0, "a", 100), (1, "b", 100), (0, "a", 130), (1, "b", 125)], []) as stream:
        stream.options = replace(stream.options, time=replace(TIME, future_max=60), clock=str(stream.state / "clock"))
        stream.state.mkdir()
        (stream.state / "clock").write_text(str(110 * SECOND))
        stream.log.append("t", [as_row((0, "a", 9_000)), as_row((0, "a", 131))], partition=0)
        stream.run()
        assert stream.ends[-1]["times"]["t"] == {"0": [131 * SECOND, 110 * SECOND], "1": [125 * SECOND, 110 * SECOND]}


def test_the_end_of_the_input_is_a_promise_for_every_partition() -> None:
    with query(["session"], [(0, "a", 100)], [], end_of_input=True) as stream:
        stream.run()
        assert stream.ends[-1]["promised"] == {"t": {"0": EVER, "1": EVER}}
        assert len(stream.outputs[0]) == 1
