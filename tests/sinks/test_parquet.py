"""The Parquet sink: one file for each batch, and nothing else that a reader of the folder sees."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from headwater.errors import ArgumentInvalid, ColumnMisfit
from headwater.sinks import ParquetSink
from headwater.testing import CrashAt, run_until_killed
from tests.sinks.places import micro


def rows(**columns: list[object]) -> list[pa.RecordBatch]:
    return [pa.record_batch(columns)]


def test_each_batch_is_a_file_that_other_programs_read(tmp_path: Path) -> None:
    sink = ParquetSink(path=tmp_path)
    sink.commit(rows(id=[1, 2]), micro(0))
    sink.commit(rows(id=[]), micro(1))
    sink.commit(rows(id=[3], name=["three"]), micro(2))
    assert [path.name for path in sorted(tmp_path.glob("*"))] == [
        "_headwater",
        "batch-0000000000-q.parquet",
        "batch-0000000002-q.parquet",
    ]
    assert ds.dataset(tmp_path).to_table().column("id").to_pylist() == [1, 2, 3]
    read = duckdb.read_parquet(str(tmp_path / "*.parquet"), union_by_name=True)
    assert sorted(read.fetchall()) == [(1, None), (2, None), (3, "three")]


@pytest.mark.process
def test_what_a_killed_run_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    sink = ParquetSink(path=tmp_path)
    ended = run_until_killed(lambda: sink.commit(rows(id=[1]), micro(0)), at=CrashAt(point="delivery.written"))
    assert ended.killed
    assert len(list(tmp_path.glob(".*.tmp"))) == 1
    sink.commit(rows(id=[1]), micro(0, run="r2"))
    assert list(tmp_path.glob(".*.tmp")) == []
    assert ds.dataset(tmp_path).to_table().to_pydict() == {"id": [1]}


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    sink = ParquetSink(path=tmp_path)
    sink.commit(rows(id=[1]), micro(0))
    with pytest.raises(ColumnMisfit, match=r"'id' .*: it is string, and the files have int64"):
        sink.check(pa.schema([("id", pa.string())]))
    with pytest.raises(ArgumentInvalid, match="a folder"):
        ParquetSink(path="s3://bucket/files")
    with pytest.raises(ArgumentInvalid, match="keeps all rows"):
        ParquetSink(path=tmp_path, key="id")
