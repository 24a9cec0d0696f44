"""A producer loses no row silently: rows are sent once, counted as dropped, or reported as failed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, Closed, NotFound, RowInvalid
from headwater.log import Limit
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.errors import DiskFull, ProducerFenced, ProducerOverloaded, ReadOnly, SyncFailed
from tests.conditions import until
from tests.log.processes import child

SCHEMA = {"id": "int64"}


def ids(count: int, start: int = 0) -> list[dict[str, int]]:
    return [{"id": number} for number in range(start, start + count)]


def stored(log: EmbeddedLog, topic: str = "orders") -> list[int]:
    return [row["id"] for row in log.read(topic).rows()]


@pytest.fixture
def orders(log: EmbeddedLog) -> EmbeddedLog:
    log.create("orders", SCHEMA)
    return log


# -- collecting and sending -------------------------------------------------------------------------------------------


def test_rows_are_sent_in_few_batches_and_in_order(orders: EmbeddedLog) -> None:
    with orders.producer("orders", linger_seconds=60) as producer:
        for number in range(1000):
            producer.send({"id": number})
        assert stored(orders) == []
        producer.flush()
        assert stored(orders) == list(range(1000))
        assert producer.stats.sent == 1000
        assert producer.stats.batches == 1
        assert producer.stats.waiting == producer.stats.waiting_bytes == 0


def test_rows_go_out_by_themselves_after_lingering(orders: EmbeddedLog) -> None:
    with orders.producer("orders", linger_seconds=0.01) as producer:
        producer.send({"id": 1})
        assert orders.wait("orders", after={0: 0}, seconds=20)
        assert stored(orders) == [1]


def test_a_full_batch_does_not_linger(orders: EmbeddedLog) -> None:
    with orders.producer("orders", linger_seconds=600, batch_rows_max=10) as producer:
        for number in range(10):
            producer.send({"id": number})
        assert orders.wait("orders", after={0: 9}, seconds=20)
    with orders.producer("orders", linger_seconds=600, batch_bytes_max=1) as producer:
        producer.send({"id": 10})
        assert orders.wait("orders", after={0: 10}, seconds=20)


@dataclass
class Order:
    id: int


@pytest.mark.parametrize(
    "rows",
    [
        [pa.RecordBatch.from_pylist(ids(1)), pa.RecordBatch.from_pylist(ids(2, start=1))],
        pa.RecordBatch.from_pylist(ids(3)),
        ids(3),
        (row for row in ids(3)),
        pa.Table.from_pylist(ids(3)),
        pd.DataFrame(ids(3)),
        [Order(0), Order(1), Order(2)],
    ],
)
def test_rows_come_in_any_shape(orders: EmbeddedLog, rows: Any) -> None:
    with orders.producer("orders") as producer:
        producer.send(rows)
        producer.send(Order(3))
    assert stored(orders) == [0, 1, 2, 3]


@given(
    sends=st.lists(st.one_of(st.integers(1, 5), st.sampled_from(["dict", "table", "flush"])), max_size=20),
    rows_max=st.integers(1, 7),
)
def test_whatever_is_sent_is_stored_once_and_in_order(log: EmbeddedLog, sends: list[Any], rows_max: int) -> None:
    topic = f"orders-{len(log.topics())}"
    log.create(topic, SCHEMA, durability="os")
    count = 0
    with log.producer(topic, batch_rows_max=rows_max, linger_seconds=0) as producer:
        for send in sends:
            if send == "flush":
                producer.flush()
                continue
            rows = ids(send if isinstance(send, int) else 1, start=count)
            count += len(rows)
            producer.send(rows[0] if send == "dict" else pa.Table.from_pylist(rows) if send == "table" else rows)
    assert stored(log, topic) == list(range(count))
    assert producer.stats.sent == count


def test_partitions_headers_and_keys_go_with_their_rows(log: EmbeddedLog) -> None:
    log.create("orders", SCHEMA, partitions=3)
    log.create("notes", partitions=1)
    with log.producer() as producer:
        producer.send({"id": 1}, topic="orders", partition=2)
        producer.send({"id": 2}, topic="orders", partition=2, headers={"trace": "7"})
        producer.send({"id": 3}, topic="orders", partition=2)
        producer.send(b"hello", topic="notes", key=b"k")
    rows = log.read("orders", partitions=[2]).rows()
    assert [(row["id"], row["_headers"]) for row in rows] == [(1, None), (2, {"trace": b"7"}), (3, None)]
    assert [(row["key"], row["value"]) for row in log.read("notes").rows()] == [(b"k", b"hello")]


def test_a_punctuation_follows_what_was_sent_before_it(orders: EmbeddedLog) -> None:
    with orders.producer("orders", linger_seconds=600) as producer:
        producer.send({"id": 1})
        producer.punctuate(7)
    with orders.consumer("orders") as consumer:
        assert [batch.punctuation_us for batch in consumer.poll(seconds=0)] == [None, 7]


def test_many_threads_may_share_a_producer(orders: EmbeddedLog) -> None:
    with orders.producer("orders", linger_seconds=0.001) as producer:

        def send(start: int) -> None:
            for number in range(start, start + 500):
                producer.send({"id": number})

        threads = [threading.Thread(target=send, args=(start,)) for start in (0, 1000, 2000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = stored(orders)
    assert len(found) == 1500
    for start in (0, 1000, 2000):
        assert [number for number in found if start <= number < start + 500] == list(range(start, start + 500))


def test_rows_are_encoded_while_others_are_synced(orders: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    syncing, go_on = threading.Event(), threading.Event()
    flush = orders.flush

    def slow_flush(topic: str) -> None:
        syncing.set()
        assert go_on.wait(120)
        flush(topic)

    monkeypatch.setattr(orders, "flush", slow_flush)
    with orders.producer("orders", linger_seconds=0) as producer:
        producer.send({"id": 0})
        assert syncing.wait(120)
        producer.send({"id": 1})
        state = orders.handle("orders").partition(0).state
        until(lambda: (tail := state.written(0)) is not None and tail.offset == 2)  # though nothing is synced yet
        assert stored(orders) == []
        go_on.set()
        producer.flush()
        assert stored(orders) == [0, 1]


# -- failing ----------------------------------------------------------------------------------------------------------


def test_a_bad_row_is_named_and_the_others_are_sent(orders: EmbeddedLog) -> None:
    producer = orders.producer("orders", linger_seconds=600)
    for row in [{"id": 0}, {"id": "no number"}, {"id": 2}]:
        producer.send(row)
    with pytest.raises(RowInvalid):
        producer.flush()
    assert stored(orders) == [0, 2]
    assert [failure.rows for failure in producer.failures] == [[{"id": "no number"}]]
    assert (producer.stats.sent, producer.stats.failed) == (2, 1)
    producer.send({"id": 3})
    producer.close()
    assert stored(orders) == [0, 2, 3]


def test_an_error_of_the_background_is_raised_by_the_next_send(orders: EmbeddedLog) -> None:
    producer = orders.producer("orders", linger_seconds=0)
    producer.send({"id": "no number"})
    until(lambda: producer.stats.failed == 1)
    with pytest.raises(RowInvalid):
        producer.send({"id": 1})
    producer.send({"id": 2})  # said once; the row of the send that raised was not taken
    producer.close()
    assert stored(orders) == [2]


def test_an_error_is_raised_by_close_at_the_latest(orders: EmbeddedLog) -> None:
    with pytest.raises(RowInvalid), orders.producer("orders") as producer:
        producer.send({"id": "no number"})
    producer = orders.producer("orders")
    producer.send({"id": "no number"})
    with pytest.raises(RowInvalid):
        orders.close()


def test_an_error_of_the_body_is_not_covered_by_that_of_the_producer(orders: EmbeddedLog) -> None:
    with pytest.raises(ZeroDivisionError) as raised, orders.producer("orders") as producer:
        producer.send({"id": "no number"})
        raise ZeroDivisionError
    assert "no number" in "".join(raised.value.__notes__) or "id" in "".join(raised.value.__notes__)


def test_rows_that_did_not_reach_the_disk_are_known(orders: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise SyncFailed(path="orders", why="the disk is gone")

    monkeypatch.setattr(orders, "flush", broken)
    producer = orders.producer("orders")
    producer.send({"id": 1})
    with pytest.raises(SyncFailed):
        producer.flush()
    assert [failure.rows for failure in producer.failures] == [[{"id": 1}]]
    producer.close()


def test_a_named_producer_stops_at_a_failure(orders: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append = orders.append

    def full(*_: Any, **__: Any) -> None:
        raise DiskFull(path="orders")

    producer = orders.producer("orders", name="till-1", linger_seconds=0)
    monkeypatch.setattr(orders, "append", full)
    producer.send({"id": 1}, sequence=0)
    with pytest.raises(DiskFull):
        producer.flush()
    monkeypatch.setattr(orders, "append", append)
    with pytest.raises(DiskFull):
        producer.send({"id": 2}, sequence=1)  # it would make number 0 look like a duplicate
    producer.close()
    with orders.producer("orders", name="till-1") as again:
        again.send({"id": 1}, sequence=0)
        again.send({"id": 2}, sequence=1)
    assert stored(orders) == [1, 2]


def test_wrong_calls_are_refused(orders: EmbeddedLog) -> None:
    with pytest.raises(NotFound):
        orders.producer("order")
    with pytest.raises(ArgumentInvalid):
        orders.producer("orders", overload="explode")  # type: ignore[arg-type]
    with pytest.raises(ArgumentInvalid):
        orders.producer("orders", batch_rows_max=0)
    with pytest.raises(ArgumentInvalid):
        Limit(group="billing")
    with pytest.raises(ArgumentInvalid):
        Limit(rows=0)
    producer = orders.producer()
    with pytest.raises(ArgumentInvalid):
        producer.send({"id": 1})
    with pytest.raises(ArgumentInvalid):
        producer.send({"id": 1}, topic="orders", sequence=1)
    producer.close()
    producer.close()
    with pytest.raises(Closed):
        producer.send({"id": 1}, topic="orders")
    with open_log(orders.path, read_only=True) as guest, pytest.raises(ReadOnly):
        guest.producer("orders")


# -- never twice ------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_sent_again_with_its_number_is_not_doubled(orders: EmbeddedLog) -> None:
    for _ in range(2):
        with orders.producer("orders", name="till-1") as producer:
            for number in range(3):
                producer.send(ids(2, start=2 * number), sequence=number)
    assert stored(orders) == [0, 1, 2, 3, 4, 5]
    assert producer.stats.duplicates == 6


def test_numbers_go_on_after_a_restart(orders: EmbeddedLog) -> None:
    for start in range(0, 6, 2):
        with orders.producer("orders", name="till-1") as producer:
            assert producer.sequence_next() == start
            for number in (start, start + 1):
                producer.send({"id": number})
                producer.flush()
    assert stored(orders) == list(range(6))


@pytest.mark.parametrize("key", [None, "id"])
def test_a_repeated_batch_finds_its_partitions_again(log: EmbeddedLog, key: str | None) -> None:
    log.create("orders", SCHEMA, partitions=3, key=key)
    for _ in range(2):
        with log.producer("orders", name="till-1") as producer:
            for number in range(5):
                producer.send(ids(4, start=4 * number), sequence=number)
    assert sorted(stored(log)) == list(range(20))


def test_a_zombie_is_refused(orders: EmbeddedLog) -> None:
    old = orders.producer("orders", name="till-1")
    with orders.producer("orders", name="till-1") as new:
        new.send({"id": 1})
    old.send({"id": 2})
    with pytest.raises(ProducerFenced):
        old.flush()
    with pytest.raises(ProducerFenced):
        old.send({"id": 3})
    old.close()
    assert stored(orders) == [1]
    assert [failure.rows for failure in old.failures] == [[{"id": 2}]]


SENDER = """
with log.producer("orders", name="till-1", linger_seconds=0.0005) as producer:
    say("first", producer.sequence_next())
    for number in range(800):
        producer.send([{"id": 2 * number}, {"id": 2 * number + 1}], sequence=number)
        if number % 20 == 0:
            producer.flush()
            say(number)
"""


@pytest.mark.process
@pytest.mark.parametrize("acknowledged", [0, 3, 9])
def test_a_sender_killed_in_the_middle_starts_over_and_doubles_nothing(tmp_path: Path, acknowledged: int) -> None:
    with open_log(tmp_path / "log") as log:
        log.create("orders", SCHEMA, partitions=2, key="id")
        with child(log.path, SENDER) as first:
            assert first.line() == "first 0"
            for _ in range(acknowledged + 1):
                last = int(first.line())
            first.kill()
        assert {*range(2 * last + 2)} <= {*stored(log)}  # what was acknowledged is there
        with child(log.path, SENDER) as second:
            second.lines()
        found = stored(log)
        assert len(found) == 1600
        assert sorted(found) == list(range(1600))


@pytest.mark.process
def test_rows_of_a_program_that_just_ends_are_sent(tmp_path: Path) -> None:
    code = 'producer = log.producer("orders", linger_seconds=600)\nproducer.send({"id": 1})\nsay("sent")\n'
    with open_log(tmp_path / "log") as log:
        log.create("orders", SCHEMA)
        with child(log.path, code) as other:
            assert other.lines() == ["sent"]
        assert stored(log) == [1]


# -- overload ---------------------------------------------------------------------------------------------------------


def test_a_producer_waits_for_its_group_and_is_woken_by_the_commit(orders: EmbeddedLog) -> None:
    with orders.producer("orders", limit=Limit(group="billing", rows=10), linger_seconds=0) as producer:
        for number in range(10):
            producer.send({"id": number})
        blocked = threading.Thread(target=producer.send, args=({"id": 10},))
        blocked.start()
        producer.flush()
        assert stored(orders) == list(range(10))
        assert blocked.is_alive()
        orders.commit_offsets("billing", "orders", {0: 1})
        blocked.join(20)
        assert not blocked.is_alive()
        producer.flush()
    assert stored(orders) == list(range(11))


def test_a_producer_may_say_that_it_waited_too_long(orders: EmbeddedLog) -> None:
    limit = Limit(group="billing", rows=2)
    with orders.producer("orders", limit=limit, wait_seconds_max=0.05) as producer:
        producer.send(ids(2))
        with pytest.raises(ProducerOverloaded, match="2 rows ahead of group 'billing'"):
            producer.send({"id": 2})
        orders.commit_offsets("billing", "orders", {0: 2})
        producer.send({"id": 3})
    assert stored(orders) == [0, 1, 3]


def test_rows_of_others_count_when_a_group_is_behind(orders: EmbeddedLog) -> None:
    orders.append("orders", ids(5))
    limit = Limit(group="billing", rows=5)
    with orders.producer("orders", limit=limit, overload="drop") as producer:
        producer.send({"id": 5})
        assert producer.stats.dropped == 1


def test_dropped_rows_are_counted_and_reported(orders: EmbeddedLog) -> None:
    reported: list[Any] = []
    with orders.producer(
        "orders",
        limit=Limit(group="billing", rows=3),
        overload="drop",
        on_drop=lambda topic, rows: reported.append((topic, rows)),
    ) as producer:
        for number in range(5):
            producer.send({"id": number})
        assert producer.stats.dropped == 2
        assert reported == [("orders", [{"id": 3}]), ("orders", [{"id": 4}])]
        producer.flush()
        orders.commit_offsets("billing", "orders", {0: 3})

        def accepted() -> bool:
            producer.send({"id": 5})
            return producer.stats.waiting + producer.stats.sent > 3

        until(accepted)
    assert stored(orders) == [0, 1, 2, 5]


def test_a_buffer_holds_rows_back_until_the_group_has_room(orders: EmbeddedLog) -> None:
    limit = Limit(group="billing", rows=4)
    with orders.producer("orders", limit=limit, overload="buffer", linger_seconds=0) as producer:
        for number in range(10):
            producer.send({"id": number})  # does not wait
        until(lambda: len(stored(orders)) > 0)
        while len(stored(orders)) < 10:
            count = len(stored(orders))
            assert count - orders.committed("billing", "orders").get(0, 0) <= 4
            orders.commit_offsets("billing", "orders", {0: count})
        producer.flush()
    assert stored(orders) == list(range(10))


def test_a_full_buffer_blocks(orders: EmbeddedLog) -> None:
    producer = orders.producer(
        "orders",
        limit=Limit(group="billing", rows=1),
        overload="buffer",
        buffer_bytes_max=200,
        wait_seconds_max=0.05,
        linger_seconds=600,
    )
    with pytest.raises(ProducerOverloaded):
        for number in range(100):
            producer.send({"id": number})
    assert producer.stats.waiting_bytes <= 200
    producer.close()
    assert stored(orders) == list(range(number))


def test_what_is_buffered_at_the_end_is_sent(orders: EmbeddedLog) -> None:
    limit = Limit(group="billing", rows=2)
    with orders.producer("orders", limit=limit, overload="buffer") as producer:
        producer.send(ids(7))
    assert stored(orders) == list(range(7))


def test_a_budget_of_bytes_bounds_what_the_disk_has_not_confirmed(
    orders: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    flush = orders.flush

    def slow_flush(topic: str) -> None:
        assert go_on.wait(120)
        flush(topic)

    monkeypatch.setattr(orders, "flush", slow_flush)
    with orders.producer("orders", limit=Limit(bytes=100), overload="drop") as producer:
        for number in range(100):
            producer.send({"id": number})
        assert 0 < producer.stats.waiting_bytes <= 100
        assert producer.stats.dropped > 90
        go_on.set()
        producer.flush()
        producer.send({"id": 100})
    assert stored(orders)[-1] == 100


def test_a_budget_of_bytes_bounds_what_the_group_has_not_read(orders: EmbeddedLog) -> None:
    limit = Limit(group="billing", bytes=100)
    with orders.producer("orders", limit=limit, wait_seconds_max=0.05) as producer:
        with pytest.raises(ProducerOverloaded):
            for number in range(100):
                producer.send({"id": number})
                producer.flush()
        assert 0 < number < 20
        orders.commit_offsets("billing", "orders", {0: number})
        producer.send({"id": number})


def test_a_producer_and_a_slow_consumer_keep_together(orders: EmbeddedLog, clock: ManualClock) -> None:
    assert clock.now_us()
    with (
        orders.consumer("orders", "billing", rows_max=7) as consumer,
        orders.producer("orders", limit=Limit(group="billing", rows=20), linger_seconds=0) as producer,
    ):

        def send() -> None:
            for number in range(300):
                producer.send({"id": number})

        sender = threading.Thread(target=send)
        sender.start()
        seen: list[int] = []
        while len(seen) < 300:
            batches = consumer.poll(seconds=5)
            assert batches
            assert orders.end_offsets("orders")[0] - len(seen) <= 20 + 7
            seen += [row["id"] for batch in batches for row in batch.rows()]
        sender.join()
    assert seen == list(range(300))
