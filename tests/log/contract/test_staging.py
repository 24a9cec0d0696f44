"""Rows that many tasks stage become visible in one transaction, once, whichever process commits them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headwater.errors import NotFound, RowInvalid
from headwater.log import Log, Topic
from headwater.log import open as open_log
from headwater.log.errors import NameInvalid, ProducerFenced
from headwater.log.port import Staged
from headwater.schema.rows import HEADERS_TYPE
from tests.log.adapters import Logs
from tests.log.adapters import all_logs as all_logs


@pytest.fixture
def log(all_logs: Logs) -> Iterator[Log]:
    with all_logs() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _topics(log: Log) -> None:
    log.create("a", {"id": "int64"}, partitions=3, key="id")
    log.create("b", {"id": "int64"})


def staged(log: Log, ids: range, *, topic: str = "a", sequence: int = 0, attempt: str = "x") -> Staged:
    with log.stage("query", sequence=sequence, attempt=attempt) as stage:
        stage.append(topic, pa.record_batch({"id": pa.array(list(ids))}))
        return stage.finish()


def ids(log: Log, topic: str = "a") -> list[int]:
    return sorted(row["id"] for row in log.read(topic).rows())


def test_staged_rows_of_all_tasks_become_visible_together(log: Log) -> None:
    parts = [
        staged(log, range(50)),
        staged(log, range(50, 100), attempt="y"),
        staged(log, range(3), topic="b", attempt="z"),
    ]
    assert ids(log) == ids(log, "b") == []
    appended = log.commit_staged(parts, producer="query", sequence=0)
    assert (appended["a"].count, appended["b"].count) == (100, 3)
    assert ids(log) == list(range(100))
    assert ids(log, "b") == [0, 1, 2]


def test_another_process_can_commit_what_a_task_has_staged(log: Log) -> None:
    told = pickle.dumps(staged(log, range(10_000)))
    assert len(told) < 2_000
    with open_log(log.address) as driver:
        driver.commit_staged([pickle.loads(told)])
    assert log.read("a").count() == 10_000


def test_staged_rows_lie_where_an_append_would_have_put_them(log: Log) -> None:
    log.create("appended", {"id": "int64"}, partitions=3, key="id")
    log.append("appended", [{"id": number} for number in range(100)])
    log.commit_staged([staged(log, range(100))])
    for partition in range(3):
        there = log.read("appended", partitions=[partition], columns=["id"]).table()
        assert log.read("a", partitions=[partition], columns=["id"]).table().equals(there)


def test_a_sequence_that_was_committed_is_not_committed_again(log: Log) -> None:
    first = staged(log, range(10))
    log.commit_staged([first], producer="query", sequence=0)
    assert log.commit_staged([first], producer="query", sequence=0)["a"].duplicate
    assert log.commit_staged([staged(log, range(10))], producer="query", sequence=0)["a"].duplicate
    assert ids(log) == list(range(10))
    assert log.committed_sequence("query") == 0


def test_the_last_transaction_of_a_producer_keeps_its_metadata(log: Log) -> None:
    assert log.transaction_metadata("query") is None
    log.commit_staged([staged(log, range(3))], producer="query", sequence=0, metadata={"sources": [{"a": 3}]})
    log.commit_staged([], producer="query", sequence=1, metadata={"sources": [4], "run": None})
    assert log.transaction_metadata("query") == {"sources": [4], "run": None}


def test_an_older_epoch_is_fenced(log: Log) -> None:
    first = log.open_producer("query", holder="one")
    second = log.open_producer("query", holder="two")
    with pytest.raises(ProducerFenced):
        log.commit_staged([staged(log, range(3))], producer="query", sequence=0, epoch=first)
    log.commit_staged([staged(log, range(3), attempt="y")], producer="query", sequence=0, epoch=second)
    assert ids(log) == [0, 1, 2]


def test_what_was_discarded_cannot_be_committed(log: Log) -> None:
    parts = [staged(log, range(3), attempt="run1.0"), staged(log, range(3, 6), attempt="run2.0")]
    log.discard_attempts("query", sequence=0, attempt="run1")
    with pytest.raises(Exception, match=r"(is|are) gone"):
        log.commit_staged(parts)
    log.commit_staged(parts[1:])
    assert ids(log) == [3, 4, 5]


def test_a_task_that_fails_leaves_nothing(log: Log) -> None:
    with pytest.raises(ZeroDivisionError), log.stage("query", sequence=0, attempt="x") as stage:
        stage.append("a", [{"id": 1}])
        raise ZeroDivisionError
    with pytest.raises(RowInvalid), log.stage("query", sequence=0, attempt="x") as stage:
        stage.append("a", [{"id": "no number"}])
        stage.finish()
    log.commit_staged([], producer="query", sequence=0)
    assert ids(log) == []


def test_rows_staged_for_a_topic_that_was_made_again_are_refused(log: Log) -> None:
    old = staged(log, range(3), topic="b")
    log.delete("b")
    log.create("b", {"id": "int64"})
    with pytest.raises(NotFound, match="created again"):
        log.commit_staged([old])
    assert ids(log, "b") == []


def test_headers_and_tombstones_of_staged_rows_arrive(log: Log) -> None:
    log.create("t", {"id": "int64"}, key="id", compact=True)
    columns = {
        "id": pa.array([1, 2]),
        "_tombstone": pa.array([False, True]),
        "_headers": pa.array([[("trace", b"7")], None], HEADERS_TYPE),
    }
    with log.stage("query", sequence=0, attempt="x") as stage:
        stage.append("t", pa.record_batch(columns))
        log.commit_staged([stage.finish()])
    first, second = log.read("t", columns=["id", "_tombstone", "_headers"]).rows()
    assert (first["_tombstone"], first["_headers"]) == (False, {"trace": b"7"})
    assert (second["_tombstone"], second["_headers"]) == (True, None)


def test_an_internal_topic_is_created_once(log: Log) -> None:
    about = Topic(name="__notes", id="a" * 32, schema=pa.schema([("id", pa.int64())]), key=("id",), compact=True)
    log.create_internal(about)
    log.append("__notes", [{"id": 1}])
    log.create_internal(about)
    assert log.read("__notes").count() == 1
    found = log.topic("__notes")
    assert (found.id, found.key, found.compact, found.segment_bytes_max) == (
        about.id,
        ("id",),
        True,
        about.segment_bytes_max,
    )
    assert log.topics() == ["a", "b"]


def test_an_internal_topic_has_an_internal_name(log: Log) -> None:
    with pytest.raises(NameInvalid):
        log.create_internal(Topic(name="notes", id="a" * 32, schema=pa.schema([("id", pa.int64())])))


def test_a_stage_of_many_parts_is_committed_whole(log: Log) -> None:
    """More than one request of a remote log, and more than one frame."""
    log.create("t", {"id": "int64", "text": "string"})
    with log.stage("query", sequence=0, attempt="x") as stage:
        for number in range(5):
            rows = pa.record_batch({"id": pa.array([number] * 1_000), "text": pa.array(["x" * 5_000] * 1_000)})
            stage.append("t", rows)
        staged = stage.finish()
    assert log.commit_staged([staged])["t"].count == 5_000
    assert log.read("t", columns=["id"]).table().column(0).to_pylist() == sorted(list(range(5)) * 1_000)


def test_at_is_read_as_it_was_staged(log: Log) -> None:
    log.create("t", {"at": "timestamp[us, tz=UTC]"}, time="at")
    now = datetime(2026, 3, 1, tzinfo=UTC)
    with log.stage("query", sequence=0, attempt="x") as stage:
        stage.append("t", [{"at": now}])
        log.commit_staged([stage.finish()])
    assert log.read("t").rows()[0]["at"] == now


def test_a_holder_that_another_one_has_replaced_is_refused(log: Log) -> None:
    first = log.open_producer("query", holder="run 1")
    assert log.open_producer("query", holder="run 1") == first
    assert log.open_producer("query", holder="run 2") == first + 1
    with pytest.raises(ProducerFenced):
        log.open_producer("query", holder="run 1")
    assert log.open_producer("query", holder="run 2") == first + 1
