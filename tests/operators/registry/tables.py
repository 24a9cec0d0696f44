"""Tables that change: joins, aggregates and rankings of them, alone and one behind the other; streams that part and meet."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headwater import EventTime
from headwater.operators import AggregateTable, Branch, Merge, TableJoin, TopN, Tumbling, agg
from tests.operators import test_table_join
from tests.operators.batches import final_table
from tests.operators.registry.entry import SECOND, Entry, Rows, cut, flat
from tests.operators.table_changes import Change, rows_of
from tests.operators.test_table_join import CUSTOMERS, ORDERS, final

by_sql = test_table_join.by_sql
Changes = list[list[Change]]


def changes(seed: int, count: int, make: Callable[[random.Random], Change]) -> Changes:
    chance = random.Random(seed)
    return cut([make(chance) for _ in range(count)], 4)


def topic(schema: Mapping[str, str]) -> dict[str, Any]:
    return {"schema": schema, "key": next(iter(schema)), "compact": True}


def rows(batch: Sequence[Change], names: Sequence[str]) -> Rows:
    """Changes as rows of a topic: a deletion is a tombstone."""
    return [
        {names[0]: key[0], "_tombstone": True} if rest is None else dict(zip(names, (*key, *rest), strict=True))
        for key, rest in batch
    ]


def table_by(*key: str) -> Callable[[Rows], Any]:
    """What stands in the end, of a changelog with this key."""
    return lambda found: rows_of(final_table(found, key))


# -- joins ---------------------------------------------------------------------------------------------------------------


def order(chance: random.Random) -> Change:
    rest = (chance.choice(["a", "b", "c", None]), chance.randint(0, 2))
    return ((chance.randint(1, 6),), rest if chance.random() < 0.7 else None)


def customer(chance: random.Random) -> Change:
    return ((chance.choice("abcd"),), (chance.choice(["x", "y", None]),) if chance.random() < 0.7 else None)


MINE, THEIRS, CUSTOMER = changes(5, 32, order), changes(6, 32, order), changes(7, 20, customer)
ORDERS_TOPIC = topic({"id": "int64", "customer": "string", "amount": "int64"})
CUSTOMERS_TOPIC = topic({"id": "string", "name": "string"})
FOREIGN = (
    """SELECT o.id, coalesce(o.customer, c.id), amount, name FROM orders o FULL JOIN customers c ON o.customer = c.id"""
)
SAME_KEY = """SELECT coalesce(o.id, r.id), o.customer, o.amount, r.customer, r.amount FROM orders o FULL JOIN others r
    ON o.id = r.id"""

FOREIGN_KEY_JOIN = Entry(
    name="table_join",
    operators=("TableJoin",),
    topics={"orders": ORDERS_TOPIC, "customers": CUSTOMERS_TOPIC},
    batches=[
        {"orders": rows(one, ORDERS.names), "customers": rows(other, CUSTOMERS.names)}
        for one, other in zip(MINE, CUSTOMER, strict=True)
    ],
    build=lambda left, right: left.transform(TableJoin(right, on=("customer", "id"), key="id", how="outer")),
    seen=table_by("id", "customer"),
    wanted=lambda: by_sql(FOREIGN, orders=final(MINE, ORDERS), customers=final(CUSTOMER, CUSTOMERS)),
    options={"metadata": "all"},
)
SAME_KEY_JOIN = Entry(
    name="join_tables_of_one_key",
    operators=("TableJoin",),
    topics={"orders": ORDERS_TOPIC, "others": ORDERS_TOPIC},
    batches=[
        {"orders": rows(one, ORDERS.names), "others": rows(other, ORDERS.names)}
        for one, other in zip(MINE, THEIRS, strict=True)
    ],
    build=lambda left, right: left.transform(
        TableJoin(right, on="id", how="outer", suffix="_right", emit="every_change")
    ),
    seen=table_by("id"),
    wanted=lambda: by_sql(SAME_KEY, orders=final(MINE, ORDERS), others=final(THEIRS, ORDERS)),
    options={"metadata": "all"},
)

# -- the favourite page of each age: users grow older, visits are deleted, and everything behind follows --------------------

VISITS = pa.schema([("id", pa.int64()), ("user", pa.string()), ("page", pa.string())])
USERS = pa.schema([("user", pa.string()), ("age", pa.int64())])


def visit(chance: random.Random) -> Change:
    return ((chance.randint(1, 12),), (chance.choice("uvw"), chance.choice("xyz")) if chance.random() < 0.8 else None)


def user(chance: random.Random) -> Change:
    return ((chance.choice("uvw"),), (chance.randint(1, 2),) if chance.random() < 0.8 else None)


VISITED, GROWN = changes(8, 40, visit), changes(9, 14, user)
FAVOURITES = """SELECT age, page, count(*) AS visits, 1 AS place FROM visits JOIN users USING (user) GROUP BY age, page
    QUALIFY row_number() OVER (PARTITION BY age ORDER BY count(*) DESC, page) = 1"""


def favourites(visits: DataFrame, users: DataFrame) -> DataFrame:
    return (
        visits.transform(TableJoin(users, on="user", key="id"))
        .transform(AggregateTable(by=("age", "page"), compute={"visits": agg.count()}))
        .transform(TopN(n=1, by="age", order=[("visits", "desc")], key=("age", "page")))
    )


FAVOURITE_PAGES = Entry(
    name="join_aggregate_and_rank_tables",
    operators=("TableJoin", "AggregateTable", "TopN"),
    topics={
        "visits": topic({"id": "int64", "user": "string", "page": "string"}),
        "users": topic({"user": "string", "age": "int64"}),
    },
    batches=[
        {"visits": rows(one, VISITS.names), "users": rows(other, USERS.names)}
        for one, other in zip(VISITED, GROWN, strict=True)
    ],
    build=favourites,
    seen=table_by("age", "rank"),
    wanted=lambda: by_sql(FAVOURITES, visits=final(VISITED, VISITS), users=final(GROWN, USERS)),
    options={"metadata": "all"},
)

# -- trades: a window's result that is corrected is retracted from the ranking, and the aggregate behind follows -------------

TRADES: dict[str, Any] = {"schema": {"symbol": "string", "volume": "int64", "at": "timestamp"}, "key": "symbol"}
TRADE = pa.schema([("symbol", pa.string()), ("volume", pa.int64()), ("at", pa.int64())])
RANKED = """WITH windows AS (SELECT symbol, trades.at // 20000000 w, sum(volume) v FROM trades GROUP BY ALL),
    ranked AS (SELECT symbol, row_number() OVER (PARTITION BY w ORDER BY v DESC, symbol) place FROM windows
               QUALIFY place <= 2)
    SELECT symbol, count(*), min(place) FROM ranked GROUP BY symbol"""
FIRST = """SELECT symbol, total, row_number() OVER (ORDER BY total DESC, symbol) AS place
    FROM (SELECT symbol, sum(volume)::BIGINT total FROM trades GROUP BY symbol) QUALIFY place <= 3"""


def some_trades() -> list[Rows]:
    chance = random.Random(10)
    made = [(chance.choice("abcdefgh"), chance.randint(-5, 9), chance.randint(0, 59)) for _ in range(60)]
    return cut([{"symbol": symbol, "volume": volume, "at": at * SECOND} for symbol, volume, at in made], 4)


TRADED = some_trades()


def trades_by_sql(query: str) -> list[tuple[Any, ...]]:
    return by_sql(query, trades=pa.Table.from_pylist(flat(TRADED), TRADE))


def ranked_windows(trades: DataFrame) -> DataFrame:
    volumes = {"volume": agg.sum("volume")}
    windows = trades.transform(
        Tumbling(size=20, time=EventTime("at", delay=60, future_max=None), by="symbol", compute=volumes, emit="changes")
    ).drop("window_end")
    best = windows.transform(TopN(n=2, by="window_start", order=[("volume", "desc")], key=("window_start", "symbol")))
    return best.transform(AggregateTable(by="symbol", compute={"times": agg.count(), "best": agg.min("rank")}))


def first_of_all(trades: DataFrame) -> DataFrame:
    """Totals per symbol in many partitions, and of those the first three in a single one, with every change."""
    totals = trades.transform(AggregateTable(by="symbol", compute={"total": agg.sum("volume")}, emit="every_change"))
    return totals.transform(TopN(n=3, order=[("total", "desc")], key="symbol", emit="every_change"))


TRADES_COMMON: dict[str, Any] = {"topics": {"trades": TRADES}, "batches": [{"trades": batch} for batch in TRADED]}
RANKED_WINDOWS = Entry(
    name="rank_windows_and_aggregate_the_ranking",
    operators=("Tumbling", "TopN", "AggregateTable"),
    build=ranked_windows,
    seen=table_by("symbol"),
    wanted=lambda: trades_by_sql(RANKED),
    **TRADES_COMMON,
)
FIRST_OF_ALL = Entry(
    name="top_n_of_all",
    operators=("AggregateTable", "TopN"),
    build=first_of_all,
    seen=table_by("rank"),
    wanted=lambda: trades_by_sql(FIRST),
    **TRADES_COMMON,
)

# -- two topics with the same places, merged, split, changed, and merged again ----------------------------------------------

PLAIN = {"schema": {"id": "int64", "amount": "int64"}}
SPENT = [[{"id": 10 * number + each, "amount": each} for each in range(10)] for number in range(3)]


def parted(web: DataFrame, shops: DataFrame) -> DataFrame:
    branches = Branch(cases={"large": "amount > 5"}, other="small")(web.transform(Merge(shops, source="stream")))
    both = branches["large"].transform(Merge(branches["small"].withColumn("amount", -F.col("amount"))))
    return both.transform(AggregateTable(by="stream", compute={"n": agg.count(), "total": agg.sum("amount")}))


BRANCH_AND_MERGE = Entry(
    name="branch_and_merge",
    operators=("Branch", "Merge", "AggregateTable"),
    topics={"web": PLAIN, "shops": PLAIN},
    batches=[{"web": batch, "shops": batch[:5]} for batch in SPENT],
    build=parted,
    seen=table_by("stream"),
    wanted=lambda: [(0, 30, 3 * (sum(range(6, 10)) - sum(range(6)))), (1, 15, -3 * sum(range(5)))],
)

ENTRIES = (FOREIGN_KEY_JOIN, SAME_KEY_JOIN, FAVOURITE_PAGES, RANKED_WINDOWS, FIRST_OF_ALL, BRANCH_AND_MERGE)
