"""A child whose tasks fail, die or dawdle at their first attempt, in a session that tries again.

python -m tests.sinks.attempts <folder> <master> <scenario>…
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
from headwater.sinks.topic import Message

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def is_first_attempt() -> bool:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId() == 0 and context.attemptNumber() == 0


def spoiled(trouble: str) -> Step:
    """Pass all rows on, then get into trouble: the sink behind has staged most of them by then."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if is_first_attempt():
            if trouble == "raise":
                raise ValueError("the first attempt fails")
            if trouble == "die":
                os._exit(1)
            if trouble == "dawdle":
                time.sleep(30)  # until a second attempt has overtaken it; Spark then kills this one

    return step


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
    }
    spark = headwater.session("attempts", master=master, state=home / "state", conf=conf, archive=False)
    spark.dataSource.register(FailsAfterStaging)
    log = open_log(home / "log")
    for scenario in scenarios:
        way, trouble = scenario.split(".")
        rows = rows_of(spark, log)
        if trouble == "after":
            writer = to_topic(rows, log, format="fails_after_staging", topic=scenario)
        else:
            rows = rows.mapInArrow(spoiled(trouble), "id long, name string")
            sink = TopicSink(log=log.path, topic=scenario)
            writer = to_topic(rows, log, topic=scenario) if way == "format" else rows.writeStream.foreachBatch(sink)
        run(writer, home / f"checkpoint-{scenario}")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
