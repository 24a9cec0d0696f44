"""Several keyed operators in one query: what one says the next one follows, batch by batch, also when a batch is done again."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators import AggregateTable, JoinTables, TopN, Tumbling, agg
from tests.operators.batches import final_table
from tests.operators.changing import Change, cut, rows_of, table_after
from tests.operators.streaming import ONCE, Stream

TRADES: dict[str, Any] = {"schema": {"symbol": "string", "volume": "int64", "at": "timestamp"}, "key": "symbol"}
Trade = tuple[str, int, int]


@st.composite
def trades(draw: st.DrawFn) -> list[list[Trade]]:
    trade = st.tuples(st.sampled_from("abcdefgh"), st.integers(-5, 9), st.integers(0, 59))
    return cut(draw, draw(st.lists(trade, min_size=40, max_size=60)))


def as_rows(batch: list[Trade]) -> list[dict[str, Any]]:
    return [{"symbol": symbol, "volume": volume, "at": at * 1_000_000} for symbol, volume, at in batch]


def by_sql(batches: list[list[Trade]], query: str) -> list[tuple[Any, ...]]:
    rows = [row for batch in batches for row in as_rows(batch)]
    schema = pa.schema([("symbol", pa.string()), ("volume", pa.int64()), ("at", pa.int64())])
    with duckdb.connect() as connection:
        connection.register("trades", pa.Table.from_pylist(rows, schema))
        return sorted(connection.sql(query).fetchall(), key=repr)


@pytest.mark.parametrize("emit", ["net", "each"])
@ONCE
@given(batches=trades())
def test_per_key_first_and_then_the_first_of_all(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, emit: Any, batches: list[list[Trade]]
) -> None:
    """Totals per symbol in many partitions, and of those the first three in a single one."""

    def build(rows: DataFrame) -> DataFrame:
        totals = rows.transform(AggregateTable(by="symbol", compute={"total": agg.sum("volume")}, emit=emit))
        return totals.transform(TopN(n=3, order=[("total", "desc")], key="symbol", emit=emit))

    stream = Stream(spark, tmp_path_factory.mktemp("stocks"), build, {"trades": TRADES})
    for number, batch in enumerate(batches):
        stream.run({"trades": as_rows(batch)}, kill=number == 1)
    assert stream.kills == 1
    wanted = by_sql(
        batches,
        """SELECT symbol, total, row_number() OVER (ORDER BY total DESC, symbol) AS place
        FROM (SELECT symbol, sum(volume)::BIGINT total FROM trades GROUP BY symbol) QUALIFY place <= 3""",
    )
    assert rows_of(final_table(stream.rows(), ["rank"])) == wanted
    assert rows_of(final_table(stream.bounded(), ["rank"])) == wanted


@ONCE
@given(batches=trades())
def test_windows_that_are_corrected_are_ranked_again(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batches: list[list[Trade]]
) -> None:
    """A window's result that is withdrawn is withdrawn from the ranking, and aggregates of aggregates follow."""

    def build(rows: DataFrame) -> DataFrame:
        volumes = {"volume": agg.sum("volume")}
        windows = rows.transform(
            Tumbling(size=20, on="at", by="symbol", compute=volumes, late_by=60, emit="net", ahead=None)
        ).drop("window_end")
        best = windows.transform(
            TopN(n=2, by="window_start", order=[("volume", "desc")], key=("window_start", "symbol"))
        )
        return best.transform(AggregateTable(by="symbol", compute={"times": agg.count(), "best": agg.min("rank")}))

    stream = Stream(spark, tmp_path_factory.mktemp("windows"), build, {"trades": TRADES})
    for number, batch in enumerate(batches):
        stream.run({"trades": as_rows(batch)}, kill=number == 2)
    assert stream.kills == 1
    wanted = by_sql(
        batches,
        """WITH windows AS (SELECT symbol, trades.at // 20000000 w, sum(volume) v FROM trades GROUP BY ALL),
        ranked AS (SELECT symbol, row_number() OVER (PARTITION BY w ORDER BY v DESC, symbol) place FROM windows
                   QUALIFY place <= 2)
        SELECT symbol, count(*), min(place) FROM ranked GROUP BY symbol""",
    )
    assert rows_of(final_table(stream.rows(), ["symbol"])) == wanted


@st.composite
def visits(draw: st.DrawFn) -> list[list[Change]]:
    change = st.tuples(
        st.tuples(st.integers(1, 12)), st.none() | st.tuples(st.sampled_from("uvw"), st.sampled_from("xyz"))
    )
    return cut(draw, draw(st.lists(change, min_size=30, max_size=40)))


@st.composite
def users(draw: st.DrawFn) -> list[list[Change]]:
    change = st.tuples(st.tuples(st.sampled_from("uvw")), st.none() | st.tuples(st.integers(1, 2)))
    return cut(draw, draw(st.lists(change, min_size=10, max_size=15)))


@ONCE
@given(visits=visits(), users=users())
def test_a_join_an_aggregate_and_a_ranking_of_tables(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    visits: list[list[Change]],
    users: list[list[Change]],
) -> None:
    """The favourite page of each age: users grow older, visits are deleted, and everything behind follows."""
    topics: dict[str, dict[str, Any]] = {
        "visits": {"schema": {"id": "int64", "user": "string", "page": "string"}, "key": "id", "compact": True},
        "users": {"schema": {"user": "string", "age": "int64"}, "key": "user", "compact": True},
    }

    def build(visits: DataFrame, users: DataFrame) -> DataFrame:
        return (
            visits.transform(JoinTables(users, on="user", key="id"))
            .transform(AggregateTable(by=("age", "page"), compute={"visits": agg.count()}))
            .transform(TopN(n=1, by="age", order=[("visits", "desc")], key=("age", "page")))
        )

    def rows(batch: list[Change], names: list[str]) -> list[dict[str, Any]]:
        return [
            {names[0]: key[0], "_tombstone": True} if rest is None else dict(zip(names, (*key, *rest), strict=True))
            for key, rest in batch
        ]

    stream = Stream(spark, tmp_path_factory.mktemp("pages"), build, topics, metadata="all")
    for number, (mine, theirs) in enumerate(zip(visits, users, strict=True)):
        batch = {"visits": rows(mine, ["id", "user", "page"]), "users": rows(theirs, ["user", "age"])}
        stream.run(batch, kill=number == 1)
    assert stream.kills == 1
    last = [table_after([one for batch in each for one in batch]) for each in (visits, users)]
    with duckdb.connect() as connection:
        for name, table, names in (("visits", last[0], ["id", "user", "page"]), ("users", last[1], ["user", "age"])):
            columns = list(zip(*((*key, *rest) for key, rest in table.items()), strict=True)) or [()] * len(names)
            kinds = [pa.int64() if one in ("id", "age") else pa.string() for one in names]
            arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
            connection.register(name, pa.table(arrays, names=names))
        wanted = connection.sql(
            """SELECT age, page, count(*) AS visits, 1 AS place FROM visits JOIN users USING (user) GROUP BY age, page
            QUALIFY row_number() OVER (PARTITION BY age ORDER BY count(*) DESC, page) = 1"""
        ).fetchall()
    assert rows_of(final_table(stream.rows(), ["age", "rank"])) == sorted(wanted, key=repr)
    assert rows_of(final_table(stream.bounded(), ["age", "rank"])) == sorted(wanted, key=repr)


@pytest.mark.parametrize(
    ("operator", "error", "says"),
    [
        (AggregateTable(by="kind", compute={"n": agg.count()}, key="id"), ColumnUnknown, "no column 'kind'"),
        (AggregateTable(by="name", compute={"n": agg.sum("amont")}, key="id"), ColumnUnknown, "no column 'amont'"),
        (AggregateTable(by="name", compute={"n": agg.count()}, key="key"), ColumnUnknown, "no column 'key'"),
        (AggregateTable(by="name", compute={"n": agg.count()}), ArgumentInvalid, "the primary key of the table"),
        (AggregateTable(by="name", compute={"n": agg.last("id")}, on="at", key="id"), ColumnUnknown, "no column 'at'"),
        (TopN(n=1, order="id", key="key"), ColumnUnknown, "no column 'key'"),
        (TopN(n=1, order="id"), ArgumentInvalid, "the primary key of the rows"),
        (TopN(n=1, order="size", key="id"), ColumnUnknown, "no column 'size'"),
        (TopN(n=1, order="id", key="id", by="team"), ColumnUnknown, "no column 'team'"),
        (TopN(n=1, order="list", key="id"), ArgumentInvalid, "columns that have an order"),
    ],
)
def test_what_does_not_fit_the_table_is_refused_at_once(
    spark: SparkSession, operator: Any, error: type[Exception], says: str
) -> None:
    rows = spark.createDataFrame([], "id long, name string, list array<int>, _op string, _partition int, _offset long")
    with pytest.raises(error, match=says):
        operator(rows)
