"""What a queue promises, one claim for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, NotFound, NotPossible
from headwater.log import Log
from headwater.log.remote.log import RemoteLog
from headwater.queues import (
    LeaseLost,
    Message,
    Outgoing,
    Queue,
    QueueExists,
    QueueFull,
    delete_queue,
    queues,
)
from tests.queues.conftest import Server


def bodies(messages: list[Message]) -> list[object]:
    return [message.body for message in messages]


def test_two_workers_of_a_group_share_the_messages_and_each_group_gets_all(log: Log) -> None:
    first, second, other = log.queue("jobs"), log.queue("jobs"), log.queue("jobs", group="audit")
    first.put_many([1, 2, 3, 4])
    assert bodies(first.take(2)) + bodies(second.take(9)) == [1, 2, 3, 4]
    assert bodies(other.take(9)) == [1, 2, 3, 4]
    assert first.groups() == ["audit", "default"]


def test_a_message_returns_after_its_lease_and_the_late_worker_is_told(log: Log, clock: ManualClock) -> None:
    queue = log.queue("jobs", lease="10 seconds")
    queue.put("a")
    [late] = queue.take()
    assert queue.take() == []
    clock.advance(seconds=10)
    [again] = queue.take()
    assert (again.body, again.attempt) == ("a", 2)
    with pytest.raises(LeaseLost) as caught:
        queue.ack(late)
    assert caught.value.receipts == late.receipt
    queue.ack(again.receipt)
    assert queue.stats().acknowledged == 1


def test_an_extended_lease_is_not_returned(log: Log, clock: ManualClock) -> None:
    queue = log.queue("jobs", lease="10 seconds")
    queue.put("a")
    [message] = queue.take()
    clock.advance(seconds=9)
    message.extend("20 seconds")
    clock.advance(seconds=15)
    assert queue.take() == []
    message.ack()


def test_the_others_of_a_call_are_acknowledged_when_one_lease_is_lost(log: Log) -> None:
    queue = log.queue("jobs")
    queue.put_many([1, 2])
    one, two = queue.take(2)
    one.ack()
    with pytest.raises(LeaseLost):
        queue.ack(one, two)
    assert queue.stats().length == 0


def test_a_returned_message_is_delivered_first_or_after_its_delay(log: Log, clock: ManualClock) -> None:
    queue = log.queue("jobs", lease="1 hour")
    queue.put_many([1, 2, 3])
    one, two = queue.take(2)
    one.nack(delay="1 minute")
    two.nack()
    assert bodies(queue.take(9)) == [2, 3]
    clock.advance(seconds=60)
    assert bodies(queue.take(9)) == [1]


@pytest.mark.parametrize(("count", "deliveries"), [("acquisitions", 3), ("failures", 3)])
def test_a_message_is_a_dead_letter_after_its_last_attempt_and_can_be_redriven(
    log: Log, count: str, deliveries: int
) -> None:
    queue = log.queue("jobs", attempts_max=3, count=count)
    other = log.queue("jobs", group="audit")
    queue.put({"n": 1}, key="k", headers={"source": b"test"})
    for _ in range(deliveries):
        [message] = queue.take()
        message.nack(reason="boom", trace="Traceback …")
    assert queue.take() == []
    [letter] = log.read("jobs.dlq").rows()
    assert (letter["error"], letter["message"], letter["query"]) == ("AttemptsExhausted", "boom", "jobs/default")
    headers = dict(letter["headers"])
    assert headers["headwater.deliveries"] == b"3"
    assert headers["headwater.trace"] == "Traceback …".encode()
    [message] = other.take()
    message.ack()
    assert queue.redrive().changed == 1
    assert other.take() == []
    [message] = queue.take()
    assert (message.body, message.key, message.attempt) == ({"n": 1}, "k", 1)
    assert message.headers["source"] == b"test"


def test_a_released_message_does_not_count_as_delivered(log: Log) -> None:
    queue = log.queue("jobs", attempts_max=2)
    queue.put("a")
    for _ in range(5):
        [message] = queue.take()
        assert message.attempt == 1
        message.release()


def test_a_rejected_message_is_a_dead_letter_at_once(log: Log) -> None:
    queue = log.queue("jobs")
    queue.put("a")
    queue.take()[0].reject(reason="no such picture")
    assert [row["error"] for row in log.read("jobs.dlq").rows()] == ["MessageRejected"]
    assert queue.stats().dead == 1


def test_scheduled_messages_come_when_they_are_due(log: Log, clock: ManualClock) -> None:
    queue = log.queue("jobs", lease="1 day")
    queue.put("later", delay="1 hour")
    queue.put("at", deliver_at=clock.now_us() + 60_000_000)
    queue.put("now")
    assert bodies(queue.take(9)) == ["now"]
    assert queue.stats().scheduled == 2
    clock.advance(seconds=3_600)
    assert bodies(queue.take(9)) == ["at", "later"]


def test_a_higher_priority_comes_first(log: Log) -> None:
    queue = log.queue("jobs", priorities=3)
    queue.put_many([Outgoing(body=number, priority=number % 3) for number in range(6)])
    assert bodies(queue.take(9)) == [2, 5, 1, 4, 0, 3]
    with pytest.raises(ArgumentInvalid, match="priority"):
        queue.put("x", priority=3)


@pytest.mark.parametrize("expired", ["dead_letter", "drop"])
def test_an_expired_message_is_not_delivered(log: Log, clock: ManualClock, expired: str) -> None:
    queue = log.queue("jobs", ttl="1 minute", expired=expired)
    queue.put("old")
    queue.put("own", ttl="1 hour")
    clock.advance(seconds=61)
    assert bodies(queue.take(9)) == ["own"]
    dead = [row["error"] for row in log.read("jobs.dlq").rows()] if expired == "dead_letter" else []
    assert dead == (["MessageExpired"] if expired == "dead_letter" else [])
    assert queue.stats().length == 1


def test_an_id_is_put_once_in_its_window_by_any_process(log: Log, clock: ManualClock) -> None:
    queue, other = log.queue("jobs", deduplicate="10 minutes", lease="1 hour"), log.queue("jobs")
    assert queue.put("a", id="1") == other.put("b", id="1") == "1"
    queue.put_many([Outgoing(body="c", id="2"), Outgoing(body="d", id="2"), Outgoing(body="e")])
    assert bodies(queue.take(9)) == ["a", "c", "e"]
    clock.advance(seconds=601)
    queue.put("f", id="1")
    assert bodies(queue.take(9)) == ["f"]


def test_an_id_counts_that_a_process_wrote_before_it_died(local_log: Log) -> None:
    queue = local_log.queue("jobs", deduplicate="10 minutes")
    [(rows, headers, _)] = queue.encoder.batches([Outgoing(body="a", id="1")], now_us=local_log.clock.now_us()).values()
    local_log.append("jobs", rows, partition=0, headers=headers, durable=False)  # written, and not visible yet
    queue.put("b", id="1")
    assert bodies(queue.take(9)) == ["a"]


def test_order_per_key_is_kept_through_redelivery(log: Log) -> None:
    queue = log.queue("jobs", ordered=True)
    queue.put_many([Outgoing(body=f"{key}{n}", key=key) for n in (1, 2) for key in "ab"])
    a1, b1 = queue.take(9)
    assert (a1.body, b1.body) == ("a1", "b1")
    a1.nack()
    b1.ack()
    messages = queue.take(9)
    assert bodies(messages) == ["a1", "b2"]
    messages[0].ack()
    assert bodies(queue.take(9)) == ["a2"]


def test_without_order_a_crashed_workers_message_comes_after_later_ones(log: Log, clock: ManualClock) -> None:
    """The book's example: worker 2 crashes with m3 while worker 1 takes m4, and then m3 again."""
    queue = log.queue("jobs", lease="10 seconds")
    queue.put_many(["m1", "m2", "m3", "m4", "m5"])
    one, two = log.queue("jobs"), log.queue("jobs")
    processed = []
    for message in one.take(2):
        processed.append(message.body)
        message.ack()
    two.take(1)  # m3, and worker 2 crashes
    for message in one.take(1):
        processed.append(message.body)
        message.ack()
    clock.advance(seconds=10)
    processed += [message.body for message in one.take(9)]
    assert processed == ["m1", "m2", "m4", "m3", "m5"]


def test_with_order_per_key_a_crashed_workers_message_comes_before_later_ones(log: Log, clock: ManualClock) -> None:
    queue = log.queue("jobs", lease="10 seconds", ordered=True)
    queue.put_many([Outgoing(body=body, key="k") for body in ("m3", "m4", "m5")])
    one, two = log.queue("jobs"), log.queue("jobs")
    two.take(1)  # m3, and worker 2 crashes
    assert one.take(9) == []
    clock.advance(seconds=10)
    processed = []
    while messages := one.take(9):
        processed += bodies(messages)
        one.ack_many(messages)
    assert processed == ["m3", "m4", "m5"]


def test_one_consumer_is_active_and_the_next_follows(log: Log) -> None:
    first, second = log.queue("jobs", single_active=True), log.queue("jobs")
    first.put_many([1, 2, 3])
    assert bodies(first.take(1)) == [1]
    assert second.take(9) == []
    first.close()
    assert bodies(second.take(9)) == [1, 2, 3]


def test_prefetch_limits_what_a_consumer_holds(log: Log) -> None:
    queue = log.queue("jobs", prefetch=2)
    queue.put_many([1, 2, 3])
    one, _ = queue.take(9)
    assert queue.take(9) == []
    one.ack()
    assert bodies(queue.take(9)) == [3]


def test_a_full_queue_rejects_or_drops(log: Log) -> None:
    rejecting = log.queue("a", length_max=2, overflow="reject")
    rejecting.put_many([1, 2])
    with pytest.raises(QueueFull):
        rejecting.put(3)
    oldest = log.queue("b", length_max=2, overflow="drop_oldest")
    oldest.put_many([1, 2])
    oldest.put(3)
    assert bodies(oldest.take(9)) == [2, 3]
    newest = log.queue("c", length_max=2, overflow="drop_newest")
    assert newest.put_many([1, 2, 3]) == ["0-0", "0-1", ""]
    assert bodies(newest.take(9)) == [1, 2]


def test_a_transaction_appends_and_acknowledges_or_does_neither(local_log: Log, clock: ManualClock) -> None:
    queue, out = local_log.queue("jobs", lease="10 seconds"), local_log.queue("out")
    local_log.create("results", {"n": "int64"})
    queue.put(1)
    [late] = queue.take()
    clock.advance(seconds=10)
    [message] = queue.take()
    with pytest.raises(LeaseLost), queue.transaction() as transaction:
        transaction.append("results", [{"n": 1}])
        transaction.ack(late)
    with queue.transaction() as transaction:
        transaction.append("results", [{"n": 2}])
        transaction.put(out, "done")
        transaction.ack(message)
    assert [row["n"] for row in local_log.read("results").rows()] == [2]
    assert bodies(out.take()) == ["done"]
    assert queue.stats().length == 0


def test_a_queue_behind_a_server_names_another_way_than_a_transaction(server: Server, local_log: Log) -> None:
    with (
        server.of(local_log) as connection,
        RemoteLog(connection.address, connection=connection) as log,
        pytest.raises(NotPossible, match="written once"),
    ):
        log.queue("jobs").transaction()


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_an_index_that_is_lost_is_built_again_from_the_log(local_log: Log, tmp_path: Path, damage: str) -> None:
    queue = local_log.queue("jobs")
    queue.put_many([1, 2, 3, 4])
    one, two, three = queue.take(3)
    two.ack()
    three.nack()
    queue.close()
    [path] = (tmp_path / "log" / "queues").glob("*/groups/default.sqlite")
    for file in path.parent.glob("default.sqlite*"):
        file.unlink()
    if damage == "damaged":
        path.write_bytes(b"not a database" * 1000)
    messages = local_log.queue("jobs").take(9)
    assert {message.body for message in messages} == {1, 3, 4}
    assert one.body == 1
    assert {message.body: message.attempt for message in messages}[3] == 2


def test_a_queue_can_be_replayed_for_one_group(log: Log) -> None:
    queue, other = log.queue("jobs"), log.queue("jobs", group="audit")
    queue.put_many([1, 2])
    for each in (queue, other):
        each.ack_many(each.take(9))
    queue.replay()
    assert bodies(queue.take(9)) == [1, 2]
    assert other.take(9) == []


def test_a_paused_group_delivers_nothing(log: Log) -> None:
    queue = log.queue("jobs")
    queue.put(1)
    queue.pause()
    assert (queue.take(), queue.stats().paused) == ([], True)
    queue.resume()
    assert bodies(queue.take()) == [1]


def test_typed_and_binary_bodies(log: Log) -> None:
    typed = log.queue("typed", schema="id int64, name string")
    typed.put({"id": 1, "name": "x"})
    assert bodies(typed.take()) == [{"id": 1, "name": "x"}]
    binary = log.queue("binary", body="bytes")
    binary.put(b"\x00\xff")
    assert bodies(binary.take()) == [b"\x00\xff"]
    for queue, bad in ((typed, {"id": "no"}), (binary, 3), (log.queue("json"), object())):
        with pytest.raises(ArgumentInvalid, match="body"):
            queue.put(bad)
        assert queue.stats().waiting == 0


def test_settings_are_kept_and_a_difference_is_an_error(log: Log) -> None:
    log.queue("jobs", attempts_max=2)
    assert log.queue("jobs").config.attempts_max == 2
    with pytest.raises(QueueExists, match="attempts_max"):
        log.queue("jobs", attempts_max=3)
    log.queue("jobs").alter(attempts_max=3)
    assert log.queue("jobs").config.attempts_max == 3
    with pytest.raises(NotFound, match="queue"):
        log.queue("job", create=False)
    assert queues(log) == ["jobs"]
    delete_queue(log, "jobs")
    assert queues(log) == []
    assert log.queue("jobs").stats().length == 0


def test_peek_shows_messages_without_a_lease(log: Log) -> None:
    queue = log.queue("jobs")
    queue.put_many([1, 2, 3])
    queue.take()[0].nack()
    queue.take()
    assert bodies(queue.peek(9)) == [2, 3]
    assert queue.stats().waiting == 2


def test_what_is_scheduled_does_not_wait_though_no_worker_has_come_to_it(log: Log, clock: ManualClock) -> None:
    queue = log.queue("jobs")
    queue.put_many([Outgoing(body=number, delay=None if number == 2 else "1 minute") for number in range(5)])
    clock.advance(seconds=5)
    stats = queue.stats()
    assert (stats.waiting, stats.scheduled, stats.oldest_seconds) == (1, 4, 5.0)
    [queue.ack(message) for message in queue.take(9)]
    assert (queue.stats().waiting, queue.stats().scheduled, queue.stats().oldest_seconds) == (0, 4, None)
    clock.advance(seconds=60)
    assert (queue.stats().waiting, queue.stats().oldest_seconds) == (4, 65.0)


def test_stats_say_how_old_the_oldest_message_is(log: Log, clock: ManualClock) -> None:
    queue = log.queue("jobs")
    queue.put(1)
    clock.advance(seconds=5)
    assert queue.stats().oldest_seconds == 5.0


@pytest.mark.parametrize("receipt", ["", "a.b.c", "1.2"])
def test_a_receipt_that_is_none_is_refused(log: Log, receipt: str) -> None:
    with pytest.raises(ArgumentInvalid, match="receipt"):
        log.queue("jobs").ack(receipt)


def test_a_request_gets_its_reply(tmp_path: Path) -> None:
    import threading

    with hw.open(tmp_path / "log") as log:
        queue: Queue = log.queue("jobs")

        def work() -> None:
            for message in queue.take(wait="10 seconds"):
                queue.reply(message, message.body * 2)

        thread = threading.Thread(target=work)
        thread.start()
        assert queue.request(21).body == 42
        thread.join()
        assert queues(log) == ["jobs"]


def test_a_waiting_consumer_gets_a_message_as_it_is_put(tmp_path: Path) -> None:
    import threading

    with hw.open(tmp_path / "log") as log:
        queue: Queue = log.queue("jobs")
        taken: list[Message] = []
        thread = threading.Thread(target=lambda: taken.extend(queue.take(wait="10 seconds")))
        thread.start()
        log.queue("jobs").put(1)
        thread.join()
        assert bodies(taken) == [1]
