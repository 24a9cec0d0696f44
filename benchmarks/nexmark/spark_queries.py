"""The queries of Nexmark as a user of bare Spark writes them for a stream, with Spark's own operators alone.

q4 and q6 are left out: each aggregates what an aggregation still changes, which a stream of Spark refuses. Distinct
counts are the sizes of collected sets, since a stream refuses `count(DISTINCT …)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

from benchmarks.nexmark.answers import RANGES

#: A stream of a topic, by its name.
Topics = Callable[[str], "DataFrame"]


@dataclass(frozen=True, kw_only=True)
class SparkQuery:
    """A query, and how its output changes: rows are appended, or replace those with the same `key`."""

    build: Callable[[Topics], DataFrame]
    key: Sequence[str] = ()

    @property
    def mode(self) -> str:
        return "update" if self.key else "append"


def _timed(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "0 seconds")


def q0(topics: Topics) -> DataFrame:
    return topics("bid").select("auction", "bidder", "price", "at", "extra")


def q1(topics: Topics) -> DataFrame:
    return topics("bid").selectExpr("auction", "bidder", "price * 0.908D AS price", "at", "extra")


def q2(topics: Topics) -> DataFrame:
    return topics("bid").where("auction % 123 = 0").select("auction", "price")


def q3(topics: Topics) -> DataFrame:
    local = topics("person").where("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    items = topics("auction").where("category = 10").selectExpr("id AS auction", "seller")
    return items.join(local, items.seller == local.id).select("auction", "name", "city", "state")


def q5(topics: Topics) -> DataFrame:
    hopping = _timed(topics("bid")).groupBy(F.window("at", "10 seconds", "2 seconds"), "auction")
    counts = hopping.agg(F.count("*").alias("bids"))
    # Of the windows that begin every two seconds, one ends in each two seconds.
    windows = counts.groupBy(F.window(F.window_time("window"), "2 seconds").alias("ended"))
    all_counts = windows.agg(F.collect_list(F.struct("bids", "auction")).alias("counts"), F.max("bids").alias("most"))
    hot = all_counts.select("ended", F.expr("inline(filter(counts, one -> one.bids = most))"))
    start = "ended.end - INTERVAL 10 SECONDS AS window_start"
    return hot.selectExpr(start, "ended.end AS window_end", "auction", "bids")


def q7(topics: Topics) -> DataFrame:
    bids = _timed(topics("bid"))
    highest = bids.groupBy(F.window("at", "10 seconds")).agg(F.max("price").alias("highest"))
    highest = highest.select("highest", F.window_time("window").alias("ended"))
    together = "price = highest AND at > ended - INTERVAL 10 SECONDS AND at <= ended"
    return bids.join(highest, F.expr(together)).select("auction", "bidder", "price", "at")


def q8(topics: Topics) -> DataFrame:
    sellers = _timed(topics("auction")).groupBy(F.window("at", "10 seconds"), "seller").agg(F.count("*"))
    people = _timed(topics("person")).select("id", "name", F.window("at", "10 seconds").alias("registered"))
    met = people.join(sellers, F.expr("id = seller AND registered = window"))
    return met.selectExpr("id", "name", "window.start AS window_start")


def q9(topics: Topics) -> DataFrame:
    auctions = topics("auction").withWatermark("at", "0 seconds")
    names = ("auction", "at", "extra")
    bids = topics("bid").withWatermark("at", "0 seconds").withColumnsRenamed({name: f"{name}_bid" for name in names})
    met = auctions.join(bids, F.expr("id = auction_bid AND at_bid BETWEEN at AND expires"))
    given = [name for name in auctions.columns if name != "id"]
    best = F.struct(
        "price", F.expr("-unix_micros(at_bid)").alias("early"), "bidder", "channel", "url", "at_bid", "extra_bid"
    )
    found = met.groupBy("id").agg(F.max(best).alias("best"), *(F.first(name).alias(name) for name in given))
    won = ("bidder", "price", "channel", "url", "at_bid", "extra_bid")
    return found.select("id", *given, *(f"best.{name}" for name in won))


def q10(topics: Topics) -> DataFrame:
    days = ("date_format(at, 'yyyy-MM-dd') AS day", "date_format(at, 'HH:mm') AS minute")
    return topics("bid").selectExpr("auction", "bidder", "price", "at", "extra", *days)


def q11(topics: Topics) -> DataFrame:
    sessions = _timed(topics("bid")).groupBy(F.session_window("at", "10 seconds").alias("session"), "bidder")
    found = sessions.agg(F.count("*").alias("bids"))
    return found.selectExpr("bidder", "session.start AS window_start", "session.end AS window_end", "bids")


def q12(topics: Topics) -> DataFrame:
    bids = topics("bid").withColumn("now", F.current_timestamp()).withWatermark("now", "0 seconds")
    found = bids.groupBy(F.window("now", "10 seconds"), "bidder").agg(F.count("*").alias("bids"))
    return found.selectExpr("window.start AS window_start", "window.end AS window_end", "bidder", "bids")


def q13(topics: Topics) -> DataFrame:
    bids = topics("bid")
    side = bids.sparkSession.range(10_000).selectExpr("id AS number", "concat('value-', id) AS value")
    met = bids.join(side, bids.auction % 10_000 == side.number)
    return met.select("auction", "bidder", "price", "at", "value")


def q14(topics: Topics) -> DataFrame:
    day = (
        "CASE WHEN hour(at) BETWEEN 8 AND 18 THEN 'day' WHEN hour(at) <= 6 OR hour(at) >= 20 THEN 'night' "
        "ELSE 'other' END AS time_of_day"
    )
    letters = "length(extra) - length(replace(extra, 'c', '')) AS letters_c"
    prices = topics("bid").selectExpr("auction", "bidder", "price * 0.908D AS price", day, "at", "extra", letters)
    return prices.where("price > 1000000 AND price < 50000000")


def _statistics() -> list[Column]:
    def distinct(column: str, condition: str = "true") -> Column:
        return F.expr(f"size(collect_set(CASE WHEN {condition} THEN {column} END))")

    found = [F.count("*").alias("bids"), distinct("bidder").alias("bidders"), distinct("auction").alias("auctions")]
    for name, condition in RANGES.items():
        found.append(F.expr(f"count_if({condition})").alias(f"bids_{name}"))
        found.append(distinct("bidder", condition).alias(f"bidders_{name}"))
        found.append(distinct("auction", condition).alias(f"auctions_{name}"))
    return found


def q15(topics: Topics) -> DataFrame:
    found = _timed(topics("bid")).groupBy(F.window("at", "1 day")).agg(*_statistics())
    return _windowed(found)


def q16(topics: Topics) -> DataFrame:
    minute = F.date_format(F.max("at"), "HH:mm").alias("minute")
    found = _timed(topics("bid")).groupBy(F.window("at", "1 day"), "channel").agg(minute, *_statistics())
    return _windowed(found)


def q17(topics: Topics) -> DataFrame:
    by_price = [F.expr(f"count_if({condition})").alias(f"bids_{name}") for name, condition in RANGES.items()]
    offers = [F.min("price").alias("least"), F.max("price").alias("most"), F.avg("price").alias("mean")]
    found = _timed(topics("bid")).groupBy(F.window("at", "1 day"), "auction")
    return _windowed(found.agg(F.count("*").alias("bids"), *by_price, *offers, F.sum("price").alias("sum")))


def _windowed(rows: DataFrame) -> DataFrame:
    others = [name for name in rows.columns if name != "window"]
    return rows.selectExpr("window.start AS window_start", "window.end AS window_end", *others)


def q18(topics: Topics) -> DataFrame:
    bids = topics("bid")
    last = F.max(F.struct("at", "price", "channel", "url", "extra")).alias("last")
    return bids.groupBy("bidder", "auction").agg(last).select("bidder", "auction", "last.*")


def q19(topics: Topics) -> DataFrame:
    bids = topics("bid")
    # The order of prices, and of equal ones the earliest first.
    one = F.struct("price", F.expr("-unix_micros(at) AS early"), "bidder", "channel", "url", "at", "extra")
    all_bids = bids.groupBy("auction").agg(F.collect_list(one).alias("bids"))
    top = all_bids.select("auction", F.expr("slice(sort_array(bids, false), 1, 10) AS top"))
    found = top.select("auction", F.expr("posexplode(top) AS (place, one)"))
    won = ("price", "bidder", "channel", "url", "at", "extra")
    return found.select("auction", F.expr("place + 1 AS rank"), *(f"one.{name}" for name in won))


def q20(topics: Topics) -> DataFrame:
    items = topics("auction").where("category = 10").withColumnRenamed("at", "at_auction")
    bids = topics("bid")
    return bids.join(items, bids.auction == items.id).drop("id")


def q21(topics: Topics) -> DataFrame:
    known = " ".join(
        f"WHEN lower(channel) = '{name}' THEN '{n}'" for n, name in enumerate(("apple", "google", "facebook", "baidu"))
    )
    number = f"CASE {known} ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id"
    found = topics("bid").selectExpr("auction", "bidder", "price", "channel", number)
    return found.where("channel_id IS NOT NULL")


def q22(topics: Topics) -> DataFrame:
    folders = (f"split_part(url, '/', {n + 3}) AS dir{n}" for n in (1, 2, 3))
    return topics("bid").selectExpr("auction", "bidder", "price", "channel", *folders)


QUERIES: Mapping[str, SparkQuery] = {
    "q0": SparkQuery(build=q0),
    "q1": SparkQuery(build=q1),
    "q2": SparkQuery(build=q2),
    "q3": SparkQuery(build=q3),
    "q5": SparkQuery(build=q5),
    "q7": SparkQuery(build=q7),
    "q8": SparkQuery(build=q8),
    "q9": SparkQuery(build=q9, key=("id",)),
    "q10": SparkQuery(build=q10),
    "q11": SparkQuery(build=q11),
    "q12": SparkQuery(build=q12, key=("window_start", "bidder")),
    "q13": SparkQuery(build=q13),
    "q14": SparkQuery(build=q14),
    "q15": SparkQuery(build=q15, key=("window_start",)),
    "q16": SparkQuery(build=q16, key=("window_start", "channel")),
    "q17": SparkQuery(build=q17, key=("window_start", "auction")),
    "q18": SparkQuery(build=q18, key=("bidder", "auction")),
    "q19": SparkQuery(build=q19, key=("auction", "rank")),
    "q20": SparkQuery(build=q20),
    "q21": SparkQuery(build=q21),
    "q22": SparkQuery(build=q22),
}
