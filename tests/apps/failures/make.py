"""Let queries fail in the ways that users meet, and keep what Spark says beside this file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import headwater
from headwater.operators import Process
from tests.apps.failures import fraud

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def run(rows: DataFrame, deliver: Callable[[DataFrame, int], None] | None = None) -> None:
    """Run a stream until it fails."""
    writer = rows.writeStream.option("checkpointLocation", tempfile.mkdtemp())
    writer = writer.format("noop") if deliver is None else writer.foreachBatch(deliver)
    writer.start().awaitTermination(120)


def stepped(spark: SparkSession) -> DataFrame:
    with headwater.open(tempfile.mkdtemp()) as log:
        log.create("events", "id int64, user string", key="user")
        log.append("events", [{"id": 1, "user": "a"}])
        rows = spark.readStream.format("headwater").option("log", log.address).load("events")
    state, output = {"n": "int64"}, {"user": "string", "n": "int64"}
    return rows.transform(Process(step=fraud.step, by="user", state=state, output=output))


def keep(name: str, fail: Callable[[], object]) -> None:
    try:
        fail()
    except Exception as error:
        text = str(error).replace(str(HERE), "/home/ann/app").replace(str(ROOT / ".venv"), "/home/ann/venv")
        text = text.replace(str(ROOT), "/home/ann/venv/lib/python3.11/site-packages")
        (HERE / f"{name}.txt").write_text(text + "\n", encoding="utf-8")
        print(name, type(error).__name__)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spark = headwater.session(state=folder)
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
        ratio = udf(fraud.ratio, "long")
        keep("udf", lambda: run(rows.select(ratio("value"))))
        keep("map_in_arrow", lambda: run(rows.mapInArrow(fraud.shout, "x long")))
        keep("foreach_batch", lambda: run(rows, fraud.deliver))
        keep(
            "udf_in_foreach_batch",
            lambda: run(rows, lambda batch, _: batch.select(ratio("value")).write.format("noop").mode("append").save()),
        )
        keep("step", lambda: run(stepped(spark)))
        keep("unknown_column", lambda: fraud.misspelled(rows))
        keep("java", lambda: spark._jvm.java.lang.Integer.parseInt("x"))  # type: ignore[union-attr]
        spark.stop()


if __name__ == "__main__":
    main()
