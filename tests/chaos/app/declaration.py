"""The app that is killed: a topic, a view, a view on that view, and sinks to PostgreSQL and a lake.

The expected outputs follow from the input topic and the tariff alone, however the rows were batched.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

from headwater.apps import App
from headwater.sinks import LakeSink, PostgresSink
from tests.chaos import query
from tests.chaos.query import ORDERS, ORDERS_SCHEMA

NAME = "shop"
BILLS_TABLE = "bills"
TIERS_TABLE = "tiers"
#: A row of a view whose total is divisible by this is deleted, so that changelogs have tombstones too.
DELETED_BY = 5
#: Between the batches of a query, so that two cores have time for all of them.
PAUSE = "1 second"
TIERS = {"gold": 4_000, "silver": 1_000}


def tariff_of(home: Path) -> int:
    """The factor of amounts. It changes once, and a replay then corrects the earlier results."""
    return int((home / "tariff").read_text())


def lake_of(home: Path) -> Path:
    return home / "lake"


def declare_app(home: Path, *, url: str | None) -> App:
    """The app with the current tariff; without a PostgreSQL its only sink is the lake."""
    tariff = tariff_of(home)
    app = App(
        NAME,
        log=home / "log",
        master="local[2,4]",
        conf={
            "spark.sql.shuffle.partitions": 2,
            "spark.python.daemon.module": "tests.chaos.daemon",
            # A JVM that runs for seconds is faster without the optimizing compiler.
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m -Djava.io.tmpdir={home / 'tmp'}",
            "spark.local.dir": home / "tmp",
        },
    )
    lake = LakeSink(path=lake_of(home), partition_by="kind", maintenance_batches=6, retention=0)
    kept = [] if url is None else [PostgresSink(url=url, table=BILLS_TABLE, create=True)]
    shown = [] if url is None else [PostgresSink(url=url, table=TIERS_TABLE, key="user", create=True)]
    app.input(ORDERS, ORDERS_SCHEMA, partitions=4, key="user")

    @app.topic(key="user", partitions=3, rows_max=8000, tick="1 second")
    def bills(orders: DataFrame) -> DataFrame:
        return query.bills(orders)

    @app.view(key="user", rows_max=8000, trigger=PAUSE)
    def spend(orders: DataFrame) -> DataFrame:
        total = F.sum(F.col("amount") * tariff)
        return orders.groupBy("user").agg(F.count("*").alias("n"), total.alias("total"))

    @app.view(key="user", sinks=shown, trigger=PAUSE)
    def tiers(spend: DataFrame) -> DataFrame:
        total = F.col("total")
        tier = F.when(total >= TIERS["gold"], "gold").when(total >= TIERS["silver"], "silver").otherwise("new")
        operation = F.when(total % DELETED_BY == 0, "-D").otherwise(F.col("_op"))
        return spend.select("user", "n", "total", tier.alias("tier"), operation.alias("_op"))

    @app.sink(*kept, lake, trigger=PAUSE)
    def archive(bills: DataFrame) -> DataFrame:
        return bills.drop("_partition", "_offset")

    return app
