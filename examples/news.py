"""News: editors say what they follow, each article is told to their hook, and a view counts what is talked about.

headwater run examples/news.py
echo '{"id": "floods", "query": "+(flood* OR storm) -sport", "metadata": {"desk": "weather"}}' |
    headwater produce topics
headwater sql "select * from mentions order by articles desc"
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.operators import Percolate, percolate
from headwater.sinks import WebhookSink

app = hw.App("news", log="./data")
app.input(
    "articles", {"url": "string", "title": "string", "body": "string", "published": "timestamp"}, time="published"
)
app.input("topics", {"id": "string", "query": "string", "metadata": "map<string, string>"}, key="id", compact=True)


@app.topic(key="query_id")
def mentioned(articles: DataFrame, topics: hw.Table) -> DataFrame:
    """Each article with each topic that it is about. `now` in a query is the time of the article."""
    english = percolate.Text("english", stop_words=True)
    return articles.transform(
        Percolate(
            queries=topics,
            fields={"title": english, "body": english},
            columns=("url", "title", "published"),
            name="topics",
        )
    )


@app.sink(WebhookSink(url=os.environ.get("NEWS_HOOK", "http://localhost:8080/hook")))
def told(mentioned: DataFrame) -> DataFrame:
    """What goes out: the article, why, and whose desk it is."""
    return mentioned.select("query_id", "url", "title", "score", "highlights", F.col("metadata")["desk"].alias("desk"))


@app.view(key=("query_id", "hour"))
def mentions(mentioned: DataFrame) -> DataFrame:
    """How many articles there were about each topic in each hour."""
    hour = F.date_trunc("hour", "published").alias("hour")
    return mentioned.groupBy("query_id", hour).agg(F.count("*").alias("articles"))
