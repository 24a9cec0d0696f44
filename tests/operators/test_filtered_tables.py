"""Tables of which some rows and columns are chosen: what every operator makes of them is what SQL gives for the last rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater.errors import ArgumentInvalid, NotPossible
from headwater.log.topic import Topic
from headwater.operators import AggregateTable, Enrich, TableJoin, TopN, agg
from headwater.spark.changelog import applied as upserts
from headwater.views.changelog import collapsed
from headwater.views.spec import ViewSpec
from tests.laws import costly
from tests.operators import table_changes, test_aggregate_table, test_enrich, test_table_join, test_top_n
from tests.operators.batches import bounded, final_table, streamed, table_of
from tests.operators.stream_runs import Stream
from tests.operators.table_changes import rows_of, table_after, topic
from tests.operators.test_table_join import CUSTOMERS, ORDERS, Batches

AUCTIONS = {"id": "int64", "category": "int64", "seller": "string", "price": "string"}
PERSONS = {"person": "string", "state": "string"}
TOPICS: dict[str, dict[str, Any]] = {
    "auctions": {"schema": AUCTIONS, "key": "id"},
    "persons": {"schema": PERSONS, "key": "person", "compact": True},
}
Rows = list[dict[str, Any]]


def changes(seed: int, count: int) -> tuple[Rows, Rows]:
    """Updates that move rows into and out of every condition below, and deletions; a price of category 12 is no number."""
    chance = random.Random(seed)
    auctions: Rows = []
    for _ in range(count):
        category = chance.choice([10, 11, 12])
        price = "none" if category == 12 else str(chance.randint(1, 9))
        values = {"category": category, "seller": chance.choice("abc"), "price": price}
        auctions.append({"id": chance.randint(1, 8), **(values if chance.random() < 0.8 else {"_tombstone": True})})
    persons: Rows = [
        {
            "person": chance.choice("abc"),
            **({"state": chance.choice(["OR", "CA"])} if chance.random() < 0.8 else {"_tombstone": True}),
        }
        for _ in range(count // 2)
    ]
    return auctions, persons


def last_rows(rows: Rows, key: str) -> list[dict[str, Any]]:
    found = {row[key]: row for row in rows}
    return [row for row in found.values() if not row.get("_tombstone")]


def by_sql(query: str, auctions: Rows, persons: Rows) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("create table auctions (id bigint, category bigint, seller varchar, price varchar)")
        connection.execute("create table persons (person varchar, state varchar)")
        for table, key, rows in (("auctions", "id", auctions), ("persons", "person", persons)):
            for row in last_rows(rows, key):
                connection.execute(f"insert into {table} values ({', '.join('?' * len(row))})", list(row.values()))
        return sorted(connection.execute(query).fetchall(), key=repr)


def priced(auctions: DataFrame) -> DataFrame:
    """A cast that fails on rows which the filter in front of it drops; places and tombstones are not chosen."""
    return (
        auctions.where("category <> 12")
        .select("id", "seller", F.col("price").cast("int").alias("price"))
        .where("price > 2")
        .withColumnRenamed("id", "auction")
    )


def joined(auctions: DataFrame, persons: DataFrame) -> DataFrame:
    local = persons.where("state = 'OR'").select("person")
    return priced(auctions).transform(TableJoin(local, on=("seller", "person"), key="auction"))


def totals(auctions: DataFrame, persons: DataFrame) -> DataFrame:  # noqa: ARG001
    compute = {"n": agg.count(), "total": agg.sum("price"), "highest": agg.max("price")}
    return priced(auctions).transform(AggregateTable(by="seller", key="auction", compute=compute))


def ranked(auctions: DataFrame, persons: DataFrame) -> DataFrame:  # noqa: ARG001
    return priced(auctions).transform(TopN(n=2, by="seller", key="auction", order=[("price", "desc")]))


PRICED = "select id as auction, seller, price::int as price from auctions where category <> 12 and try_cast(price as int) > 2"
JOINED = f"select auction, seller, price from ({PRICED}) join persons on seller = person where state = 'OR'"
TOTALS = f"select seller, count(*), sum(price), max(price) from ({PRICED}) group by seller"
RANKED = f"select auction, seller, price, row_number() over (partition by seller order by price desc, auction) as r from ({PRICED}) qualify r <= 2"
CASES = {
    "join": (joined, JOINED, ["auction"]),
    "totals": (totals, TOTALS, ["seller"]),
    "top": (ranked, RANKED, ["seller", "rank"]),
}


def seen(rows: Rows, key: list[str]) -> list[tuple[Any, ...]]:
    table = final_table(rows, key)
    return sorted((tuple(value for name, value in row.items() if name[0] != "_") for row in table.values()), key=repr)


def test_a_join_follows_rows_that_leave_a_condition(spark: SparkSession, tmp_path: Path) -> None:
    auctions, persons = changes(7, 60)
    stream = Stream(spark, tmp_path, joined, TOPICS)
    for start in (0, 20, 40):
        stream.run({"auctions": auctions[start : start + 20], "persons": persons[start // 2 : start // 2 + 10]})
        assert seen(stream.rows(), ["auction"]) == by_sql(JOINED, auctions[: start + 20], persons[: start // 2 + 10])


def test_bounded_tables_are_filtered_by_their_last_rows_and_what_cannot_be_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    auctions, persons = changes(8, 60)
    with hw.open(tmp_path) as log:
        for name, settings in TOPICS.items():
            log.create(name, partitions=3, **settings)
        log.append("auctions", auctions)
        log.append("persons", persons)
    reader = spark.read.format("headwater").option("log", str(tmp_path))
    frames = reader.load("auctions"), reader.load("persons")
    for build, query, key in CASES.values():
        assert seen([row.asDict() for row in build(*frames).collect()], key) == by_sql(query, auctions, persons)

    local = frames[1].where("state = 'OR'")
    bids = spark.createDataFrame([(name,) for name in "abcd"], "seller string")
    found = bids.transform(Enrich(local, on={"seller": "person"}, how="inner")).collect()
    assert sorted(map(tuple, found)) == by_sql(
        "select person, state from persons where state = 'OR'", auctions, persons
    )

    with pytest.raises(ArgumentInvalid, match="the key of topic 'persons', which is person"):
        frames[1].transform(AggregateTable(by="state", compute={"n": agg.count()}))
    with pytest.raises(ArgumentInvalid, match="the key of topic 'persons', which is person"):
        frames[1].select("state").transform(TopN(n=1, key="state", order="state"))
    with pytest.raises(NotPossible, match="rows are dropped before it"):
        sold = frames[0].join(spark.createDataFrame([(10,)], "category long"), "category")
        sold.transform(TopN(n=1, key="id", order="id"))


# -- laws, without Spark: a row that does not meet the condition deletes its key -----------------------------------------


def filtered(batches: list[pa.Table], meets: pc.Expression) -> list[pa.Table]:
    """What `TableRead.changes` makes of a filter."""
    found = []
    for batch in batches:
        holds = np.isin(np.arange(batch.num_rows), _numbered(batch).filter(meets).column("row"))
        ops = np.where(holds, batch.column("_op").to_pylist(), "-D").tolist()
        found.append(batch.set_column(batch.column_names.index("_op"), "_op", pa.array(ops, pa.string())))
    return found


def _numbered(batch: pa.Table) -> pa.Table:
    return batch.append_column("row", pa.array(np.arange(batch.num_rows)))


@costly(4)
@given(
    orders=test_table_join.order_changes(),
    customers=test_table_join.customer_changes(),
    how=test_table_join.HOWS,
    emit=test_table_join.EMITS,
    amount=st.integers(0, 2),
    name=st.sampled_from("xy"),
)
def test_a_join_of_filtered_tables_is_that_of_sql(
    orders: Batches, customers: Batches, how: Any, emit: Any, amount: int, name: str
) -> None:
    outputs = table_changes.joined(
        test_table_join.orders_plan(how, emit),
        filtered(topic(orders, ORDERS, keys=1), pc.field("amount") >= amount),
        filtered(topic(customers, CUSTOMERS, keys=1), pc.field("name") == name),
    )
    found = rows_of(table_of(outputs, ["id"] if how in ("inner", "left") else ["id", "customer"]))
    kept = "coalesce(o.customer, c.id)" if how in ("right", "outer") else "o.customer"
    wanted = test_table_join.by_sql(
        f"SELECT o.id, {kept}, o.amount, c.name FROM (FROM orders WHERE amount >= {amount}) o "
        f"{test_table_join.SQL[how]} JOIN (FROM customers WHERE name = '{name}') c ON o.customer = c.id",
        orders=test_table_join.final(orders, ORDERS),
        customers=test_table_join.final(customers, CUSTOMERS),
    )
    assert found == wanted


@costly(3)
@given(batches=test_top_n.games(), n=st.integers(1, 3), emit=test_table_join.EMITS, score=st.integers(0, 4))
def test_a_ranking_of_a_filtered_table_is_that_of_sql(batches: Batches, n: int, emit: Any, score: int) -> None:
    operator = TopN(n=n, by="team", order=test_top_n.ORDER, key="player", emit=emit)
    rows = filtered(topic(batches, test_top_n.GAMES, keys=1), pc.field("score") <= score)
    last = table_after([change for batch in batches for change in batch])
    kept: Batches = [[(key, rest) for key, rest in last.items() if rest[1] is not None and rest[1] <= score]]
    wanted = test_top_n.by_sql(kept, by="PARTITION BY team", n=n)
    assert rows_of(table_of(test_top_n.ranked(operator, rows), ["team", "rank"])) == wanted


@costly(3)
@given(batches=test_aggregate_table.sales(), emit=test_table_join.EMITS, amount=st.integers(-2, 2))
def test_aggregates_of_a_filtered_table_are_those_of_sql(batches: Batches, emit: Any, amount: int) -> None:
    compute = {"n": agg.count(), "total": agg.sum("amount"), "most": agg.max("amount")}
    operator = AggregateTable(by="shop", compute=compute, key="id", emit=emit)
    rows = filtered(topic(batches, test_aggregate_table.SALES, keys=1), pc.field("amount") >= amount)
    query = f"SELECT shop, count(*), sum(amount)::BIGINT, max(amount) FROM sales WHERE amount >= {amount} GROUP BY shop"
    found = rows_of(table_of(test_aggregate_table.aggregated(operator, rows), ["shop"]))
    assert found == test_aggregate_table.by_sql(batches, query)


@costly(2)
@given(
    batches=test_enrich.arrivals(sale_delay=9, rate_delay=5),
    how=st.sampled_from(["left", "inner"]),
    allowed_lateness=st.integers(5, 20),
    part=st.integers(2, 4),
    replay=st.integers(0, 5),
)
def test_enrichment_by_a_filtered_table_is_that_of_sql(
    batches: list[list[test_enrich.Row]], how: Any, allowed_lateness: int, part: int, replay: int
) -> None:
    """A version that leaves the condition ends the one before: it does not let an older one hold on."""
    rows = test_enrich.numbered(batches)
    facts = [test_enrich.table(batch) for batch in rows]
    rate = pc.field("rate")
    meets = (pc.field("_input") == 0) | (pc.field("land") == "end") | ((rate - rate / part * part) == 0)
    given_rows = filtered(facts, meets)
    operator = test_enrich.make(test_enrich.enrich(how=how, delay=9, allowed_lateness=allowed_lateness))
    outputs = streamed(operator, given_rows, partitions=2, replay=replay)
    wanted = test_enrich.as_of(test_enrich.flat(rows), how=how, meets=f"rate % {part} = 0")
    assert test_enrich.seen(outputs) == wanted
    assert test_enrich.seen([bounded(operator, pa.concat_tables(given_rows))[0]]) == wanted


@costly(2)
@given(
    batches=st.lists(st.lists(test_enrich.SALE | test_enrich.RATE, max_size=15), min_size=1, max_size=5),
    how=st.sampled_from(["left", "inner"]),
    part=st.integers(2, 4),
    replay=st.integers(0, 4),
)
def test_a_lookup_in_a_filtered_table_is_what_the_table_holds_by_the_batch(
    batches: list[list[test_enrich.Row]], how: Any, part: int, replay: int
) -> None:
    rows = test_enrich.numbered(batches, close=False)
    rate = pc.field("rate")
    meets = (pc.field("_input") == 0) | ((rate - rate / part * part) == 0)
    given_rows = filtered([test_enrich.table(batch) for batch in rows], meets)
    operator = test_enrich.make(test_enrich.enrich(as_of=None, valid_from=None, how=how))
    outputs = streamed(operator, given_rows, partitions=2, replay=replay)
    held: dict[str | None, int] = {}
    for batch, output in zip(rows, outputs, strict=True):
        for kind, land, _, op, number in batch:
            if kind == 1:
                held.pop(land, None)
                if op != "-D" and number % part == 0:
                    held[land] = number
        asked = [(land, number, held.get(land)) for kind, land, _, _, number in batch if kind == 0]
        wanted = [one for one in asked if how == "left" or one[2] is not None]
        assert test_enrich.seen([output]) == test_enrich.ordered(wanted)


@given(batches=test_table_join.order_changes(), amount=st.integers(0, 2))
def test_a_view_of_a_filtered_table_is_that_of_sql(batches: Batches, amount: int) -> None:
    spec = ViewSpec(name="large", topic="large", key=("id",), schema=ORDERS)
    table: dict[int, Any] = {}
    for batch in filtered(topic(batches, ORDERS, keys=1), pc.field("amount") >= amount):
        # Rows of a key are in one partition of the topic that is read, and stay in their order.
        rows = batch.drop_columns(["_partition", "_offset"]).combine_chunks().to_batches()
        written = [upserts(one, Topic(name="large", id="1", schema=ORDERS, key=("id",))) for one in rows]
        delta = collapsed([_with_tombstone(one) for one in written], spec)
        table = {key: row for key, row in table.items() if key not in delta.keys.column("id").to_pylist()}
        table |= {row["id"]: tuple(row.values()) for row in delta.rows.to_pylist()}
    wanted = test_table_join.by_sql(
        f"FROM orders WHERE amount >= {amount}", orders=test_table_join.final(batches, ORDERS)
    )
    assert sorted(table.values(), key=repr) == wanted


def _with_tombstone(rows: pa.RecordBatch) -> pa.RecordBatch:
    if "_tombstone" in rows.schema.names:
        return rows
    return rows.append_column("_tombstone", pa.array([False] * rows.num_rows))
