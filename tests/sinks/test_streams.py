"""Each sink at the end of a real streaming query: several batches, a restart in the middle, and each row once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.log import EmbeddedLog
from headwater.sinks import ConsoleSink, Fanout, ParquetSink, read_lake
from tests.servers import PeerUnavailable
from tests.sinks.places import PLACES, Place
from tests.sinks.streams import rows_of, run, run_until_it_fails


@pytest.fixture(scope="module", params=PLACES)
def kind(request: pytest.FixtureRequest) -> Iterator[type[Any]]:
    chosen = PLACES[request.param]
    try:
        getattr(chosen, "start", lambda: None)()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    yield chosen
    getattr(chosen, "stop", lambda: None)()


def with_operations(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("id", "name", "'+I' AS _op", "_partition", "_offset")


class FailsOnce:
    """A driver that dies after the sink has taken batch 1, and before Spark knows."""

    def __init__(self, sink: Any) -> None:
        self.sink = sink
        self.failed = False

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        self.sink(rows, batch_id)
        if batch_id == 1 and not self.failed:
            self.failed = True
            raise OSError("between the two commits")


def test_each_row_arrives_once_though_a_batch_is_done_again(
    spark: SparkSession, log: EmbeddedLog, kind: type[Any], tmp_path: Path
) -> None:
    place: Place = kind(tmp_path)
    sink = FailsOnce(place.sink())
    rows = with_operations(rows_of(spark, log, rows_max=50))
    writer = rows.writeStream.foreachBatch(sink)
    assert "between the two commits" in run_until_it_fails(writer, tmp_path / "checkpoint")
    run(writer, tmp_path / "checkpoint")
    assert place.content() == place.expected([[("+I", number, f"n{number}") for number in range(100)]])
    place.close()


def test_several_sinks_compute_a_batch_once_and_a_replay_feeds_only_those_that_lack_it(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path
) -> None:
    computed = spark.sparkContext.accumulator(0)

    def counted(batches: Any) -> Any:
        for batch in batches:
            computed.add(batch.num_rows)
            yield batch

    class Broken:
        broken = True

        def __call__(self, rows: DataFrame, batch_id: int) -> None:  # noqa: ARG002
            if self.broken and batch_id == 1:
                raise OSError("down")

    broken = Broken()
    first, last = (ParquetSink(path=tmp_path / name) for name in ("first", "last"))
    sink = Fanout(sinks=(first, broken, last))
    rows = with_operations(rows_of(spark, log, rows_max=50)).mapInArrow(
        counted, "id long, name string, _op string, _partition int, _offset long"
    )
    writer = rows.writeStream.foreachBatch(sink)
    assert "down" in run_until_it_fails(writer, tmp_path / "checkpoint")
    assert (read_lake(first.folder).rows, read_lake(last.folder).rows) == (100, 50)
    broken.broken = False
    run(writer, tmp_path / "checkpoint")
    for lake in (first, last):
        assert sorted(row["id"] for row in read_lake(lake.folder).table().to_pylist()) == list(range(100))
    assert computed.value == 150, "each batch once, and the repeated one once more"
    assert spark.read.option("basePath", str(first.folder)).parquet(*read_lake(first.folder).files).count() == 100


def test_rows_are_shown_on_the_console(
    spark: SparkSession, log: EmbeddedLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = ConsoleSink(title="names", rows_max=3)
    run(rows_of(spark, log).select("id", "name").writeStream.foreachBatch(sink), tmp_path / "checkpoint")
    shown = capsys.readouterr().out
    assert "names, batch 0, 40 rows" in shown
    assert "and 37 more" in shown
    sink.show()
    assert "names, batch 2" in capsys.readouterr().out
