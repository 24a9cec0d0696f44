"""Patterns and the rows of Spark that they are planned over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.engine.errors import EventTimeUnknown
from headwater.engine.spark_plan import applied_operators
from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators import Match
from headwater.operators.errors import PatternInvalid


def events(spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    made = spark.createDataFrame(list(rows), "key string, id long, second long, amount long, kind string")
    return made.selectExpr("key", "id", "timestamp_seconds(second) AS at", "amount", "kind")


SOME = [("a", 1, 1, 3, "x"), ("a", 2, 2, 9, "y"), ("b", 3, 1, 1, "x"), ("b", 4, 2, 2, "x"), ("b", 5, 3, 7, "xy")]


def test_conditions_and_measures_are_any_expression_of_sparks(spark: SparkSession) -> None:
    text = """
        MEASURES format_string('%s-%s', A.kind, B.kind) AS both, B.at - A.at AS took, reverse(B.kind) AS turned
        PATTERN (A B) DEFINE A AS crc32(kind) = crc32('x'), B AS amount % 2 = 1 AND rlike(kind, 'x|y')
    """
    found = events(spark, SOME).transform(Match(text, time="at", by="key")).collect()
    assert sorted((row.key, row.both, row.took.total_seconds(), row.turned) for row in found) == [
        ("a", "x-y", 1.0, "y"),
        ("b", "x-xy", 1.0, "yx"),
    ]


def test_all_rows_of_a_match_with_those_of_none(spark: SparkSession) -> None:
    text = """
        MEASURES CLASSIFIER() AS is, RUNNING COUNT(*) AS so_far, FINAL COUNT(*) AS of
        ALL ROWS PER MATCH WITH UNMATCHED ROWS
        PATTERN (A B) DEFINE A AS kind = 'x', B AS B.amount > A.amount
    """
    found = events(spark, SOME).transform(Match(text, time="at", by="key"))
    assert found.columns == ["key", "id", "at", "amount", "kind", "is", "so_far", "of"]
    assert sorted((row.id, row["is"], row.so_far, row.of) for row in found.collect()) == [
        (1, "A", 1, 2),
        (2, "B", 2, 2),
        (3, "A", 1, 2),
        (4, "B", 2, 2),
        (5, None, None, None),
    ]


def test_only_the_columns_that_are_needed_travel(spark: SparkSession) -> None:
    text = "MEASURES A.id AS id PATTERN (A B) DEFINE A AS kind = 'x', B AS amount > 5"
    with applied_operators() as operators:
        events(spark, SOME).transform(Match(text, time="at", by="key"))
    assert operators[0].rows.names == ["key", "at", "id", "_mask0"]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Match("PATTERN (A B) DEFINE A AS amont > 1", time="at"), PatternInvalid, "amont"),
        (lambda: Match("PATTERN (A B", time="at"), PatternInvalid, "line 1"),
        (lambda: Match("PATTERN (A B)"), EventTimeUnknown, "^Match needs the event time"),
        (lambda: Match("ORDER BY at PATTERN (A B)", time="id"), ArgumentInvalid, "what ORDER BY says"),
        (
            lambda: Match("PARTITION BY key PATTERN (A B)", time="at", by="id"),
            ArgumentInvalid,
            "what PARTITION BY says",
        ),
        (lambda: Match("PATTERN (A B)", time="id"), ArgumentInvalid, "a column of timestamps"),
        (lambda: Match("PATTERN (A B)", time="at", by="card"), ColumnUnknown, "no column 'card'"),
        (lambda: Match("PATTERN (A B)", time="at", partials_max=0), ArgumentInvalid, "at least 1"),
        (
            lambda: Match("PATTERN (A B)", time="at", timed_out=cast("Any", "no")),
            ArgumentInvalid,
            '"drop" or "side_output"',
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_once(
    spark: SparkSession, make: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        make()(events(spark, SOME))
