"""Over Spark Connect topics are read and written; what needs Spark's JVM raises and says what to do instead."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.optional import is_installed
from headwater.spark import find_java
from tests.conditions import SECONDS_MAX

#: Spark Connect needs a process of its own: one that has had a session with a JVM cannot have such a one.
PROGRAM = """
import json
from pathlib import Path

import headwater as hw
from headwater.errors import HeadwaterError
from headwater.operators import Tumbling, agg
from headwater.sinks import TopicSink
from pyspark.sql import SparkSession

log = hw.open("data", create=True)
columns = {"user": "int64", "at": "timestamp"}
for topic in ("orders", "copied", "followed", "refused"):
    log.create(topic, columns, time="at", partitions=2, key="user")
log.append("orders", [{"user": number % 5, "at": number * 100_000} for number in range(1_000)])

SparkSession.builder.remote("local[1]").getOrCreate()
spark = hw.session(log="data", state="state")
found = {"kind": type(spark).__module__}


def read(reader):
    return reader.format("headwater").load("orders").select("user", "at")


def problem(act):
    try:
        act()
    except HeadwaterError as error:
        return str(error)


def streamed(writer, checkpoint):
    return writer.option("checkpointLocation", str(Path(checkpoint).absolute())).trigger(availableNow=True).start()


counted = read(spark.read).groupBy("user").count().collect()
found["counted"] = sorted(tuple(row) for row in counted)
read(spark.read).write.format("headwater").mode("append").save("copied")
found["copied"] = log.read("copied").table().num_rows
for _ in range(2):  # the second goes on behind the first
    streamed(read(spark.readStream).writeStream.format("headwater").option("path", "followed"), "first").awaitTermination()
found["followed"] = log.read("followed").table().num_rows

totals = Tumbling(size="10 seconds", by="user", compute={"n": agg.count()})
found["bounded"] = problem(lambda: read(spark.read).transform(totals))
found["streaming"] = problem(lambda: read(spark.readStream).transform(totals))

app = hw.App("shop", log="data")
app.input("orders")


@app.topic
def big_orders(orders):
    return orders.where("user > 2")


found["app"] = problem(lambda: app.run(until_caught_up=True))

try:
    sink = TopicSink(log=str(Path("data").absolute()), topic="refused")
    streamed(read(spark.readStream).writeStream.foreachBatch(sink), "second").awaitTermination()
except Exception as error:
    found["sink"] = str(error)
found["refused"] = log.read("refused").table().num_rows
print(json.dumps(found))
"""


@pytest.mark.process
@pytest.mark.spark
@pytest.mark.skipif(not is_installed("grpc"), reason="Spark Connect needs `pip install 'pyspark[connect]'`")
def test_topics_are_read_and_written_and_operators_say_what_to_do(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, timeout=3 * SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kind"] == "pyspark.sql.connect.session"
    assert found["counted"] == [[user, 200] for user in range(5)]
    assert found["copied"] == found["followed"] == 1_000
    for name in ("bounded", "streaming", "app", "sink"):
        assert "needs Spark's own session, and this is one of Spark Connect" in found[name], name
    assert "headwater.session(master=" in found["streaming"]
    assert found["refused"] == 0
