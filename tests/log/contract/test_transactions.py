from __future__ import annotations

import pytest

from headwater.errors import NotFound, RowInvalid
from headwater.log import Log
from headwater.log.errors import ProducerFenced, TransactionFinished


@pytest.fixture(autouse=True)
def _topics(log: Log) -> None:
    log.create("a", {"id": "int64"}, partitions=2, key="id")
    log.create("b", {"id": "int64"})


def counts(log: Log) -> tuple[int, int]:
    return log.read("a").count(), log.read("b").count()


def test_rows_of_a_transaction_appear_together_at_the_commit(log: Log) -> None:
    transaction = log.transaction()
    transaction.append("a", [{"id": number} for number in range(10)])
    transaction.append("b", [{"id": 1}])
    assert counts(log) == (0, 0)
    placed = transaction.commit()
    assert counts(log) == (10, 1)
    assert placed["a"].count == 10
    assert transaction.committed


def test_rows_of_a_transaction_keep_the_time_at_which_they_were_sent(log: Log) -> None:
    with log.transaction() as transaction:
        transaction.append("b", [{"id": 1}], sent_at_us=1_000_000)
        transaction.append("b", [{"id": 2}], sent_at_us=2_000_000)
    sent = log.read("b", columns=["_sent_at"]).table().column("_sent_at").cast("int64").to_pylist()
    assert sent == [1_000_000, 2_000_000]


def test_an_error_inside_rolls_everything_back(log: Log) -> None:
    with pytest.raises(ZeroDivisionError), log.transaction() as transaction:
        transaction.append("a", [{"id": 1}])
        raise ZeroDivisionError
    with pytest.raises(RowInvalid), log.transaction() as transaction:
        transaction.append("a", [{"id": 1}])
        transaction.append("b", [{"id": "x"}])
    assert counts(log) == (0, 0)
    log.append("a", [{"id": 1}], partition=0)
    assert log.read("a").rows()[0]["_offset"] == 0


def test_a_finished_transaction_takes_no_more_rows(log: Log) -> None:
    transaction = log.transaction()
    transaction.commit()
    with pytest.raises(TransactionFinished):
        transaction.append("a", [{"id": 1}])
    with pytest.raises(TransactionFinished):
        transaction.rollback()


def test_a_retried_transaction_is_not_doubled(log: Log) -> None:
    for _ in range(3):
        with log.transaction("query", sequence=17) as transaction:
            transaction.append("a", [{"id": number} for number in range(5)])
    assert counts(log) == (5, 0)
    assert log.transaction("query", sequence=17).committed
    assert not log.transaction("query", sequence=18).committed
    assert log.committed_sequence("query") == 17


def test_a_zombie_cannot_commit(log: Log) -> None:
    old = log.open_producer("query")
    zombie = log.transaction("query", epoch=old, sequence=1)
    zombie.append("a", [{"id": 1}])
    log.open_producer("query")
    with pytest.raises(ProducerFenced):
        zombie.commit()
    assert counts(log) == (0, 0)


def test_a_prepared_transaction_is_committed_by_its_id(log: Log) -> None:
    transaction = log.transaction()
    transaction.append("a", [{"id": number} for number in range(10)])
    transaction.append("b", [{"id": 1}])
    identity = transaction.prepare()
    assert counts(log) == (0, 0)
    assert log.prepared() == [identity]
    log.append("a", [{"id": 99}])
    log.append("b", [{"id": 99}])
    assert counts(log) == (1, 1)
    log.commit(identity)
    assert counts(log) == (11, 2)
    assert log.prepared() == []
    assert log.commit(identity)["a"].duplicate
    assert counts(log) == (11, 2)


def test_a_prepared_transaction_can_be_rolled_back(log: Log) -> None:
    transaction = log.transaction()
    transaction.append("a", [{"id": 1}])
    identity = transaction.prepare()
    log.rollback(identity)
    assert log.prepared() == []
    with pytest.raises(NotFound):
        log.commit(identity)
    with pytest.raises(NotFound):
        log.rollback("nonsense")
    assert counts(log) == (0, 0)


def test_offsets_of_a_group_are_part_of_the_transaction(log: Log) -> None:
    with log.transaction() as transaction:
        transaction.append("b", [{"id": 1}])
        transaction.commit_offsets("billing", "a", {0: 5})
        assert log.committed("billing", "a") == {}
    assert log.committed("billing", "a") == {0: 5}
    with pytest.raises(ZeroDivisionError), log.transaction() as transaction:
        transaction.commit_offsets("billing", "a", {0: 9})
        raise ZeroDivisionError
    assert log.committed("billing", "a") == {0: 5}


def test_a_topic_deleted_before_the_commit_stops_it_whole(log: Log) -> None:
    transaction = log.transaction()
    transaction.append("a", [{"id": 1}])
    transaction.append("b", [{"id": 1}])
    log.delete("b")
    with pytest.raises(NotFound):
        transaction.commit()
    assert log.read("a").count() == 0
    log.append("a", [{"id": 2}], partition=0)
    assert [row["_offset"] for row in log.read("a").rows()] == [0]


def test_committed_offsets_are_kept_per_group_and_topic(log: Log) -> None:
    log.commit_offsets("g", "a", {0: 3, 1: 4})
    log.commit_offsets("g", "b", {0: 1})
    log.commit_offsets("h", "a", {0: 9})
    log.commit_offsets("g", "a", {0: 5})
    assert log.committed("g", "a") == {0: 5, 1: 4}
    assert log.committed_groups() == {"g": {"a", "b"}, "h": {"a"}}
    log.forget_offsets("g", "a")
    assert log.committed("g", "a") == {}
    assert log.committed("g", "b") == {0: 1}
