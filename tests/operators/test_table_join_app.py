"""A join of a table with the output of another operator, while only one of the two changes."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.operators import AggregateTable, Merge, TableJoin, TopN, agg
from headwater.testing import AppTest

app = hw.App("shop", log="./data")
app.input("catalogue", {"id": "int64", "title": "string"}, key="id", compact=True)
app.input("orders", {"id": "int64", "product": "int64", "n": "int64"}, key="id", compact=True)
app.input("returns", {"product": "int64", "n": "int64"}, key="product")


@app.view(key="id")
def sales(catalogue: hw.Table, orders: hw.Table) -> DataFrame:
    sold = orders.transform(AggregateTable(by="product", compute={"sold": agg.sum("n")}))
    return catalogue.transform(TableJoin(sold, on=("id", "product"), other_key="product")).select(
        "id", "title", "sold", "_op"
    )


@app.view(key=["product", "rank"])
def most(returns: DataFrame, orders: hw.Table) -> DataFrame:
    largest = (
        orders.transform(TopN(n=1, by="product", order=[("n", "desc")], name="largest"))
        .where("_op in ('+I', '+U')")
        .drop("_op")
    )
    merged = returns.transform(Merge(largest.select("product", "n")))
    return merged.transform(TopN(n=1, by="product", order=[("n", "desc")]))


def test_the_other_side_of_a_join_or_merge_may_be_without_new_rows(spark: SparkSession) -> None:
    with AppTest(app, spark=spark) as test:
        test.feed("catalogue", [{"id": number, "title": f"t{number}"} for number in range(4)])
        test.feed("returns", [{"product": number, "n": 0} for number in range(4)])
        test.feed("orders", [{"id": number, "product": number, "n": 1} for number in range(4)])
        test.drain()
        for number in range(4):  # each row goes to a task that had others before
            test.feed("orders", [{"id": 10 + number, "product": number, "n": 5}])
            test.drain()
        assert sorted((row["id"], row["sold"]) for row in test.views["sales"].rows()) == [(n, 6) for n in range(4)]
        assert sorted((row["product"], row["n"]) for row in test.views["most"].rows()) == [(n, 5) for n in range(4)]
