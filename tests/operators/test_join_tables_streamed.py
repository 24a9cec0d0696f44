"""Joins of tables in real streaming queries: compacted topics with tombstones, four batches, a worker killed, and the same
query as a batch job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators import JoinTables
from headwater.operators.sides import read_side
from tests.operators.batches import final_table
from tests.operators.changing import rows_of
from tests.operators.streaming import ONCE, Stream
from tests.operators.test_join_tables import (
    CUSTOMERS,
    ORDERS,
    Batches,
    by_sql,
    customer_changes,
    final,
    order_changes,
)

TOPICS: dict[str, dict[str, Any]] = {
    "orders": {"schema": {"id": "int64", "customer": "string", "amount": "int64"}, "key": "id", "compact": True},
    "customers": {"schema": {"id": "string", "name": "string"}, "key": "id", "compact": True},
}


def rows(batch: list[Any], names: list[str]) -> list[dict[str, Any]]:
    """Changes as rows of a topic: a deletion is a tombstone."""
    return [
        dict(zip(names, (*key, *rest), strict=True)) if rest is not None else {names[0]: key[0], "_tombstone": True}
        for key, rest in batch
    ]


def run(stream: Stream, orders: Batches, customers: Batches) -> None:
    for number, (mine, theirs) in enumerate(zip(orders, customers, strict=True)):
        batch = {"orders": rows(mine, ORDERS.names), "customers": rows(theirs, CUSTOMERS.names)}
        stream.run(batch, kill=number == 1)


@pytest.mark.parametrize("how", ["left", "outer"])
@ONCE
@given(orders=order_changes(at_least=20), customers=customer_changes(at_least=12))
def test_a_foreign_key_join_in_a_stream(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, how: Any, orders: Batches, customers: Batches
) -> None:
    def build(left: DataFrame, right: DataFrame) -> DataFrame:
        return left.transform(JoinTables(right, on=("customer", "id"), key="id", how=how))

    stream = Stream(spark, tmp_path_factory.mktemp(how), build, TOPICS, metadata="all")
    run(stream, orders, customers)
    kept = "coalesce(o.customer, c.id)" if how == "outer" else "o.customer"
    wanted = by_sql(
        f"SELECT o.id, {kept}, o.amount, c.name FROM orders o {'FULL' if how == 'outer' else 'LEFT'} JOIN customers c "
        "ON o.customer = c.id",
        orders=final(orders, ORDERS),
        customers=final(customers, CUSTOMERS),
    )
    key = ["id"] if how == "left" else ["id", "customer"]
    assert stream.kills == 1
    assert rows_of(final_table(stream.rows(), key)) == wanted
    assert rows_of(final_table(stream.bounded(), key)) == wanted


@ONCE
@given(orders=order_changes(at_least=20), others=order_changes(at_least=20))
def test_a_join_by_key_in_a_stream(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, orders: Batches, others: Batches
) -> None:
    def build(left: DataFrame, right: DataFrame) -> DataFrame:
        return left.transform(JoinTables(right, on="id", how="outer", suffix="_right", emit="each"))

    topics = {"orders": TOPICS["orders"], "others": TOPICS["orders"]}
    stream = Stream(spark, tmp_path_factory.mktemp("keys"), build, topics, metadata="all")
    for number, (mine, theirs) in enumerate(zip(orders, others, strict=True)):
        stream.run({"orders": rows(mine, ORDERS.names), "others": rows(theirs, ORDERS.names)}, kill=number == 2)
    wanted = by_sql(
        "SELECT coalesce(o.id, r.id), o.customer, o.amount, r.customer, r.amount FROM orders o FULL JOIN others r "
        "ON o.id = r.id",
        orders=final(orders, ORDERS),
        others=final(others, ORDERS),
    )
    assert stream.kills == 1
    assert rows_of(final_table(stream.rows(), ["id"])) == wanted
    assert rows_of(final_table(stream.bounded(), ["id"])) == wanted


def test_rows_without_a_key_are_put_aside_and_rows_without_a_partner_are_not(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def build(left: DataFrame, right: DataFrame) -> DataFrame:
        return left.transform(JoinTables(right, on=("customer", "id"), key="id", how="left", name="named"))

    topics = {name: {"schema": topic["schema"]} for name, topic in TOPICS.items()}
    stream = Stream(spark, tmp_path_factory.mktemp("nulls"), build, topics)
    nobody = {"customer": None, "amount": 1}
    stream.run({"orders": [{"id": 1, **nobody}, {"id": 2, **nobody}, {"id": None, "customer": "a", "amount": 1}]})
    stream.run({"customers": [{"id": None, "name": "Nemo"}, {"id": "a", "name": "Ann"}]})
    assert sorted(key[0] for key in final_table(stream.rows(), ["id"])) == [1, 2]
    state = Path(str(spark.conf.get("spark.headwater.state")))
    (query,) = {path.parent.parent.parent.name for path in state.glob("*/named/sides/rejected")}
    aside = [len(one) for name in ("named-left", "named") for one in read_side(state, query, name, "rejected")]
    assert aside == [1, 1]


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"on": "customer"}, ColumnUnknown, "no column 'customer'"),
        ({"on": ("custmer", "id")}, ColumnUnknown, "no column 'custmer'"),
        ({"on": ("customer", "id"), "key": "number"}, ColumnUnknown, "no column 'number'"),
        ({"on": ("customer", "id"), "key": ()}, ArgumentInvalid, "at least one column"),
        ({"on": ("customer", "id"), "key": ("id", "id")}, ArgumentInvalid, "each column once"),
        ({"on": ("id", "id")}, ArgumentInvalid, "columns of one type"),
        ({"on": ("customer", "id"), "key": "_offset"}, ArgumentInvalid, "columns of your own"),
        ({"on": ("customer", "name"), "key": "id"}, ArgumentInvalid, "both have 'id'"),
    ],
)
def test_what_does_not_fit_the_tables_is_refused_at_once(
    spark: SparkSession, settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    orders = spark.createDataFrame([], "id long, customer string, amount long, _offset long")
    customers = spark.createDataFrame([], "id string, name string")
    with pytest.raises(error, match=says):
        orders.transform(JoinTables(customers, **settings))
