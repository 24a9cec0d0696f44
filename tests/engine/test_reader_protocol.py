"""Operators directly on a topic: which plans are that, and that rows packed by the reader are the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

from headwater.engine import reader_protocol as direct
from headwater.engine.column_expressions import Selection, column
from headwater.engine.packed_rows import unpacked
from headwater.engine.reader_protocol import Pack, direct_read, read_computed, stage_of_option, stage_to_option
from headwater.engine.spark_plan import applied_operators
from headwater.operators import Process
from tests.operators.stream_runs import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = {"orders": {"schema": {"user": "string", "share": "float64", "amount": "int64", "at": "timestamp"}}}
Change = Callable[["DataFrame"], "DataFrame"]


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return Stream(spark, tmp_path_factory.mktemp("direct"), lambda rows: rows, TOPIC).source("orders")


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        (lambda rows: rows.select("user", "amount"), {"user": "user", "amount": "amount"}),
        (lambda rows: rows.select(F.col("user").alias("who"), "user"), {"who": "user", "user": "user"}),
        (lambda rows: rows.select("user", "at").withColumnRenamed("at", "then"), {"user": "user", "then": "at"}),
        (lambda rows: rows.select("user", "at").withColumn("again", F.col("user")).drop("at"), {"again": "user"}),
    ],
)
def test_columns_may_be_chosen_and_renamed(orders: DataFrame, change: Change, columns: dict[str, str]) -> None:
    found = direct_read(change(orders))
    assert found is not None
    assert {name: column(of) for name, of in columns.items()}.items() <= found.columns.items()
    assert found.options["path"] == "orders"


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.filter("user RLIKE 'a+'"),
        lambda rows: rows.withColumn("more", F.date_format("at", "HH:mm")),
        lambda rows: rows.withColumn("more", F.rand()),
        lambda rows: rows.unionByName(rows),
        lambda rows: rows.withWatermark("at", "1 second"),
        lambda rows: rows.select("user", "user"),
        lambda rows: rows.mapInArrow(lambda batches: batches, rows.schema),
    ],
)
def test_what_only_spark_computes_is_not_direct(orders: DataFrame, change: Change) -> None:
    assert direct_read(change(orders)) is None


def test_bounded_rows_are_not_direct(spark: SparkSession) -> None:
    assert direct_read(spark.range(3).toDF("user")) is None


def by_spark(rows: DataFrame) -> DataFrame:
    """The same rows after a step that no reader can do."""
    return rows.where(F.rand() < 2)


def total(state: pa.Table, rows: pa.Table, _time: object) -> tuple[pa.Table, pa.Table]:
    added = rows.select(["_key", "amount"]).rename_columns(["_key", "total"])
    both = pa.concat_tables([state.select(["_key", "total"]), added])
    found = both.group_by("_key").aggregate([("total", "sum")]).rename_columns(["_key", "total"])
    return found, found


def totals(by: str, name: str | None = None) -> Process:
    output = {by: TOPIC["orders"]["schema"][by], "total": "int64"}
    return Process(step=total, by=by, state={"total": "int64"}, output=output, name=name)


@pytest.mark.parametrize(("by", "packs"), [("user", True), ("share", False)])
def test_packed_or_not_the_same_comes_out(spark: SparkSession, tmp_path: Path, by: str, packs: bool) -> None:
    kinds: list[bool] = []

    def build(change: Change) -> Change:
        def built(rows: DataFrame) -> DataFrame:
            with applied_operators() as found:
                made = change(rows).transform(totals(by))
            kinds.extend(one.packed for one in found)
            return made

        return built

    batches = [
        [{"user": f"u{n % 7}", "share": n % 5 / 4, "amount": n, "at": n} for n in range(start, start + 40)]
        for start in (0, 40)
    ]
    batches[1][3] |= {"user": None, "share": None}
    plans: list[Change] = [lambda rows: rows, lambda rows: rows.filter("amount >= 0"), by_spark]
    streams = [Stream(spark, tmp_path / str(number), build(plan), TOPIC) for number, plan in enumerate(plans)]
    for stream in streams:
        for batch in batches:
            stream.run({"orders": batch})
        stream.stop()
    ours, filtered, by_tasks = ([sorted(map(repr, rows)) for rows in stream.batches.values()] for stream in streams)
    assert ours == filtered == by_tasks
    assert kinds == [packs, packs, False]


def test_the_tasks_of_an_operator_pack_what_the_next_one_reads(spark: SparkSession, tmp_path: Path) -> None:
    kinds: list[bool] = []

    def build(change: Change) -> Change:
        def built(rows: DataFrame) -> DataFrame:
            with applied_operators() as found:
                first = rows.transform(totals("user", "first"))
                made = change(first).selectExpr("user", "total * 2 AS amount").transform(totals("user", "second"))
            kinds.extend(one.packed for one in found)
            return made

        return built

    plans: list[Change] = [lambda rows: rows.where("total > 3"), lambda rows: by_spark(rows.where("total > 3"))]
    streams = [Stream(spark, tmp_path / str(number), build(plan), TOPIC) for number, plan in enumerate(plans)]
    for stream in streams:
        for start in (0, 40):
            rows = [{"user": f"u{n % 7}", "share": None, "amount": n, "at": n} for n in range(start, start + 20)]
            stream.run({"orders": rows})
        stream.stop()
    ours, by_tasks = ([sorted(map(repr, rows)) for rows in stream.batches.values()] for stream in streams)
    assert ours == by_tasks
    assert any(ours)
    assert kinds == [True, True, True, False]


def test_what_the_reader_computes_comes_to_spark_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    def few(rows: DataFrame) -> DataFrame:
        return rows.where("amount > 2").selectExpr("user", "amount % 3 AS rest", "at", "_partition")

    stream = Stream(spark, tmp_path, lambda rows: read_computed(few(rows)), TOPIC)
    source = stream.source("orders")
    assert read_computed(source) is source
    assert read_computed(few(source)).schema.json() == few(source).schema.json()
    assert direct_read(few(read_computed(few(source)).withColumn("amount", F.lit(7)))) is None
    stream.run({"orders": [{"user": f"u{n}", "share": None, "amount": n, "at": n} for n in range(6)]})
    stream.stop()
    found = sorted((row["user"], row["rest"]) for row in stream.rows())
    assert found == [("u3", 0), ("u4", 1), ("u5", 2)]


def test_wide_rows_are_packed_in_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("user", pa.int64()), ("text", pa.string())])
    pack = Pack("wide", Selection.whole(schema), ("user",), 2)
    table = pa.table([np.arange(1000), pa.array(["x" * 100] * 1000)], schema=schema)
    whole = list(pack(iter(table.to_batches(max_chunksize=50))))
    monkeypatch.setattr(direct, "PACKED_BYTES", 10_000)
    parts = list(pack(iter(table.to_batches(max_chunksize=50))))
    assert (len(whole), len(parts)) == (2, 20)
    for found in (whole, parts):
        assert unpacked(found).sort_by("user").select(schema.names).equals(table)


def test_columns_and_keys_reach_the_reader_as_json() -> None:
    rows = pa.schema([("user", pa.string()), ("amount", pa.int64())])
    few = (("less", column("amount"), ("literal", 10, "bigint")), ("is_in", column("user"), ("a", "b"), "string"))
    made = pa.schema([("who", pa.string()), ("more", pa.int64())])
    columns = (("who", column("user")), ("more", ("add_checked", column("amount"), ("literal", 1, "bigint"))))
    pack = Pack("totals", Selection(rows, few, columns, made), ("who",), 3)
    option = stage_to_option(pack)
    assert option.startswith("totals:json:")
    assert stage_of_option(option) == pack
