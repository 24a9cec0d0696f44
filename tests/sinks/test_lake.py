"""A lake: folders by value, small files joined, readers that see whole batches, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ArgumentInvalid, SinkMisfit, TargetNotFound
from headwater.sinks import ParquetSink, read_lake
from headwater.sinks.lake import DataFile
from headwater.sinks.parquet import Written
from headwater.testing import CrashAt, run_until_killed
from tests.laws import costly
from tests.sinks.places import micro


def rows(**columns: list[Any]) -> list[pa.RecordBatch]:
    return [pa.record_batch(columns)]


def numbers(lake: Path) -> list[int]:
    return sorted(read_lake(lake).table().column("id").to_pylist())


def data_files(lake: Path) -> set[str]:
    return {str(path) for path in lake.rglob("*.parquet")}


def fill(sink: ParquetSink, batches: int) -> None:
    for number in range(batches):
        sink.commit(rows(id=[number], country=["DE" if number % 2 else "FR"]), micro(number))


def test_rows_are_in_folders_by_value_and_other_programs_read_them(tmp_path: Path) -> None:
    sink = ParquetSink(path=tmp_path, partition_by=("country", "year"))
    countries = ["DE", "a/b=c d", None, "DE"]
    sink.commit(rows(id=[1, 2, 3, 4], country=countries, year=[2025, 2025, 2026, 2026]), micro(0))
    lake = read_lake(tmp_path)
    found = lake.table().select(["id", "country", "year"]).sort_by("id").to_pylist()
    assert [row["country"] for row in found] == countries
    assert len(lake.files) == 4
    read = duckdb.read_parquet(lake.files, hive_partitioning=True)
    assert sorted(read.select("id", "year").fetchall()) == [(1, 2025), (2, 2025), (3, 2026), (4, 2026)]


def test_a_reader_keeps_its_files_while_they_are_compacted(tmp_path: Path) -> None:
    sink = ParquetSink(path=tmp_path, partition_by="country", compact_files=None)
    fill(sink, 10)
    before = read_lake(tmp_path)
    assert sink.compact() == 10
    after = read_lake(tmp_path)
    assert (len(before.files), len(after.files)) == (10, 2)
    assert before.table().sort_by("id").equals(after.table().sort_by("id"))
    assert sink.compact() == 0, "there is nothing more to join"


def test_replaced_files_go_when_no_reader_can_need_them(tmp_path: Path) -> None:
    sink = ParquetSink(path=tmp_path, compact_files=None, keep_seconds=0)
    fill(sink, 5)
    sink.compact()
    assert data_files(tmp_path) == set(read_lake(tmp_path).files)


def test_small_files_are_joined_by_themselves(tmp_path: Path) -> None:
    sink = ParquetSink(path=tmp_path, compact_files=4)
    fill(sink, 100)
    assert len(read_lake(tmp_path).files) < 4
    assert numbers(tmp_path) == list(range(100))
    records = os.listdir(tmp_path / "_headwater")
    assert len(records) < 80, "records that were summed up are gone"


@pytest.mark.core
@pytest.mark.process
@pytest.mark.parametrize("point", ["lake.compacted", "lake.recorded", "lake.swept"])
def test_a_compaction_that_is_killed_loses_and_doubles_nothing(tmp_path: Path, point: str) -> None:
    sink = ParquetSink(path=tmp_path, compact_files=None, keep_seconds=0)
    fill(sink, 6)
    assert run_until_killed(lambda: _compact(sink), at=CrashAt(point=point)).killed
    assert numbers(tmp_path) == list(range(6))
    for path in data_files(tmp_path):
        os.utime(path, (0, 0))  # long ago: whoever wrote it is not about to record it
    sink.compact()
    sink.commit(rows(id=[6], country=["DE"]), micro(6, run="r2"))
    assert numbers(tmp_path) == list(range(7))
    assert data_files(tmp_path) == set(read_lake(tmp_path).files)


def _compact(sink: ParquetSink) -> None:
    sink.compact()


@pytest.mark.process
def test_files_of_killed_attempts_are_swept_when_the_next_run_begins(tmp_path: Path) -> None:
    sink = ParquetSink(path=tmp_path)
    fill(sink, 2)
    ended = run_until_killed(
        lambda: sink.commit(rows(id=[2], country=["DE"]), micro(2)), at=CrashAt(point="lake.staged")
    )
    assert ended.killed
    assert len(data_files(tmp_path)) == 3
    assert numbers(tmp_path) == [0, 1]
    sink.commit(rows(id=[2], country=["DE"]), micro(2, run="r2"))
    assert data_files(tmp_path) == set(read_lake(tmp_path).files)
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_new_column_is_null_in_older_rows_and_other_changes_are_refused(tmp_path: Path) -> None:
    sink = ParquetSink(path=tmp_path, compact_files=None)
    sink.commit(rows(id=[1]), micro(0))
    sink.commit(rows(id=[2], name=["two"]), micro(1))
    sink.compact()
    assert read_lake(tmp_path).table().sort_by("id").to_pylist() == [{"id": 1, "name": None}, {"id": 2, "name": "two"}]
    with pytest.raises(SinkMisfit, match="'id': it is string, and the lake has int64"):
        sink.check(pa.schema([("id", pa.string())]))
    with pytest.raises(ArgumentInvalid, match="the same as before"):
        ParquetSink(path=tmp_path, partition_by="id").check(pa.schema([("id", pa.int64())]))
    with pytest.raises(SinkMisfit, match="cannot name folders"):
        ParquetSink(path=tmp_path / "new", partition_by="x").check(pa.schema([("x", pa.float64())]))


def test_what_cannot_be_a_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetNotFound, match="There is no lake"):
        read_lake(tmp_path / "nowhere")
    with pytest.raises(ArgumentInvalid, match="a folder"):
        ParquetSink(path="s3://bucket/lake")
    with pytest.raises(ArgumentInvalid, match="keeps all rows"):
        ParquetSink(path=tmp_path, key="id")


@costly(2)
@given(steps=st.lists(st.sampled_from(["one", "other", "compact", "auto"]), max_size=12))
def test_any_writers_and_compactions_keep_each_row_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    lake = tmp_path_factory.mktemp("lake")
    written: list[int] = []
    for number, step in enumerate(steps):
        sink = ParquetSink(path=lake, partition_by="part", compact_files=2 if step == "auto" else None)
        if step == "compact":
            sink.compact()
        else:
            sink.commit(rows(id=[number], part=[number % 2]), micro(number, query=step))
            written.append(number)
    assert (numbers(lake) if written else []) == written


def test_what_a_task_tells_the_driver_is_plain_data() -> None:
    files = (DataFile(path="country=DE/a.parquet", rows=3, bytes=40),)
    refused = pa.table({"id": [7], "tags": [["x", None]]})
    for told in (Written(files=files), Written(files=(), refused=refused, why=("no operation",))):
        [row] = told.to_batch().to_pylist()
        assert Written.of(row["written"], row["refused"]) == told
