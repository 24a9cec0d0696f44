"""Streams that meet tables in real queries: two topics of four partitions, a worker killed, and the same as a batch job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import ArgumentInvalid, ColumnUnknown, TableCompacted
from headwater.operators import Enrich
from tests.operators.streaming import ONCE, Stream
from tests.operators.test_enrich import END_OF_TIME, Numbered, Row, arrivals, as_of, numbered, ordered

TOPICS = {
    "sales": {"schema": {"country": "string", "n": "int64", "sold": "timestamp"}, "key": "country"},
    "rates": {"schema": {"land": "string", "rate": "int64", "since": "timestamp", "op": "string"}, "key": "land"},
}


def batch_of(rows: list[Numbered]) -> dict[str, list[dict[str, Any]]]:
    sales = [{"country": row[1], "n": row[4], "sold": row[2] * 1_000_000} for row in rows if row[0] == 0]
    rates = [{"land": row[1], "rate": row[4], "since": row[2] * 1_000_000, "op": row[3]} for row in rows if row[0] == 1]
    return {"sales": sales, "rates": rates}


def closing() -> dict[str, list[dict[str, Any]]]:
    """Rows from far later in every partition of both topics, so that nothing waits any more."""
    return batch_of([(side, f"end{number}", END_OF_TIME, None, -1) for number in range(40) for side in (0, 1)])


def seen(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return ordered([(row["country"], row["n"], row["rate"]) for row in rows if row["country"][:3] != "end"])


def run(stream: Stream, batches: list[list[Row]]) -> list[Numbered]:
    rows = numbered(batches, close=False)
    for number, batch in enumerate(rows):
        stream.run(batch_of(batch), kill=number == 1)
    stream.run(closing())
    stream.run(closing())
    return [row for batch in rows for row in batch]


@pytest.mark.parametrize("grace", [0, 12])
@ONCE
@given(data=arrivals(sale_delay=9, rate_delay=0, rows_min=25), late=arrivals(sale_delay=9, rate_delay=9, rows_min=25))
def test_what_held_at_a_rows_time(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    grace: int,
    data: list[list[Row]],
    late: list[list[Row]],
) -> None:
    def build(sales: DataFrame, rates: DataFrame) -> DataFrame:
        changes = rates.withColumnRenamed("op", "_op")
        operator = Enrich(
            changes, on={"country": "land"}, as_of="sold", valid_from="since", late_by=9, grace=grace, ahead=None
        )
        return sales.transform(operator)

    stream = Stream(spark, tmp_path_factory.mktemp("as_of"), build, TOPICS)
    rows = run(stream, late if grace else data)
    assert seen(stream.rows()) == as_of(rows, how="left")
    assert seen(stream.bounded()) == as_of(rows, how="left")
    assert {"_partition", "_offset"} <= set(stream.rows()[0]), "a row keeps its place, for operators that follow"


def test_what_holds_now(spark: SparkSession, tmp_path: Path) -> None:
    def build(sales: DataFrame, rates: DataFrame) -> DataFrame:
        changes = rates.withColumnRenamed("op", "_op")
        return sales.transform(Enrich(changes, on={"country": "land"}))

    stream = Stream(spark, tmp_path, build, TOPICS)
    batches: list[list[Numbered]] = [
        [(0, "a", 1, None, 0), (1, "a", 1, "+I", 1), (1, "a", 1, "-U", 2), (1, "a", 1, "+U", 3)],
        [(0, "a", 2, None, 4), (0, "b", 2, None, 5), (1, "b", 2, "+I", 6)],
        [(0, "a", 3, None, 7), (0, "b", 3, None, 8), (1, "a", 3, "-D", 9)],
        [(0, "a", 4, None, 10), (0, "b", 4, None, 11)],
    ]
    for number, batch in enumerate(batches):
        stream.run(batch_of(batch), kill=number == 2)
    found = [(row["n"], row["rate"]) for row in stream.rows()]
    assert sorted(found, key=repr) == sorted([(0, 3), (4, 3), (5, 6), (7, None), (8, 6), (10, None), (11, 6)], key=repr)


@dataclass(frozen=True, kw_only=True)
class Known:
    """A table as an app has it."""

    dated: DataFrame
    key: tuple[str, ...] = ("land",)
    compact: bool = False
    time: str | None = None
    name: str = "rates"

    def history(self) -> DataFrame:
        return self.dated


SALES = "country string, n long, sold timestamp"
RATES = "land string, rate long, since timestamp, _op string, _appended_at timestamp"


def test_a_table_says_itself_from_when_its_rows_hold(spark: SparkSession) -> None:
    sales = spark.sql("SELECT 'a' AS country, id AS n, timestamp_seconds(id * 10) AS sold FROM range(6)")
    changes = spark.sql(
        """SELECT * FROM VALUES
           ('a', 7L, timestamp_seconds(15), '+U', timestamp_seconds(0)),
           ('a', null, null, '-D', timestamp_seconds(35)) AS t(land, rate, since, _op, _appended_at)"""
    )
    on = {"country": "land"}
    declared = sales.transform(Enrich(Known(dated=changes, time="since"), on=on, as_of="sold"))
    assert [row["rate"] for row in declared.orderBy("n").collect()] == [None, None, 7, 7, None, None]
    appended = sales.transform(Enrich(Known(dated=changes), on=on, as_of="sold", how="inner"))
    assert sorted(row["n"] for row in appended.collect()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("table", "settings", "error", "says"),
    [
        (RATES, {"on": {"land": "land"}}, ColumnUnknown, "no column 'land'"),
        ("land long, rate long, since timestamp", {}, ArgumentInvalid, "columns of one type"),
        ("land string, rate long, since string", {}, ArgumentInvalid, "a column of timestamps"),
        (RATES, {"as_of": "when"}, ColumnUnknown, "no column 'when'"),
        (RATES, {"valid_from": "when"}, ColumnUnknown, "no column 'when'"),
        ("land string, rate long", {"valid_from": None}, ArgumentInvalid, "from when a row holds"),
        ("land string, n long, since timestamp", {}, ArgumentInvalid, "suffix.*called 'n'"),
        (None, {}, ArgumentInvalid, "a table of the app"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(
    spark: SparkSession, table: str | None, settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    rows = spark.createDataFrame([], SALES)
    changes = None if table is None else spark.createDataFrame([], table)
    given = {"on": {"country": "land"}, "as_of": "sold", "valid_from": "since", **settings}
    with pytest.raises(error, match=says):
        rows.transform(Enrich(changes, **given))


def test_a_compacted_table_is_not_asked_for_the_past(spark: SparkSession) -> None:
    rows, changes = spark.createDataFrame([], SALES), spark.createDataFrame([], RATES)
    table = Known(dated=changes, compact=True)
    with pytest.raises(TableCompacted, match=r"'rates'.*`compact=False`.*leave out `as_of`"):
        rows.transform(Enrich(table, on={"country": "land"}, as_of="sold"))
    assert rows.transform(Enrich(table, on={"country": "land"})).columns == ["country", "n", "sold", "rate", "since"]
    with pytest.raises(ArgumentInvalid, match="the key of table 'rates', which is land"):
        rows.transform(Enrich(table, on={"country": "rate"}))
    with pytest.raises(ArgumentInvalid, match=r"changelog.*JoinTables"):
        changes.transform(Enrich(changes, on="land"))
