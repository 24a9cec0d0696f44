"""Conditions on rows mean what they mean in SQL: SQLite is the oracle."""

from __future__ import annotations

import sqlite3
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture.condition import Condition
from headwater.errors import ArgumentInvalid

NUMBERS = st.integers(-3, 3)
TEXTS = st.sampled_from(["", "a", "ab", "b'c", "A"])
SIGNS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


COMPARISONS = st.one_of(
    st.tuples(SIGNS, NUMBERS).map(lambda pair: f"n {pair[0]} {pair[1]}"),
    st.tuples(SIGNS, TEXTS).map(lambda pair: f"t {pair[0]} {quoted(pair[1])}"),
    st.tuples(SIGNS, st.sampled_from(["0.5", "-1.25"])).map(lambda pair: f"n {pair[0]} {pair[1]}"),
    st.lists(NUMBERS, min_size=1, max_size=3).map(lambda some: f"n IN ({', '.join(map(str, some))})"),
    st.lists(TEXTS, min_size=1, max_size=3).map(lambda some: f"t NOT IN ({', '.join(map(quoted, some))})"),
    st.tuples(NUMBERS, NUMBERS).map(lambda pair: f"n BETWEEN {pair[0]} AND {pair[1]}"),
    st.sampled_from(["n IS NULL", "t IS NOT NULL", '"t" IS NULL', "n NOT BETWEEN 0 AND 1", "t LIKE 'a%'"]),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda one: f"({one[0]} {one[1]} {one[2]})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(" ".join),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=6,
)
ROWS = st.lists(st.tuples(st.none() | NUMBERS, st.none() | TEXTS), max_size=8)


@given(text=CONDITIONS, rows=ROWS)
def test_a_condition_chooses_the_rows_that_sql_chooses(text: str, rows: list[tuple[Any, Any]]) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    database.execute("CREATE TABLE rows_ (place INTEGER, n INTEGER, t TEXT)")
    database.executemany("INSERT INTO rows_ VALUES (?, ?, ?)", [(place, *row) for place, row in enumerate(rows)])
    wanted = [place for (place,) in database.execute(f"SELECT place FROM rows_ WHERE {text} ORDER BY place")]
    database.close()
    batch = pa.RecordBatch.from_arrays(
        [pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows], pa.string())], ["n", "t"]
    )
    matches = Condition(text).matches(batch).to_pylist()
    assert [place for place, matched in enumerate(matches) if matched] == wanted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the name of a column at the end"),
        ("status", "a comparison at the end"),
        ("status = draft", "a value before 'draft'"),
        ("status IN ('a'", "')' at the end"),
        ("a = 1 b = 2", "AND or OR before 'b'"),
        ("a = 1; DROP TABLE a", "instead of '; DROP"),
    ],
)
def test_a_condition_that_cannot_be_read_says_where(text: str, expected: str) -> None:
    with pytest.raises(ArgumentInvalid) as refused:
        Condition(text)
    assert expected in str(refused.value)


def test_columns_of_all_types_are_compared_in_their_type() -> None:
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["1.50", "20.25"]).cast(pa.decimal128(10, 2)),
            pa.array(["2024-01-01 00:00:00", "2025-06-01 12:00:00"]).cast(pa.timestamp("us")),
            pa.array([True, False]),
        ],
        ["price", "at", "paid"],
    )
    for text in ("price < 2", "price = 1.5", "at < '2025-01-01 00:00:00'", "paid = TRUE", "paid <> 0"):
        assert Condition(text).matches(rows).to_pylist() == [True, False], text
