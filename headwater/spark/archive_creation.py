"""Create the class archive in a process of its own, in the background, when the first process with a session ends.

The process starts a session, reads a topic as a stream through the parts of Spark that most queries use, and ends. Its
output goes nowhere: Java prints its messages about the archive, and they are long.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.spark.java import Archive, Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: Which classes the archive has; another word where `_use` does something else makes other archives.
CLASSES = "classes=3"
_PROGRAM = "import sys; from headwater.spark.archive_creation import create; create(sys.argv[1:])"


def create_in_background(archive: Archive, java: Java, *, quiet: bool) -> None:
    """Start the process that creates an archive, unless it exists or another process creates it; do not wait for it."""
    if not sys.executable or not archive.claim():
        return
    options = [f"quiet={quiet}", *archive.creation_options()]
    # Not waited for, so that Python would warn when it forgets the process.
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *options],
        env={**os.environ, "JAVA_HOME": str(java.home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.returncode = 0


def create(arguments: list[str]) -> None:
    """Run a session whose JVM writes the archive as it exits."""
    from headwater.log import open as open_log
    from headwater.spark.session import session

    if hasattr(os, "nice"):
        os.nice(19)
    quiet, *options = arguments
    with tempfile.TemporaryDirectory(prefix="headwater-archive-") as folder:
        place = Path(folder)
        with open_log(place / "log") as log:
            log.create("rows", {"id": "int64"})
            log.append("rows", [{"id": number} for number in range(10)])
        spark = session(
            "archive",
            log=place / "log",
            state=place / "state",
            conf={"spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in options)},
            quiet=quiet == "quiet=True",
            archive=False,
        )
        _use(spark, place)
        spark.stop()


def _use(spark: SparkSession, place: Path) -> None:
    """Load the classes that most queries need: of Spark's own state, of Python's tasks, of a sink of ours, and of a restart."""
    from headwater.log import open as open_log
    from headwater.spark.java_classes import are_known
    from headwater.spark.topic_query import TopicQuery
    from headwater.spark.topic_sink import TopicSink
    from headwater.spark.topic_target import Target

    rows = spark.readStream.format("headwater").load("rows")
    counted = rows.mapInArrow(lambda batches: batches, rows.schema).groupBy("id").count()
    writer = counted.writeStream.outputMode("complete").format("memory").queryName("counted")
    _run(writer.option("checkpointLocation", str(place / "counted")))
    sink = TopicSink(log=place / "log", topic="written", create=True)
    shuffled = rows.selectExpr("id", "upper(id) AS text", "int(id % 2) AS slot").repartitionById(2, "slot")
    computed = shuffled.mapInArrow(lambda batches: batches, shuffled.schema)
    for _ in range(2):
        writer = computed.writeStream.foreachBatch(sink).option("checkpointLocation", str(place / "written"))
        _run(writer)
        if are_known(spark):
            query = TopicQuery(target=Target.of(log=place / "log", topic="written"), checkpoint=str(place / "query"))
            query.start(computed, lambda writer: writer.trigger(availableNow=True)).awaitTermination()
        with open_log(place / "log") as log:
            log.append("rows", [{"id": 1}])


def _run(writer: DataStreamWriter) -> None:
    writer.trigger(availableNow=True).start().awaitTermination()
