"""One of two drivers that start the same query at the same moment, again and again. It prints nothing: see the files.

    python -m tests.spark.checkpoint_racer HOME NAME CHECKPOINT STATE RACES

For each race it waits for the file `go-<race>`, which has the moment of the start, and writes `<race>-<name>.json`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import headwater
from benchmarks.s3a import s3a_jars
from headwater.spark.object_checkpoints import GUARDED, SETTING
from tests.conditions import until


def raced(spark: SparkSession, checkpoint: str) -> dict[str, object]:
    """Start the query and let it read all that there is; return whether it has carried out a batch, or why not."""
    rows = spark.readStream.format("headwater").load("orders")
    query = (
        rows.writeStream.format("headwater")
        .option("topic", "copies")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    error = None
    try:
        query.awaitTermination()
    except StreamingQueryException as failure:
        error = str(failure)
    done = [one["batchId"] for one in query.recentProgress if one["numInputRows"]]
    return {"run": str(query.runId), "batches": [] if error else done, "error": error}


def main() -> None:
    home, name, checkpoint, state, races = Path(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5])
    conf = {
        "spark.jars": s3a_jars(),
        "spark.sql.shuffle.partitions": 1,
        "spark.local.dir": home / name,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    spark = headwater.session("race", master="local[1]", log=home / "log", state=state, conf=conf)
    assert spark.conf.get(SETTING) == GUARDED
    (home / f"ready-{name}").touch()
    for race in range(races):
        go = home / f"go-{race}"
        until(go.exists, f"race {race} begins")
        start = float(go.read_text())
        time.sleep(max(0.0, start - time.time()))  # both start at this moment
        try:
            told = raced(spark, checkpoint)
        except (Py4JJavaError, PySparkException) as refused:  # the checkpoint itself was begun by the other driver
            told = {"run": None, "batches": [], "error": str(refused)}
        temporary = home / f".{race}-{name}"
        temporary.write_text(json.dumps(told))
        temporary.rename(home / f"{race}-{name}.json")
    spark.stop()


if __name__ == "__main__":
    main()
