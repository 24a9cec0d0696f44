"""The company as an app: thirteen queries, in the order in which they start.

Each operator is used once, in a few lines. This module knows neither the world that writes the topics nor the check.
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.operators import (
    AggregateTable,
    Anomaly,
    ComparedTo,
    Enrich,
    IntervalJoin,
    Match,
    Percolate,
    Rolling,
    Session,
    TableJoin,
    TopN,
    Tumbling,
    agg,
)

from .database import TABLES
from .topics import APP, INPUTS, JAVA_OPTIONS

#: Names the address of the company's database.
DATABASE_VARIABLE = "COMPANY_DATABASE"

#: Many small queries share a laptop: each looks for rows every two seconds.
TRIGGER = "2 seconds"
#: Batches are small, so what a task costs anyway is most of the work: one partition each, and more queries keep up. Of
#: tasks that wait, the oldest goes first: under Spark's fair order old ones may wait for ever where cores are few.
CONF = {
    "spark.sql.shuffle.partitions": 1,
    "spark.scheduler.mode": "FIFO",
    # Generated code pays from thousands of rows on; these batches have some twenty.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
}

app = hw.App(APP, log="./data", conf=CONF)
#: Who follows whom is in a database; its table is captured into the topic of the same name.
people = app.capture(os.environ.get(DATABASE_VARIABLE, "sqlite:///people.db"), tables=list(TABLES), prefix="")
for _name, _settings in INPUTS.items():
    if _name in TABLES:
        people.table(_name, _settings["schema"], key=_settings["key"])
    else:
        app.input(_name, **_settings)


# -- visitors ---------------------------------------------------------------------------------------------------------


@app.view(key=["visitor", "window_start"], late="live_sessions.late", trigger=TRIGGER)
def live_sessions(page_views: DataFrame) -> DataFrame:
    """Who is on the site now, and what they did before: a session ends after twenty seconds without a page."""
    return page_views.transform(
        Session(
            gap="20 seconds",
            by="visitor",
            compute={"pages": agg.count(), "last_page": agg.last("page")},
            emit="changes",
        )
    )


@app.view(key="rank", trigger=TRIGGER)
def top_pages(page_views: DataFrame) -> DataFrame:
    """The ten pages that were seen most; whatever changes among them is told, and nothing else."""
    counts = page_views.transform(AggregateTable(by="page", compute={"views": agg.count()}))
    return counts.transform(TopN(n=10, order=[("views", "desc")], key="page"))


@app.view(key=["city", "minute"], late="visitors_per_minute.late", trigger=TRIGGER)
def visitors_per_minute(page_views: DataFrame) -> DataFrame:
    """How many different people each city sends per minute: at once, and corrected while late rows come."""
    minutes = Tumbling(
        size="1 minute",
        by="city",
        compute={"visitors": agg.count_distinct("visitor"), "pages": agg.count()},
        allowed_lateness="10 minutes",
        emit="changes",
    )
    return page_views.transform(minutes).withColumnRenamed("window_start", "minute").drop("window_end")


# -- searches ---------------------------------------------------------------------------------------------------------


@app.topic(key="url", time="at", trigger=TRIGGER)
def clicked(searches: DataFrame, clicks: DataFrame) -> DataFrame:
    """A click meets the search that it answers, up to an hour later."""
    answered = IntervalJoin(
        clicks.withColumnRenamed("at", "clicked_at"),
        on="search",
        before=0,
        after="1 hour",
    )
    return searches.transform(answered)


@app.view(key=["url", "minute"], trigger=TRIGGER)
def click_through(searches: DataFrame, clicked: DataFrame) -> DataFrame:
    """Which share of the searches of a minute was clicked: early, and corrected by clicks for an hour."""
    shown = searches.select("url", "at", F.lit(1).alias("one_shown"), F.lit(0).alias("one_clicked"))
    chosen = clicked.select("url", "at", F.lit(0).alias("one_shown"), F.lit(1).alias("one_clicked"))
    minutes = Tumbling(
        size="1 minute",
        by="url",
        compute={"shown": agg.sum("one_shown"), "clicked": agg.sum("one_clicked")},
        allowed_lateness="1 hour",
        emit="changes",
    )
    found = shown.union(chosen).transform(minutes)
    return found.select(
        "_op",
        "url",
        F.col("window_start").alias("minute"),
        "shown",
        "clicked",
        F.try_divide("clicked", "shown").alias("rate"),
    )


# -- payments ---------------------------------------------------------------------------------------------------------


@app.topic(key="card", time="at", trigger=TRIGGER)
def checked_payments(payments: DataFrame, cards: hw.Table) -> DataFrame:
    """Each payment beside the limit that its card had at that moment, though limits change all the time."""
    known = payments.transform(Enrich(cards, on="card", as_of="at"))
    return known.select(
        "payment", "card", "holder", "amount", "spending_limit",
        (F.col("amount") <= F.col("spending_limit")).alias("allowed"), "at",
    )  # fmt: skip


@app.view(key="holder", trigger=TRIGGER)
def spending(checked_payments: DataFrame) -> DataFrame:
    """What each person has spent and what was refused: Spark's own aggregation."""
    allowed = F.col("allowed")
    return checked_payments.where("holder is not null").groupBy("holder").agg(
        F.count("*").alias("payments"),
        F.sum(F.when(allowed, F.col("amount")).otherwise(0.0)).alias("spent"),
        F.count_if(~allowed).alias("refused"),
    )  # fmt: skip


# -- machines ---------------------------------------------------------------------------------------------------------


@app.view(key="machine", trigger=TRIGGER)
def machine_percentiles(readings: DataFrame) -> DataFrame:
    """How warm each machine has been in the past minute, as of its newest reading."""
    past = {
        "median": agg.percentile("celsius", 0.5),
        "p95": agg.percentile("celsius", 0.95),
        "highest": agg.max("celsius"),
    }
    return readings.transform(Rolling(period="1 minute", by="machine", compute=past))


@app.topic(key="machine", time="at", trigger=TRIGGER)
def overheating(readings: DataFrame) -> DataFrame:
    """Readings far above what was usual for their machine, whatever that is."""
    judged = readings.transform(
        Anomaly(of="celsius", by="machine", memory=60, threshold=6.0, side="above", deviation_min=0.5)
    )
    return judged.where("anomaly").select("machine", "celsius", "expected", "upper", "score", "at")


@app.view(key=["machine", "minute"], trigger=TRIGGER)
def compared_to_an_hour_ago(readings: DataFrame) -> DataFrame:
    """The mean of each minute beside that of the same minute an hour ago."""
    compared = ComparedTo(
        by="machine",
        every="1 minute",
        period="1 hour",
        periods=1,
        compute={"celsius": agg.mean("celsius")},
    )
    return readings.transform(compared).selectExpr(
        "machine", "window_start AS minute", "celsius", "celsius_before AS an_hour_ago", "celsius_difference AS change"
    )


# -- news and friends -------------------------------------------------------------------------------------------------


@app.topic(key="query_id", trigger=TRIGGER)
def news_alerts(articles: DataFrame, stored_searches: hw.Table) -> DataFrame:
    """Articles that match a stored search of a reader."""
    found = articles.transform(
        Percolate(queries=stored_searches, columns=("article", "title", "published"), name="searches")
    )
    reader = F.col("metadata")["reader"].alias("reader")
    return found.select("query_id", reader, "article", "title", "published", "highlights")


@app.view(key=["reader", "tweet"], trigger=TRIGGER)
def home_timelines(tweets: DataFrame, follows: DataFrame) -> DataFrame:
    """The tweets of the people whom a reader follows; an unfollow or a deleted tweet removes them again."""
    return tweets.transform(TableJoin(follows, on="author", key="tweet", other_key=("reader", "author")))


# A thief with small batches never waits for the search to be compiled: what is small is interpreted.
CARD_TRIED_OUT = """
    PARTITION BY card
    ORDER BY at
    MEASURES COUNT(small.*) AS tries, big.payment AS payment, big.shop AS shop, big.amount AS amount,
             FIRST(small.at) AS began_at, big.at AS at
    PATTERN (small{2,} big)
    WITHIN INTERVAL '10' MINUTE
    DEFINE small AS amount < 5, big AS amount > 500
"""


@app.topic(key="card", time="at", trigger=TRIGGER)
def fraud_alerts(payments: DataFrame) -> DataFrame:
    """A thief tries a stolen card out with small payments, and then makes a large one."""
    return payments.transform(Match(CARD_TRIED_OUT, time=hw.EventTime("at", delay="2 seconds")))
