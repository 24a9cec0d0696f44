"""A queue against a naive model: whatever is called in whatever order, both agree on what is delivered and what is dead."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import headwater as hw
from headwater.clock import ManualClock
from headwater.queues import LeaseLost, Message, Outgoing
from tests.laws import costly

LEASE = 10


@dataclass
class Expected:
    """A message in the model."""

    body: int
    key: str | None
    ready_at: float
    attempts: int = 0
    lease: tuple[int, float] | None = None  # the number of the delivery, and when it ends


class Model(RuleBasedStateMachine):
    """Puts, takes and ends deliveries on two objects of one group, as two processes would."""

    ordered = False
    count = "acquisitions"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.log = hw.open(self.folder.name, clock=self.clock)
        options: dict[str, Any] = {"lease": LEASE, "attempts_max": 3, "ordered": self.ordered, "count": self.count}
        self.queues = [self.log.queue("jobs", **options), self.log.queue("jobs")]
        self.now = 0.0
        self.messages: list[Expected] = []
        self.held: list[tuple[Message, Expected, int]] = []
        self.dead: list[int] = []
        self.acknowledged: set[int] = set()
        self.bodies = 0
        self.deliveries = 0

    def teardown(self) -> None:
        for queue in self.queues:
            queue.close()
        self.log.close()
        self.folder.cleanup()

    @rule(
        keys=st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=5), delay=st.sampled_from([None, 5, 30])
    )
    def put(self, keys: list[str | None], delay: int | None) -> None:
        outgoing = []
        for key in keys:
            self.bodies += 1
            outgoing.append(Outgoing(body=self.bodies, key=key, delay=delay))
            self.messages.append(Expected(self.bodies, key, self.now + delay if delay else 0))
        self.queues[0].put_many(outgoing)

    def fail(self, message: Expected, delay: float = 0) -> None:
        message.lease = None
        message.attempts += self.count == "failures"
        if message.attempts >= 3:
            self.messages.remove(message)
            self.dead.append(message.body)
        else:
            message.ready_at = self.now + delay if delay else 0

    def deliverable(self) -> list[Expected]:
        found, keys = [], set()
        for message in self.messages:
            blocked = self.ordered and message.key is not None and message.key in keys
            keys.add(message.key)
            if not blocked and message.lease is None and message.ready_at <= self.now:
                found.append(message)
        return found

    @rule(which=st.integers(0, 1), n=st.integers(1, 6))
    def take(self, which: int, n: int) -> None:
        for message in list(self.messages):
            if message.lease is not None and message.lease[1] <= self.now:
                self.fail(message)
        expected = {message.body: message for message in self.deliverable()}
        taken = self.queues[which].take(n)
        # Which of those that can be delivered is the queue's choice, except that it gives as many as it can.
        assert len(taken) == min(n, len(expected)), (taken, expected)
        self.deliveries += 1
        for message in taken:
            model = expected.pop(message.body)
            assert message.attempt == model.attempts + 1
            assert message.body not in self.acknowledged
            model.attempts += self.count == "acquisitions"
            model.lease = (self.deliveries, self.now + LEASE)
            self.held.append((message, model, self.deliveries))

    def settle(self, pick: int, act: str, delay: int) -> None:
        if not self.held:
            return
        message, model, delivery = self.held.pop(pick % len(self.held))
        valid = model.lease is not None and model.lease[0] == delivery
        try:
            if act == "ack":
                self.queues[pick % 2].ack(message)
            elif act == "nack":
                self.queues[pick % 2].nack(message, delay=delay)
            elif act == "release":
                message.release()
            else:
                message.reject()
        except LeaseLost:
            assert not valid
            return
        assert valid
        if act in ("ack", "reject"):
            self.messages.remove(model)
            if act == "ack":
                self.acknowledged.add(model.body)
            else:
                self.dead.append(model.body)
        elif act == "nack":
            self.fail(model, delay)
        else:
            model.attempts -= self.count == "acquisitions"
            model.lease, model.ready_at = None, 0

    @rule(
        pick=st.integers(0, 99),
        act=st.sampled_from(["ack", "ack", "nack", "release", "reject"]),
        delay=st.integers(0, 8),
    )
    def end(self, pick: int, act: str, delay: int) -> None:
        self.settle(pick, act, delay)

    @rule(seconds=st.integers(1, 12))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        self.now += seconds

    @invariant()
    def nothing_is_lost(self) -> None:
        stats = self.queues[1].stats()
        assert stats.length == len(self.messages)
        assert stats.acknowledged == len(self.acknowledged)

    @invariant()
    def dead_letters_are_exact(self) -> None:
        letters = self.log.read("jobs.dlq").count() if "jobs.dlq" in self.log.topics() else 0
        assert letters == len(self.dead)


@costly(3, stateful_step_count=30)
class Queues(Model):
    """A queue without order."""


@costly(3, stateful_step_count=30)
class OrderedQueues(Model):
    """A queue that keeps the order per key, and counts failures."""

    ordered = True
    count = "failures"


TestQueue = Queues.TestCase
TestOrderedQueue = OrderedQueues.TestCase
