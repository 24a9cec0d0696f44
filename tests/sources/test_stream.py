"""A topic read as a stream: every row once and in order, in batches as large as allowed, whatever happens in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headwater.log import EmbeddedLog
from headwater.sources import lag_of
from tests.sources.reading import Run, batch_sizes, stream


def ids(spark: SparkSession, run: Run) -> list[int]:
    return sorted(row.id for row in run.rows(spark, "id long"))


def test_a_query_reads_what_is_there_and_later_what_has_come(
    spark: SparkSession, orders: EmbeddedLog, run: Run
) -> None:
    run(stream(spark, orders))
    assert ids(spark, run) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    orders.append("orders", [{"id": 5}], partition=0)
    run(stream(spark, orders))
    assert ids(spark, run) == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14]


def test_batches_are_no_larger_than_allowed_and_all_rows_come(
    spark: SparkSession, orders: EmbeddedLog, run: Run
) -> None:
    query = run(stream(spark, orders, rows_max=4))
    assert batch_sizes(query) == [4, 4, 2]
    assert len(ids(spark, run)) == 10


def test_bytes_limit_a_batch_too(spark: SparkSession, orders: EmbeddedLog, run: Run) -> None:
    size = sum(info.bytes for info in orders.describe("orders").partitions)
    query = run(stream(spark, orders, rows_max="none", bytes_max=size // 2))
    assert len(batch_sizes(query)) >= 2
    assert sum(batch_sizes(query)) == 10


def test_new_partitions_and_topics_are_picked_up_from_their_beginning(
    spark: SparkSession, orders: EmbeddedLog, run: Run
) -> None:
    run(stream(spark, orders, "ord*", start="latest"))
    assert ids(spark, run) == []
    orders.alter("orders", partitions=3)
    orders.append("orders", [{"id": 20}], partition=2)
    orders.create("ordered", {"id": "int64"})
    orders.append("ordered", [{"id": 30}])
    run(stream(spark, orders, "ord*", start="latest"))
    assert ids(spark, run) == [20, 30]


def test_the_progress_report_says_how_far_behind_a_query_is(spark: SparkSession, orders: EmbeddedLog, run: Run) -> None:
    query = run(stream(spark, orders, rows_max=4))
    assert [lag_of(progress) for progress in query.recentProgress] == [{"orders": 6}, {"orders": 2}, {"orders": 0}]
    assert lag_of(None) == {}


def forget_commit(run: Run, batch: int) -> None:
    """As if the driver had died just before Spark wrote down that the batch is done."""
    for path in (run.checkpoint / "commits").glob(f"*{batch}*"):
        path.unlink()


def test_a_repeated_batch_reads_the_same_rows_even_the_first_from_a_moving_start(
    spark: SparkSession, orders: EmbeddedLog, run: Run
) -> None:
    # This sink forgets, where the one for files would not ask for rows of a batch that it has.
    first = run(stream(spark, orders, start=-2), sink="noop")
    assert batch_sizes(first) == [4]
    forget_commit(run, 0)
    orders.append("orders", [{"id": n} for n in range(20, 25)], partition=0)
    again = run(stream(spark, orders, start=-2), sink="noop")
    assert batch_sizes(again) == [4, 5]


def fails(run: Run, rows: DataFrame) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        run(rows)
    return str(caught.value)


def test_a_topic_deleted_under_a_query_is_named(spark: SparkSession, orders: EmbeddedLog, run: Run) -> None:
    rows = stream(spark, orders)
    run(rows)
    orders.delete("orders")
    assert "Topic 'orders' is not what this query has been reading: it has been deleted" in fails(run, rows)


def test_a_topic_deleted_while_a_query_runs_stops_it(spark: SparkSession, orders: EmbeddedLog, run: Run) -> None:
    query = run(stream(spark, orders), available_now=False)
    query.processAllAvailable()
    orders.delete("orders")
    with pytest.raises(StreamingQueryException, match="it has been deleted"):
        query.awaitTermination(60)


def test_a_topic_made_again_is_another_topic(spark: SparkSession, orders: EmbeddedLog, run: Run) -> None:
    run(stream(spark, orders))
    orders.delete("orders")
    orders.create("orders", {"id": "int64", "name": "string"}, partitions=2)
    assert "it was deleted and made again" in fails(run, stream(spark, orders))


def test_a_checkpoint_of_another_topic_is_refused(spark: SparkSession, orders: EmbeddedLog, run: Run) -> None:
    run(stream(spark, orders))
    orders.create("returns", {"id": "int64", "name": "string"})
    assert "the checkpoint is of a query that read another topic" in fails(run, stream(spark, orders, "returns"))


@pytest.fixture
def expiring(log: EmbeddedLog) -> EmbeddedLog:
    log.create("orders", {"id": "int64"}, segment_bytes_max="4 KiB", retention="4 KiB")
    log.append("orders", [{"id": 0}])
    return log


def expire(log: EmbeddedLog) -> int:
    for first in range(0, 2_000, 500):
        log.append("orders", [{"id": first + n} for n in range(500)])
    log.tidy()
    return log.start_offsets("orders")[0]


def test_rows_that_expired_before_they_were_read_stop_the_query(
    spark: SparkSession, expiring: EmbeddedLog, run: Run
) -> None:
    run(stream(spark, expiring))
    oldest = expire(expiring)
    assert f"now begins at offset {oldest}, but a reader asked for 1" in fails(run, stream(spark, expiring))


def test_rows_that_expired_are_skipped_on_request_and_counted(
    spark: SparkSession, expiring: EmbeddedLog, run: Run
) -> None:
    query = run(stream(spark, expiring, on_expired="skip"))
    oldest = expire(expiring)
    run(stream(spark, expiring, on_expired="skip"))
    assert len(ids(spark, run)) == 1 + 2_001 - oldest
    folder = Path(str(spark.conf.get("spark.headwater.state"))) / str(query.id) / "batches"
    [record] = [json.loads(path.read_text()) for path in folder.glob("skipped-*.json")]
    assert record == {"start": 1, "stop": oldest}


# -- the schema changes under a query ------------------------------------------------------------------------------


def test_a_query_keeps_its_schema_until_it_is_restarted(spark: SparkSession, orders: EmbeddedLog, run: Run) -> None:
    rows = stream(spark, orders)
    run(rows)
    orders.alter("orders", schema="id int64, name string, note string")
    orders.append("orders", [{"id": 5, "name": "y", "note": "new"}], partition=0)
    run(rows)  # the same DataFrame: planned under the old schema
    assert ids(spark, run)[5] == 5
    orders.append("orders", [{"id": 6, "note": "newer"}], partition=0)
    run(stream(spark, orders))
    found = {row.id: row.note for row in run.rows(spark, "id long, note string")}
    assert (found[5], found[6]) == (None, "newer")


def test_a_widened_column_is_read_as_long_as_its_values_fit(spark: SparkSession, log: EmbeddedLog, run: Run) -> None:
    log.create("orders", {"id": "int32"})
    log.append("orders", [{"id": 1}])
    rows = stream(spark, log)
    run(rows)
    log.alter("orders", schema="id int64")
    log.append("orders", [{"id": 2}])
    run(rows)
    assert ids(spark, run) == [1, 2]
    log.append("orders", [{"id": 2**40}])
    assert "column 'id' has become int64, and the query began with int32" in fails(run, rows)
    run(stream(spark, log))
    assert ids(spark, run) == [1, 2, 2**40]
