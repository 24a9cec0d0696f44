"""What a command or a page does with the session that tests share, and how it is left as it was."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import headwater

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def left_as_it_was(spark: SparkSession) -> Iterator[None]:
    """Let the block join the session, with folders and streams of its own, and end what it has begun."""
    before = {name: spark.conf.get(name, None) for name in ("spark.headwater.log", "spark.headwater.state")}
    # The JVM keeps to the folder in which it was started: checkpoints with a relative name lie there.
    java = spark.sparkContext._jvm
    assert java is not None
    started = Path(java.java.lang.System.getProperty("user.dir"))
    try:
        yield
    finally:
        for query in spark.streams.active:
            query.stop()
        for view in spark.catalog.listTables():
            spark.catalog.dropTempView(view.name)
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
        headwater.session()  # sources and sinks know these folders again
        for name in ("checkpoint", "checkpoints"):
            shutil.rmtree(started / name, ignore_errors=True)
