from __future__ import annotations

import decimal
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, NotFound, RowInvalid
from headwater.log import Log
from headwater.log.errors import KeyConflict, OffsetConflict, ProducerFenced, RowTooLarge
from tests.laws import costly

SCHEMA = {"id": "int64", "name": "string"}
ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        lambda: (row for row in ROWS),  # a new one for each adapter, since it can be read only once
        pd.DataFrame(ROWS),
        pl.DataFrame(ROWS),
        pa.Table.from_pylist(ROWS),
        pa.RecordBatch.from_pylist(ROWS),
        [pa.RecordBatch.from_pylist(ROWS[:1]), pa.RecordBatch.from_pylist(ROWS[1:], schema=pa.schema(SCHEMA))],
    ],
    ids=["dicts", "generator", "pandas", "polars", "table", "batch", "batches"],
)
def test_rows_go_in_in_every_shape(log: Log, rows: Any) -> None:
    log.create("t", SCHEMA)
    appended = log.append("t", rows() if callable(rows) else rows)
    assert appended.ranges == {0: (0, 2)}
    assert log.read("t", columns=["id", "name"]).rows() == ROWS


def test_nested_and_exact_types_come_back_as_they_were(log: Log) -> None:
    schema = {
        "big": "int64",
        "price": "decimal(20,4)",
        "at": "timestamp",
        "tags": "list<string>",
        "place": "struct<x: double, names: map<string, int32>>",
        "raw": "binary",
    }
    row = {
        "big": 73314510714175488,
        "price": decimal.Decimal("12345678901234.5678"),
        "at": datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC),
        "tags": ["x", "y"],
        "place": {"x": 1.5, "names": {"a": 1}},
        "raw": b"\x00\xff",
    }
    for codec in ("none", "lz4", "zstd"):
        log.create(f"t-{codec}", schema, codec=codec)
        log.append(f"t-{codec}", [row])
        back = log.read(f"t-{codec}", columns=list(schema)).rows()[0]
        assert back == row


def test_a_bad_row_is_named_and_nothing_is_appended(log: Log) -> None:
    log.create("t", SCHEMA)
    with pytest.raises(RowInvalid, match="Row 1"):
        log.append("t", [{"id": 1, "name": "a"}, {"id": "many", "name": "b"}])
    assert log.end_offsets("t") == {0: 0}


def test_an_empty_append_changes_nothing(log: Log) -> None:
    log.create("t", SCHEMA)
    assert log.append("t", []).count == 0
    assert log.append("t", pa.table({"id": pa.array([], pa.int64()), "name": pa.array([], pa.string())})).count == 0
    assert log.end_offsets("t") == {0: 0}


def test_a_row_larger_than_a_frame_is_refused(log: Log) -> None:
    log.create("t", SCHEMA)
    with pytest.raises(RowTooLarge):
        log.append("t", [{"id": 1, "name": "x" * (log.config.frame_bytes_max + 1)}])
    assert log.end_offsets("t") == {0: 0}


def test_many_large_rows_are_cut_into_frames_and_come_back_in_order(log: Log) -> None:
    log.create("t", SCHEMA)
    count = 40
    log.append("t", [{"id": number, "name": "x" * 1_000_000} for number in range(count)])
    assert [row["id"] for row in log.read("t", columns=["id"]).rows()] == list(range(count))


def test_rows_of_one_key_go_to_one_partition_in_order(log: Log) -> None:
    log.create("t", SCHEMA, partitions=8, key="name")
    for number in range(50):
        log.append("t", [{"id": number, "name": f"key{number % 7}"}])
    seen: dict[str, list[tuple[int, int]]] = {}
    for row in log.read("t").rows():
        seen.setdefault(row["name"], []).append((row["_partition"], row["id"]))
    assert len(seen) == 7
    for places in seen.values():
        assert len({partition for partition, _ in places}) == 1
        assert [number for _, number in places] == sorted(number for _, number in places)


def test_the_partition_of_a_key_is_the_same_in_every_release(log: Log) -> None:
    log.create("t", SCHEMA, partitions=16, key="name")
    found = {name: next(iter(log.append("t", [{"id": 0, "name": name}]).ranges)) for name in ("ada", "bob", "", "ü")}
    assert found == GOLDEN_PARTITIONS


GOLDEN_PARTITIONS = {"ada": 0, "bob": 11, "": 9, "ü": 13}


def test_rows_without_a_key_take_turns(log: Log) -> None:
    log.create("t", SCHEMA, partitions=3)
    for number in range(9):
        log.append("t", [{"id": number, "name": None}])
    assert log.end_offsets("t") == {0: 3, 1: 3, 2: 3}


def test_an_explicit_partition_wins(log: Log) -> None:
    log.create("t", SCHEMA, partitions=3, key="name")
    assert log.append("t", ROWS, partition=2).ranges == {2: (0, 2)}
    with pytest.raises(NotFound):
        log.append("t", ROWS, partition=3)


def test_headers_travel_beside_the_row(log: Log) -> None:
    log.create("t", SCHEMA)
    log.append("t", ROWS, headers={"trace": "abc"})
    log.append("t", [{"id": 3, "name": "c", "_headers": {"own": b"\x01"}}, {"id": 4, "name": "d"}])
    assert [row["_headers"] for row in log.read("t").rows()] == [
        {"trace": b"abc"},
        {"trace": b"abc"},
        {"own": b"\x01"},
        None,
    ]


def test_times_of_append_and_of_sending_are_kept(log: Log, clock: ManualClock) -> None:
    log.create("t", SCHEMA)
    log.append("t", ROWS[:1], sent_at_us=clock.now_us() - 5_000_000)
    row = log.read("t").rows()[0]
    assert (row["_appended_at"] - row["_sent_at"]).total_seconds() == 5.0


def test_append_times_never_go_back(log: Log, clock: ManualClock) -> None:
    log.create("t", SCHEMA)
    for seconds in (10, -30, 5):
        clock.advance(seconds=seconds)
        log.append("t", ROWS)
    times = [row["_appended_at"] for row in log.read("t").rows()]
    assert times == sorted(times)


def test_a_conditional_append_needs_the_offset_it_was_decided_at(log: Log) -> None:
    log.create("t", SCHEMA)
    log.append("t", ROWS, expected_offset=0)
    with pytest.raises(OffsetConflict) as caught:
        log.append("t", ROWS, expected_offset=0)
    assert caught.value.actual == 2
    log.append("t", ROWS, expected_offset=2)
    assert log.end_offsets("t") == {0: 4}


def test_a_conditional_append_by_key_looks_only_at_that_key(log: Log) -> None:
    log.create("t", SCHEMA, key="name", partitions=2)
    first = log.append("t", [{"id": 1, "name": "ada"}], expected_key_offset=-1)
    partition, (offset, _) = next(iter(first.ranges.items()))
    for number in range(20):
        log.append("t", [{"id": number, "name": f"other{number}"}])
    second = log.append("t", [{"id": 2, "name": "ada"}], expected_key_offset=offset)
    with pytest.raises(KeyConflict) as caught:
        log.append("t", [{"id": 3, "name": "ada"}], expected_key_offset=offset)
    assert caught.value.actual == second.ranges[partition][0]
    with pytest.raises(KeyConflict):
        log.append("t", [{"id": 3, "name": "ada"}], expected_key_offset=-1)
    with pytest.raises(ArgumentInvalid):
        log.append("t", [{"id": 3, "name": "ada"}, {"id": 3, "name": "bob"}], expected_key_offset=3, partition=0)


def test_a_retried_batch_is_not_doubled(log: Log) -> None:
    log.create("t", SCHEMA)
    first = log.append("t", ROWS, producer="loader", sequence=7)
    again = log.append("t", ROWS, producer="loader", sequence=7)
    assert again.duplicate
    assert again.ranges == first.ranges
    log.append("t", ROWS, producer="loader", sequence=8)
    assert log.append("t", ROWS, producer="loader", sequence=3).duplicate
    assert log.read("t").count() == 4
    assert log.last_sequence("t", "loader") == 8


def test_a_zombie_producer_is_refused(log: Log) -> None:
    log.create("t", SCHEMA)
    old = log.open_producer("loader")
    log.append("t", ROWS, producer="loader", epoch=old, sequence=0)
    new = log.open_producer("loader")
    assert new == old + 1
    with pytest.raises(ProducerFenced):
        log.append("t", ROWS, producer="loader", epoch=old, sequence=1)
    log.append("t", ROWS, producer="loader", epoch=new, sequence=1)
    assert log.read("t").count() == 4


def test_a_punctuation_is_read_in_order_with_the_rows(log: Log) -> None:
    log.create("t", SCHEMA)
    log.append("t", ROWS)
    log.punctuate("t", 1_000)
    log.append("t", ROWS)
    log.punctuate("t", 2_000)
    log.append("t", ROWS)
    found = [(batch.punctuation_us, batch.offset) for batch in log.read("t").batches()]
    assert found == [(None, 0), (1_000, 2), (None, 2), (2_000, 4), (None, 4)]
    assert log.end_offsets("t") == {0: 6}


@costly(3)
@given(
    batches=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), max_size=8),
    codec=st.sampled_from(["none", "lz4", "zstd"]),
)
def test_what_goes_in_comes_out_in_order(log: Log, batches: list[list[int]], codec: Any) -> None:
    if "law" in log.topics():
        log.delete("law")
    log.create("law", {"value": "int64"}, codec=codec, segment_bytes_max=4096, durability="os")
    for values in batches:
        log.append("law", [{"value": value} for value in values])
    expected = [value for values in batches for value in values]
    assert [row["value"] for row in log.read("law").rows()] == expected
    assert [row["_offset"] for row in log.read("law").rows()] == list(range(len(expected)))
