"""The lake sink: folders by value, maintenance, readers that see whole batches, and nothing left behind."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ArgumentInvalid, ColumnMisfit
from headwater.optional import PackageMissing
from headwater.sinks import LakeSink
from headwater.sinks.lake_files import DataFile, Written
from tests.laws import costly
from tests.sinks.commit_child import call_until_killed
from tests.sinks.places import micro


def rows(**columns: Any) -> list[pa.RecordBatch]:
    return [pa.record_batch(columns)]


def numbers(lake: Path) -> list[int]:
    return sorted(DeltaTable(lake).to_pyarrow_table().column("id").to_pylist())


def data_files(lake: Path) -> set[str]:
    return {str(path.relative_to(lake)) for path in lake.rglob("*.parquet") if "_delta_log" not in path.parts}


def named_files(lake: Path) -> set[str]:
    """The files of the newest version, by their paths in the folder."""
    return {os.path.relpath(uri, lake) for uri in DeltaTable(lake).file_uris()}


def fill(sink: LakeSink, batches: int) -> None:
    for number in range(batches):
        sink.commit(rows(id=[number], country=["DE" if number % 2 else "FR"]), micro(number))


def test_rows_are_in_folders_by_value_and_other_programs_read_them(tmp_path: Path) -> None:
    sink = LakeSink(path=tmp_path, partition_by=("country", "year"))
    countries = ["DE", "a/b=c d", None, "DE"]
    sink.commit(rows(id=[1, 2, 3, 4], country=countries, year=[2025, 2025, 2026, 2026]), micro(0))
    table = DeltaTable(tmp_path)
    found = table.to_pyarrow_table().select(["id", "country", "year"]).sort_by("id").to_pylist()
    assert [row["country"] for row in found] == countries
    assert len(table.file_uris()) == 4
    lake = table.to_pyarrow_dataset()
    assert lake.count_rows() == 4
    read = duckdb.from_arrow(lake).filter("year = 2026").select("id", "year")
    assert sorted(read.fetchall()) == [(3, 2026), (4, 2026)]


def test_a_reader_keeps_its_version_while_maintenance_replaces_files(tmp_path: Path) -> None:
    sink = LakeSink(path=tmp_path, partition_by="country", maintenance_batches=None)
    fill(sink, 10)
    before = DeltaTable(tmp_path)
    assert sink.maintain() == 10
    after = DeltaTable(tmp_path)
    assert (len(before.file_uris()), len(after.file_uris())) == (10, 2)
    assert before.to_pyarrow_table().sort_by("id").equals(after.to_pyarrow_table().sort_by("id"))
    assert sink.maintain() == 0, "there is nothing more to join"


def test_replaced_files_go_after_the_retention(tmp_path: Path) -> None:
    sink = LakeSink(path=tmp_path, maintenance_batches=None, retention=0)
    fill(sink, 5)
    sink.maintain()
    assert data_files(tmp_path) == named_files(tmp_path)


def test_maintenance_runs_after_so_many_batches(tmp_path: Path) -> None:
    sink = LakeSink(path=tmp_path, maintenance_batches=4)
    fill(sink, 30)
    assert len(named_files(tmp_path)) < 4
    assert numbers(tmp_path) == list(range(30))


@pytest.mark.process
@pytest.mark.parametrize("point", ["lake.compacted", "lake.vacuumed"])
def test_maintenance_that_is_killed_loses_and_doubles_nothing(tmp_path: Path, point: str) -> None:
    sink = LakeSink(path=tmp_path, maintenance_batches=None, retention=0)
    fill(sink, 6)
    call_until_killed(sink, "maintain", point=point)
    assert numbers(tmp_path) == list(range(6))
    sink.maintain()
    sink.commit(rows(id=[6], country=["DE"]), micro(6, run="r2"))
    assert numbers(tmp_path) == list(range(7))
    assert data_files(tmp_path) == named_files(tmp_path)


@pytest.mark.core
@pytest.mark.process
def test_files_of_killed_attempts_are_deleted_by_maintenance(tmp_path: Path) -> None:
    sink = LakeSink(path=tmp_path)
    fill(sink, 2)
    call_until_killed(sink, "commit", rows(id=[2], country=["DE"]), micro(2), point="lake.staged")
    assert len(data_files(tmp_path)) == 3
    assert numbers(tmp_path) == [0, 1]
    sink.commit(rows(id=[2], country=["DE"]), micro(2, run="r2"))
    assert numbers(tmp_path) == [0, 1, 2]
    sink.maintain()
    strays = data_files(tmp_path) - named_files(tmp_path)
    assert len(strays) == 4, "three were compacted, and one may belong to a task that still runs"
    for path in strays:
        os.utime(tmp_path / path, (0, 0))
    sink.maintain()
    assert len(data_files(tmp_path) - named_files(tmp_path)) == 3, "old versions stay readable for the retention"
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_new_column_is_null_in_older_rows_and_other_changes_are_refused(tmp_path: Path) -> None:
    sink = LakeSink(path=tmp_path, maintenance_batches=None)
    sink.commit(rows(id=[1]), micro(0))
    sink.commit(rows(id=[2], name=["two"]), micro(1))
    sink.commit(rows(id=[3]), micro(2))
    sink.maintain()
    names = DeltaTable(tmp_path).to_pyarrow_table().sort_by("id").column("name").to_pylist()
    assert names == [None, "two", None]
    with pytest.raises(ColumnMisfit, match=r"'id' .*: it is string, and the lake has int64"):
        sink.check(pa.schema([("id", pa.string())]))
    with pytest.raises(ArgumentInvalid, match="the same as before"):
        LakeSink(path=tmp_path, partition_by="id").check(pa.schema([("id", pa.int64())]))
    with pytest.raises(ColumnMisfit, match="cannot name folders"):
        LakeSink(path=tmp_path / "new", partition_by="x").check(pa.schema([("x", pa.float64())]))


def test_types_that_delta_lacks_are_widened_or_refused(tmp_path: Path) -> None:
    sink = LakeSink(path=tmp_path)
    small = pa.array([255], pa.uint8())
    nested = pa.array(
        [{"a": [1], "b": {"x": 1}}], pa.struct([("a", pa.list_(pa.uint16())), ("b", pa.struct([("x", pa.int8())]))])
    )
    pairs = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))
    for number in range(2):
        sink.commit(rows(n=small, large=pa.array([2**64 - 1], pa.uint64()), s=nested, m=pairs), micro(number))
    [row, same] = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert row == same
    assert (row["n"], int(row["large"]), row["s"]["a"], row["m"]) == (255, 2**64 - 1, [1], [("k", 1)])
    for kind in (pa.duration("us"), pa.time64("us"), pa.timestamp("ns")):
        with pytest.raises(ColumnMisfit, match="for which Delta has no type"):
            LakeSink(path=tmp_path / "other").check(pa.schema([("x", kind)]))


def test_two_queries_that_begin_a_lake_at_once_lose_no_rows(tmp_path: Path) -> None:
    begin = threading.Barrier(4)

    def write(query: int) -> None:
        begin.wait()
        for number in range(5):
            sink = LakeSink(path=tmp_path / "lake", maintenance_batches=2)
            sink.commit(rows(id=[10 * query + number]), micro(number, query=f"q{query}"))

    threads = [threading.Thread(target=write, args=(query,)) for query in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(tmp_path / "lake") == [10 * query + number for query in range(4) for number in range(5)]


def test_what_cannot_be_a_lake_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentInvalid, match="a folder"):
        LakeSink(path="s3://bucket/lake")
    with pytest.raises(ArgumentInvalid, match="keeps all rows"):
        LakeSink(path=tmp_path, key="id")
    with pytest.raises(ArgumentInvalid, match="1 or more"):
        LakeSink(path=tmp_path, maintenance_batches=0)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(PackageMissing, match=r"headwater\[lake\]"):
        LakeSink(path=tmp_path).check(pa.schema([("id", pa.int64())]))


@costly(4)
@given(steps=st.lists(st.sampled_from(["one", "other", "maintain", "auto"]), max_size=12))
def test_any_writers_and_maintenance_keep_each_row_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    lake = tmp_path_factory.mktemp("lake")
    written: list[int] = []
    for number, step in enumerate(steps):
        sink = LakeSink(path=lake, partition_by="part", maintenance_batches=1 if step == "auto" else None, retention=0)
        if step == "maintain":
            sink.maintain()
        else:
            sink.commit(rows(id=[number], part=[number % 2]), micro(number, query=step))
            written.append(number)
    assert (numbers(lake) if written else []) == written


def test_what_a_task_tells_the_driver_is_plain_data() -> None:
    files = (DataFile(path="country=DE/a.parquet", rows=3, bytes=40, values={"country": "DE"}),)
    refused = pa.table({"id": [7], "tags": [["x", None]]})
    for told in (Written(files=files), Written(files=(), refused=refused, why=("no operation",))):
        [row] = told.to_batch().to_pylist()
        assert Written.of(row["written"], row["refused"]) == told
