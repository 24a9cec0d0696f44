"""Streams that part and streams that meet: every row goes where it was told, once."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater.errors import ArgumentInvalid, ColumnMisfit
from headwater.operators import Branch, Merge

CASES = {"large": "amount > 5", "even": "amount % 2 = 0"}


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, 8), (2, 7), (3, 2), (4, 1), (5, None)], "id int, amount int")


def ids(frames: dict[str, DataFrame]) -> dict[str, list[int]]:
    return {name: sorted(row["id"] for row in frame.collect()) for name, frame in frames.items()}


def test_a_row_goes_to_the_first_branch_that_takes_it(rows: DataFrame) -> None:
    assert ids(Branch(cases=CASES)(rows)) == {"large": [1, 2], "even": [3]}
    assert ids(Branch(cases=CASES, other="rest")(rows)) == {"large": [1, 2], "even": [3], "rest": [4, 5]}


def test_a_row_may_go_to_all_branches_that_take_it(rows: DataFrame) -> None:
    branch = Branch(cases={**CASES, "mine": F.col("id") == 4}, match="all", other="rest")
    assert ids(branch(rows)) == {"large": [1, 2], "even": [1, 3], "mine": [4], "rest": [5]}


@pytest.mark.parametrize("match", ["first", "all"])
def test_a_label_says_the_same_in_one_stream(rows: DataFrame, match: Any) -> None:
    branch = Branch(cases=CASES, match=match, other="rest")
    labelled = branch.label(rows)
    found = {
        name: sorted(row["id"] for row in labelled.where(F.col("branch") == name).collect()) for name in branch.names
    }
    assert found == ids(branch(rows))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"cases": {}}, "cases"),
        ({"cases": CASES, "match": "some"}, "match"),
        ({"cases": {"large": 5}}, "SQL or a column"),
        ({"cases": CASES, "other": "even"}, "a name that no case has"),
    ],
)
def test_a_branch_that_cannot_be_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        Branch(**settings)


@pytest.mark.parametrize(
    ("condition", "says"),
    [("amont > 5", "over the columns id, amount"), ("amount >", "over the columns"), ("amount + 1", "condition")],
)
def test_a_condition_that_does_not_fit_the_rows_is_refused(rows: DataFrame, condition: str, says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        Branch(cases={"large": condition})(rows)


def test_columns_meet_by_name(spark: SparkSession, rows: DataFrame) -> None:
    others = spark.createDataFrame([(3, 6)], "amount int, id int")
    merged = rows.where("id < 3").transform(Merge(others, source="stream"))
    assert sorted(tuple(row) for row in merged.collect()) == [(1, 8, 0), (2, 7, 0), (6, 3, 1)]


def test_a_column_that_is_missing_is_null_where_that_was_asked_for(spark: SparkSession, rows: DataFrame) -> None:
    others = spark.createDataFrame([(6, "x")], "id int, note string")
    merged = rows.where("id = 1").transform(Merge(others, missing="null"))
    assert sorted(tuple(row) for row in merged.select("id", "amount", "note").collect()) == [
        (1, 8, None),
        (6, None, "x"),
    ]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("id int, amount long", "is bigint, but int in stream 0"),
        ("id int", "is missing there"),
        ("id int, amount int, n int", "missing"),
    ],
)
def test_streams_that_do_not_fit_are_refused(spark: SparkSession, rows: DataFrame, schema: str, says: str) -> None:
    with pytest.raises(ColumnMisfit, match=says):
        rows.transform(Merge(spark.createDataFrame([], schema)))


def test_a_merge_of_nothing_is_refused() -> None:
    with pytest.raises(ArgumentInvalid, match="at least one stream"):
        Merge()
    with pytest.raises(ArgumentInvalid, match="missing"):
        Merge(None, missing="never")  # type: ignore[arg-type]
