"""Spark calls the sinks as the other tests of this folder do: streams with a failure and a restart, and DataFrames."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from headwater.log import Log
from headwater.sinks import ConsoleSink, Fanout, ParquetSink, TopicSink
from tests.servers import Postgres, Redis
from tests.sinks.places import PLACES, PostgresPlace, RedisPlace
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


class FailsOnce:
    """A sink that is down when batch 1 comes for the first time."""

    def __init__(self, sink: Any = None) -> None:
        self.sink = sink
        self.failed = False

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        if self.sink is not None:
            self.sink(rows, batch_id)
        if batch_id == 1 and not self.failed:
            self.failed = True
            raise OSError("between the two commits")


def covers_what_the_checkpoint_says(log: Log, query: StreamingQuery, checkpoint: Path) -> bool:
    """Whether the last transaction names its run, and the source offsets that Spark has written down for it."""
    metadata = log.transaction_metadata(str(query.id))
    assert metadata is not None
    assert (metadata["query"], metadata["run"]) == (str(query.id), str(query.runId))
    written = (checkpoint / "offsets" / str(metadata["batch"])).read_text(encoding="utf-8").splitlines()
    return bool(metadata["sources"] == [json.loads(line) for line in written[2:]])


@pytest.mark.core
def test_a_stream_that_fails_between_the_two_commits_doubles_nothing(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    spark.dataSource.register(FailsAfterCommit)
    checkpoint = tmp_path / "checkpoint"
    writer = to_topic(rows_of(spark, log), log, format="fails_after_commit", once=tmp_path / "failed")
    assert "between the two commits" in run_until_it_fails(writer, checkpoint)
    assert 40 < len(ids(log)) < 100  # Spark has called `abort` for batch 1, and took nothing back
    query = run(writer, checkpoint)
    assert ids(log) == HUNDRED
    assert log.committed_sequence(str(query.id)) == 2
    assert covers_what_the_checkpoint_says(log, query, checkpoint)
    assert staged_files(log) == []


def test_a_stateful_batch_repeated_by_foreach_batch_is_not_doubled_and_keeps_its_state(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    """What the sink skips, stateful operators below it must not: the next batch needs their state."""
    log.create("counts", {"digit": "int64", "count": "int64"}, key="digit")
    log.create("even", {"digit": "int64", "count": "int64"}, key="digit")
    sink = TopicSink(log=log.home, topics={"counts": None, "even": lambda rows: rows.where("digit % 2 = 0")})
    counted = rows_of(spark, log).groupBy((f.col("id") % 10).alias("digit")).count()
    writer = counted.writeStream.foreachBatch(FailsOnce(sink)).outputMode("update")
    assert "between the two commits" in run_until_it_fails(writer, tmp_path / "checkpoint")
    query = run(writer, tmp_path / "checkpoint")
    for topic, digits in (("counts", range(10)), ("even", range(0, 10, 2))):
        rows = [(row["digit"], row["count"]) for row in log.read(topic).rows()]
        assert dict(rows) == dict.fromkeys(digits, 10)
        assert len(rows) == len(set(rows)), "no batch is there twice"
    assert log.committed_sequence(str(query.id)) == 2
    assert covers_what_the_checkpoint_says(log, query, tmp_path / "checkpoint")
    assert staged_files(log) == []


@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_a_batch_that_fails_in_a_task_leaves_nothing(spark: SparkSession, log: Log, tmp_path: Path, way: str) -> None:
    bad = rows_of(spark, log, rows_max=1000).withColumn("id", f.expr("if(id = 77, raise_error('bad row'), id)"))
    assert "bad row" in run_until_it_fails(writer_of(bad, log, way), tmp_path / "checkpoint")
    assert ids(log) == []
    run(writer_of(rows_of(spark, log), log, way), tmp_path / "checkpoint")
    assert ids(log) == HUNDRED
    assert staged_files(log) == []  # also of a task that came to its end after Spark had given up


@pytest.mark.core
def test_a_dataframe_is_written_whole_or_not_at_all(spark: SparkSession, log: Log) -> None:
    rows = spark.range(1000).selectExpr("id", "cast(id AS string) AS name").repartition(4)

    def save(rows: DataFrame, mode: str = "append") -> None:
        writer = rows.write.format("headwater").option("log", log.address).mode(mode)
        writer.option("producer", "nightly").option("sequence", "0").save("out")

    with pytest.raises(PySparkException, match="bad row"):
        save(rows.selectExpr("if(id = 777, raise_error('bad row'), id) AS id"))
    with pytest.raises(PySparkException, match="Column 'nmae' does not fit topic 'out'"):
        save(rows.withColumnRenamed("name", "nmae"))
    with pytest.raises(PySparkException, match="a log has no rows to replace"):
        save(rows, mode="overwrite")
    assert ids(log) == []
    save(rows)
    save(rows)
    assert ids(log) == list(range(1000))
    assert staged_files(log) == []


def test_several_sinks_compute_a_batch_once_and_a_replay_feeds_only_those_that_lack_it(
    spark: SparkSession,
    log: Log,
    tmp_path: Path,
    postgres: Postgres,
    redis_peer: Redis,
    capsys: pytest.CaptureFixture[str],
) -> None:
    PostgresPlace.server, RedisPlace.server = postgres, redis_peer
    places = [kind(tmp_path) for kind in PLACES.values()]
    computed = spark.sparkContext.accumulator(0)

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            computed.add(batch.num_rows)
            yield batch

    last = ParquetSink(path=tmp_path / "last")
    console = ConsoleSink(title="names", rows_max=3)
    sink = Fanout(sinks=(*(place.sink() for place in places), console, FailsOnce(), last))
    rows = rows_of(spark, log, rows_max=50).selectExpr("id", "name", "'+I' AS _op", "_partition", "_offset")
    rows = rows.mapInArrow(counted, "id long, name string, _op string, _partition int, _offset long")
    writer = rows.writeStream.foreachBatch(sink)
    assert "between the two commits" in run_until_it_fails(writer, tmp_path / "checkpoint")
    assert ds.dataset(last.folder).count_rows() == 50
    run(writer, tmp_path / "checkpoint")
    expected = [[("+I", number, f"n{number}") for number in HUNDRED]]
    for place in places:
        assert place.content() == place.expected(expected), place
        place.close()
    assert computed.value == 150, "each batch once, and the repeated one once more"
    assert spark.read.parquet(str(last.folder)).count() == 100
    shown = capsys.readouterr().out
    assert "names, batch 0, 50 rows" in shown
    assert "and 47 more" in shown
    assert shown.count("names, batch 1, 50 rows") == 1
    console.show()
    assert "names, batch 1" in capsys.readouterr().out
