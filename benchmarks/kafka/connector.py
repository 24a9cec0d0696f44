"""Spark's own connector for Kafka, and its decoder of Avro, in the newest versions that could be had as Maven artifacts.

They are older than the Spark that is measured, whose own were not there; the mixture reads and writes streams.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from benchmarks.harness import Bench
from benchmarks.maven import fetched, named_by, pom_of, spark_jars
from benchmarks.peer_servers import PeerUnavailable
from benchmarks.spark.workbench import Workbench

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.column import Column

ARTIFACTS = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13": "4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13": "4.1.0-preview1",
    "org.apache.spark:spark-avro_2.13": "4.1.1",
    "org.apache.kafka:kafka-clients": "3.9.2",
    "org.apache.commons:commons-pool2": "2.13.1",
}
NAME = f"Spark's connector {ARTIFACTS['org.apache.spark:spark-sql-kafka-0-10_2.13']}"


@cache
def connector_jars() -> str:
    """The value of `spark.jars`; empty where the jars cannot be had."""
    pom = pom_of(ARTIFACTS, alone=True)
    try:
        return spark_jars(fetched(named_by("spark-kafka", pom), pom, what="Spark's connector for Kafka"))
    except PeerUnavailable as why:
        print(why)
        return ""


def missing() -> str:
    """Why a line has no peer; empty where the connector is there."""
    return "" if connector_jars() else "Spark's connector for Kafka was not to be had by Maven"


@cache
def workbench(bench: Bench) -> Workbench:
    """One session for all parts, with the connector where it can be had."""
    bench.say("starting Spark")
    return Workbench(bench.folder / "spark", conf={"spark.jars": connector_jars()} if connector_jars() else {})


def connected(bench_spark: Workbench, bootstrap: str, topic: str, *, rows_max: int) -> DataFrame:
    """A topic by the connector: key, value and place of each message."""
    reader = bench_spark.spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", rows_max).load()


def from_json(rows: DataFrame, columns: str) -> DataFrame:
    """Messages as columns, by Spark's parser."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    return rows.select(F.from_json(F.col("value").cast("string"), columns).alias("row")).select("row.*")


def from_avro(rows: DataFrame, schema: str) -> DataFrame:
    """Messages as columns, by Spark's decoder of Avro."""
    from pyspark.sql.avro.functions import from_avro as decoded

    return rows.select(decoded("value", schema).alias("row")).select("row.*")


def as_json() -> Column:
    """A row as a message."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.to_json(F.struct("*")).alias("value")
