"""Rows staged by many processes become visible in one transaction, or leave nothing."""

from __future__ import annotations

import os
import pickle
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.config import Config
from headwater.errors import NotFound
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.stage import LITTER_SECONDS_MAX, StagedFile
from headwater.log.embedded.transaction_parts import SIDE_BY_SIDE_BYTES_MIN
from headwater.log.errors import DiskFull, FrameCorrupt, ProducerFenced
from headwater.log.port import Staged


def stage(log: EmbeddedLog, topic: str, ids: range, *, sequence: int = 0, attempt: str = "a") -> Staged:
    with log.stage("query", sequence=sequence, attempt=attempt) as stage:
        stage.append(topic, pa.record_batch({"id": pa.array(list(ids))}))
        return stage.finish()


def ids(log: EmbeddedLog, topic: str = "t") -> list[int]:
    return sorted(row["id"] for row in log.read(topic).rows())


def staged_files(log: EmbeddedLog) -> list[Path]:
    return [path for path in (log.path / "transactions/staged").rglob("*") if path.is_file()]


@pytest.fixture
def topic(log: EmbeddedLog) -> EmbeddedLog:
    log.create("t", {"id": "int64"}, partitions=3, key="id")
    return log


def test_staged_rows_are_visible_after_the_commit_and_not_before(topic: EmbeddedLog) -> None:
    files = [stage(topic, "t", range(50), attempt="a"), stage(topic, "t", range(50, 100), attempt="b")]
    assert topic.read("t").count() == 0
    appended = topic.commit_staged(files, producer="query", sequence=0)
    assert appended["t"].count == 100
    assert ids(topic) == list(range(100))
    assert staged_files(topic) == []


def test_staged_rows_lie_where_an_append_would_have_put_them(topic: EmbeddedLog) -> None:
    topic.create("appended", {"id": "int64"}, partitions=3, key="id")
    topic.append("appended", [{"id": number} for number in range(100)])
    topic.commit_staged([stage(topic, "t", range(100))])
    for partition in range(3):
        there = topic.read("appended", partitions=[partition], columns=["id"]).table()
        assert topic.read("t", partitions=[partition], columns=["id"]).table().equals(there)


def test_a_staged_file_is_named_by_a_small_value_that_another_process_can_use(topic: EmbeddedLog) -> None:
    told = pickle.dumps(stage(topic, "t", range(10_000)))
    assert len(told) < 1_000
    with open_log(topic.path) as driver:
        driver.commit_staged([pickle.loads(told)])
    assert topic.read("t").count() == 10_000


def test_a_sequence_that_was_committed_is_not_committed_again(topic: EmbeddedLog) -> None:
    topic.commit_staged([stage(topic, "t", range(10))], producer="query", sequence=0)
    again = topic.commit_staged([stage(topic, "t", range(10))], producer="query", sequence=0)
    assert again["t"].duplicate
    assert ids(topic) == list(range(10))
    assert staged_files(topic) == []


def test_a_commit_removes_what_other_attempts_of_its_batch_have_left(topic: EmbeddedLog) -> None:
    stage(topic, "t", range(10), sequence=0, attempt="died")
    ours = stage(topic, "t", range(10), sequence=1, attempt="lives")
    stage(topic, "t", range(10), sequence=1, attempt="speculative")
    later = stage(topic, "t", range(10, 20), sequence=2)
    topic.commit_staged([ours], producer="query", sequence=1)
    assert [path.name for path in staged_files(topic)] == [StagedFile.from_json(later).file]
    topic.commit_staged([later], producer="query", sequence=2)
    assert ids(topic) == list(range(20))


def test_discarding_after_the_commit_removes_no_row(topic: EmbeddedLog) -> None:
    staged = stage(topic, "t", range(10))
    topic.commit_staged([staged], producer="query", sequence=0)
    topic.discard_attempts("query", sequence=0, attempt="a")
    assert ids(topic) == list(range(10))


def test_a_stage_that_fails_leaves_no_file(topic: EmbeddedLog) -> None:
    with pytest.raises(ValueError, match="half way"), topic.stage("query", sequence=0, attempt="a") as stage:
        stage.append("t", [{"id": 1}])
        assert len(staged_files(topic)) == 1
        raise ValueError("half way")
    assert staged_files(topic) == []


def test_several_topics_become_visible_together(topic: EmbeddedLog) -> None:
    topic.create("u", {"name": "string"})
    with topic.stage("query", sequence=0, attempt="a") as stage:
        stage.append("t", [{"id": 1}])
        stage.append("u", [{"name": "a"}, {"name": "b"}])
        staged = stage.finish()
    appended = topic.commit_staged([staged])
    assert {name: one.count for name, one in appended.items()} == {"t": 1, "u": 2}


def test_metadata_is_kept_with_the_last_transaction_also_without_rows(topic: EmbeddedLog) -> None:
    assert topic.transaction_metadata("query") is None
    topic.commit_staged([stage(topic, "t", range(3))], producer="query", sequence=0, metadata={"sources": [3]})
    topic.commit_staged([], producer="query", sequence=1, metadata={"sources": [4]})
    assert topic.committed_sequence("query") == 1
    with open_log(topic.path) as other:
        assert other.transaction_metadata("query") == {"sources": [4]}


def test_the_older_of_two_holders_is_refused(topic: EmbeddedLog) -> None:
    first = topic.open_producer("query", holder="run 1")
    assert topic.open_producer("query", holder="run 1") == first
    second = topic.open_producer("query", holder="run 2")
    assert second == first + 1
    with pytest.raises(ProducerFenced):
        topic.open_producer("query", holder="run 1")
    with pytest.raises(ProducerFenced):
        topic.commit_staged([stage(topic, "t", range(3))], producer="query", sequence=0, epoch=first)
    assert topic.read("t").count() == 0
    topic.commit_staged([stage(topic, "t", range(3), attempt="b")], producer="query", sequence=0, epoch=second)
    assert ids(topic) == [0, 1, 2]


def test_a_topic_made_again_does_not_get_rows_staged_for_its_predecessor(topic: EmbeddedLog) -> None:
    staged = stage(topic, "t", range(3))
    topic.delete("t")
    topic.create("t", {"id": "string"})
    with pytest.raises(NotFound):
        topic.commit_staged([staged])
    assert topic.read("t").count() == 0


def test_rows_staged_before_a_change_of_the_schema_are_read_after_it(topic: EmbeddedLog) -> None:
    staged = stage(topic, "t", range(3))
    topic.alter("t", schema={"id": "int64", "name": "string"})
    topic.commit_staged([staged])
    rows = topic.read("t", columns=["id", "name"]).rows()
    assert sorted(rows, key=lambda row: row["id"]) == [{"id": number, "name": None} for number in range(3)]


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_damaged_file_is_refused_before_anything_is_written(topic: EmbeddedLog, damage: str) -> None:
    good, bad = stage(topic, "t", range(3), attempt="a"), stage(topic, "t", range(3, 6), attempt="b")
    [path] = [path for path in staged_files(topic) if path.name == StagedFile.from_json(bad).file]
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:] if damage == "flipped" else data[:-16])
    with pytest.raises(FrameCorrupt):
        topic.commit_staged([good, bad], producer="query", sequence=0)
    assert topic.read("t").count() == 0


def test_old_litter_is_swept_and_fresh_files_are_not(topic: EmbeddedLog) -> None:
    old, fresh = stage(topic, "t", range(3), attempt="old"), stage(topic, "t", range(3), attempt="fresh")
    long_ago = os.stat(topic.path).st_mtime - LITTER_SECONDS_MAX - 60
    [path] = [path for path in staged_files(topic) if path.name == StagedFile.from_json(old).file]
    os.utime(path, (long_ago, long_ago))
    with open_log(topic.path) as other:
        other.commit_staged([], producer="another", sequence=0, metadata={})
    assert [path.name for path in staged_files(topic)] == [StagedFile.from_json(fresh).file]


def test_many_small_batches_become_few_frames(topic: EmbeddedLog) -> None:
    with topic.stage("query", sequence=0, attempt="a") as stage:
        for number in range(500):
            stage.append("t", pa.record_batch({"id": pa.array([number])}))
        staged = stage.finish()
    assert sum(len(place.positions) for place in StagedFile.from_json(staged).places) == 3
    topic.commit_staged([staged])
    assert ids(topic) == list(range(500))


def test_appends_and_staged_commits_to_one_topic_do_not_disturb_each_other(topic: EmbeddedLog) -> None:
    errors: list[BaseException] = []

    def append(log: EmbeddedLog) -> None:
        try:
            for number in range(50):
                log.append("t", [{"id": 1_000_000 + number}])
        except BaseException as error:
            errors.append(error)

    with open_log(topic.path) as other:
        thread = threading.Thread(target=append, args=(other,))
        thread.start()
        for sequence in range(20):
            staged = stage(topic, "t", range(sequence * 10, sequence * 10 + 10), sequence=sequence)
            topic.commit_staged([staged], producer="query", sequence=sequence)
        thread.join()
    assert errors == []
    assert ids(topic) == [*range(200), *range(1_000_000, 1_000_050)]


def bodies(count: int) -> dict[str, Any]:
    return {"id": list(range(count)), "body": ["x" * 10_000] * count}


def test_a_disk_that_fills_while_rows_are_staged_leaves_nothing(disk_of: Callable[[int], Path]) -> None:
    disk = disk_of(16)
    with open_log(disk / "log", config=Config(maintenance="manual")) as log:
        log.create("t", {"id": "int64", "body": "string"})
        with pytest.raises(DiskFull), log.stage("query", sequence=0, attempt="a") as stage:
            for _ in range(100):
                stage.append("t", pa.table(bodies(100)))
            stage.finish()
        assert staged_files(log) == []
        log.append("t", [{"id": 1, "body": "x"}])
        assert ids(log) == [1]


def test_a_disk_that_fills_while_a_large_commit_writes_its_partitions_leaves_all_as_it_was(
    disk_of: Callable[[int], Path],
) -> None:
    disk = disk_of(16)
    with open_log(disk / "log", config=Config(maintenance="manual")) as log:
        log.create("t", {"id": "int64", "body": "string"}, partitions=3, key="id")
        with log.stage("query", sequence=0, attempt="a") as stage:
            stage.append("t", pa.table(bodies(900)))
            staged = stage.finish()
        assert StagedFile.from_json(staged).bytes > SIDE_BY_SIDE_BYTES_MIN
        with pytest.raises(DiskFull):
            log.commit_staged([staged], producer="query", sequence=0)
        assert log.read("t").count() == 0
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        log.commit_staged([staged], producer="query", sequence=0)
        assert ids(log) == list(range(900))
