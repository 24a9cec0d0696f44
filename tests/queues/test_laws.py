"""A queue against a naive model: whatever is called in whatever order, both agree on what is delivered and what is dead."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import headwater as hw
from headwater.clock import ManualClock
from headwater.queues import LeaseLost, Message, Outgoing, Queue
from tests.laws import costly

LEASE, ATTEMPTS_MAX, WINDOW = 10, 3, 20


@dataclass
class Expected:
    """A message in the model."""

    body: int
    key: str | None
    priority: int
    due_at: float
    expires_at: float
    ready_at: float
    attempts: int = 0
    #: The number of the delivery, when it ends, and the consumer.
    lease: tuple[int, float, Queue] | None = None
    #: What the journal says of the message: its attempts, and when it is ready.
    journal: tuple[int, float] | None = None

    def fresh(self) -> Expected:
        return Expected(self.body, self.key, self.priority, self.due_at, self.expires_at, self.due_at)


settings = st.fixed_dictionaries(
    {
        "ordered": st.booleans(),
        "count": st.sampled_from(["acquisitions", "failures"]),
        "priorities": st.sampled_from([1, 2]),
        "prefetch": st.sampled_from([None, None, 2]),
        "single_active": st.sampled_from([False, False, True]),
    }
)
puts = st.tuples(
    st.sampled_from([None, "a", "b"]),  # key
    st.sampled_from([None, None, "x", "y"]),  # id
    st.integers(0, 1),  # priority
    st.sampled_from([None, None, 5, 30]),  # delay
    st.sampled_from([None, None, None, 15]),  # time to live
)


class Model(RuleBasedStateMachine):
    """Consumers of one group, as in several processes; each may die, and the index may be lost."""

    @initialize(options=settings)
    def open(self, options: dict[str, Any]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.log = hw.open(self.folder.name, clock=self.clock)
        self.options = options
        first = self.log.queue("jobs", lease=LEASE, attempts_max=ATTEMPTS_MAX, deduplicate=WINDOW, **options)
        self.queues: list[Queue] = [first, self.log.queue("jobs")]
        self.ended: list[Queue] = []
        self.killed: list[Queue] = []
        self.now = 0.0
        self.bodies = self.deliveries = self.letters = 0
        self.all: list[Expected] = []
        self.messages: list[Expected] = []
        self.held: list[tuple[Message, Expected, int]] = []
        self.dead: Counter[int] = Counter()
        self.acknowledged: set[int] = set()
        self.ids: dict[str, float] = {}
        self.paused = False
        #: Consumers that have taken, and the one that is active.
        self.owners: list[Queue] = []
        self.active: Queue | None = None

    def teardown(self) -> None:
        if hasattr(self, "log"):
            for queue in [*self.queues, *self.killed]:
                queue.close()
            self.log.close()
            self.folder.cleanup()

    # -- what users do ------------------------------------------------------------------------------------------------

    @rule(messages=st.lists(puts, min_size=1, max_size=5))
    def put(self, messages: list[tuple[str | None, str | None, int, int | None, int | None]]) -> None:
        outgoing = []
        for key, id_, priority, delay, ttl in messages:
            self.bodies += 1
            priority %= self.options["priorities"]
            outgoing.append(Outgoing(body=self.bodies, key=key, id=id_, priority=priority, delay=delay, ttl=ttl))
            if id_ is not None:
                if self.ids.get(id_, -1e9) >= self.now - WINDOW:
                    continue
                self.ids[id_] = self.now
            due = self.now + delay if delay else 0
            expires = (due or self.now) + ttl if ttl else 1e18
            self.all.append(Expected(self.bodies, key, priority, due, expires, due))
            self.messages.append(self.all[-1].fresh())
        self.queues[0].put_many(outgoing)

    @rule(which=st.integers(0, 9), n=st.integers(1, 6))
    def take(self, which: int, n: int) -> None:
        queue = self.queues[which % len(self.queues)]
        for lost in list(self.messages):
            if lost.lease is not None and (lost.lease[1] <= self.now or lost.lease[2] in self.killed):
                self.fail(lost)
        self.owners = [owner for owner in self.owners if owner not in self.killed]
        expected = self.deliverable()
        allowed = self.allowed(queue, n)
        if queue not in self.owners:
            self.owners.append(queue)
        taken = queue.take(n)
        self.find_expired()
        # Which of those of a priority that can be delivered is the queue's choice, but it gives as many as it can.
        priorities = sorted((message.priority for message in expected), reverse=True)
        assert [message.priority for message in taken] == priorities[:allowed], (taken, expected)
        self.deliveries += 1
        by_body = {message.body: message for message in expected}
        for message in taken:
            model = by_body.pop(message.body)
            assert message.attempt == model.attempts + 1
            assert message.body not in self.acknowledged
            model.attempts += self.options["count"] == "acquisitions"
            model.lease = (self.deliveries, self.now + LEASE, queue)
            self.held.append((message, model, self.deliveries))

    @rule(
        pick=st.integers(0, 99),
        act=st.sampled_from(["ack", "ack", "nack", "release", "reject", "extend"]),
        delay=st.integers(0, 8),
    )
    def end(self, pick: int, act: str, delay: int) -> None:
        """End or extend a delivery, by any of the consumers."""
        if not self.held:
            return
        place = pick % len(self.held)
        message, model, delivery = self.held[place] if act == "extend" else self.held.pop(place)
        valid = model in self.messages and model.lease is not None and model.lease[0] == delivery
        queue = self.queues[pick % len(self.queues)]
        try:
            if act == "nack":
                queue.nack(message, delay=delay)
            else:
                getattr(queue, act)(message)
        except LeaseLost:
            assert not valid
            return
        assert valid
        assert model.lease is not None
        if act == "extend":
            model.lease = (delivery, self.now + LEASE, model.lease[2])
        elif act == "nack":
            self.fail(model, delay)
            model.journal = (model.attempts, model.ready_at)
        elif act == "release":
            self.give_back(model)
        else:
            self.messages.remove(model)
            if act == "ack":
                self.acknowledged.add(model.body)
            else:
                self.dead[model.body] += 1

    @rule(picks=st.lists(st.integers(0, 99), min_size=2, max_size=8))
    def ack_many(self, picks: list[int]) -> None:
        """Acknowledge messages of several deliveries in any order, also those that are lost."""
        held = [self.held[pick % len(self.held)] for pick in picks] if self.held else []
        self.held = [each for each in self.held if each not in held]
        valid = {
            model.body: model
            for _, model, delivery in held
            if model in self.messages and model.lease is not None and model.lease[0] == delivery
        }
        is_lost = any(
            model.body not in valid or model.lease is None or model.lease[0] != delivery for _, model, delivery in held
        )
        with pytest.raises(LeaseLost) if is_lost else nullcontext():
            self.queues[-1].ack_many([message for message, _, _ in held])
        for body, model in valid.items():
            self.messages.remove(model)
            self.acknowledged.add(body)

    @rule(which=st.integers(0, 9))
    def close(self, which: int) -> None:
        """End a consumer: what it holds returns unprocessed. Another one takes its place."""
        queue = self.queues.pop(which % len(self.queues))
        for message in self.messages:
            if message.lease is not None and message.lease[2] is queue:
                self.give_back(message)
        self.owners = [owner for owner in self.owners if owner is not queue]
        queue.close()
        self.queues.append(self.log.queue("jobs"))

    @rule(pause=st.booleans())
    def pause(self, pause: bool) -> None:
        self.paused = pause
        if pause:
            self.queues[0].pause()
        else:
            self.queues[0].resume()

    @rule()
    def replay(self) -> None:
        self.queues[0].replay()
        self.messages = [message.fresh() for message in self.all]
        self.acknowledged.clear()

    @rule()
    def maintain(self) -> None:
        self.queues[0].maintain()
        for message in self.messages:
            message.journal = (message.attempts, message.ready_at)

    # -- what happens to users ----------------------------------------------------------------------------------------

    @rule(seconds=st.integers(1, 12))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        self.now += seconds

    @rule(which=st.integers(0, 9))
    def kill(self, which: int) -> None:
        """Let a consumer die: the kernel releases its lock, and nothing else happens."""
        queue = self.queues.pop(which % len(self.queues))
        queue._owner_lock.release()
        self.killed.append(queue)
        self.queues.append(self.log.queue("jobs"))

    @rule()
    def lose_index(self) -> None:
        """Leases are lost, and acquisitions that no failure followed."""
        for path in Path(self.log.home).glob("queues/*/groups/*.sqlite*"):
            path.unlink()
        for message in self.messages:
            message.lease = None
            message.attempts, message.ready_at = message.journal or (0, message.due_at)
        self.owners, self.active = [], None

    # -- the model ----------------------------------------------------------------------------------------------------

    def fail(self, message: Expected, delay: float = 0) -> None:
        message.lease = None
        message.attempts += self.options["count"] == "failures"
        if message.attempts >= ATTEMPTS_MAX:
            self.messages.remove(message)
            self.dead[message.body] += 1
        else:
            message.ready_at = self.now + delay if delay else 0

    def give_back(self, message: Expected) -> None:
        message.attempts = max(0, message.attempts - (self.options["count"] == "acquisitions"))
        message.lease, message.ready_at = None, 0
        message.journal = (message.attempts, 0)

    def allowed(self, queue: Queue, n: int) -> int:
        if self.paused:
            return 0
        if self.options["single_active"]:
            if self.active is not queue and self.active in self.owners:
                return 0
            self.active = queue
        if self.options["prefetch"] is None:
            return n
        holds = sum(each.lease is not None and each.lease[2] is queue for each in self.messages)
        prefetch: int = self.options["prefetch"]
        return max(0, min(n, prefetch - holds))

    def is_expired(self, message: Expected) -> bool:
        return message.lease is None and message.ready_at <= self.now and message.expires_at <= self.now

    def deliverable(self) -> list[Expected]:
        found, keys = [], set()
        for message in self.messages:
            if self.is_expired(message):
                continue
            place = (message.priority, message.key)
            blocked = self.options["ordered"] and message.key is not None and place in keys
            keys.add(place)
            if not blocked and message.lease is None and message.ready_at <= self.now:
                found.append(message)
        return found

    def find_expired(self) -> None:
        """When an expired message becomes a dead letter is the queue's choice, but it has to be expired."""
        if "jobs.dlq" not in self.log.topics():
            return
        rows = self.log.read("jobs.dlq", start={0: self.letters}).rows()
        self.letters += len(rows)
        for row in rows:
            if row["error"] == "MessageExpired":
                body = int(orjson.loads(row["row"])["body"])
                [message] = [message for message in self.messages if message.body == body]
                assert self.is_expired(message)
                self.messages.remove(message)
                self.dead[body] += 1

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "log"):
            stats = self.queues[-1].stats()
            assert stats.length == len(self.messages)
            assert stats.in_flight == sum(message.lease is not None for message in self.messages)
            assert stats.paused == self.paused

    @invariant()
    def dead_letters_are_exact(self) -> None:
        if hasattr(self, "log"):
            rows = self.log.read("jobs.dlq").rows() if "jobs.dlq" in self.log.topics() else []
            assert Counter(int(orjson.loads(row["row"])["body"]) for row in rows) == self.dead


@costly(2, stateful_step_count=40)
class Queues(Model):
    """A queue with any settings."""


TestQueue = Queues.TestCase
