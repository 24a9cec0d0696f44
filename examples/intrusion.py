"""An intrusion alarm: who knocks at many doors, who guesses passwords, and log-ins from machines never seen before.

headwater run examples/intrusion.py
headwater sql "select * from scans order by window_end desc limit 5"
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.operators import Hopping, SeenBefore, agg

app = hw.App("intrusion", log="./data")
AT = hw.EventTime("at", delay="30 seconds")
app.input("connections", {"source": "string", "port": "int32", "at": "timestamp"}, key="source", time=AT, partitions=2)
app.input(
    "logins",
    {"user": "string", "source": "string", "accepted": "bool", "at": "timestamp"},
    key="user",
    time=AT,
    partitions=2,
)


@app.topic(key="source")
def scans(connections: DataFrame) -> DataFrame:
    """Sources that tried more than a hundred ports in five minutes: surely, and not perhaps."""
    compute = {"ports": agg.approx_count_distinct("port", error=0.02), "some": agg.sample("port", 5)}
    sliding = Hopping(size="5 minutes", every="1 minute", by="source", compute=compute)
    return connections.transform(sliding).where("ports.lower > 100")


@app.topic(key="source")
def guessing(logins: DataFrame) -> DataFrame:
    """Sources that failed to log in ten times or more lately; a failure counts half after a minute."""
    compute = {
        "failures": agg.decayed_count(F.when(~F.col("accepted"), 1), half_life="1 minute"),
        "users": agg.approx_top_k("user", n=3),
    }
    sliding = Hopping(size="10 minutes", every="1 minute", by="source", compute=compute)
    return logins.transform(sliding).where("failures >= 10")


@app.topic(key="user")
def strangers(logins: DataFrame) -> DataFrame:
    """Log-ins from a machine that this user has not come from for thirty days."""
    before = SeenBefore(by="user", of="source", period="30 days", capacity=100_000)
    return logins.where("accepted").transform(before).where("not seen")
