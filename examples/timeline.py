"""Home timelines: what the people whom a user follows have written. An unfollow or a deleted tweet takes it away again.

headwater run examples/timeline.py
headwater sql "select author, text from timeline where reader = 'ann' order by at desc limit 20"
"""

from __future__ import annotations

from pyspark.sql import DataFrame

import headwater as hw
from headwater.operators import TableJoin

app = hw.App("timelines", log="./data")
app.input("tweets", {"id": "int64", "author": "string", "text": "string", "at": "timestamp"}, key="id", compact=True)
app.input("follows", {"reader": "string", "author": "string"}, key=["reader", "author"], compact=True)


@app.view(key=["reader", "id"])
def timeline(tweets: DataFrame, follows: DataFrame) -> DataFrame:
    """Each tweet once for every reader of its author. A tombstone is an unfollow, or a tweet that was deleted."""
    return tweets.transform(TableJoin(follows, on="author", key="id", other_key=("reader", "author")))
