from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.log import Retention
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.errors import OffsetExpired


def fill(log: EmbeddedLog, clock: ManualClock, *, rows: int, seconds: float = 10) -> None:
    for number in range(rows):
        log.append("t", [{"id": number, "body": "x" * 200}])
        clock.advance(seconds=seconds)


def offsets(log: EmbeddedLog, **options: object) -> list[int]:
    return [row["_offset"] for row in log.read("t", columns=["_offset"], **options).rows()]  # type: ignore[arg-type]


SCHEMA = {"id": "int64", "body": "string"}


def test_rows_older_than_the_retention_go_by_whole_segments(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("t", SCHEMA, retention="100 seconds", segment_bytes_max=2048)
    fill(log, clock, rows=60)
    report = log.maintain("t")
    assert report.segments_expired > 0
    kept = offsets(log)
    assert kept == list(range(kept[0], 60))
    assert 40 <= kept[0] <= 52  # all of the last hundred seconds, and at most one segment more
    assert log.start_offsets("t") == {0: kept[0]}


def test_a_quiet_topic_expires_too(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("t", SCHEMA, retention="100 seconds")
    fill(log, clock, rows=3)
    clock.advance(seconds=1000)
    log.maintain("t")
    assert offsets(log) == []
    assert log.start_offsets("t") == log.end_offsets("t") == {0: 3}
    log.append("t", [{"id": 9, "body": ""}])
    assert offsets(log) == [3]


def test_a_partition_stays_within_its_bytes(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("t", SCHEMA, retention=Retention(bytes_max=10_000), segment_bytes_max=2048)
    fill(log, clock, rows=100)
    log.maintain("t")
    assert log.describe("t").bytes <= 10_000
    kept = offsets(log)
    assert kept == list(range(kept[0], 100))


def test_only_the_reader_that_fell_off_is_told(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("t", SCHEMA, retention="100 seconds", segment_bytes_max=2048)
    fill(log, clock, rows=60)
    slow = iter(log.read("t", columns=["_offset"]))
    next(slow)
    log.maintain("t")
    with pytest.raises(OffsetExpired) as caught:
        log.read("t", start=0)
    assert caught.value.oldest == log.start_offsets("t")[0]
    with pytest.raises(OffsetExpired):
        list(slow)
    assert offsets(log, start=55) == [55, 56, 57, 58, 59]


def test_a_reader_in_the_middle_of_a_segment_finishes_it(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("t", SCHEMA, retention="1 second", segment_bytes_max=100_000)
    fill(log, clock, rows=20)
    reader = iter(log.read("t", columns=["_offset"]))
    first = next(reader)
    log.maintain("t")
    assert log.start_offsets("t") == {0: 20}
    rest = [first, *reader]
    assert [value for batch in rest for value in batch.column("_offset").to_pylist()] == list(range(20))


def test_archived_rows_can_still_be_read_on_request(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("t", SCHEMA, retention="100 seconds", segment_bytes_max=2048, archive=True)
    fill(log, clock, rows=60)
    log.maintain("t")
    assert offsets(log)[0] > 0
    assert offsets(log, archived=True) == list(range(60))


def test_the_mark_survives_reopening(tmp_path: Path, clock: ManualClock) -> None:
    with open_log(tmp_path, clock=clock) as log:
        log.create("t", SCHEMA, retention="100 seconds", segment_bytes_max=2048)
        fill(log, clock, rows=60)
        log.maintain("t")
        kept = offsets(log)
    with open_log(tmp_path, clock=clock) as log:
        assert offsets(log) == kept


def test_explicit_maintenance_waits_for_maintenance_that_runs(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("t", SCHEMA, retention="100 seconds", segment_bytes_max=2048)
    fill(log, clock, rows=60)
    (partition,) = log.handle("t").partitions()
    reports: list[int] = []
    asked = threading.Thread(target=lambda: reports.append(log.maintain("t").segments_expired))
    with partition.maintenance_lock:
        asked.start()
        asked.join(timeout=0.1)
        assert offsets(log) == list(range(60))
    asked.join()
    assert reports[0] > 0
    assert log.start_offsets("t")[0] > 0


def test_without_a_retention_nothing_goes(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("t", SCHEMA, segment_bytes_max=2048)
    fill(log, clock, rows=30, seconds=1e6)
    log.maintain("t")
    assert offsets(log) == list(range(30))


def test_sealed_segments_before_an_offset_are_deleted_whatever_the_retention(log: EmbeddedLog) -> None:
    log.create("t", {"n": "int64"})
    for _ in range(3):
        log.append("t", [{"n": 1}, {"n": 2}])
        log.maintain("t", seal=True)
    assert log.delete_before("t", {0: 3}) == {0: 2}
    assert log.delete_before("t", {0: 1}) == {0: 2}
    assert [row["_offset"] for row in log.read("t").rows()] == [2, 3, 4, 5]
    assert log.delete_before("t", {0: 99}) == {0: 6}
    assert log.append("t", [{"n": 7}]).ranges[0] == (6, 7)
