"""Stored queries in a real stream: added, changed and deleted between batches, a worker killed, and the same as a batch job."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.operators import Percolate, percolate
from headwater.operators.percolate.query.tree import Query
from headwater.testing import AppTest
from tests.operators.percolate.strategies import KINDS, NAIVE, NOW, SCHEMA, Written, documents, queries
from tests.operators.streaming import ONCE, Stream

STORED = {"id": "string", "query": "string", "metadata": "map<string, string>"}
Change = tuple[str, Written | None]


def rows_of(some: list[dict[str, Any]], first: int) -> list[dict[str, Any]]:
    return [{**row, "n": first + place, "seen": NOW} for place, row in enumerate(some)]


def expected(stored: dict[str, Query], rows: list[dict[str, Any]]) -> list[tuple[int, str, float]]:
    scores = [(row["n"], name, NAIVE.score(query, row)) for row in rows for name, query in stored.items()]
    return sorted((number, name, round(score, 6)) for number, name, score in scores if score is not None)


def seen(rows: list[dict[str, Any]]) -> list[tuple[int, str, float]]:
    return sorted((row["n"], row["query_id"], round(row["score"], 6)) for row in rows)


changes = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.one_of(st.none(), queries, queries, queries)), max_size=8)


@ONCE
@given(
    told=st.lists(changes, min_size=3, max_size=3),
    batches=st.lists(st.lists(documents, min_size=6, max_size=10), min_size=3, max_size=3),
)
def test_queries_change_while_documents_pass_and_a_worker_dies(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    told: list[list[Change]],
    batches: list[list[dict[str, Any]]],
) -> None:
    folder = tmp_path_factory.mktemp("percolate")

    def build(news: DataFrame) -> DataFrame:
        operator = Percolate(
            queries="searches", log=str(folder / "log"), fields=KINDS, default_fields=("title", "body"), on="seen",
            columns=("n",), costs_every=0, name="alerts",
        )  # fmt: skip
        return news.transform(operator)

    schema = {"n": "int64", "seen": "timestamp", **{field.name: field.type for field in SCHEMA}}
    stream = Stream(spark, folder, build, {"news": {"schema": schema}})
    with stream.log() as log:
        log.create("searches", STORED, key="id", partitions=2, durability="os", compact=True)
    stored: dict[str, Query] = {}
    wanted: list[tuple[int, str, float]] = []
    for number, (some, rows) in enumerate(zip(told, batches, strict=True)):
        with stream.log() as log:
            for name, one in some:
                told_row = {"_tombstone": True} if one is None else {"query": json.dumps(one.json)}
                log.append("searches", [{"id": name, **told_row}])
                stored |= {} if one is None else {name: one.tree}
                if one is None:
                    stored.pop(name, None)
        news = rows_of(rows, 100 * number)
        stream.run({"news": news}, kill=number == 1)
        wanted += expected(stored, news)
    assert seen(stream.rows()) == sorted(wanted)
    assert stream.kills == 1
    everything = [row for number, rows in enumerate(batches) for row in rows_of(rows, 100 * number)]
    assert seen(stream.bounded()) == expected(stored, everything)
    counted = {
        one.query_id: one.matches for one in percolate.costs(str(spark.conf.get("spark.headwater.state")), "alerts")
    }
    assert sum(counted.values()) >= len(wanted), "the batch that was done again has cost twice"


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
