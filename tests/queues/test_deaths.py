"""Processes that die while they hold a lock of a queue, in moments that a kill hits once in hundreds of times."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

import headwater as hw
from headwater import faults
from headwater.clock import ManualClock
from headwater.queues import Message


class Killed(BaseException):
    """Stands for the end of a process."""


def test_a_rejection_is_not_repeated_if_its_process_dies_and_loses_the_lock_of_the_group_first(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The kernel releases the locks of a process that dies one by one: here those of its commit come last."""
    with hw.open(tmp_path / "log", clock=clock) as dying, hw.open(tmp_path / "log", clock=clock) as log:
        victim, queue = dying.queue("jobs", lease="1 second"), log.queue("jobs")
        queue.put("bad")
        [message] = victim.take()
        lost, may_end = threading.Event(), threading.Event()

        def lose_the_group(point: str) -> None:
            if point == "commit.recorded" and threading.current_thread() is thread:
                victim.state._index._db.execute("ROLLBACK")
                fcntl.flock(victim.state._lock._file.descriptor, fcntl.LOCK_UN)
                lost.set()
                may_end.wait(30)
                raise Killed

        def reject() -> None:
            with pytest.raises(Killed):
                message.reject(reason="bad")

        thread = threading.Thread(target=reject)
        faults.install(lose_the_group)
        try:
            thread.start()
            assert lost.wait(30)
            clock.advance(seconds=2)
            taken: list[Message] = []
            other = threading.Thread(target=lambda: taken.extend(queue.take()))
            other.start()
            other.join(0.2)
            may_end.set()
            thread.join()
            other.join()
        finally:
            faults.install(None)
        assert taken == []
        assert log.read("jobs.dlq").count() == queue.stats().dead == 1


def test_an_id_counts_that_was_written_by_a_process_that_died_before_it_could_say_so(tmp_path: Path) -> None:
    with hw.open(tmp_path / "log") as dying, hw.open(tmp_path / "log") as log:
        victim, queue = dying.queue("jobs", deduplicate="1 day"), log.queue("jobs")
        queue.put("first", id="0")

        def die(point: str) -> None:
            if point == "append.written":
                raise Killed

        faults.install(die)
        try:
            with pytest.raises(Killed):
                victim.put("once", id="1")
        finally:
            faults.install(None)
        queue.put("once", id="1")
        assert [message.body for message in queue.take(9)] == ["first", "once"]
