"""A stream's rows are in the topic once, whatever happens to its batches; and what the options of the sink do."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import ArgumentInvalid, ColumnMisfit, NotFound, RowInvalid, UsageError
from headwater.faults import SINK_CRASH_POINTS
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.embedded import local_log
from headwater.log.errors import ProducerFenced
from headwater.sinks import TopicSink
from headwater.testing import CrashAt, run_until_killed
from tests.laws import costly
from tests.log.adapters import Logs
from tests.log.adapters import logs as logs
from tests.log.adapters import server as server
from tests.sinks.conftest import log as log
from tests.sinks.conftest import no_worker as no_worker
from tests.sinks.frames import (
    SCHEMA,
    Frame,
    Part,
    close_shared,
    deliver,
    failing,
    one_part,
    parts_of,
    rows_of,
    stream_writer,
    told_by_tasks,
    write_frame,
)
from tests.sinks.places import micro
from tests.sinks.streams import ids, staged_files
from tests.spark.source.tasks import in_task

HUNDRED = list(range(100))
both_ways = pytest.mark.parametrize("way", ["format", "foreachBatch"])


@pytest.fixture
def any_log(logs: Logs) -> Iterator[Log]:
    """A log of each kind, with an empty topic `out`."""
    with logs() as log:
        log.create("out", SCHEMA, partitions=2, key="id")
        yield log
        close_shared(log)


# -- once -------------------------------------------------------------------------------------------------------------


@both_ways
def test_each_row_of_a_stream_is_in_the_topic_once(any_log: Log, way: str) -> None:
    for number, first in enumerate(range(0, 100, 50)):
        deliver(way, any_log, parts_of(range(first, first + 20), range(first + 20, first + 50)), micro(number))
    assert ids(any_log) == HUNDRED
    assert any_log.committed_sequence("q") == 1
    assert staged_files(any_log) == []


@both_ways
def test_a_batch_repeated_after_its_commit_is_not_doubled_and_still_runs_to_its_end(any_log: Log, way: str) -> None:
    """What the sink skips, stateful operators below it must not: the next batch needs their state."""
    deliver(way, any_log, parts_of(range(10), range(10, 20)), micro(0))
    frame = deliver(way, any_log, parts_of(range(10), range(10, 20)), micro(0, run="r2"))
    assert frame.finished == [0, 1]
    assert ids(any_log) == HUNDRED[:20]
    assert staged_files(any_log) == []


def test_a_task_of_a_batch_that_is_committed_stages_nothing(any_log: Log) -> None:
    deliver("format", any_log, parts_of(range(10)), micro(0))
    with in_task(micro(0, run="r2")):
        stream_writer(any_log).write(iter([rows_of([1])]))
    assert staged_files(any_log) == []


@both_ways
def test_a_batch_without_rows_is_committed(any_log: Log, way: str) -> None:
    deliver(way, any_log, parts_of([]), micro(0))
    assert any_log.committed_sequence("q") == 0
    assert ids(any_log) == []


def test_abort_after_the_commit_takes_nothing_back(any_log: Log) -> None:
    writer = stream_writer(any_log)
    messages = [*told_by_tasks(writer, Frame(parts_of(range(10)), micro(0)))]
    writer.commit(messages, 0)
    writer.abort(messages, 0)
    assert ids(any_log) == HUNDRED[:10]


@both_ways
def test_a_batch_that_fails_leaves_nothing(any_log: Log, way: str) -> None:
    with pytest.raises(ValueError, match="bad row"):
        deliver(way, any_log, [*parts_of(range(50)), failing(50, 51)], micro(0))
    assert ids(any_log) == []
    assert staged_files(any_log) == []
    # A task that comes to its end after Spark has given up.
    with in_task(micro(0)):
        stream_writer(any_log).write(iter([rows_of([77])]))
    assert len(staged_files(any_log)) == 1
    deliver(way, any_log, parts_of(range(50), range(50, 100)), micro(0, run="r2"))
    assert ids(any_log) == HUNDRED
    assert staged_files(any_log) == []


def test_only_attempts_that_the_driver_was_told_of_count(any_log: Log) -> None:
    writer = stream_writer(any_log)
    with in_task(MicroBatch(query="q", number=0, partition=0, attempt=7, run="r1")):
        writer.write(iter([rows_of([1, 2])]))  # staged, but never told
    writer.commit([*told_by_tasks(writer, Frame(parts_of([1, 2], [3]), micro(0))), None], 0)
    assert ids(any_log) == [1, 2, 3]
    assert staged_files(any_log) == []


@both_ways
def test_a_driver_that_was_replaced_is_refused(any_log: Log, way: str) -> None:
    def replaced() -> Iterator[pa.RecordBatch]:
        """Another driver takes over while a task is at work."""
        yield rows_of([50])
        with open_log(any_log.address) as other:
            other.open_producer("q", holder="another driver")

    deliver(way, any_log, parts_of(range(50)), micro(0))
    with pytest.raises(ProducerFenced, match="has been replaced"):
        deliver(way, any_log, [replaced], micro(1))
    with pytest.raises(ProducerFenced, match="has been replaced"):
        deliver(way, any_log, parts_of([51]), micro(1))
    assert ids(any_log) == HUNDRED[:50]
    deliver(way, any_log, parts_of(range(50, 100)), micro(1, run="r2"))  # a new run replaces the other in turn
    assert ids(any_log) == HUNDRED
    assert staged_files(any_log) == []


numbers = itertools.count()
outcomes = st.sampled_from(["done", "repeated", "fails first"])


@costly(12)
@given(
    history=st.lists(st.tuples(st.integers(0, 5), outcomes, st.sampled_from(["format", "foreachBatch"])), max_size=6)
)
def test_any_batches_with_any_failures_and_replays_give_each_row_once(
    logs: Logs, history: list[tuple[int, str, str]]
) -> None:
    runs = itertools.count()
    with logs() as log:
        log.create("out", SCHEMA, partitions=2, key="id")
        first = 0
        for number, (count, outcome, way) in enumerate(history):
            parts = parts_of(range(first, first + count), range(first + count, first + 2 * count))
            if outcome == "fails first":
                with pytest.raises(ValueError, match="bad row"):
                    deliver(way, log, [*parts, failing(-1)], micro(number, run=f"r{next(runs)}"))
            for _ in range(2 if outcome == "repeated" else 1):
                deliver(way, log, parts, micro(number, run=f"r{next(runs)}"))
            first += 2 * count
        assert ids(log) == list(range(first))
        assert staged_files(log) == []
        close_shared(log)


@pytest.mark.core
@pytest.mark.process
@both_ways
@pytest.mark.parametrize("point", [*SINK_CRASH_POINTS, "commit.synced", "commit.recorded", "commit.flipped"])
def test_a_batch_is_there_whole_or_not_at_all_after_kill_9(log: Log, tmp_path: Path, way: str, point: str) -> None:
    deliver(way, log, parts_of(range(50)), micro(0))
    parts, errors = parts_of(range(50, 75), range(75, 100)), tmp_path / "errors"

    def second() -> None:
        deliver(way, log, parts, micro(1, run="r2"))

    ended = run_until_killed(second, at=CrashAt(point=point), errors=errors)
    assert not errors.exists(), errors.read_text(encoding="utf-8")
    assert ended.killed
    with open_log(log.home) as fresh:
        covered = fresh.committed_sequence("q") + 1
        assert len(ids(fresh)) == 50 * covered
    deliver(way, log, parts, micro(1, run="r3"))
    deliver(way, log, parts_of([]), micro(2, run="r3"))
    assert ids(log) == HUNDRED
    assert staged_files(log) == [], "a commit removes what is left of earlier attempts"


# -- what a transaction carries ---------------------------------------------------------------------------------------


def test_the_transaction_says_which_source_offsets_it_covers(log: Log, tmp_path: Path) -> None:
    offsets = {"topics": {"in": {"0": 10}}}
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint/offsets/3").write_text(f"v1\n{{}}\n{json.dumps(offsets)}\n-\n", encoding="utf-8")
    deliver("format", log, parts_of([1]), micro(3), checkpointLocation=(tmp_path / "checkpoint").as_uri())
    assert log.transaction_metadata("q") == {
        "query": "q",
        "run": "r1",
        "batch": 3,
        "sources": [offsets, "-"],
    }
    deliver("format", log, parts_of([1]), micro(4), checkpointLocation="s3a://bucket/checkpoint")
    metadata = log.transaction_metadata("q")
    assert metadata is not None
    assert (metadata["batch"], metadata["sources"]) == (4, [])


def into(log: Log, parts: list[Part], batch: MicroBatch, **options: Any) -> None:
    # Any: a stand-in for a DataFrame.
    frame: Any = Frame(parts, batch)
    TopicSink(log=log.home, **options)(frame, batch.number)


EVEN = pa.schema([("id", pa.int64())])


# Any, here and below: a stand-in for a DataFrame.
def even(rows: Any) -> Any:
    return rows.select(lambda batch: batch.filter(pc.equal(pc.bit_wise_and(batch["id"], 1), 0)).select(["id"]), EVEN)


def test_several_topics_are_written_in_one_transaction(log: Log) -> None:
    log.create("even", {"id": "int64"})
    into(log, parts_of(range(50), range(50, 100)), micro(0), topics={"out": None, "even": even})
    assert ids(log) == HUNDRED
    assert ids(log, "even") == HUNDRED[::2]
    assert log.committed_sequence("q") == 0


def test_a_topic_that_fails_takes_the_others_of_its_batch_with_it(log: Log) -> None:
    log.create("narrow", {"id": "int8"})

    def times_ten(rows: Any) -> Any:
        return rows.select(lambda batch: pa.record_batch({"id": pc.multiply(batch["id"], 10)}), EVEN)

    with pytest.raises(UsageError, match="column 'id' has a value that does not fit int8"):
        into(log, parts_of(HUNDRED), micro(0), topics={"out": None, "narrow": times_ten})
    assert ids(log) == ids(log, "narrow") == []
    assert staged_files(log) == []


def test_a_second_sink_in_the_same_batch_is_refused_rather_than_skipped(log: Log) -> None:
    into(log, parts_of([1]), micro(0), topic="out")
    with pytest.raises(ArgumentInvalid, match="two sinks in one batch"):
        into(log, parts_of([1]), micro(0), topic="in")


def test_rows_computed_elsewhere_join_the_transaction(log: Log) -> None:
    log.create("late", {"batch": "int64"})

    def late(batch: MicroBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        yield "late", pa.record_batch({"batch": pa.array([batch.number])})

    for number in range(3):
        into(log, parts_of([number]), micro(number), topic="out", extra_parts=late)
    assert ids(log) == [0, 1, 2]
    assert [row["batch"] for row in log.read("late").rows()] == [0, 1, 2]


ROUTED = pa.schema([*SCHEMA, ("_topic", pa.string())])


def routed(topics: list[str | None], names: list[str | None]) -> list[Part]:
    batch = pa.record_batch(
        [pa.array(range(len(topics)), pa.int64()), pa.array(names), pa.array(topics)], schema=ROUTED
    )
    return [lambda: [batch]]


def test_a_column_names_the_topic_of_each_row(log: Log) -> None:
    log.create("even", {"id": "int64"})
    parts = routed(["even", None, "even", None], [None, "n1", None, "n3"])
    deliver("format", log, parts, micro(0), arrow=ROUTED)
    assert ids(log, "even") == [0, 2]
    assert ids(log) == [1, 3]


def test_a_value_that_the_rows_topic_has_no_column_for_is_refused(log: Log) -> None:
    log.create("even", {"id": "int64"})
    with pytest.raises(UsageError, match="column 'name' is not in the schema"):
        deliver("format", log, routed(["out", "even"], ["a", "b"]), micro(0), arrow=ROUTED)
    assert ids(log) == ids(log, "even") == []


def test_a_row_without_a_topic_needs_one_for_such_rows(log: Log) -> None:
    with pytest.raises(ColumnMisfit, match="is null in a row, and no topic was given for such rows"):
        deliver("format", log, routed(["out", None], ["a", "b"]), micro(0), arrow=ROUTED, topic="")


# -- columns and topics -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (
            {"id": "int64", "name": "string", "nmae": "int32"},
            "Column 'nmae' does not fit topic 'out': it is not in its schema; did you mean 'name'?",
        ),
        (
            {"id": "string", "name": "string"},
            "Column 'id' does not fit topic 'out': it is string, and the schema says int64",
        ),
        ({"id": "int64", "name": "list"}, "Column 'name' does not fit topic 'out': it is list<string>"),
        (
            {"id": "int64", "name": "string", "_headers": "int32"},
            "Column '_headers' does not fit topic 'out': it is int32",
        ),
    ],
)
def test_a_column_that_does_not_fit_is_named_before_a_row_is_written(
    log: Log, columns: dict[str, str], problem: str
) -> None:
    kinds: dict[str, pa.DataType] = {"list": pa.list_(pa.field("element", pa.string()))}
    arrow = pa.schema([(name, kinds.get(kind) or pa.type_for_alias(kind)) for name, kind in columns.items()])
    never: list[Part] = [failing()]
    ways: list[Callable[[], object]] = [
        lambda: deliver("format", log, never, micro(0), arrow=arrow),
        lambda: deliver("foreachBatch", log, never, micro(0), arrow=arrow),
        lambda: write_frame(log, never, arrow),
        lambda: TopicSink(log=log.home, topic="out").check(arrow),
    ]
    for way in ways:
        with pytest.raises(ColumnMisfit) as caught:
            way()
        assert problem in str(caught.value)
    assert ids(log) == []


def test_a_column_that_must_not_be_null_must_be_there(log: Log) -> None:
    log.create("strict", {"id": "int64 not null", "name": "string not null"}, key="id")
    with pytest.raises(ColumnMisfit, match="Column 'name' does not fit topic 'strict': it is missing"):
        write_frame(log, [], EVEN, topic="strict")
    write_frame(log, [], pa.schema([*EVEN, ("_tombstone", pa.bool_())]), topic="strict")


def test_a_missing_topic_is_named_or_made_from_the_columns(log: Log) -> None:
    with pytest.raises(NotFound, match="There is no topic 'new'"):
        deliver("format", log, parts_of(HUNDRED), micro(0), topic="new")
    arrow = pa.schema([*SCHEMA, ("_offset", pa.int32())])
    parts = one_part(id=HUNDRED, name=["n"] * 100, _offset=pa.array([7] * 100, pa.int32()))
    deliver("format", log, parts, micro(0), arrow=arrow, topic="new", create="true", key="id", partitions=3)
    topic = log.topic("new")
    assert (topic.schema.names, topic.key, topic.partitions) == (["id", "name"], ("id",), 3)
    assert ids(log, "new") == HUNDRED


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": ""}, "a column `_topic` that names one"),
        ({"create": "perhaps"}, "true or false"),
        ({"partitions": "many"}, "a whole number"),
    ],
)
def test_a_wrong_option_is_named(log: Log, options: dict[str, str], expected: str) -> None:
    with pytest.raises(ArgumentInvalid, match=expected):
        stream_writer(log, **options)


def test_a_sink_says_what_it_needs(log: Log) -> None:
    with pytest.raises(ArgumentInvalid, match="either `topic` or `topics`"):
        TopicSink(log=log.home, topic="out", topics={"out": None})
    with pytest.raises(ArgumentInvalid, match=r"a call by `writeStream\.foreachBatch`"):
        TopicSink(log=log.home, topic="out")(Frame([], micro(3)), 4)  # type: ignore[arg-type]
    with pytest.raises(ArgumentInvalid, match="a folder, http://…, https://… or kafka://…"):
        TopicSink(log="s3://bucket/log", topic="out").check(SCHEMA)
    with pytest.raises(ArgumentInvalid, match="one that runs micro-batches"):
        stream_writer(log).write(iter([]))
    with pytest.raises(ArgumentInvalid, match=r"\.option\('log', …\)"):
        type(stream_writer(log))({"topic": "out"}, Frame([], micro(0)).schema)


def test_headers_and_tombstones_go_in_and_given_columns_are_left_out(log: Log) -> None:
    headers = pa.array([[("by", b"me")]] * 2, pa.map_(pa.string(), pa.binary()))
    batch = pa.record_batch(
        {
            "id": pa.array([0, 1], pa.int64()),
            "_headers": headers,
            "_tombstone": [False, True],
            "_offset": pa.array([99, 99], pa.int64()),
            "_partition": pa.array([9, 9], pa.int32()),
        }
    )
    write_frame(log, [lambda: [batch]], batch.schema)
    read = log.read("out", columns=["id", "_headers"]).rows()
    assert sorted((row["id"], row["_headers"]["by"]) for row in read) == [(0, b"me"), (1, b"me")]
    assert max(log.end_offsets("out").values()) <= 2


@both_ways
def test_a_changelog_becomes_the_last_row_of_each_key(log: Log, way: str) -> None:
    log.create("table", {"id": "int64", "name": "string"}, key="id", compact=True)
    operations = ["+I"] * 60 + ["+U"] * 30 + ["-D"] * 10
    columns = {"id": [n % 30 for n in HUNDRED], "name": [f"n{n}" for n in HUNDRED], "_op": operations}
    arrow = pa.schema([*SCHEMA, ("_op", pa.string())])
    deliver(way, log, one_part(**columns), micro(0), arrow=arrow, topic="table")
    local_log(log).maintain("table", seal=True)
    rows = log.read("table").rows()
    deleted = {row["id"] for row in rows if row.get("_tombstone")}
    assert deleted <= set(range(10))
    assert {row["id"] for row in rows} == set(range(30))
    assert {row["name"] for row in rows if row["id"] >= 10} == {f"n{n}" for n in range(70, 90)}


def test_a_row_of_a_compacted_topic_needs_its_key(log: Log) -> None:
    log.create("table", {"id": "int64", "name": "string"}, key="id", compact=True)
    with pytest.raises(RowInvalid, match="is null, and it is part of the key"):
        write_frame(log, one_part(id=[1, None], name=["a", "b"]), topic="table")
    assert log.read("table").rows() == []


# -- batches ----------------------------------------------------------------------------------------------------------


def test_a_dataframe_is_written_in_one_transaction(log: Log) -> None:
    write_frame(log, parts_of(*(range(first, first + 25) for first in range(0, 100, 25))))
    assert ids(log) == HUNDRED
    assert staged_files(log) == []


def test_a_dataframe_that_fails_leaves_nothing(log: Log) -> None:
    with pytest.raises(ValueError, match="bad row"):
        write_frame(log, [*parts_of(range(50)), failing(50)])
    assert ids(log) == []
    assert staged_files(log) == []


def test_a_dataframe_with_a_sequence_is_written_once_however_often_it_is_tried(log: Log) -> None:
    for sequence in (0, 0, 1, 1, 0):
        write_frame(log, parts_of(range(10)), producer="nightly", sequence=sequence)
    assert ids(log) == sorted([*range(10)] * 2)
    for options in ({"producer": "nightly"}, {"sequence": 1}, {"producer": "nightly", "sequence": "last"}):
        with pytest.raises(ArgumentInvalid, match="a whole number, together with a `producer`"):
            write_frame(log, [], **options)
