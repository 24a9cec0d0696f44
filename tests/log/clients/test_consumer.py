"""A consumer reads existing rows, waits for new ones, and continues from the committed offsets of its group."""

from __future__ import annotations

import threading
import time
import warnings
from datetime import UTC, datetime

import pytest

from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, Closed, NotFound
from headwater.log import Consumer, NearExpiry
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.errors import NameInvalid, OffsetAhead, OffsetExpired, ReadOnly

SCHEMA = {"id": "int64"}


def ids(count: int, start: int = 0) -> list[dict[str, int]]:
    return [{"id": number} for number in range(start, start + count)]


def read(consumer: Consumer, *, seconds: float = 0) -> list[int]:
    """The ids that one poll gives."""
    return [row["id"] for batch in consumer.poll(seconds=seconds) for row in batch.rows()]


@pytest.fixture
def topic(log: EmbeddedLog) -> str:
    log.create("orders", SCHEMA)
    return "orders"


def test_without_a_group_all_partitions_are_read_and_nothing_is_committed(log: EmbeddedLog) -> None:
    log.create("orders", SCHEMA, partitions=3)
    for number in range(3):
        log.append("orders", ids(2, start=10 * number), partition=number)
    with log.consumer("orders") as consumer:
        assert sorted(read(consumer)) == [0, 1, 10, 11, 20, 21]
        assert consumer.assignment == {"orders": [0, 1, 2]}
        assert consumer.positions == {"orders": {0: 2, 1: 2, 2: 2}}
        with pytest.raises(ArgumentInvalid):
            consumer.commit()
    assert log.groups.names() == []


def test_a_group_goes_on_where_it_committed(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(3))
    with log.consumer(topic, "billing", auto_commit=False) as consumer:
        assert read(consumer) == [0, 1, 2]
        consumer.commit()
    log.append(topic, ids(2, start=3))
    with log.consumer(topic, "billing") as consumer:
        assert read(consumer) == [3, 4]


def test_a_poll_commits_what_the_poll_before_it_handed_out(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(4))
    with log.consumer(topic, "billing", rows_max=2) as consumer:
        assert read(consumer) == [0, 1]
        assert log.committed("billing", topic) == {}
        assert read(consumer) == [2, 3]
        assert log.committed("billing", topic) == {0: 2}
    assert log.committed("billing", topic) == {0: 4}


def test_after_an_error_the_last_rows_come_again(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(2))
    with pytest.raises(ZeroDivisionError), log.consumer(topic, "billing") as consumer:
        assert read(consumer) == [0, 1]
        raise ZeroDivisionError
    with log.consumer(topic, "billing") as consumer:
        assert read(consumer) == [0, 1]


def test_two_groups_read_everything_each(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(3))
    with log.consumer(topic, "billing") as billing, log.consumer(topic, "shipping") as shipping:
        assert read(billing) == read(shipping) == [0, 1, 2]


def test_auto_commits_can_be_spaced_out(log: EmbeddedLog, topic: str, clock: ManualClock) -> None:
    log.append(topic, ids(3))
    with log.consumer(topic, "billing", rows_max=1, auto_commit_seconds=60) as consumer:
        read(consumer), read(consumer)
        assert log.committed("billing", topic) == {}
        clock.advance(seconds=61)
        read(consumer)
        assert log.committed("billing", topic) == {0: 2}


def test_a_commit_may_name_a_batch_or_offsets(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(4))
    with log.consumer(topic, "billing", auto_commit=False, rows_max=2) as consumer:
        [first] = consumer.poll(seconds=0)
        consumer.poll(seconds=0)
        consumer.commit(first)
        assert log.committed("billing", topic) == {0: 2}
        consumer.commit({topic: {0: 3}})
        assert log.committed("billing", topic) == {0: 3}


def test_rows_count_as_handed_out_one_by_one(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(5))
    with log.consumer(topic, "billing") as consumer:
        for row in consumer.rows(seconds=0):
            if row["id"] == 2:
                break
        assert consumer.positions == {topic: {0: 3}}
        assert [row["id"] for row in consumer.rows(seconds=0)] == [3, 4]
        consumer.seek(topic, {0: 1})
        assert next(consumer.rows())["id"] == 1
    assert log.committed("billing", topic) == {0: 2}


def test_iteration_gives_batches_one_by_one(log: EmbeddedLog) -> None:
    log.create("orders", SCHEMA, partitions=2)
    for number in range(2):
        log.append("orders", ids(2), partition=number)
    with log.consumer("orders", "billing") as consumer:
        for batch in consumer:
            assert sum(consumer.positions["orders"].values()) == batch.data.num_rows == 2
            break
        assert len(list(consumer.batches(seconds=0))) == 1


def test_small_frames_are_joined_and_large_ones_cut(log: EmbeddedLog, topic: str) -> None:
    for number in range(10):
        log.append(topic, ids(1, start=number))
    with log.consumer(topic, rows_max=4) as consumer:
        polled = [consumer.poll(seconds=0) for _ in range(3)]
        assert [[batch.data.num_rows for batch in batches] for batches in polled] == [[4], [4], [2]]
        assert [(batches[0].offset, batches[0].offset_next) for batches in polled] == [(0, 4), (4, 8), (8, 10)]
    log.append(topic, ids(10, start=10))
    with log.consumer(topic, start={0: 10}, rows_max=4) as consumer:
        assert [read(consumer) for _ in range(3)] == [[10, 11, 12, 13], [14, 15, 16, 17], [18, 19]]


def test_partitions_take_turns(log: EmbeddedLog) -> None:
    log.create("orders", SCHEMA, partitions=2)
    log.append("orders", ids(100), partition=0)
    log.append("orders", ids(3, start=1000), partition=1)
    with log.consumer("orders", rows_max=6) as consumer:
        seen = [read(consumer) for _ in range(2)]
        assert sorted(number for number in seen[0] + seen[1] if number >= 1000) == [1000, 1001, 1002]
        assert all(len(rows) == 6 for rows in seen)


def test_punctuations_come_in_order(log: EmbeddedLog, topic: str) -> None:
    with log.consumer(topic) as consumer:
        log.append(topic, ids(2))
        log.punctuate(topic, 7)
        log.append(topic, ids(1, start=2))
        log.punctuate(topic, 8)
        batches = consumer.poll(seconds=0)
        assert [batch.punctuation_us for batch in batches] == [None, 7, None, 8]
        log.punctuate(topic, 9)
        assert [batch.punctuation_us for batch in consumer.poll(seconds=5)] == [9]


def test_a_poll_is_woken_by_an_append(log: EmbeddedLog, topic: str) -> None:
    with log.consumer(topic, "billing") as consumer:
        assert read(consumer) == []
        writer = threading.Timer(0.05, lambda: log.append(topic, ids(1)))
        writer.start()
        began = time.monotonic()
        assert read(consumer, seconds=30) == [0]
        assert time.monotonic() - began < 10
        writer.join()


def test_latest_begins_after_what_is_there(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(3))
    with log.consumer(topic, start="latest") as alone, log.consumer(topic, "billing", start="latest") as member:
        log.append(topic, ids(1, start=3))
        assert read(alone) == read(member) == [3]


def test_latest_skips_nothing_between_two_members(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(3))
    log.consumer(topic, "billing", start="latest").close(commit=False)
    log.append(topic, ids(2, start=3))
    with log.consumer(topic, "billing", start="latest") as consumer:
        assert read(consumer) == [3, 4]


def test_a_start_may_be_a_time(log: EmbeddedLog, topic: str, clock: ManualClock) -> None:
    log.append(topic, ids(3))
    clock.advance(seconds=60)
    noon = datetime.fromtimestamp(clock.now_us() / 1e6, tz=UTC)
    log.append(topic, ids(2, start=3))
    with log.consumer(topic, start=noon) as alone, log.consumer(topic, "billing", start=noon) as member:
        assert read(alone) == read(member) == [3, 4]
        alone.replay()
        assert read(alone) == [0, 1, 2, 3, 4]
        alone.replay(since=noon)
        assert read(alone) == [3, 4]


def test_a_seek_moves_and_the_next_commit_records_it(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(4))
    with log.consumer(topic, "billing") as consumer:
        assert read(consumer) == [0, 1, 2, 3]
        consumer.seek(topic, {0: 1})
        assert consumer.positions == {topic: {0: 1}}
        assert read(consumer) == [1, 2, 3]
        assert log.committed("billing", topic) == {0: 1}
        consumer.seek(topic, "latest")
        assert read(consumer) == []
        with pytest.raises(ArgumentInvalid):
            consumer.seek(topic, {1: 0})
        with pytest.raises(OffsetAhead):
            consumer.seek(topic, {0: 99})


def test_only_the_wanted_columns_are_read(log: EmbeddedLog) -> None:
    log.create("people", {"id": "int64", "name": "string"})
    log.append("people", [{"id": 1, "name": "Ada"}])
    with log.consumer("people", columns=["name"]) as consumer:
        assert [batch.rows() for batch in consumer.poll(seconds=0)] == [[{"name": "Ada"}]]


@pytest.mark.parametrize("group", [None, "billing"])
def test_new_partitions_and_new_topics_are_picked_up(log: EmbeddedLog, group: str | None) -> None:
    log.create("shop.orders", SCHEMA)
    with log.consumer("shop.*", group, start="latest") as consumer:
        log.create("shop.views", SCHEMA)
        log.append("shop.views", ids(1, start=1))
        log.alter("shop.orders", partitions=2)
        log.append("shop.orders", ids(1, start=2), partition=1)
        log.create("other", SCHEMA)
        log.append("other", ids(1))
        assert sorted(read(consumer, seconds=5) + read(consumer)) == [1, 2]
        log.delete("shop.views")
        assert read(consumer) == []
        assert consumer.assignment == {"shop.orders": [0, 1]}


def test_a_new_column_is_seen_by_a_consumer_that_is_already_reading(log: EmbeddedLog, topic: str) -> None:
    with log.consumer(topic) as consumer:
        log.append(topic, ids(1))
        assert read(consumer) == [0]
        log.alter(topic, schema={"id": "int64", "name": "string"})
        log.append(topic, [{"id": 1, "name": "Ada"}])
        assert [batch.rows()[0]["name"] for batch in consumer.poll(seconds=0)] == ["Ada"]


def test_names_that_are_wrong_are_refused(log: EmbeddedLog, topic: str) -> None:
    with pytest.raises(NotFound):
        log.consumer("order")
    for wrong in ("", "../x", ".hidden"):
        with pytest.raises(NameInvalid):
            log.consumer(topic, wrong)
        with pytest.raises(NameInvalid):
            log.consumer(topic, "billing", member=wrong)
    with pytest.raises(ArgumentInvalid):
        log.consumer(topic, member="alone")
    with pytest.raises(ArgumentInvalid):
        log.consumer([])
    with pytest.raises(ArgumentInvalid):
        log.consumer(topic, start="newest")  # type: ignore[arg-type]


def test_a_deleted_topic_is_said(log: EmbeddedLog, topic: str) -> None:
    with log.consumer(topic) as consumer:
        log.delete(topic)
        with pytest.raises(NotFound):
            consumer.poll(seconds=0)


@pytest.mark.parametrize("group", [None, "billing"])
def test_a_topic_created_again_is_read_from_its_beginning(log: EmbeddedLog, topic: str, group: str | None) -> None:
    with log.consumer(topic, group) as consumer:
        log.append(topic, ids(3))
        assert read(consumer) == [0, 1, 2]
        log.delete(topic)
        log.create(topic, SCHEMA)
        assert read(consumer) == []
        writer = threading.Timer(0.02, lambda: log.append(topic, ids(1, start=7)))
        writer.start()
        assert read(consumer, seconds=20) == [7]
        writer.join()


def test_a_deleted_topic_takes_its_groups_positions_with_it(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(3))
    log.commit_offsets("billing", topic, {0: 3})
    log.delete(topic)
    log.create(topic, SCHEMA)
    assert log.committed("billing", topic) == {}
    log.append(topic, ids(1, start=7))
    with log.consumer(topic, "billing") as consumer:
        assert read(consumer) == [7]


def test_a_closed_consumer_refuses(log: EmbeddedLog, topic: str) -> None:
    consumer = log.consumer(topic, "billing")
    consumer.close()
    consumer.close()
    with pytest.raises(Closed):
        consumer.poll(seconds=0)


def test_a_log_that_is_closed_closes_its_consumers(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(1))
    consumer = log.consumer(topic, "billing")
    assert read(consumer) == [0]
    with open_log(log.path) as other:
        log.close()
        assert other.groups.describe("billing").members == []
        assert other.committed("billing", topic) == {}


def test_a_log_opened_to_read_has_no_groups_to_join(log: EmbeddedLog, topic: str) -> None:
    log.append(topic, ids(1))
    with open_log(log.path, read_only=True) as guest:
        with guest.consumer(topic) as consumer:
            assert read(consumer) == [0]
        with pytest.raises(ReadOnly):
            guest.consumer(topic, "billing")


def expire(log: EmbeddedLog, topic: str, clock: ManualClock) -> None:
    """Let retention delete all current rows."""
    clock.advance(seconds=100)
    log.maintain(topic, seal=True)


def test_only_a_reader_of_expired_rows_gets_the_error(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("orders", SCHEMA, partitions=2, retention="60 seconds")
    slow = log.consumer("orders", rows_max=1)
    log.append("orders", ids(3), partition=0)
    expire(log, "orders", clock)
    log.append("orders", ids(1, start=3), partition=0)
    log.append("orders", ids(1, start=4), partition=1)
    quick = log.consumer("orders")
    assert sorted(read(quick)) == [3, 4]
    assert read(slow) == [4]
    for _ in range(2):
        with pytest.raises(OffsetExpired) as raised:
            read(slow)
        assert (raised.value.partition, raised.value.asked, raised.value.oldest) == ("orders/0", 0, 3)
    slow.seek("orders", "earliest")
    assert read(slow) == [3]


def test_who_fell_off_may_skip_and_count(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("orders", SCHEMA, retention="60 seconds")
    log.append("orders", ids(3))
    with log.consumer("orders", "billing", on_expired="skip", heartbeat_in_background=False) as consumer:
        expire(log, "orders", clock)
        log.append("orders", ids(1, start=3))
        assert read(consumer) == [3]
        assert consumer.skipped == 3


def test_a_reader_is_warned_before_its_rows_expire_and_once(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("orders", SCHEMA, retention="100 seconds")
    log.append("orders", ids(3))
    with log.consumer("orders", rows_max=1) as consumer:
        read(consumer)
        clock.advance(seconds=70)
        read(consumer)
        clock.advance(seconds=15)
        with pytest.warns(NearExpiry, match="orders/0"):
            consumer.poll(seconds=0)
        clock.advance(seconds=2)
        log.append("orders", ids(1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read(consumer)


def test_lag_is_in_rows_and_in_seconds(log: EmbeddedLog, clock: ManualClock) -> None:
    log.create("orders", SCHEMA, partitions=2, retention="100 seconds")
    log.append("orders", ids(4), partition=0)
    clock.advance(seconds=5)
    with log.consumer("orders", "billing", rows_max=2) as consumer:
        read(consumer)
        zero, one = consumer.lag()
        assert (zero.rows, zero.seconds, zero.expires_in_seconds) == (2, 5.0, 95.0)
        assert (one.rows, one.seconds, one.expires_in_seconds) == (0, 0.0, None)
        assert zero.member == consumer.member
