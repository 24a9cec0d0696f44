"""What a queue keeps, and what it frees: the journal, acknowledged messages, and what retention deletes under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.errors import NotFound, Overdue
from headwater.log import Log
from headwater.log.embedded import local_log
from headwater.queues import Message, Outgoing, Queue, group
from headwater.queues.queue import reply_queue


@pytest.fixture
def log(local_log: Log) -> Log:
    """In its folder: these tests look at its files."""
    return local_log


def bodies(messages: list[Message]) -> list[object]:
    return [message.body for message in messages]


def lose_index(log: Log) -> None:
    """Delete the index files of all queues, under the objects that have them open."""
    for path in Path(log.home).glob("queues/*/groups/*.sqlite*"):
        path.unlink()


def kept(log: Log, topic: str) -> int:
    return log.end_offsets(topic)[0] - log.start_offsets(topic)[0]


@pytest.mark.parametrize("ordered", [False, True])
def test_the_journal_begins_with_a_snapshot_from_which_a_lost_index_is_built(
    log: Log, clock: ManualClock, ordered: bool
) -> None:
    jobs = log.queue("jobs", ordered=ordered, lease="1 hour")
    idle = log.queue("jobs", group="idle")
    jobs.put_many(
        [Outgoing(body=0, delay="1 minute"), *(Outgoing(body=number, key=f"k{number % 5}") for number in range(1, 100))]
    )
    failed, held = jobs.take(2)
    failed.nack(delay="1 hour")
    for _ in range(8):
        jobs.ack_many(jobs.take(10))
    jobs.pause()
    jobs.maintain()
    assert log.start_offsets("jobs.journal")[0] > 8
    left = jobs.stats().length
    lose_index(log)
    assert (jobs.stats().length, jobs.stats().paused, idle.stats().length) == (left, True, 100)
    jobs.resume()
    delivered: list[object] = []
    for seconds in (0, 60, 3600):
        clock.advance(seconds=seconds)
        while messages := jobs.take(9):
            assert all(message.attempt == 2 for message in messages if message.body in (failed.body, held.body))
            delivered += bodies(messages)
            jobs.ack_many(messages)
    assert len(delivered) == len(set(delivered)) == left
    assert {0, failed.body, held.body} <= set(delivered)
    if ordered:
        numbers = [int(str(body)) for body in delivered if body]
        for key in range(5):
            of_key = [number for number in numbers if number % 5 == key]
            assert of_key == sorted(of_key)


def test_the_journal_is_shortened_as_messages_are_taken(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "SNAPSHOT_ROWS", 20)
    jobs, other = log.queue("jobs"), log.queue("jobs", group="other")
    log.alter("jobs.journal", segment_bytes_max="8 KiB")
    jobs.put_many(list(range(500)))
    for each in (jobs, other):
        while messages := each.take(5):
            each.ack_many(messages)
    assert kept(log, "jobs.journal") < 300
    lose_index(log)
    assert (jobs.take(9), other.take(9)) == ([], [])


def test_acknowledged_messages_are_deleted_once_all_groups_are_done_with_them(log: Log) -> None:
    jobs, audit = log.queue("jobs", delete_acknowledged=True), log.queue("jobs", group="audit")
    jobs.put_many([1, 2, 3])
    jobs.ack_many(jobs.take(9))
    jobs.maintain()
    assert kept(log, "jobs") == 3
    one, *_ = audit.take(2)
    one.ack()
    audit.maintain()
    assert kept(log, "jobs") == 3  # of the segment of message 1, two are not acknowledged
    jobs.put(4)
    jobs.delete_group("audit")
    jobs.maintain()
    assert kept(log, "jobs") == 1
    jobs.replay()
    assert bodies(jobs.take(9)) == [4]
    with pytest.raises(NotFound, match="audit"):
        audit.take()


def test_a_group_that_is_created_later_gets_what_the_topic_still_has(log: Log) -> None:
    jobs = log.queue("jobs", delete_acknowledged=True)
    jobs.put_many([1, 2])
    jobs.ack_many(jobs.take(9))
    assert bodies(log.queue("jobs", group="late").take(9)) == [1, 2]
    jobs.delete_group("late")
    jobs.maintain()
    jobs.put(3)
    assert bodies(log.queue("jobs", group="late").take(9)) == [3]


def test_messages_that_retention_deletes_are_counted_and_their_leases_stay_valid(log: Log, clock: ManualClock) -> None:
    jobs: Queue = log.queue("jobs", lease="10 seconds")
    jobs.put_many([1, 2, 3, 4, 5])
    one, _, three = jobs.take(3)
    three.nack(delay="1 hour")
    local_log(log).delete_before("jobs", {0: 5}, seal=True)
    jobs.put(6)
    one.ack()
    assert jobs.stats().expired == 2
    assert bodies(jobs.peek()) == [6]
    clock.advance(seconds=3600)
    assert bodies(jobs.peek(9)) == [6]
    assert bodies(jobs.take(9)) == [6]
    stats = jobs.stats()
    assert (stats.length, stats.expired, stats.acknowledged) == (1, 4, 1)
    lose_index(log)
    assert bodies(jobs.take(9)) == [6]
    jobs.replay({0: 0})
    assert bodies(jobs.take(9)) == [6]
    assert jobs.stats().waiting == 0


def test_the_reply_queue_of_a_process_that_was_killed_is_deleted_by_a_later_request(
    log: Log, clock: ManualClock
) -> None:
    queue, left = log.queue("jobs"), reply_queue(log, "jobs", 10)
    log.queue(left).close()
    clock.advance(seconds=69)
    with pytest.raises(Overdue):
        queue.request(1, timeout=0.01)
    assert left in log.topics()
    clock.advance(seconds=2)
    with pytest.raises(Overdue):
        queue.request(2, timeout=0.01)
    assert [name for name in log.topics() if ".reply-" in name] == []
