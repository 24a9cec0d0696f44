"""`Match` in real streaming queries: four partitions, a worker killed, time-outs without a next event, and as a batch job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import ArgumentInvalid, ColumnUnknown, PatternInvalid
from headwater.operators import Match
from headwater.operators.keyed.plan import applied_operators
from headwater.operators.match.sql import parse
from headwater.operators.sides import read_side
from tests.operators.match import naive
from tests.operators.match.laws import Row, arrivals, comparable, expected, keyed
from tests.operators.streaming import ONCE, Stream

SECOND = 1_000_000
END_OF_TIME = 1_000_000 * SECOND
TOPIC = {
    "events": {
        "schema": {
            "key": "string",
            "id": "int64",
            "at": "timestamp",
            "amount": "int64",
            "price": "float64",
            "kind": "string",
        },
        "key": "key",
    }
}
TEXT = """
PARTITION BY key ORDER BY at
MEASURES
    FIRST(low.id) AS first_id, LAST(low.id) AS last_id, up.id AS up_id, COUNT(low.*) AS lows,
    SUM(low.amount) + 1 AS total, PREV(FIRST(low.id)) AS before, CLASSIFIER() AS last, MATCH_NUMBER() AS number,
    UPPER(up.kind) AS kind
ONE ROW PER MATCH
AFTER MATCH SKIP TO NEXT ROW
PATTERN (low{1,3} other*? up) WITHIN INTERVAL '12' SECOND
DEFINE low AS amount < 5, up AS amount > LAST(low.amount) AND kind LIKE 'x%'
"""


def closing(number: int) -> list[Row]:
    """Rows from far later, in every partition, so that none holds time back."""
    one = {"id": 0, "at": END_OF_TIME + number, "amount": None, "price": None, "kind": None}
    return [{"key": f"end{key}", **one} for key in range(40)]


def own(rows: Sequence[Row]) -> list[str]:
    return comparable([row for row in rows if not row["key"].startswith("end")])


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Row], list[list[Row]]]:
    rows = keyed(draw(st.lists(naive.events(most=30), min_size=4, max_size=6)))
    order = [row for batch in draw(arrivals(rows, late_by_us=5 * SECOND)) for row in batch]
    return rows, [order[at * len(order) // 4 : (at + 1) * len(order) // 4] for at in range(4)]


@ONCE
@given(drawn=streams())
def test_a_pattern_is_found_in_a_stream(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, drawn: tuple[list[Row], list[list[Row]]]
) -> None:
    rows, batches = drawn
    operator = Match(TEXT, late_by=5, ahead=None, timed_out="side", name="found")
    folder = tmp_path_factory.mktemp("match")
    stream = Stream(spark, folder, lambda events: events.transform(operator), TOPIC)
    for number, batch in enumerate(batches):
        stream.run({"events": batch}, kill=number == 1)
    stream.run({"events": closing(1)})
    stream.run({"events": closing(2)})
    found, over = expected(replace(parse(TEXT)), rows)
    assert stream.kills == 1
    assert own(stream.rows()) == comparable(found)
    assert own(stream.bounded()) == comparable(found)
    state = Path(str(spark.conf.get("spark.headwater.state")))
    told = [row for path in state.iterdir() for table in read_side(state, path.name, "found", "timed_out")
            for row in table.to_pylist()]  # fmt: skip
    assert own(told) == comparable(over)


def events(spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    made = spark.createDataFrame(list(rows), "key string, id long, second long, amount long, kind string")
    return made.selectExpr("key", "id", "timestamp_seconds(second) AS at", "amount", "kind")


SOME = [("a", 1, 1, 3, "x"), ("a", 2, 2, 9, "y"), ("b", 3, 1, 1, "x"), ("b", 4, 2, 2, "x"), ("b", 5, 3, 7, "xy")]


def test_conditions_and_measures_are_any_expression_of_sparks(spark: SparkSession) -> None:
    text = """
        MEASURES format_string('%s-%s', A.kind, B.kind) AS both, B.at - A.at AS took, reverse(B.kind) AS turned
        PATTERN (A B) DEFINE A AS crc32(kind) = crc32('x'), B AS amount % 2 = 1 AND rlike(kind, 'x|y')
    """
    found = events(spark, SOME).transform(Match(text, on="at", by="key")).collect()
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
    found = events(spark, SOME).transform(Match(text, on="at", by="key"))
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
        events(spark, SOME).transform(Match(text, on="at", by="key"))
    assert operators[0].rows.names == ["key", "at", "id", "_mask0"]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Match("PATTERN (A B) DEFINE A AS amont > 1", on="at"), PatternInvalid, "amont"),
        (lambda: Match("PATTERN (A B", on="at"), PatternInvalid, "line 1"),
        (lambda: Match("PATTERN (A B)"), ArgumentInvalid, "ORDER BY"),
        (lambda: Match("ORDER BY at PATTERN (A B)", on="id"), ArgumentInvalid, "what ORDER BY says"),
        (lambda: Match("PARTITION BY key PATTERN (A B)", on="at", by="id"), ArgumentInvalid, "what PARTITION BY says"),
        (lambda: Match("PATTERN (A B)", on="id"), ArgumentInvalid, "a column of timestamps"),
        (lambda: Match("PATTERN (A B)", on="at", by="card"), ColumnUnknown, "no column 'card'"),
        (lambda: Match("PATTERN (A B)", on="at", partials_max=0), ArgumentInvalid, "at least 1"),
        (lambda: Match("PATTERN (A B)", on="at", timed_out=cast("Any", "no")), ArgumentInvalid, '"drop" or "side"'),
    ],
)
def test_what_does_not_fit_is_refused_at_once(
    spark: SparkSession, make: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        make()(events(spark, SOME))
