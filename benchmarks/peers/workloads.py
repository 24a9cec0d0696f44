"""The nine workloads, in Headwater's operators and in bare Spark, over `topics(name)`.

On both sides one micro-batch has the same rows, times are a second late at most, and the sink writes the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

from benchmarks.peers.answers import WINDOW_US
from benchmarks.peers.data import BID, OFFER, VIEW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Topics = Callable[[str], DataFrame]

WINDOW, HOP, GAP = "10 seconds", "2 seconds", "10 seconds"
DELAY = "1 second"
#: The table that does not change.
ITEMS = "items"
#: The standard error that both sides are asked for.
ERROR = 0.05
#: Workloads without state, and that of which Spark has no words for.
STATELESS, PATTERN = ("w1", "w6"), "w7"
EUROS = ("auction", "bidder", "price * 0.908D AS euros", "unix_micros(at) AS at_us")
DOUBLED = """
    PARTITION BY bidder
    ORDER BY at
    MEASURES a.price AS first, b.price AS second, c.price AS third, c.at AS at
    AFTER MATCH SKIP TO NEXT ROW
    PATTERN (a b c)
    WITHIN INTERVAL '1' HOUR
    DEFINE b AS price >= 2 * a.price, c AS price >= 2 * b.price
"""


def filtered(topics: Topics) -> DataFrame:
    return topics(BID).where("price > 5000").selectExpr(*EUROS)


def filtered_in_reader(topics: Topics) -> DataFrame:
    """With the condition and the product computed by the reader of the topic."""
    from headwater.spark import in_reader

    return in_reader(filtered(topics))


def enriched(topics: Topics) -> DataFrame:
    return _with_items(topics(BID), topics)


def enriched_in_reader(topics: Topics) -> DataFrame:
    """With only the columns that are wanted: Spark tells Parquet which these are, and no other source of a stream."""
    from headwater.spark import in_reader

    return _with_items(in_reader(topics(BID).select("auction", "bidder", "price")), topics)


def _with_items(bids: DataFrame, topics: Topics) -> DataFrame:
    return bids.join(topics(ITEMS), "auction").select("auction", "bidder", "price", "seller", "reserve")


# -- Headwater --------------------------------------------------------------------------------------------------------


def tumbling(topics: Topics) -> DataFrame:
    from headwater.operators import Tumbling, agg

    compute = {"bids": agg.count(), "total": agg.sum("price")}
    return (
        topics(BID)
        .transform(Tumbling(size=WINDOW, by="auction", compute=compute))
        .select("auction", _start(), *compute)
    )


def hottest(topics: Topics) -> DataFrame:
    from headwater.operators import Hopping, Tumbling, agg

    counts = topics(BID).transform(Hopping(size=WINDOW, every=HOP, by="auction", compute={"bids": agg.count()}))
    best = Tumbling(size=HOP, compute={"best": agg.max(F.struct("bids", "auction"))})
    return counts.transform(best).select(_start(), "best.bids", "best.auction")


def sessions(topics: Topics) -> DataFrame:
    from headwater.operators import Session, agg

    compute = {"bids": agg.count(), "total": agg.sum("price")}
    return topics(BID).transform(Session(gap=GAP, by="bidder", compute=compute)).select("bidder", _start(), *compute)


def joined(topics: Topics) -> DataFrame:
    from headwater.operators import IntervalJoin

    window = F.expr(f"unix_micros(at) DIV {WINDOW_US}")
    offers = topics(OFFER).select("bidder", "price", "at", window.alias("window"), "_partition", "_offset")
    views = topics(VIEW).select("bidder", "auction", "at", window.alias("window"), "_partition", "_offset")
    met = offers.transform(IntervalJoin(views, on=("bidder", "window"), within=WINDOW, suffix="_view"))
    return met.selectExpr("bidder", f"window * {WINDOW_US} AS start_us", "price", "auction")


def doubled(topics: Topics) -> DataFrame:
    from headwater.operators import Match

    found = topics(BID).transform(Match(DOUBLED))
    return found.selectExpr("bidder", "first", "second", "third", "unix_micros(at) AS at_us")


def top_ten(topics: Topics) -> DataFrame:
    from headwater.operators import Tumbling, agg

    prices = Tumbling(size=WINDOW, by="category", compute={"prices": agg.max_n("price", n=10)})
    return _with_category(topics).transform(prices).select("category", _start(), "prices")


def distinct(topics: Topics) -> DataFrame:
    from headwater.operators import Tumbling, agg

    bidders = Tumbling(
        size=WINDOW, by="category", compute={"bidders": agg.approx_count_distinct("bidder", error=ERROR)}
    )
    counts = _with_category(topics).transform(bidders)
    return counts.select("category", _start(), F.col("bidders.estimate").alias("bidders"))


def _with_category(topics: Topics) -> DataFrame:
    return topics(BID).withColumn("category", F.expr("auction % 100"))


def _start(column: str = "window_start") -> Column:
    return F.expr(f"unix_micros({column})").alias("start_us")


# -- bare Spark -------------------------------------------------------------------------------------------------------


def _timed(topics: Topics, topic: str = BID) -> DataFrame:
    return topics(topic).withWatermark("at", DELAY)


def spark_tumbling(topics: Topics) -> DataFrame:
    found = (
        _timed(topics)
        .groupBy(F.window("at", WINDOW), "auction")
        .agg(F.count("*").alias("bids"), F.sum("price").alias("total"))
    )
    return found.select("auction", _start("window.start"), "bids", "total")


def spark_hottest(topics: Topics) -> DataFrame:
    counts = _timed(topics).groupBy(F.window("at", WINDOW, HOP), "auction").agg(F.count("*").alias("bids"))
    again = F.window(F.window_time("window"), HOP).alias("last")
    best = counts.groupBy(again).agg(F.max(F.struct("bids", "auction")).alias("best"))
    start = F.expr(f"unix_micros(last.end) - {WINDOW_US}").alias("start_us")
    return best.select(start, "best.bids", "best.auction")


def spark_sessions(topics: Topics) -> DataFrame:
    found = (
        _timed(topics)
        .groupBy(F.session_window("at", GAP), "bidder")
        .agg(F.count("*").alias("bids"), F.sum("price").alias("total"))
    )
    return found.select("bidder", _start("session_window.start"), "bids", "total")


def spark_joined(topics: Topics) -> DataFrame:
    offers = _timed(topics, OFFER).select("bidder", "price", F.window("at", WINDOW))
    views = _timed(topics, VIEW).select("bidder", "auction", F.window("at", WINDOW))
    return offers.join(views, ["bidder", "window"]).select("bidder", _start("window.start"), "price", "auction")


def spark_top_ten(topics: Topics) -> DataFrame:
    prices = F.slice(F.sort_array(F.collect_list("price"), asc=False), 1, 10).alias("prices")
    found = _timed(topics).groupBy(F.window("at", WINDOW), F.expr("auction % 100").alias("category")).agg(prices)
    return found.select("category", _start("window.start"), "prices")


def spark_distinct(topics: Topics) -> DataFrame:
    bidders = F.approx_count_distinct("bidder", ERROR).alias("bidders")
    found = _timed(topics).groupBy(F.window("at", WINDOW), F.expr("auction % 100").alias("category")).agg(bidders)
    return found.select("category", _start("window.start"), "bidders")


HEADWATER: Mapping[str, Callable[[Topics], DataFrame]] = {
    "w1": filtered_in_reader,
    "w2": tumbling,
    "w3": hottest,
    "w4": sessions,
    "w5": joined,
    "w6": enriched_in_reader,
    "w7": doubled,
    "w8": top_ten,
    "w9": distinct,
}
SPARK: Mapping[str, Callable[[Topics], DataFrame]] = {
    "w1": filtered,
    "w2": spark_tumbling,
    "w3": spark_hottest,
    "w4": spark_sessions,
    "w5": spark_joined,
    "w6": enriched,
    "w8": spark_top_ten,
    "w9": spark_distinct,
}
