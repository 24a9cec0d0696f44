"""A topic read as a table: what is there between two positions, no more and no less."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headwater.log import EmbeddedLog
from tests.sources.reading import table

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def ids(rows: DataFrame) -> list[int]:
    return sorted(row.id for row in rows.select("id").collect())


def test_a_topic_is_a_table(spark: SparkSession, orders: EmbeddedLog) -> None:
    rows = table(spark, orders)
    assert rows.columns == ["id", "name"]
    assert ids(rows) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": 3}, [3, 4, 13, 14]),
        ({"start": -1}, [4, 14]),
        ({"stop": 1}, [0, 10]),
        ({"start": 1, "stop": 2}, [1, 11]),
        ({"start": "latest"}, []),
        ({"start": json.dumps({"orders": {"0": 4, "1": 5}})}, [4]),
        ({"start": "2020-01-01", "stop": "2021-01-01T00:00:00Z"}, []),
        ({"start": "2020-01-01T00:00:00+00:00", "stop": json.dumps({"orders": {"0": 0, "1": 1}})}, [10]),
    ],
)
def test_positions_are_offsets_times_and_words(
    spark: SparkSession, orders: EmbeddedLog, options: dict[str, Any], expected: list[int]
) -> None:
    assert ids(table(spark, orders, **options)) == expected


def test_columns_and_system_columns_come_as_asked_for(spark: SparkSession, orders: EmbeddedLog) -> None:
    assert table(spark, orders, columns="name,_offset").columns == ["name", "_offset"]
    assert table(spark, orders, columns="name", metadata="position").columns == ["name", "_partition", "_offset"]
    default = spark.read.format("headwater").option("log", str(orders.path))
    assert default.load("orders").columns == ["id", "name", "_partition", "_offset"]
    assert default.option("columns", "name").load("orders").columns == ["name"]
    metadata = table(spark, orders, metadata=True)
    assert metadata.columns == ["id", "name", "_partition", "_offset", "_appended_at", "_sent_at", "_headers"]
    assert {(row["_partition"], row["_offset"]) for row in metadata.collect()} == {
        (partition, offset) for partition in (0, 1) for offset in range(5)
    }


def test_headers_are_a_map(spark: SparkSession, log: EmbeddedLog) -> None:
    log.create("orders", {"id": "int64"})
    log.append("orders", [{"id": 1}], headers=[{"trace": b"abc"}])
    [row] = table(spark, log, columns="_headers").collect()
    assert row["_headers"] == {"trace": bytearray(b"abc")}


def test_rows_of_a_range_of_event_times_are_read(spark: SparkSession, log: EmbeddedLog) -> None:
    log.create("orders", {"id": "int64", "at": "timestamp"}, time="at")
    for hour in range(4):
        log.append("orders", [{"id": hour, "at": NEW_YEAR + timedelta(hours=hour)}])
    log.append("orders", [{"id": 9, "at": None}])
    rows = table(spark, log, since="2026-01-01T01:00:00Z", until="2026-01-01T03:00:00Z", columns="id")
    assert ids(rows) == [1, 2]


def test_several_topics_share_a_read_and_each_row_says_whose_it_is(spark: SparkSession, log: EmbeddedLog) -> None:
    log.create("orders.eu", {"id": "int64"})
    log.create("orders.us", {"id": "int64", "state": "string"})
    log.create("returns", {"id": "int64"})
    log.append("orders.eu", [{"id": 1}])
    log.append("orders.us", [{"id": 2, "state": "NY"}])
    log.append("returns", [{"id": 3}])
    by_pattern = table(spark, log, "orders.*")
    assert sorted(tuple(row) for row in by_pattern.select("_topic", "id", "state").collect()) == [
        ("orders.eu", 1, None),
        ("orders.us", 2, "NY"),
    ]
    assert ids(table(spark, log, "orders.eu,returns")) == [1, 3]


def test_topics_whose_columns_differ_in_type_are_refused(spark: SparkSession, log: EmbeddedLog) -> None:
    log.create("a", {"id": "int64"})
    log.create("b", {"id": "string"})
    with pytest.raises(PySparkException, match="in another topic of the same read"):
        table(spark, log, "a,b").collect()


def test_a_partition_is_cut_where_more_tasks_are_wanted(spark: SparkSession, orders: EmbeddedLog) -> None:
    rows = table(spark, orders, partitions_min=4)
    assert rows.rdd.getNumPartitions() == 4
    assert ids(rows) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]


@pytest.mark.parametrize(
    ("topic", "options", "said"),
    [
        ("ordres", {}, "Did you mean 'orders'"),
        ("orders", {"column": "id"}, "did you mean `columns`"),
        ("orders", {"columns": "id,nmae"}, "no column 'nmae'"),
        ("orders", {"start": "soon"}, "'earliest', 'latest', an offset"),
        ("orders", {"on_expired": "ignore"}, "fail or skip"),
        ("orders", {"since": "2026-01-01"}, "a topic with an event time"),
    ],
)
def test_a_wrong_option_is_named(
    spark: SparkSession, orders: EmbeddedLog, topic: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        table(spark, orders, topic, **options).collect()


def test_expired_rows_fail_or_are_skipped(spark: SparkSession, log: EmbeddedLog) -> None:
    log.create("orders", {"id": "int64"}, segment_bytes_max="4 KiB", retention="4 KiB")
    for first in range(0, 2_000, 500):
        log.append("orders", [{"id": first + n} for n in range(500)])
    log.tidy()
    oldest = log.start_offsets("orders")[0]
    assert oldest > 0
    start = json.dumps({"orders": {"0": 0}})
    with pytest.raises(PySparkException, match="now begins at offset"):
        table(spark, log, start=start).collect()
    assert min(ids(table(spark, log, start=start, on_expired="skip"))) == oldest
