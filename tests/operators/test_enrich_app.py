"""Tables of an app: `Enrich` follows their changes and deletions, now and at the time of a row."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.operators import Enrich
from headwater.testing import AppTest

RATES = {"country": "string", "percent": "int64"}
app = hw.App("shop", log="./data")
app.input("sales", {"country": "string", "n": "int64", "sold_at": "timestamp"}, key="country", time="sold_at")
app.input("rates", RATES, key="country", compact=True)
app.input("all_rates", RATES, key="country", compact=False)


@app.topic(key="country")
def taxed(sales: DataFrame, rates: hw.Table) -> DataFrame:
    return sales.transform(Enrich(rates, on="country", how="inner"))


@app.topic(key="country")
def taxed_then(sales: DataFrame, all_rates: hw.Table) -> DataFrame:
    return sales.transform(Enrich(all_rates, on="country", as_of="sold_at", how="inner"))


@app.topic(key="country")
def taxed_then_by_a_compacted_table(sales: DataFrame, rates: hw.Table) -> DataFrame:
    return sales.transform(Enrich(rates, on="country", as_of="sold_at", how="inner"))


@app.view(key="country")
def high_rates(all_rates: hw.Table) -> DataFrame:
    return all_rates.where("percent > 18").changes


def test_tables_of_an_app_are_followed_through_updates_and_deletions(spark: SparkSession) -> None:
    outputs = ("taxed", "taxed_then", "taxed_then_by_a_compacted_table")
    with AppTest(app, spark=spark) as test:
        found: dict[str, list[Any]] = {topic: [] for topic in outputs}

        def rate(country: str, **change: Any) -> None:
            for topic in ("rates", "all_rates"):
                test.feed(topic, [{"country": country, **change}])
            test.advance("1 minute")

        def sell(number: int, country: str = "DE", *, ago: int = 0) -> None:
            sold_at = test.now - timedelta(seconds=ago)
            test.feed("sales", [{"country": country, "n": number, "sold_at": sold_at}])
            for topic in outputs:
                found[topic].append({row["n"]: row["percent"] for row in test.rows(topic)}.get(number, "not sold"))

        sell(1)
        rate("DE", percent=19)
        sell(2)
        rate("DE", _tombstone=True)
        sell(3)
        rate("FR", percent=20)
        # A sale that is told of late is taxed by what held when it was made.
        sell(4, "FR", ago=30)
        # A row that no longer meets the condition of a view leaves it, as a deleted one does.
        assert [row["country"] for row in test.views["high_rates"].rows()] == ["FR"]
        rate("FR", percent=17)
        assert list(test.views["high_rates"].rows()) == []
        assert all(seen == ["not sold", 19, "not sold", 20] for seen in found.values()), found
