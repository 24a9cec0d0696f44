"""The app that is watched: a windowed count by key into a topic, and a view of the totals.

Every topic forgets, and Spark keeps few batches of its checkpoints: what still grows after some minutes, leaks.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, functions

import headwater as hw
from headwater.operators import Tumbling, agg

#: Where this process writes what the JVM says of its memory, and how often.
SAMPLES = "SOAK_JVM_SAMPLES"
SAMPLE_SECONDS = 5.0
# Any: whatever `Log.create` takes.
KEEP: dict[str, Any] = {"retention": "2 minutes", "segment_bytes_max": "2 MiB", "segment_seconds_max": "30 seconds"}

app = hw.App("soak", conf={"spark.sql.streaming.minBatchesToRetain": "20"})
app.input(
    "events", {"user": "string", "value": "float64", "at": "timestamp"}, key="user", time="at", partitions=2, **KEEP
)


@app.topic(key="user", **KEEP)
def counts(events: DataFrame) -> DataFrame:
    window = Tumbling(
        size="10 seconds", time=hw.EventTime("at", delay="2 seconds"), by="user", compute={"n": agg.count()}
    )
    return events.transform(window)


@app.view(key="user", segment_bytes_max="2 MiB", segment_seconds_max="30 seconds")
def totals(events: DataFrame) -> DataFrame:
    return events.groupBy("user").agg(functions.count("*").alias("n"))


def sample_jvm(path: Path) -> None:
    """Write down every few seconds what the JVM says of its memory, for as long as there is one."""
    while SparkContext._active_spark_context is None:
        time.sleep(0.2)
    context = SparkContext._active_spark_context
    # Any: py4j's objects have the methods of Java's classes, which no type knows.
    java: Any = context._jvm
    factory = java.java.lang.management.ManagementFactory
    with path.open("a", buffering=1) as file:
        while SparkContext._active_spark_context is not None:
            memory = factory.getMemoryMXBean()
            heap, other = memory.getHeapMemoryUsage(), memory.getNonHeapMemoryUsage()
            # What each pool held after its last collection: what is alive, without the garbage of the moment.
            after = [pool.getCollectionUsage() for pool in factory.getMemoryPoolMXBeans()]
            line = {
                "at": time.time(),
                "heap_used": heap.getUsed(),
                "heap_committed": heap.getCommitted(),
                "heap_alive": sum(usage.getUsed() for usage in after if usage is not None),
                "non_heap": other.getUsed(),
                "threads": factory.getThreadMXBean().getThreadCount(),
                "classes": factory.getClassLoadingMXBean().getLoadedClassCount(),
            }
            file.write(json.dumps(line) + "\n")
            time.sleep(SAMPLE_SECONDS)


# Taken away, so that Spark's workers, which get this module too, do not do it again.
if place := os.environ.pop(SAMPLES, None):
    threading.Thread(target=sample_jvm, args=(Path(place),), daemon=True).start()
