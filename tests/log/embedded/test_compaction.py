from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import ManualClock
from headwater.config import Config
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log


def table_of(log: EmbeddedLog, topic: str = "t") -> dict[Any, Any]:
    """The table as a new reader from the start sees it."""
    table: dict[Any, Any] = {}
    for row in log.read(topic).rows():
        if row["_tombstone"]:
            table.pop(row["key"], None)
        else:
            table[row["key"]] = row["value"]
    return table


def test_a_reader_from_the_start_gets_the_whole_table_and_little_more(log: EmbeddedLog) -> None:
    log.create("t", {"key": "string", "value": "int64"}, key="key", compact=True, segment_bytes_max=4096)
    for number in range(300):
        log.append("t", [{"key": f"k{number % 10}", "value": number}])
    report = log.maintain("t", seal=True)
    assert report.rows_compacted == 290
    assert table_of(log) == {f"k{number % 10}": number for number in range(290, 300)}
    assert log.read("t").count() == 10
    assert log.end_offsets("t") == {0: 300}
    assert [row["_offset"] for row in log.read("t").rows()] == list(range(290, 300))
    log.append("t", [{"key": "k0", "value": 300}])
    assert log.read("t").rows()[-1]["_offset"] == 300


@given(
    appends=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=6), later=st.booleans()
)
def test_every_range_of_offsets_holds_the_rows_that_compaction_has_kept_in_it(
    tmp_path_factory: pytest.TempPathFactory, appends: list[list[int]], later: bool
) -> None:
    with open_log(tmp_path_factory.mktemp("ranges"), config=Config(maintenance="manual")) as log:
        log.create("t", {"key": "int64"}, key="key", compact=True, durability="os", segment_bytes_max=4096)
        for keys in appends:
            log.append("t", [{"key": key} for key in keys])
        log.maintain("t", seal=True)
        if later:
            log.append("t", [{"key": 5}])
        kept = [row["_offset"] for row in log.read("t").rows()]
        end = log.end_offsets("t")[0]
        for start in range(end + 1):
            for stop in range(start, end + 1):
                rows = log.read("t", start=start, stop=stop).rows()
                assert [row["_offset"] for row in rows] == [offset for offset in kept if start <= offset < stop]


def test_offsets_and_times_of_kept_rows_do_not_change(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("t", {"key": "string", "value": "int64"}, key="key", compact=True)
    for number in range(20):
        log.append("t", [{"key": f"k{number % 15}", "value": number, "_headers": {"n": str(number)}}])
        clock.advance(seconds=1)
    before = {row["_offset"]: row for row in log.read("t").rows()}
    log.maintain("t", seal=True)
    after = log.read("t").rows()
    assert len(after) == 15
    assert all(before[row["_offset"]] == row for row in after)
    assert [row["_offset"] for row in log.read("t", start=12).rows()] == [12, 13, 14, 15, 16, 17, 18, 19]


def test_tombstones_delete_and_then_age_away(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create(
        "t", {"key": "string", "value": "int64 not null"}, key="key", compact=True, tombstone_seconds_max="1 hour"
    )
    log.append("t", [{"key": "a", "value": 1}, {"key": "b", "value": 2}])
    log.append("t", [{"key": "a", "_tombstone": True}])
    log.maintain("t", seal=True)
    assert table_of(log) == {"b": 2}
    assert log.read("t").count() == 2
    clock.advance(seconds=3601)
    log.append("t", [{"key": "c", "value": 3}])
    log.maintain("t", seal=True)
    assert log.read("t").count() == 2
    assert table_of(log) == {"b": 2, "c": 3}


def test_a_null_value_is_a_tombstone_in_a_topic_without_a_schema(log: EmbeddedLog) -> None:
    log.create("t", compact=True)
    log.append("t", [(b"a", b"1"), (b"b", b"2"), (b"a", None)])
    log.maintain("t", seal=True)
    assert table_of(log) == {b"b": b"2"}


def test_a_reader_in_the_middle_is_not_disturbed(log: EmbeddedLog) -> None:
    log.create("t", {"key": "string", "value": "int64"}, key="key", compact=True, segment_bytes_max=2048)
    for number in range(100):
        log.append("t", [{"key": f"k{number % 3}", "value": number}])
    reader = iter(log.read("t", columns=["value"]))
    seen = [next(reader).column("value")[0].as_py()]
    log.maintain("t", seal=True)
    seen += [value for batch in reader for value in batch.column("value").to_pylist()]
    assert seen == sorted(set(seen))
    assert seen[-3:] == [97, 98, 99]


def test_small_frames_are_joined_when_a_segment_is_sealed(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("t", {"id": "int64"}, segment_bytes_max=20_000)
    for number in range(300):
        log.append("t", [{"id": number, "_headers": {"n": str(number)}}] if number % 50 == 7 else [{"id": number}])
        if number == 150:
            log.punctuate("t", 5)
        clock.advance(seconds=1)
    before = log.read("t").rows()
    size = log.describe("t").bytes
    report = log.maintain("t", seal=True)
    assert report.segments_coalesced > 0
    assert log.read("t").rows() == before
    assert log.describe("t").bytes < size / 2
    marks = [batch.offset for batch in log.read("t").batches() if batch.punctuation_us is not None]
    assert marks == [151]
    assert log.read("t", start=123, stop=130).rows() == before[123:130]


def test_a_retry_is_recognised_after_its_frames_were_joined(log: EmbeddedLog) -> None:
    log.create("t", {"id": "int64"}, segment_bytes_max=2_000)
    for number in range(40):
        log.append("t", [{"id": number}], producer="loader", sequence=number)
    log.maintain("t", seal=True)
    path = log.path
    log.close()
    with open_log(path) as again:
        assert again.append("t", [{"id": 39}], producer="loader", sequence=39).duplicate
        assert not again.append("t", [{"id": 40}], producer="loader", sequence=40).duplicate
        assert [row["id"] for row in again.read("t").rows()] == list(range(41))


KEYS = st.sampled_from("abcde")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 99)),
        st.tuples(st.just("delete"), KEYS, st.just(0)),
        st.tuples(st.just("compact"), st.just(""), st.sampled_from([0, 7200])),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_compaction_never_changes_the_table(tmp_path: Path, steps: list[tuple[str, str, int]]) -> None:
    clock = ManualClock()
    with open_log(tmp_path, clock=clock, config=Config(maintenance="manual")) as log:
        if "t" in log.topics():
            log.delete("t")
        log.create(
            "t",
            {"key": "string", "value": "int64"},
            key="key",
            compact=True,
            durability="os",
            segment_bytes_max=1200,
            tombstone_seconds_max="1 hour",
        )
        model: dict[str, int] = {}
        for act, key, value in steps:
            if act == "put":
                log.append("t", [{"key": key, "value": value}])
                model[key] = value
            elif act == "delete":
                log.append("t", [{"key": key, "_tombstone": True}])
                model.pop(key, None)
            else:
                clock.advance(seconds=value)
                log.maintain("t", seal=True)
            assert table_of(log) == model
        found = [row["_offset"] for row in log.read("t").rows()]
        assert found == sorted(set(found))
