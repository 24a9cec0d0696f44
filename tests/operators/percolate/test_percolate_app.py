"""Stored queries in an app: what cannot be read is a dead letter."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.operators import Percolate
from headwater.testing import AppTest

STORED = {"id": "string", "query": "string", "metadata": "map<string, string>"}


def test_a_bad_query_is_a_letter_and_the_others_go_on(spark: SparkSession) -> None:
    app = hw.App("news", log="./data")
    app.input("articles", {"n": "int64", "title": "string"})
    app.input("searches", STORED, key="id", compact=True)

    @app.topic()
    def alerts(articles: DataFrame, searches: hw.Table) -> DataFrame:
        return articles.transform(Percolate(queries=searches, columns=("n",)))

    with AppTest(app, spark=spark) as test:
        found: list[Any] = []

        def publish(number: int) -> None:
            test.feed("articles", [{"n": number, "title": "rivers and streams"}])
            found.append(sorted(row["query_id"] for row in test.rows("alerts") if row["n"] == number))

        publish(1)
        test.feed("searches", [{"id": "a", "query": "streams"}, {"id": "bad", "query": "title:("}])
        publish(2)
        test.feed("searches", [{"id": "b", "query": "rivers", "metadata": {"to": "me"}}, {"id": "a", "query": "lakes"}])
        publish(3)
        test.feed("searches", [{"id": "b", "_tombstone": True}, {"id": "a", "query": "+rivers -lakes"}])
        publish(4)
        assert found == [[], ["a"], ["b"], ["a"]]
        assert [row["metadata"] for row in test.rows("alerts") if row["n"] == 3] == [{"to": "me"}]
        assert [row["message"] for row in test.rows("searches.dlq")] == ["at column 8: here something is missing"], (
            "one letter, although four batches had it before them"
        )
