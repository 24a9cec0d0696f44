"""A topic read as a table: what is there between two positions, no more and no less."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.log import EmbeddedLog


def table(spark: SparkSession, log: EmbeddedLog, topics: str = "orders", **options: object) -> DataFrame:
    reader = spark.read.format("headwater").option("log", str(log.path))
    for name, value in options.items():
        reader = reader.option(name, str(value).lower() if isinstance(value, bool) else str(value))
    return reader.load(topics)


@pytest.fixture
def orders(log: EmbeddedLog) -> EmbeddedLog:
    log.create("orders", {"id": "int64", "name": "string"}, partitions=2)
    for partition in (0, 1):
        log.append("orders", [{"id": 10 * partition + n, "name": "x"} for n in range(5)], partition=partition)
    return log


def test_a_topic_is_a_table(spark: SparkSession, orders: EmbeddedLog) -> None:
    assert sorted(row.id for row in table(spark, orders).collect()) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
