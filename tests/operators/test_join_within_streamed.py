"""Joins in real streaming queries: two topics of four partitions, a worker killed, and the same query as a batch job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators import Join, JoinWithin
from tests.operators.streaming import ONCE, Stream
from tests.operators.test_join_within import END_OF_TIME, Numbered, Row, arrivals, expected, numbered, ordered

TOPICS = {
    "impressions": {"schema": {"user": "string", "n": "int64", "at": "timestamp"}, "key": "user"},
    "clicks": {"schema": {"visitor": "string", "n": "int64", "at": "timestamp"}, "key": "visitor"},
}


def batch_of(rows: list[Numbered]) -> dict[str, list[dict[str, Any]]]:
    shown = [{"user": user, "n": n, "at": at * 1_000_000} for side, user, at, n in rows if side == 0]
    clicked = [{"visitor": user, "n": n, "at": at * 1_000_000} for side, user, at, n in rows if side == 1]
    return {"impressions": shown, "clicks": clicked}


def closing() -> dict[str, list[dict[str, Any]]]:
    """Rows from far later in every partition of both topics, so that none holds time back."""
    rows = [(side, f"end{number}-{side}", END_OF_TIME, -1) for number in range(40) for side in (0, 1)]
    return batch_of(rows)


def seen(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return ordered([(row["user"], row["n"], row.get("n_click")) for row in rows if row["user"][:3] != "end"])


def run(stream: Stream, batches: list[list[Row]]) -> list[Numbered]:
    """Everything through the stream, with one batch done again after its worker was killed, then closed."""
    rows = numbered(batches, close=False)
    for number, batch in enumerate(rows):
        stream.run(batch_of(batch), kill=number == 1)
    stream.run(closing())
    stream.run(closing())
    return [row for batch in rows for row in batch]


@pytest.mark.parametrize("how", ["inner", "outer", "anti"])
@ONCE
@given(batches=arrivals(late_by=9, rows_min=25))
def test_a_join_within_bounds(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, how: Any, batches: list[list[Row]]
) -> None:
    def build(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
        operator = JoinWithin(
            clicks,
            on={"user": "visitor"},
            time="at",
            before=5,
            after=15,
            how=how,
            late_by=5,
            grace=4,
            suffix="_click",
            ahead=None,
        )
        return impressions.transform(operator)

    stream = Stream(spark, tmp_path_factory.mktemp(how), build, TOPICS)
    rows = run(stream, batches)
    wanted = expected(rows, before=5, after=15, how=how)
    assert seen(stream.rows()) == wanted
    assert seen(stream.bounded()) == wanted


@ONCE
@given(batches=arrivals(late_by=9, rows_min=25))
def test_a_join_without_time(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]]
) -> None:
    def build(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
        return impressions.transform(
            Join(clicks, on={"user": "visitor"}, rows_max_per_key=50, expire="1 day", suffix="_click")
        )

    stream = Stream(spark, tmp_path_factory.mktemp("all"), build, TOPICS)
    wanted = expected(run(stream, batches), before=10**6, after=10**6, how="inner")
    assert seen(stream.rows()) == wanted
    assert seen(stream.bounded()) == wanted


def test_a_result_has_the_columns_of_both_inputs_under_names_that_are_told_apart(spark: SparkSession) -> None:
    left = spark.sql("SELECT 1 AS id, 'x' AS what, timestamp'2024-01-01 10:00:00' AS at, 0 AS _partition")
    right = spark.sql("SELECT 1L AS number, 2.5D AS what, timestamp'2024-01-01 10:30:00' AS at, 7 AS m")
    operator = JoinWithin(right, on={"id": "number"}, time="at", within="1 hour", suffix="_2")
    (row,) = left.transform(operator).collect()
    assert row.asDict() == {"id": 1, "what": "x", "at": row["at"], "what_2": 2.5, "at_2": row["at_2"], "m": 7}
    assert (row["at_2"] - row["at"]).total_seconds() == 1800


def test_an_input_may_meet_itself(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT * FROM VALUES ('a', 1, timestamp_seconds(0)), ('a', 2, timestamp_seconds(5)) AS t(k, n, t)"
    )
    pairs = rows.transform(JoinWithin(rows, on="k", time="t", before=0, after=10, suffix="_later")).where(
        "n <> n_later"
    )
    assert [(row["n"], row["n_later"]) for row in pairs.collect()] == [(1, 2)]


ROWS = "user string, amount long, at timestamp"


@pytest.mark.parametrize(
    ("other", "settings", "error", "says"),
    [
        ("user string, at timestamp", {"on": "card"}, ColumnUnknown, "no column 'card'"),
        ("card string, at timestamp", {"on": "user"}, ColumnUnknown, "no column 'user'"),
        ("user long, at timestamp", {}, ArgumentInvalid, r"user \(string\) = user \(bigint\).*cast one"),
        ("user string, at string", {}, ArgumentInvalid, "a column of timestamps"),
        ("user string, at timestamp_ntz", {}, ArgumentInvalid, "times of one type"),
        ("user string, at timestamp", {"time": "when"}, ColumnUnknown, "no column 'when'"),
        ("user string, at timestamp", {"other_time": "when"}, ColumnUnknown, "no column 'when'"),
        ("user string, at timestamp, amount long", {}, ArgumentInvalid, "suffix.*two columns would be called 'at'"),
        ("user string, at timestamp, at_2 long", {"suffix": "_2"}, ArgumentInvalid, "suffix.*be called 'at_2'"),
        ("user string, at timestamp, _op string", {}, ArgumentInvalid, "a changelog.*JoinTables"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused_at_once(
    spark: SparkSession, other: str, settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    rows, others = spark.createDataFrame([], ROWS), spark.createDataFrame([], other)
    operator = JoinWithin(others, **{"on": "user", "time": "at", "within": 5, **settings})
    with pytest.raises(error, match=says):
        rows.transform(operator)


def test_a_stream_does_not_meet_bounded_rows(spark: SparkSession, tmp_path: Path) -> None:
    others = spark.createDataFrame([], "user string, n long, at timestamp")
    build = lambda rows: rows.transform(JoinWithin(others, on="user", time="at", within=5, suffix="_2"))  # noqa: E731
    stream = Stream(spark, tmp_path, build, {"impressions": TOPICS["impressions"]})
    with pytest.raises(ArgumentInvalid, match=r"bounded beside a stream.*Spark's own `join`"):
        stream.run({"impressions": batch_of([(0, "a", 1, 1)])["impressions"]})


def test_rows_without_a_key_or_a_time_are_put_aside_and_told(spark: SparkSession, tmp_path: Path) -> None:
    from headwater.operators.sides import read_side

    def build(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
        settings: dict[str, Any] = {"on": {"user": "visitor"}, "time": "at", "within": 5, "suffix": "_2"}
        return impressions.transform(JoinWithin(clicks, name="joined", **settings))

    stream = Stream(spark, tmp_path, build, {name: {"schema": one["schema"]} for name, one in TOPICS.items()})
    stream.run({"impressions": [{"user": None, "n": 1, "at": 5}], "clicks": [{"visitor": "a", "n": 1, "at": None}]})
    state = Path(str(spark.conf.get("spark.headwater.state")))
    (query,) = {path.parent.parent.parent.name for path in state.glob("*/joined/sides/rejected")}
    reasons = [row["_reason"] for table in read_side(state, query, "joined", "rejected") for row in table.to_pylist()]
    assert sorted(reasons) == ["the event time is null", "the key is null"]
