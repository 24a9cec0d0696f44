"""Scheduled messages whose rows are read before they are asked for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headwater.clock import ManualClock
from headwater.log import Log
from headwater.log.port import Batch
from headwater.queues import Outgoing, rows
from headwater.queues.gathered_rows import GatheredRows, Offsets, rows_at
from headwater.queues.rows import QueueRows


@pytest.mark.parametrize("bytes_max", [0, 2_000, 16 * 1024 * 1024])
def test_scheduled_messages_come_once_and_in_their_order_however_much_is_read_ahead(
    local_log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    monkeypatch.setattr(rows, "AHEAD_BYTES_MAX", bytes_max)
    queue, other = local_log.queue("jobs", lease="1 day"), local_log.queue("jobs")
    due = {number: 1 + number * 7 % 60 for number in range(240)}
    for start in range(0, 240, 40):
        queue.put_many(
            [
                Outgoing(body={"number": number, "text": "x" * number}, delay=due[number])
                for number in range(start, start + 40)
            ]
        )
    taken: list[int] = []
    for _ in range(60):
        clock.advance(seconds=1)
        while messages := [*queue.take(3), *other.take(1)]:
            assert all(message.body["text"] == "x" * message.body["number"] for message in messages)
            taken += [message.body["number"] for message in messages]
    assert taken == sorted(due, key=lambda number: (due[number], number))


def test_a_returned_message_does_not_make_a_consumer_read_ahead_each_time(
    local_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = local_log.queue("jobs", attempts_max=None)
    queue.put_many([0, *(Outgoing(body=number, delay="1 hour") for number in range(1, 100))])
    [message] = queue.take()
    counts, gather = [], QueueRows._gather

    def counting(self: QueueRows, partition: int, asked: Offsets, wanted: Offsets) -> GatheredRows:
        counts.append(len(asked))
        return gather(self, partition, asked, wanted)

    monkeypatch.setattr(QueueRows, "_gather", counting)
    for _ in range(3):
        message.nack()
        [message] = queue.take()
    assert counts == [1, 1, 1]


def test_rows_of_a_frame_with_gaps_are_found_by_their_offsets() -> None:
    data = pa.RecordBatch.from_pydict({"_offset": [3, 5, 9], "body": ["c", "e", "i"]})
    part = Batch(topic="jobs", partition=0, offset=3, offset_next=12, data=data)
    offsets, found = rows_at(part, np.array([3, 4, 9, 11]))
    assert (offsets.tolist(), found.column("body").to_pylist()) == ([3, 9], ["c", "i"])
    gathered = GatheredRows(np.array([3, 4, 9, 11]), [offsets], [found])
    assert gathered.knows(np.array([4, 9]))
    assert not gathered.knows(np.array([5]))
    assert [rows.column("body").to_pylist() for rows in gathered.take(np.array([4, 9]))] == [["i"]]
