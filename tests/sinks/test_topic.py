"""A stream's rows are in the topic once, whatever happens to its batches; and what the options of the sink do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.batches import MicroBatch
from headwater.errors import ArgumentInvalid
from headwater.log import EmbeddedLog
from headwater.sinks import TopicSink
from tests.sinks.streams import (
    FailsAfterCommit,
    ids,
    rows_of,
    run,
    run_until_it_fails,
    staged_files,
    to_topic,
    writer_of,
)

HUNDRED = list(range(100))


# -- once -------------------------------------------------------------------------------------------------------------


def test_each_row_of_a_stream_is_in_the_topic_once(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    query = run(to_topic(rows_of(spark, log), log), tmp_path / "checkpoint")
    assert ids(log) == HUNDRED
    assert log.committed_sequence(str(query.id)) >= 2
    assert staged_files(log) == []


def test_a_restart_goes_on_where_the_query_was(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    for _ in range(2):
        run(to_topic(rows_of(spark, log), log), tmp_path / "checkpoint")
        log.append("in", [{"id": number, "name": "later"} for number in range(100, 150)])
    run(to_topic(rows_of(spark, log), log), tmp_path / "checkpoint")
    assert ids(log) == [*HUNDRED, *sorted([*range(100, 150)] * 2)]


def test_a_batch_repeated_after_its_commit_is_not_doubled(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    spark.dataSource.register(FailsAfterCommit)
    writer = to_topic(rows_of(spark, log), log, format="fails_after_commit", once=tmp_path / "failed")
    assert "between the two commits" in run_until_it_fails(writer, tmp_path / "checkpoint")
    committed = ids(log)
    assert 40 < len(committed) < 100  # Spark has called `abort` for batch 1, and took nothing back
    run(writer, tmp_path / "checkpoint")
    assert ids(log) == HUNDRED
    assert staged_files(log) == []


def test_foreach_batch_repeated_after_its_commit_is_not_doubled(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    sink = TopicSink(log=log.path, topic="out")
    failed: list[int] = []

    def write(rows: DataFrame, batch_id: int) -> None:
        sink(rows, batch_id)
        if batch_id == 1 and not failed:
            failed.append(batch_id)
            raise OSError("between the two commits")

    writer = rows_of(spark, log).writeStream.foreachBatch(write)
    assert "between the two commits" in run_until_it_fails(writer, tmp_path / "checkpoint")
    assert 40 < len(ids(log)) < 100
    run(writer, tmp_path / "checkpoint")
    assert ids(log) == HUNDRED
    assert staged_files(log) == []


@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_a_batch_that_fails_leaves_nothing(spark: SparkSession, log: EmbeddedLog, tmp_path: Path, way: str) -> None:
    bad = rows_of(spark, log, rows_max=1000).withColumn("id", f.expr("if(id = 77, raise_error('bad row'), id)"))
    assert "bad row" in run_until_it_fails(writer_of(bad, log, way), tmp_path / "checkpoint")
    assert ids(log) == []
    run(writer_of(rows_of(spark, log), log, way), tmp_path / "checkpoint")
    assert ids(log) == HUNDRED
    assert staged_files(log) == []  # also of a task that came to its end after Spark had given up


@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_a_driver_that_was_replaced_is_refused(spark: SparkSession, log: EmbeddedLog, tmp_path: Path, way: str) -> None:
    replaced = tmp_path / "replaced"

    def replace(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Another driver takes over while a task of the second batch is at work."""
        from headwater.batches import current_batch
        from headwater.log import open as open_log

        batch = current_batch()
        assert batch is not None
        yield from rows
        if batch.number == 1 and not replaced.exists():
            replaced.touch()
            with open_log(log_path) as other:
                other.open_producer(batch.query, holder="another driver")

    log_path = str(log.path)
    rows = rows_of(spark, log).mapInArrow(replace, "id long, name string")
    writer = writer_of(rows, log, way)
    assert "has been replaced" in run_until_it_fails(writer, tmp_path / "checkpoint")
    assert 30 < len(ids(log)) < 50  # the first batch
    run(writer, tmp_path / "checkpoint")  # a new run replaces the other in turn
    assert ids(log) == HUNDRED


def test_a_repeated_batch_still_runs_to_its_end(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    """What the sink skips, stateful operators below it must not: the next batch needs their state."""
    failed: list[int] = []
    log.create("counts", {"digit": "int64", "count": "int64"}, key="digit")
    sink = TopicSink(log=log.path, topic="counts")

    def write(rows: DataFrame, batch_id: int) -> None:
        sink(rows, batch_id)
        if batch_id == 1 and not failed:
            failed.append(batch_id)
            raise OSError("between the two commits")

    counted = rows_of(spark, log).groupBy((f.col("id") % 10).alias("digit")).count()
    writer = counted.writeStream.foreachBatch(write).outputMode("update")
    run_until_it_fails(writer, tmp_path / "checkpoint")
    run(writer, tmp_path / "checkpoint")
    rows = log.read("counts", columns=["digit", "count"]).rows()
    assert {row["digit"]: row["count"] for row in rows} == dict.fromkeys(range(10), 10)


# -- what a transaction carries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_the_transaction_says_which_source_offsets_it_covers(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path, way: str
) -> None:
    query = run(writer_of(rows_of(spark, log), log, way), tmp_path / "checkpoint")
    metadata = log.transaction_metadata(str(query.id))
    assert metadata is not None
    assert (metadata["query"], metadata["run"]) == (str(query.id), str(query.runId))
    written = (tmp_path / "checkpoint/offsets" / str(metadata["batch"])).read_text(encoding="utf-8").splitlines()
    assert metadata["sources"] == [json.loads(line) for line in written[2:]]


def test_several_topics_are_written_in_one_transaction(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    log.create("even", {"id": "int64"})
    sink = TopicSink(log=log.path, topics={"out": None, "even": lambda rows: rows.where("id % 2 = 0").select("id")})
    query = run(rows_of(spark, log).writeStream.foreachBatch(sink), tmp_path / "checkpoint")
    assert ids(log) == HUNDRED
    assert ids(log, "even") == HUNDRED[::2]
    assert log.committed_sequence(str(query.id)) == 2


def test_a_topic_that_fails_takes_the_others_of_its_batch_with_it(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    log.create("narrow", {"id": "int8"})
    sink = TopicSink(log=log.path, topics={"out": None, "narrow": lambda rows: rows.selectExpr("id * 10 AS id")})
    error = run_until_it_fails(rows_of(spark, log).writeStream.foreachBatch(sink), tmp_path / "checkpoint")
    assert "column 'id' has a value that does not fit int8" in error
    assert ids(log) == ids(log, "narrow") == []


def test_a_second_sink_in_the_same_batch_is_refused_rather_than_skipped(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    sinks = [TopicSink(log=log.path, topic=topic) for topic in ("out", "in")]

    def write(rows: DataFrame, batch_id: int) -> None:
        for sink in sinks:
            sink(rows, batch_id)

    error = run_until_it_fails(rows_of(spark, log).writeStream.foreachBatch(write), tmp_path / "checkpoint")
    assert "two sinks in one batch" in error


def test_rows_computed_elsewhere_join_the_transaction(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    log.create("late", {"batch": "int64"})

    def late(batch: MicroBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        yield "late", pa.record_batch({"batch": pa.array([batch.number])})

    sink = TopicSink(log=log.path, topic="out", extra_parts=late)
    run(rows_of(spark, log).writeStream.foreachBatch(sink), tmp_path / "checkpoint")
    assert ids(log) == HUNDRED
    assert [row["batch"] for row in log.read("late").rows()] == [0, 1, 2]


def test_a_column_names_the_topic_of_each_row(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    log.create("even", {"id": "int64"})
    rows = rows_of(spark, log).withColumn("_topic", f.expr("if(id % 2 = 0, 'even', null)"))
    rows = rows.withColumn("name", f.expr("if(id % 2 = 0, null, name)"))
    run(to_topic(rows, log), tmp_path / "checkpoint")
    assert ids(log, "even") == HUNDRED[::2]
    assert ids(log) == HUNDRED[1::2]


def test_a_value_that_the_rows_topic_has_no_column_for_is_refused(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    log.create("even", {"id": "int64"})
    rows = rows_of(spark, log).withColumn("_topic", f.expr("if(id % 2 = 0, 'even', 'out')"))
    assert "column 'name' is not in the schema" in run_until_it_fails(to_topic(rows, log), tmp_path / "checkpoint")
    assert ids(log) == ids(log, "even") == []


# -- columns and topics -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (
            "id, name, 1 AS nmae",
            "Column 'nmae' does not fit topic 'out': it is not in its schema; did you mean 'name'?",
        ),
        ("name AS id, name", "Column 'id' does not fit topic 'out': it is string, and the schema says int64"),
        ("id, array(name) AS name", "Column 'name' does not fit topic 'out': it is list<string>"),
        ("id, name, 1 AS _headers", "Column '_headers' does not fit topic 'out': it is int32"),
    ],
)
def test_a_column_that_does_not_fit_is_named_before_a_row_is_written(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path, columns: str, problem: str
) -> None:
    rows = rows_of(spark, log).selectExpr(*columns.split(", "))
    assert problem in run_until_it_fails(to_topic(rows, log), tmp_path / "checkpoint")
    with pytest.raises(PySparkException, match="does not fit topic"):
        rows_of_batch = spark.range(3).selectExpr("id", "cast(id AS string) AS name").selectExpr(*columns.split(", "))
        rows_of_batch.write.format("headwater").option("log", str(log.path)).mode("append").save("out")
    writer = rows.writeStream.foreachBatch(TopicSink(log=log.path, topic="out"))
    assert problem in run_until_it_fails(writer, tmp_path / "another")
    assert ids(log) == []


def test_a_column_that_must_not_be_null_must_be_there(spark: SparkSession, log: EmbeddedLog) -> None:
    log.create("strict", {"id": "int64 not null", "name": "string not null"})
    with pytest.raises(PySparkException, match="Column 'name' does not fit topic 'strict': it is missing"):
        spark.range(3).write.format("headwater").option("log", str(log.path)).mode("append").save("strict")


def test_a_missing_topic_is_named_or_made_from_the_columns(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    rows = rows_of(spark, log)
    assert "There is no topic 'new'" in run_until_it_fails(to_topic(rows, log, topic="new"), tmp_path / "checkpoint")
    made = to_topic(rows.withColumn("_offset", f.lit(7)), log, topic="new", create="true", key="id", partitions=3)
    run(made, tmp_path / "another")
    topic = log.topic("new")
    assert (topic.schema.names, topic.key, topic.partitions) == (["id", "name"], ("id",), 3)
    assert ids(log, "new") == HUNDRED


def test_without_a_topic_the_sink_says_what_it_needs(spark: SparkSession, log: EmbeddedLog) -> None:
    with pytest.raises(PySparkException, match="a column `_topic` that names one"):
        spark.range(3).write.format("headwater").option("log", str(log.path)).mode("append").save()
    with pytest.raises(ArgumentInvalid):
        TopicSink(log=log.path, topic="out", topics={"out": None})


def test_headers_and_tombstones_go_in_and_given_columns_are_left_out(spark: SparkSession, log: EmbeddedLog) -> None:
    rows = spark.range(2).selectExpr(
        "id", "map('by', 'me') AS _headers", "id = 1 AS _tombstone", "99L AS _offset", "9 AS _partition"
    )
    rows.coalesce(1).write.format("headwater").option("log", str(log.path)).mode("append").save("out")
    read = log.read("out", columns=["id", "_headers"]).rows()
    assert sorted((row["id"], row["_headers"]["by"]) for row in read) == [(0, b"me"), (1, b"me")]
    assert max(log.end_offsets("out").values()) <= 2


def test_a_changelog_becomes_the_last_row_of_each_key(spark: SparkSession, log: EmbeddedLog, tmp_path: Path) -> None:
    log.create("table", {"id": "int64", "name": "string"}, key="id", compact=True)
    changes = "case when id < 60 then '+I' when id < 90 then '+U' else '-D' end"
    rows = rows_of(spark, log).withColumn("_op", f.expr(changes)).withColumn("id", f.col("id") % 30)
    sink = TopicSink(log=log.path, topic="table")
    run(rows.writeStream.foreachBatch(sink), tmp_path / "checkpoint")
    log.tidy("table", seal=True)
    deleted = {row["id"] for row in log.read("table").rows() if row.get("_tombstone")}
    assert deleted <= set(range(10))
    assert {row["id"] for row in log.read("table").rows()} == set(range(30))


# -- batches ----------------------------------------------------------------------------------------------------------


def test_a_dataframe_is_written_in_one_transaction(spark: SparkSession, log: EmbeddedLog) -> None:
    rows = spark.range(1000).selectExpr("id", "cast(id AS string) AS name").repartition(4)
    rows.write.format("headwater").option("log", str(log.path)).mode("append").save("out")
    assert ids(log) == list(range(1000))
    assert staged_files(log) == []


def test_a_dataframe_that_fails_leaves_nothing(spark: SparkSession, log: EmbeddedLog) -> None:
    rows = spark.range(1000).selectExpr("if(id = 777, raise_error('bad row'), id) AS id").repartition(4)
    with pytest.raises(PySparkException, match="bad row"):
        rows.write.format("headwater").option("log", str(log.path)).mode("append").save("out")
    assert ids(log) == []


def test_a_dataframe_with_a_sequence_is_written_once_however_often_it_is_tried(
    spark: SparkSession, log: EmbeddedLog
) -> None:
    writer = spark.range(10).write.format("headwater").option("log", str(log.path)).mode("append")
    for sequence in (0, 0, 1, 1, 0):
        writer.option("producer", "nightly").option("sequence", str(sequence)).save("out")
    assert ids(log) == sorted([*range(10)] * 2)


def test_a_log_cannot_be_overwritten(spark: SparkSession, log: EmbeddedLog) -> None:
    with pytest.raises(PySparkException, match="a log has no rows to replace"):
        spark.range(3).write.format("headwater").option("log", str(log.path)).mode("overwrite").save("out")
