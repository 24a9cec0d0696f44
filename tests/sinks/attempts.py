"""A child whose tasks fail, die or dawdle at their first attempt, in a session that tries again.

python -m tests.sinks.attempts <folder> <master or `cluster`> <scenario>…
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter
from pyspark.sql.types import StructType

from headwater.sinks import TopicSink, TopicStreamWriter
from headwater.spark.topic_sink import Message

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def is_first_attempt() -> bool:
    return _attempt() == (0, 0)


def is_second_attempt() -> bool:
    return _attempt() == (0, 1)


def _attempt() -> tuple[int, int]:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.attemptNumber()


def spoiled(trouble: str, overtaken: Path) -> Step:
    """Pass all rows on, then get into trouble: the sink behind has staged most of them by then."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if is_first_attempt():
            if trouble == "raise":
                raise ValueError("the first attempt fails")
            if trouble == "die":
                os._exit(1)
            if trouble == "dawdle":
                wait_to_be_overtaken(overtaken)
        elif is_second_attempt():
            overtaken.touch()

    return step


def wait_to_be_overtaken(mark: Path) -> None:
    """Wait for the second attempt, and then for the end: Spark kills who is overtaken."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)
        if mark.exists():
            deadline = min(deadline, time.monotonic() + 5)
    if not mark.exists():
        raise TimeoutError("no other task has overtaken this one")


class FailsAfterStaging(DataSource):
    """Our writer, in a task whose first attempt fails when its file is complete."""

    @classmethod
    def name(cls) -> str:
        return "fails_after_staging"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        return _FailingWriter(self.options, schema)


class _FailingWriter(TopicStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        message = super().write(iterator)
        if is_first_attempt():
            raise ValueError("staged, but never told")
        return message


def main(home: Path, master: str, scenarios: list[str]) -> None:
    import headwater
    from headwater.log import open as open_log
    from tests.sinks.streams import rows_of, run, to_topic

    conf = {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.4",
        "spark.speculation.multiplier": "1.2",
        "spark.speculation.interval": "100ms",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = headwater.session("attempts", master=master, state=home / "state", conf=conf, archive=False)
    spark.dataSource.register(FailsAfterStaging)
    log = open_log(home / "log")
    for scenario in scenarios:
        way, trouble = scenario.split(".")
        rows = rows_of(spark, log, rows_max=60)
        if trouble == "after":
            writer = to_topic(rows, log, format="fails_after_staging", topic=scenario)
        else:
            rows = rows.mapInArrow(spoiled(trouble, home / f"overtaken-{scenario}"), "id long, name string")
            sink = TopicSink(log=log.home, topic=scenario)
            writer = to_topic(rows, log, topic=scenario) if way == "format" else rows.writeStream.foreachBatch(sink)
        run(writer, home / f"checkpoint-{scenario}")
    spark.stop()


def main_on(home: Path, master: str, scenarios: list[str]) -> None:
    """On a master of its own, or on a cluster of two hosts."""
    if master != "cluster":
        main(home, master, scenarios)
        return
    from tests.servers import spark_cluster

    with spark_cluster(home / "cluster") as address:
        main(home, address, scenarios)


if __name__ == "__main__":
    main_on(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
