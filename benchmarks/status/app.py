"""The app that is observed: a query that reads every five seconds, and whose progress reports never arrive."""

from __future__ import annotations

from pyspark.sql import DataFrame

import headwater as hw
from headwater.apps.query_progress import QueryProgress

# Spark reports after each batch; here nothing hears it.
QueryProgress.update = lambda *_: None  # type: ignore[method-assign]

app = hw.App("status")
app.input("events", {"user": "int64", "value": "float64"}, key="user", partitions=2)


@app.topic(key="user", trigger="5 seconds")
def copied(events: DataFrame) -> DataFrame:
    return events
