"""A mirror copies every row once and in order, whatever is killed, and groups go on at the same row."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import faults
from headwater.config import Config
from headwater.errors import NotPossible
from headwater.log import Log
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.errors import ProducerFenced
from headwater.log.mirror import Mirror, positions
from headwater.schema import parse_schema
from headwater.testing import CrashAt, run_until_killed
from tests.laws import costly

SCHEMA = parse_schema("id int64 not null, text string")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with open_log(tmp_path / "source", config=Config(maintenance="manual")) as log:
        yield log


@pytest.fixture
def target(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with open_log(tmp_path / "target", config=Config(maintenance="manual")) as log:
        yield log


def rows_of(log: Log, topic: str) -> list[list[dict[str, Any]]]:
    """The rows of each partition, with what is theirs."""
    return [
        log.read(topic, partitions=[number], columns=[*log.topic(topic).schema.names, "_headers"]).rows()
        for number in range(log.topic(topic).partitions)
    ]


def append(log: Log, topic: str, first: int, count: int) -> None:
    log.append(topic, [{"id": number, "text": f"row {number}"} for number in range(first, first + count)])


def test_rows_settings_and_schemas_are_copied(source: EmbeddedLog, target: EmbeddedLog) -> None:
    schema = "id int64 not null, at timestamp, tags list<string>, price decimal(12,2)"
    source.create("shop.orders", schema, key="id", time="at", partitions=3, retention="7 days, 10 MB")
    source.create("bytes")
    now = datetime.datetime(2024, 1, 31, tzinfo=datetime.UTC)
    for number in range(20):
        source.append("shop.orders", [{"id": number, "at": now, "tags": ["a", None]}], headers={"trace": b"\x00"})
    source.append("bytes", [("k", "v"), (None, b"\xff")])
    progress = Mirror(source, target, rows_max=7).run()
    assert (progress.topics, progress.rows, progress.left) == (2, 22, 0)
    for name in ("shop.orders", "bytes"):
        assert rows_of(target, name) == rows_of(source, name)
        assert target.topic(name).settings_to_json() == source.topic(name).settings_to_json()
        assert (target.topic(name).schema, target.topic(name).schemaless) == (
            source.topic(name).schema,
            source.topic(name).schemaless,
        )
    sent = [log.read("shop.orders", columns=["_sent_at"]).table() for log in (source, target)]
    seconds = [[moment.replace(microsecond=0) for moment in each.column(0).to_pylist()] for each in sent]
    assert seconds[0] == seconds[1]


def test_tombstones_are_copied(source: EmbeddedLog, target: EmbeddedLog) -> None:
    source.create("users", SCHEMA, key="id", compact=True)
    append(source, "users", 0, 10)
    source.append("users", [{"id": 3, "_tombstone": True}])
    source.maintain("users", seal=True)
    append(source, "users", 2, 2)
    Mirror(source, target, rows_max=4).run()
    read = [log.read("users", columns=["id", "text", "_tombstone"]).rows() for log in (source, target)]
    assert read[0] == read[1]


def test_a_second_run_copies_what_has_come(source: EmbeddedLog, target: EmbeddedLog) -> None:
    source.create("a", SCHEMA, partitions=2)
    append(source, "a", 0, 10)
    assert Mirror(source, target).run().rows == 10
    append(source, "a", 10, 5)
    assert Mirror(source, target).run().rows == 5
    assert Mirror(source, target).run().rows == 0
    assert rows_of(target, "a") == rows_of(source, "a")


def test_a_mirror_there_and_one_back_end_with_the_same_rows(
    source: EmbeddedLog, target: EmbeddedLog, tmp_path: Path
) -> None:
    source.create("a", SCHEMA, partitions=2)
    append(source, "a", 0, 100)
    Mirror(source, target, rows_max=30).run()
    with open_log(tmp_path / "back") as back:
        Mirror(target, back, rows_max=40).run()
        assert rows_of(back, "a") == rows_of(source, "a")
    with pytest.raises(NotPossible, match="itself a copy"):
        Mirror(target, source).run()


def test_a_topic_with_other_rows_is_refused(source: EmbeddedLog, target: EmbeddedLog) -> None:
    for log in (source, target):
        log.create("a", SCHEMA)
        append(log, "a", 0, 1)
    with pytest.raises(NotPossible, match="no copies"):
        Mirror(source, target).run()
    with pytest.raises(NotPossible, match="to itself"):
        Mirror(source, source).run()


def test_changes_of_a_topic_are_copied(source: EmbeddedLog, target: EmbeddedLog) -> None:
    source.create("a", SCHEMA)
    append(source, "a", 0, 2)
    Mirror(source, target).run()
    source.alter("a", schema="id int64 not null, text string, more double", partitions=2, retention="1 day")
    source.append("a", [{"id": 7, "more": 0.5}], partition=1)
    Mirror(source, target).run()
    assert rows_of(target, "a") == rows_of(source, "a")
    assert target.topic("a").retention == source.topic("a").retention


def test_a_schema_that_changes_while_rows_are_read_loses_no_column(source: EmbeddedLog, target: EmbeddedLog) -> None:
    source.create("a", SCHEMA)
    append(source, "a", 0, 3)
    mirror = Mirror(source, target, rows_max=2)
    mirror._begin()
    mirror._find_topics()
    source.alter("a", schema="id int64 not null, text string, more double")
    source.append("a", [{"id": 3, "more": 0.5}])
    while mirror._copy():
        pass
    assert rows_of(target, "a") == rows_of(source, "a")


def test_punctuations_follow_their_rows(source: EmbeddedLog, target: EmbeddedLog) -> None:
    source.create("a", "id int64, at timestamp", time="at")
    source.append("a", [{"id": 1, "at": 10}])
    source.punctuate("a", 20, producer="p")
    source.append("a", [{"id": 2, "at": 30}])
    Mirror(source, target, rows_max=1).run()
    assert target.punctuations_at("a", 0, 1) == [20]


def test_an_older_mirror_is_fenced(source: EmbeddedLog, target: EmbeddedLog) -> None:
    source.create("a", SCHEMA)
    append(source, "a", 0, 1)
    older = Mirror(source, target)
    older._begin()
    older._find_topics()
    Mirror(source, target, topics="a*").run()
    append(source, "a", 1, 1)
    with pytest.raises(ProducerFenced):
        older._copy()
    assert rows_of(target, "a")[0] == rows_of(source, "a")[0][:1]


def test_a_mirror_follows_until_it_is_stopped(source: EmbeddedLog, target: EmbeddedLog) -> None:
    stop, copied = threading.Event(), threading.Semaphore(0)
    source.create("a", SCHEMA)
    mirror = Mirror(source, target, on_progress=lambda progress: copied.release() if progress.rows >= 3 else None)
    thread = threading.Thread(target=mirror.run, kwargs={"follow": True, "stop": stop})
    thread.start()
    try:
        append(source, "a", 0, 2)
        source.create("b", SCHEMA)
        append(source, "b", 0, 1)
        assert copied.acquire(timeout=30)
    finally:
        stop.set()
        append(source, "a", 2, 1)  # wakes it
        thread.join(30)
    assert rows_of(target, "b") == rows_of(source, "b")


# -- groups -----------------------------------------------------------------------------------------------------------


@costly(10)
@given(
    pieces=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    rows_max=st.integers(1, 12),
    commits=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    kept=st.integers(1, 3),
    before=st.integers(0, 5),
)
def test_a_group_goes_on_at_the_same_row(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[int],
    rows_max: int,
    commits: list[int],
    kept: int,
    before: int,
) -> None:
    folder = tmp_path_factory.mktemp("mirror")
    first, last = positions.FIRST_KEPT, positions.LAST_KEPT
    positions.FIRST_KEPT = positions.LAST_KEPT = kept
    try:
        with open_log(folder / "a") as source, open_log(folder / "b") as target:
            source.create("t", SCHEMA)
            count = 0
            for piece, commit in zip(pieces, [*commits, *[0] * len(pieces)], strict=False):
                append(source, "t", count, piece)
                count += piece
                source.commit_offsets("g", "t", {0: min(commit, count)})
                Mirror(source, target, groups=True, rows_max=rows_max).run()
            at = source.committed("g", "t")[0]
            # A position never moves back in the target: where the source's did, read on from the furthest.
            moved = target.committed("g", "t").get(0, 0)
            assert moved >= at
            source.commit_offsets("h", "t", {0: min(before, count)})
            Mirror(source, target, groups=True, rows_max=rows_max).run()
            begin = source.committed("h", "t")[0]
            left = [log.read("t", start={0: log.committed("h", "t")[0]}).rows() for log in (source, target)]
            assert [row["id"] for row in left[0]] == [row["id"] for row in left[1]] == list(range(begin, count))
    finally:
        positions.FIRST_KEPT, positions.LAST_KEPT = first, last


def test_groups_go_on_where_the_source_has_deleted_rows(source: EmbeddedLog, target: EmbeddedLog) -> None:
    source.create("a", SCHEMA, segment_bytes_max=1_000, retention="1 KB")
    for number in range(40):
        append(source, "a", number * 10, 10)
        source.maintain("a")
    start = source.start_offsets("a")[0]
    assert start > 0
    source.commit_offsets("g", "a", {0: start + 7})
    source.commit_offsets("older", "a", {0: 1})
    Mirror(source, target, groups=True, rows_max=25).run()
    assert target.read("a", start=target.committed("g", "a")).rows()[0]["id"] == start + 7
    assert target.committed("older", "a") == {0: 0}


def test_a_group_that_went_on_in_the_target_is_left_alone(source: EmbeddedLog, target: EmbeddedLog) -> None:
    source.create("a", SCHEMA)
    append(source, "a", 0, 10)
    source.commit_offsets("g", "a", {0: 4})
    Mirror(source, target, groups=True).run()
    target.append("a", [{"id": 100}])
    target.commit_offsets("g", "a", {0: 8})
    source.commit_offsets("end", "a", {0: 10})
    Mirror(source, target, groups=True).run()
    assert target.committed("g", "a") == {0: 8}
    assert target.committed("end", "a") == {0: 10}  # behind the rows of the mirror, before those of others


# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("point", [*faults.MIRROR_CRASH_POINTS, "commit.durable", "commit.copied", "commit.written"])
def test_a_mirror_that_is_killed_goes_on_without_loss_or_double(point: str, tmp_path: Path) -> None:
    with open_log(tmp_path / "source") as source:
        source.create("a", SCHEMA, partitions=2)
        source.create("b", SCHEMA)
        for first in range(0, 100, 10):
            append(source, "a", first, 10)
            append(source, "b", first, 10)
        source.commit_offsets("g", "b", {0: 55})

        def work() -> None:
            with open_log(tmp_path / "source") as source, open_log(tmp_path / "target") as target:
                Mirror(source, target, rows_max=17).run()

        for visit in (1, 3):
            assert run_until_killed(work, at=CrashAt(point=point, visit=visit)).killed
        with open_log(tmp_path / "target") as target:
            Mirror(source, target, groups=True, rows_max=17).run()
            for topic in ("a", "b"):
                assert rows_of(target, topic) == rows_of(source, topic)
            assert target.read("b", start=target.committed("g", "b")).rows()[0]["id"] == 55


def test_a_table_of_many_batches_keeps_its_headers(source: EmbeddedLog, target: EmbeddedLog) -> None:
    source.create("a", SCHEMA)
    for number in range(30):
        rows = pa.table({"id": [number], "text": [None]}, schema=pa.schema([("id", pa.int64()), ("text", pa.string())]))
        source.append("a", rows, headers={"n": str(number).encode()} if number % 2 else None)
    Mirror(source, target).run()
    assert rows_of(target, "a") == rows_of(source, "a")
