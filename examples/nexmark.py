"""Nexmark: the 23 queries of the public benchmark, on people, auctions and bids of an auction site.

headwater run examples/nexmark.py
headwater sql "select * from q4 order by category"

`headwater.testing.Nexmark` makes the events: `Nexmark(seed=1).append(log, count=1_000_000)`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater.operators import AggregateTable, Hopping, IntervalJoin, Join, Session, TopN, Tumbling, agg
from headwater.sinks import ParquetSink
from headwater.testing.nexmark import SCHEMAS

app = hw.App("nexmark", log="./data")
for topic, schema in SCHEMAS.items():
    app.input(topic, dict(schema), time="at")


@app.topic
def q0(bid: DataFrame) -> DataFrame:
    """Pass through: what reading and writing cost."""
    return bid.select("auction", "bidder", "price", "at", "extra")


@app.topic
def q1(bid: DataFrame) -> DataFrame:
    """Currency conversion: prices in euros."""
    return bid.selectExpr("auction", "bidder", "price * 0.908D AS price", "at", "extra")


@app.topic
def q2(bid: DataFrame) -> DataFrame:
    """Selection: the bids on some auctions."""
    return bid.where("auction % 123 = 0").select("auction", "price")


@app.topic
def q3(auction: DataFrame, person: DataFrame) -> DataFrame:
    """Local item suggestion: who sells in category 10 in Oregon, Idaho or California."""
    local = person.where("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    items = auction.where("category = 10").selectExpr("id AS auction", "seller")
    return items.transform(Join(local, on={"seller": "id"}, expire="never")).drop("seller")


def bids_in_time(auction: DataFrame, bid: DataFrame) -> DataFrame:
    """Each auction with the bids that came while it was open."""
    return auction.transform(
        IntervalJoin(bid, on={"id": "auction"}, after=F.col("expires") - F.col("at"), suffix="_bid")
    )


@app.view(key="category")
def q4(auction: DataFrame, bid: DataFrame) -> DataFrame:
    """Average price for a category: the mean of the highest bids of its auctions."""
    highest = AggregateTable(by=("id", "category"), compute={"price": agg.max("price")})
    return bids_in_time(auction, bid).transform(highest).transform(
        AggregateTable(by="category", compute={"price": agg.mean("price")})
    )  # fmt: skip


@app.view(key=("window_start", "auction"))
def q5(bid: DataFrame) -> DataFrame:
    """Hot items: the auctions with the most bids of the last ten seconds, every two seconds."""
    counts = Hopping(size="10 seconds", every="2 seconds", by="auction", compute={"bids": agg.count()})
    return bid.transform(counts).transform(
        TopN(n=1, by="window_start", order=[("bids", "desc")], key=("window_start", "auction"), ties="rank")
    )


@app.view(key="seller")
def q6(auction: DataFrame, bid: DataFrame) -> DataFrame:
    """Average selling price by seller: of the last ten auctions of each, by the time of their end."""
    highest = AggregateTable(by=("seller", "id", "expires"), compute={"price": agg.max("price")})
    last_ten = TopN(n=10, by="seller", order=[("expires", "desc")], key=("seller", "id"))
    return bids_in_time(auction, bid).transform(highest).transform(last_ten).transform(
        AggregateTable(by="seller", compute={"price": agg.mean("price")})
    )  # fmt: skip


@app.topic
def q7(bid: DataFrame) -> DataFrame:
    """Highest bid: of every ten seconds, the bids with the highest price."""
    highest = bid.transform(Tumbling(size="10 seconds", compute={"price": agg.max("price")}))
    met = bid.transform(IntervalJoin(highest, on="price", before="10 seconds")).where("at < window_end")
    return met.select("auction", "bidder", "price", "at")


@app.topic
def q8(person: DataFrame, auction: DataFrame) -> DataFrame:
    """Monitor new users: who registered and opened an auction in the same ten seconds."""
    sellers = auction.transform(Tumbling(size="10 seconds", by="seller", compute={"auctions": agg.count()}))
    met = person.transform(IntervalJoin(sellers, on={"id": "seller"}, before="10 seconds")).where("at < window_end")
    return met.select("id", "name", "window_start")


@app.view(key="id")
def q9(auction: DataFrame, bid: DataFrame) -> DataFrame:
    """Winning bids: of each auction the highest bid, and of equal ones the earliest."""
    return bids_in_time(auction, bid).transform(TopN(n=1, by="id", order=[("price", "desc"), ("at_bid", "asc")]))


@app.sink(ParquetSink(path="./bids"))
def q10(bid: DataFrame) -> DataFrame:
    """Log to a file system: all bids as Parquet files, with their day and minute."""
    return bid.select(
        "auction", "bidder", "price", "at", "extra", F.date_format("at", "yyyy-MM-dd").alias("day"),
        F.date_format("at", "HH:mm").alias("minute"),
    )  # fmt: skip


@app.topic
def q11(bid: DataFrame) -> DataFrame:
    """User sessions: how many bids a user makes before a pause of ten seconds."""
    return bid.transform(Session(gap="10 seconds", by="bidder", compute={"bids": agg.count()}))


@app.view(key=("window_start", "bidder"))
def q12(bid: DataFrame) -> DataFrame:
    """Processing time windows: how many bids of a user are processed in every ten seconds of the clock."""
    return bid.transform(
        Tumbling(size="10 seconds", by="bidder", compute={"bids": agg.count()}, clock="processing", emit="changes")
    )


def side_input(spark: SparkSession) -> DataFrame:
    """A table that does not change."""
    return spark.range(10_000).selectExpr("id AS number", "concat('value-', id) AS value")


@app.topic
def q13(bid: DataFrame) -> DataFrame:
    """Bounded side input join: bids with a value of a table that does not change."""
    side = side_input(bid.sparkSession)
    return bid.join(side, F.col("auction") % 10_000 == side.number).select("auction", "bidder", "price", "at", "value")


@app.topic
def q14(bid: DataFrame) -> DataFrame:
    """Calculation: prices in euros, the time of the day, and how often a letter comes."""
    return bid.selectExpr(
        "auction",
        "bidder",
        "price * 0.908D AS price",
        "CASE WHEN hour(at) BETWEEN 8 AND 18 THEN 'day' WHEN hour(at) <= 6 OR hour(at) >= 20 THEN 'night' ELSE 'other' END"
        " AS time_of_day",
        "at",
        "extra",
        "length(extra) - length(replace(extra, 'c', '')) AS letters_c",
    ).where("price > 1000000 AND price < 50000000")


#: Bids below 10,000, from there to below 1,000,000, and from there on.
PRICES = {"low": "price < 10000", "middle": "price >= 10000 AND price < 1000000", "high": "price >= 1000000"}


def statistics() -> dict[str, agg.Aggregate]:
    """How many bids, bidders and auctions there are, in all and by price."""
    found = {"bids": agg.count(), "bidders": agg.count_distinct("bidder"), "auctions": agg.count_distinct("auction")}
    for name, condition in PRICES.items():
        found[f"bids_{name}"] = agg.count(F.expr(f"CASE WHEN {condition} THEN 1 END"))
        found[f"bidders_{name}"] = agg.count_distinct(F.expr(f"CASE WHEN {condition} THEN bidder END"))
        found[f"auctions_{name}"] = agg.count_distinct(F.expr(f"CASE WHEN {condition} THEN auction END"))
    return found


@app.view(key="window_start")
def q15(bid: DataFrame) -> DataFrame:
    """Bidding statistics of each day, as they grow."""
    return bid.transform(Tumbling(size="1 day", compute=statistics(), emit="changes"))


@app.view(key=("window_start", "channel"))
def q16(bid: DataFrame) -> DataFrame:
    """Channel statistics of each day, with the minute of the last bid."""
    minute = agg.max(F.date_format("at", "HH:mm"))
    return bid.transform(
        Tumbling(size="1 day", by="channel", compute={"minute": minute, **statistics()}, emit="changes")
    )


@app.view(key=("window_start", "auction"))
def q17(bid: DataFrame) -> DataFrame:
    """Auction statistics of each day: how many bids by price, and what they offer."""
    by_price = {
        f"bids_{name}": agg.count(F.expr(f"CASE WHEN {condition} THEN 1 END")) for name, condition in PRICES.items()
    }
    offers = {"least": agg.min("price"), "most": agg.max("price"), "mean": agg.mean("price"), "sum": agg.sum("price")}
    return bid.transform(
        Tumbling(size="1 day", by="auction", compute={"bids": agg.count(), **by_price, **offers}, emit="changes")
    )


@app.view(key=("bidder", "auction"))
def q18(bid: DataFrame) -> DataFrame:
    """Find the last bid of each user on each auction."""
    return bid.transform(TopN(n=1, by=("bidder", "auction"), order=[("at", "desc")]))


@app.view(key=("auction", "rank"))
def q19(bid: DataFrame) -> DataFrame:
    """Auction top ten: the ten highest bids of each."""
    return bid.transform(TopN(n=10, by="auction", order=[("price", "desc"), ("at", "asc")]))


@app.topic
def q20(bid: DataFrame, auction: DataFrame) -> DataFrame:
    """Expand a bid with its auction, in category 10."""
    items = auction.where("category = 10").drop("extra")
    return bid.transform(Join(items, on={"auction": "id"}, expire="never", suffix="_auction"))


@app.topic
def q21(bid: DataFrame) -> DataFrame:
    """Add a channel's number: that of its name, or that in the address."""
    known = " ".join(
        f"WHEN lower(channel) = '{name}' THEN '{n}'" for n, name in enumerate(("apple", "google", "facebook", "baidu"))
    )
    number = f"CASE {known} ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id"
    return bid.selectExpr("auction", "bidder", "price", "channel", number).where("channel_id IS NOT NULL")


@app.topic
def q22(bid: DataFrame) -> DataFrame:
    """Get the folders of an address."""
    return bid.selectExpr(
        "auction", "bidder", "price", "channel", *(f"split_part(url, '/', {n + 3}) AS dir{n}" for n in (1, 2, 3))
    )


#: All queries by name, for tests and benchmarks: each is a function of the DataFrames that its arguments name.
QUERIES = {
    one.__name__: one
    for one in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22)
}
