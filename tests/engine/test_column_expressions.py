"""What a reader computes is what Spark computes: of all values at the edges of their types, of nulls and of NaN."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headwater.engine.analyzed_plan import analyzed_plan
from headwater.engine.column_expressions import (
    Expression,
    Selection,
    as_tuples,
    column,
    columns_in,
    evaluated,
    may_raise,
)
from headwater.engine.spark_expressions import listed, translated

WHOLE = [None, 0, 1, -1, 7, -7, 100, 2**31, -(2**40)]
REAL = [None, 0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf")]
TEXTS = [None, "", "a", "b", "ä", "A"]
TIMES = [None, datetime(2026, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, tzinfo=UTC)]
SCHEMA = pa.schema(
    [
        ("whole", pa.int64()),
        ("other", pa.int64()),
        ("small", pa.int32()),
        ("real", pa.float64()),
        ("more", pa.float64()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("yes", pa.bool_()),
        ("both", pa.struct([("first", pa.int64()), ("second", pa.string())])),
    ]
)
COMPUTED = [
    "whole + 1",
    "whole - other",
    "whole * 3",
    "-whole",
    "abs(whole)",
    "small + 1",
    "whole + small",
    "whole % 100",
    "pmod(whole, 100)",
    "small % 7",
    "whole DIV 8",
    "unix_micros(at)",
    "unix_micros(at) DIV 10000000",
    "real + 1",
    "real * 0.908D",
    "real - more",
    "-real",
    "whole / 4",
    "real / 4",
    "whole = other",
    "whole <> other",
    "whole < other",
    "whole >= small",
    "real = more",
    "real < more",
    "real <= more",
    "real > more",
    "real >= more",
    "real <=> more",
    "whole <=> other",
    "text = 'a'",
    "text < 'b'",
    "text >= 'a'",
    "at > TIMESTAMP '2000-01-01'",
    "day = DATE '2026-01-01'",
    "yes AND whole > 0",
    "yes OR whole > 0",
    "NOT yes",
    "whole IS NULL",
    "text IS NOT NULL",
    "whole IN (1, 7, -7)",
    "text IN ('a', 'ä')",
    "CASE WHEN whole > 0 THEN 1 WHEN whole < 0 THEN -1 END",
    "CASE WHEN whole % 2 = 0 THEN text ELSE 'odd' END",
    "if(whole > 1, real, more)",
    "coalesce(whole, other, 0)",
    "CAST(small AS BIGINT)",
    "CAST(whole AS DOUBLE)",
    "CAST(whole AS STRING)",
    "both.first",
    "both.second",
    "struct(whole, text)",
    "named_struct('a', real, 'b', whole + 1)",
    "concat(text, '-', text)",
    "xxhash64(whole, small, text)",
    "CAST(NULL AS BIGINT)",
    "CASE WHEN whole BETWEEN 1 AND 50 THEN whole END",
    "nvl(whole, 0)",
]
#: Of these the reader would not know what Spark makes of them.
SPARKS_OWN = [
    "whole % 0",
    "whole % other",
    "whole / other",
    "CAST(text AS BIGINT)",
    "CAST(real AS BIGINT)",
    "hour(at)",
    "upper(text)",
    "rand()",
    "whole > 0 AND whole + 1 > 0",
    "coalesce(whole, other + 1)",
    "whole IN (1, other)",
    "text LIKE 'a%'",
    "whole * 0.5",
    "try_add(whole, 1)",
]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """All pairs of whole numbers and of real ones, and beside them the other values in turn."""
    pairs = list(itertools.product(WHOLE, REAL))
    body = []
    for number, (whole, real) in enumerate(pairs):
        small = None if whole is None else whole % 1_000
        other, more = WHOLE[(number * 5) % len(WHOLE)], REAL[(number // 2) % len(REAL)]
        text = TEXTS[number % len(TEXTS)]
        both = None if number % 4 == 0 else {"first": whole, "second": text}
        day = None if number % 3 == 0 else date(2026, 1, 1 + number % 2)
        yes = [None, True, False][number % 3]
        body.append(
            {"whole": whole, "other": other, "small": small, "real": real, "more": more, "text": text}
            | {"at": TIMES[number % len(TIMES)], "day": day, "yes": yes, "both": both}
        )
    return pa.Table.from_pylist(body, SCHEMA)


def in_reader(spark: SparkSession, expressions: list[str]) -> list[Expression | None]:
    """The expressions as a reader gets them."""
    frame = spark.createDataFrame([], from_arrow_schema(SCHEMA))
    plan = analyzed_plan(frame.selectExpr(*(f"{one} AS c{number}" for number, one in enumerate(expressions))))
    columns = {one.exprId().id(): column(str(one.name())) for one in listed(plan.child().output())}
    return [translated(one, columns) for one in listed(plan.projectList())]


def test_what_a_reader_computes_is_what_spark_computes(spark: SparkSession, rows: pa.Table) -> None:
    frame = spark.createDataFrame(rows, from_arrow_schema(SCHEMA))
    expected = frame.selectExpr(*(f"{one} AS c{number}" for number, one in enumerate(COMPUTED))).toArrow()
    found = in_reader(spark, COMPUTED)
    assert [text for text, one in zip(COMPUTED, found, strict=True) if one is None] == []
    made = {f"c{number}": one for number, one in enumerate(found) if one is not None}
    ours = Selection.of(SCHEMA, (), made, expected.schema)(rows)
    for number, text in enumerate(COMPUTED):
        assert repr(ours.column(number).to_pylist()) == repr(expected.column(number).to_pylist()), text


def test_what_only_spark_computes_stays_with_spark(spark: SparkSession) -> None:
    assert in_reader(spark, SPARKS_OWN) == [None] * len(SPARKS_OWN)


def test_a_number_that_does_not_fit_is_an_error_as_in_spark(spark: SparkSession) -> None:
    (expression,) = in_reader(spark, ["whole + 1"])
    assert expression is not None
    assert may_raise(expression)
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        evaluated(expression, pa.table({"whole": [2**63 - 1]}))


def test_rows_that_an_earlier_condition_leaves_out_are_asked_no_more() -> None:
    schema = pa.schema([("whole", pa.int64())])
    conditions: tuple[Expression, ...] = (
        ("less", column("whole"), ("literal", 10, "bigint")),
        ("less", ("add_checked", column("whole"), ("literal", 1, "bigint")), ("literal", 5, "bigint")),
    )
    selection = Selection.of(schema, conditions, {"whole": column("whole")}, schema)
    rows = pa.table({"whole": [2**63 - 1, 1, None, 7]}, schema=schema)
    assert selection(rows).to_pydict() == {"whole": [1]}
    assert Selection.of_json(selection.to_json()) == selection


def test_literals_are_no_columns() -> None:
    found = as_tuples(["struct", ["column", "b"], [["is_in", ["column", "a"], ["column", "x"], "string"]]])
    assert columns_in(found) == ["a"]
