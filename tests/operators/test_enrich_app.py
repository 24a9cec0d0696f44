"""Tables of an app: `Enrich` follows their changes and deletions, and asks no compacted one for the past."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.errors import TableCompacted
from headwater.operators import Enrich
from headwater.testing import AppTest


def shop(*, compact: bool, as_of: str | None = None) -> hw.App:
    app = hw.App("shop", log="./data")
    app.input("sales", {"country": "string", "n": "int64", "sold_at": "timestamp"}, key="country", time="sold_at")
    app.input("rates", {"country": "string", "percent": "int64"}, key="country", compact=compact)

    @app.topic(key="country")
    def taxed(sales: DataFrame, rates: hw.Table) -> DataFrame:
        return sales.transform(Enrich(rates, on="country", as_of=as_of))

    return app


@pytest.mark.parametrize("as_of", [None, "sold_at"])
def test_a_table_of_an_app_is_followed_through_updates_and_deletions(spark: SparkSession, as_of: str | None) -> None:
    with AppTest(shop(compact=as_of is None, as_of=as_of), spark=spark) as test:
        found: list[Any] = []
        sold = 0

        def sell() -> None:
            nonlocal sold
            sold += 1
            test.feed("sales", [{"country": "DE", "n": sold, "sold_at": test.now}])
            found.append({row["n"]: row["percent"] for row in test.rows("taxed")}.get(sold))

        sell()
        for change in ({"percent": 19}, {"percent": 16}, {"_tombstone": True}, {"percent": 7}):
            test.feed("rates", [{"country": "DE", **change}])
            test.advance("1 minute")
            sell()
        assert found == [None, 19, 16, None, 7]
        if as_of is not None:  # a sale that is told of late is taxed by what held when it was made
            test.feed("rates", [{"country": "FR", "percent": 20}])
            test.advance("1 minute")
            test.feed("sales", [{"country": "FR", "n": 99, "sold_at": test.now - timedelta(seconds=30)}])
            assert {row["n"]: row["percent"] for row in test.rows("taxed")}[99] == 20


def test_a_compacted_table_of_an_app_is_not_asked_for_the_past(spark: SparkSession) -> None:
    app = shop(compact=True, as_of="sold_at")
    with AppTest(app, spark=spark) as test, pytest.raises(TableCompacted, match=r"'rates'.*`compact=False`"):
        test.feed("sales", [{"country": "DE", "n": 1, "sold_at": test.now}])
        test.settle()
