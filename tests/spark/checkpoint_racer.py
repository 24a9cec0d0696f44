"""One of two drivers that start the same query at the same moment, again and again. It prints nothing: see the files.

    python -m tests.spark.checkpoint_racer HOME NAME CHECKPOINT STATE RACES

First both write files of the same names into a checkpoint of their own, without a query; `files-<name>.json` has those that were
written. Then, for each race, a driver waits for the file `go-<race>`, which has the moment of the start, and writes `<race>-<name>.json`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import headwater
from benchmarks.s3a import s3a_jars
from headwater.spark.checkpoint_files import OURS, SETTING
from tests.conditions import until

FILES = 60
#: From one file to the next: longer than either way to write one takes.
EVERY_SECONDS = 0.2


def files(spark: SparkSession, name: str, checkpoint: str, start: float) -> list[int]:
    """Write files, each at the moment when the other driver does; return the numbers of those that were written."""
    # Any: py4j objects have no types.
    java: Any = spark.sparkContext._jvm
    hadoop: Any = java.org.apache.hadoop.fs
    settings = cast(Any, spark)._jsparkSession.sessionState().newHadoopConf()
    package = java.org.apache.spark.sql.execution.streaming.checkpointing
    manager = package.CheckpointFileManager.create(hadoop.Path(checkpoint), settings)
    won = []
    for number in range(FILES):
        time.sleep(max(0.0, start + number * EVERY_SECONDS - time.time()))
        file = manager.createAtomic(hadoop.Path(f"{checkpoint}/offsets/{number}"), False)
        file.write(bytearray(name.encode()))
        try:
            file.close()
        except Py4JJavaError as refused:
            if "FileAlreadyExistsException" not in str(refused.java_exception):
                raise
        else:
            won.append(number)
    return won


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
    assert spark.conf.get(SETTING) == OURS
    (home / f"ready-{name}").touch()
    tell(home, f"files-{name}", files(spark, name, f"{checkpoint}-files", moment(home, "go-files")))
    for race in range(races):
        time.sleep(max(0.0, moment(home, f"go-{race}") - time.time()))  # both start at this moment
        try:
            told = raced(spark, checkpoint)
        except (Py4JJavaError, PySparkException) as refused:  # the checkpoint itself was begun by the other driver
            told = {"run": None, "batches": [], "error": str(refused)}
        tell(home, f"{race}-{name}", told)
    spark.stop()


def moment(home: Path, name: str) -> float:
    """The moment in a file, once it is there."""
    until((home / name).exists, name)
    return float((home / name).read_text())


def tell(home: Path, name: str, told: object) -> None:
    temporary = home / f".{name}"
    temporary.write_text(json.dumps(told))
    temporary.rename(home / f"{name}.json")


if __name__ == "__main__":
    main()
