"""Rows of a query as messages of a queue, and the queue's dead letters as a source."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import headwater as hw
from headwater.errors import ColumnMisfit
from headwater.log import Log
from headwater.sinks import QueueSink, Retry
from headwater.sinks.errors import RowRefused, SinkUnavailable
from headwater.testing import AppTest
from tests.sinks.places import micro


def rows(**columns: pa.Array) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))]


def test_a_row_is_the_body_and_columns_give_key_priority_and_time(log: Log) -> None:
    log.queue("jobs", priorities=3)
    sink = QueueSink(queue="jobs", queue_log=log.home, key=("a", "b"), priority="p", deliver_at="at")
    due = pa.array([None, None, log.clock.now_us() + 3_600_000_000], pa.timestamp("us", "UTC"))
    batch = rows(a=pa.array([1, 2, 3]), b=pa.array(["x", "y", "z"]), p=pa.array([0, 2, None]), at=due)
    sink.commit(batch, micro(0))
    messages = log.queue("jobs").take(9)
    assert [(each.key, each.body, each.priority) for each in messages] == [
        ("2:y", {"a": 2, "b": "y"}, 2),
        ("1:x", {"a": 1, "b": "x"}, 0),
    ]
    assert log.queue("jobs").stats().scheduled == 1
    with pytest.raises(RowRefused, match="its priority is 3, not 0 to 2"):
        sink.commit(rows(a=pa.array([1]), b=pa.array(["x"]), p=pa.array([3]), at=due[:1]), micro(1))
    with pytest.raises(ColumnMisfit, match=r"'urgency'.*part of a message"):
        QueueSink(queue="jobs", queue_log=log.home, priority="urgency").check(batch[0].schema)


def test_a_body_is_a_column_or_the_columns_of_the_queues_schema(log: Log) -> None:
    log.queue("raw", body="bytes")
    log.queue("typed", schema="id int64, name string")
    QueueSink(queue="raw", queue_log=log.home, body="data").commit(rows(data=pa.array([b"\x00"])), micro(0))
    typed = rows(id=pa.array([1]), name=pa.array(["one"]))
    QueueSink(queue="typed", queue_log=log.home).commit(typed, micro(0))
    assert [each.body for name in ("raw", "typed") for each in log.queue(name).take()] == [
        b"\x00",
        {"id": 1, "name": "one"},
    ]


def test_a_full_queue_lets_the_query_wait(log: Log) -> None:
    queue = log.queue("jobs", length_max=2)
    sink = QueueSink(queue="jobs", queue_log=log.home, retry=Retry(seconds_max=0.05, first_seconds=0.01))
    sink.commit(rows(n=pa.array([1, 2])), micro(0))
    with pytest.raises(SinkUnavailable, match="maximum of 2 messages"):
        sink.commit(rows(n=pa.array([3])), micro(1))
    queue.ack_many(queue.take(9))
    sink.commit(rows(n=pa.array([3])), micro(1))
    assert [each.body for each in queue.take(9)] == [{"n": 3}]


def test_an_app_feeds_a_queue_and_reads_its_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    app = hw.App("shop", log=tmp_path / "data")
    app.input("orders", {"id": "int64", "mail": "string"}, key="id")

    @app.sink(QueueSink(queue="mails", key="id"))
    def mails(orders: DataFrame) -> DataFrame:
        return orders.select("id", "mail")

    with AppTest(app, spark=spark, sinks="real") as test:
        test.feed("orders", [{"id": 1, "mail": "a@example.org"}, {"id": 2, "mail": "broken"}])
        test.drain()
        queue = test.log.queue("mails")
        for message in queue.take(9):
            if "@" in message.body["mail"]:
                message.ack()
            else:
                message.reject(reason="no address")
        letters = spark.read.format("headwater").option("log", test.log.address).load("mails.dlq")
        [letter] = letters.select("error", "message", f.get_json_object("row", "$.key").alias("key")).collect()
        assert (letter.error, letter.message, letter.key) == ("MessageRejected", "no address", "2")
        assert queue.redrive().changed == 1
        assert [message.body["id"] for message in queue.take(9)] == [2]
