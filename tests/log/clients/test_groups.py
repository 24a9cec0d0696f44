"""Members of a group share partitions: each row reaches one of them at least once, while members join, leave, die or hang."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.clock import ManualClock
from headwater.config import Config
from headwater.errors import NotFound
from headwater.log import Consumer, Place
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.embedded.membership import GroupFolder
from headwater.log.errors import GroupActive, MemberFenced, OffsetAhead
from tests.log.processes import child

SCHEMA = {"id": "int64"}
SESSION = 10.0
MEMBERS_MAX = 3
NUMBERS = st.integers(0, MEMBERS_MAX - 1)


def ids(count: int, start: int = 0) -> list[dict[str, int]]:
    return [{"id": number} for number in range(start, start + count)]


def member(log: EmbeddedLog, name: str | None = None, *, auto_commit: bool = True) -> Consumer:
    """A member that sends heartbeats only when it is polled, so that tests can let it hang."""
    return log.consumer(
        "orders",
        "billing",
        member=name,
        auto_commit=auto_commit,
        session_seconds_max=SESSION,
        heartbeat_seconds=1.0,
        heartbeat_in_background=False,
    )


def read(consumer: Consumer) -> list[int]:
    return [row["id"] for batch in consumer.poll(seconds=0) for row in batch.rows()]


def owned(consumer: Consumer) -> set[int]:
    return set(consumer.assignment.get("orders", []))


def die(consumer: Consumer) -> None:
    """Release the lock without leaving the group, as the kernel does for a killed process."""
    assert consumer._membership is not None
    consumer._membership.abandon()


def rebalance(*consumers: Consumer) -> None:
    for _ in range(3):
        for consumer in consumers:
            consumer.poll(seconds=0)


def until(condition: Callable[[], bool], *, seconds: float = 20.0) -> float:
    """Wait for a condition by doing what it does; how long that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it did not happen in time"
    return time.monotonic() - began


@pytest.fixture
def orders(log: EmbeddedLog) -> EmbeddedLog:
    log.create("orders", SCHEMA, partitions=4, durability="os")
    return log


# -- joining and leaving ----------------------------------------------------------------------------------------------


def test_members_share_the_partitions(orders: EmbeddedLog) -> None:
    first = member(orders)
    assert owned(first) == {0, 1, 2, 3}
    second = member(orders)
    assert owned(second) == set()
    rebalance(first, second)
    assert len(owned(first)) == len(owned(second)) == 2
    assert owned(first) | owned(second) == {0, 1, 2, 3}
    first.close()
    rebalance(second)
    assert owned(second) == {0, 1, 2, 3}


def test_a_newcomer_reads_only_when_the_owner_has_let_go(orders: EmbeddedLog) -> None:
    first = member(orders)
    for number in range(4):
        orders.append("orders", ids(1, start=number), partition=number)
    assert sorted(read(first)) == [0, 1, 2, 3]
    second = member(orders)
    rebalance(second)
    assert owned(second) == set()  # the first has not polled since
    assert read(first) == []
    rebalance(second)
    assert len(owned(second)) == 2
    assert read(second) == []  # the first committed before it let go


def test_a_rebalance_does_not_stop_the_others(orders: EmbeddedLog) -> None:
    slow, busy = member(orders), member(orders)
    rebalance(slow, busy)
    before = owned(busy)
    newcomer = member(orders)
    for number in range(4):
        orders.append("orders", ids(1, start=number), partition=number)
    # `slow` does not poll, so that the rebalance cannot end; `busy` reads on, and keeps what it need not give.
    assert set(read(busy)) <= before
    kept = owned(busy)
    assert kept
    assert kept <= before
    rebalance(busy, newcomer)
    orders.append("orders", ids(1, start=10), partition=min(kept))
    assert read(busy) == [10]
    rebalance(slow, busy, newcomer)
    assert sorted(map(len, (owned(slow), owned(busy), owned(newcomer)))) == [1, 1, 2]


def test_more_members_than_partitions_wait(orders: EmbeddedLog) -> None:
    members = [member(orders) for _ in range(6)]
    rebalance(*members)
    assert sorted(len(owned(each)) for each in members) == [0, 0, 1, 1, 1, 1]


def test_who_gives_a_partition_up_may_commit_first(orders: EmbeddedLog) -> None:
    given: list[Place] = []

    def let_go(places: list[Place]) -> None:
        given.extend(places)
        first.commit()

    first = orders.consumer("orders", "billing", auto_commit=False, on_revoke=let_go)
    for number in range(4):
        orders.append("orders", ids(1, start=number), partition=number)
    read(first)
    second = member(orders, auto_commit=False)
    rebalance(first, second)
    assert {place.partition for place in given} == owned(second)
    assert read(second) == []


def test_without_a_commit_the_new_owner_reads_again(orders: EmbeddedLog) -> None:
    first = member(orders, auto_commit=False)
    for number in range(4):
        orders.append("orders", ids(1, start=number), partition=number)
    assert len(read(first)) == 4
    second = member(orders, auto_commit=False)
    read(first)
    assert set(read(second)) == owned(second)


def test_members_may_subscribe_to_different_topics(log: EmbeddedLog) -> None:
    for topic in ("orders", "views"):
        log.create(topic, SCHEMA, partitions=2)
    both, one = log.consumer(["orders", "views"], "billing"), log.consumer("orders", "billing")
    rebalance(both, one)
    assert both.assignment == {"views": [0, 1]}
    assert one.assignment == {"orders": [0, 1]}


# -- dying and hanging ------------------------------------------------------------------------------------------------


def test_a_dead_members_partitions_go_to_the_living(orders: EmbeddedLog) -> None:
    first, second = member(orders), member(orders)
    rebalance(first, second)
    die(first)
    rebalance(second)  # woken by the file that the kernel closed, not by a time-out: the clock stood still
    assert owned(second) == {0, 1, 2, 3}


def test_a_hung_member_loses_its_partitions_and_may_not_commit(orders: EmbeddedLog, clock: ManualClock) -> None:
    hung, other = member(orders, auto_commit=False), member(orders, auto_commit=False)
    rebalance(hung, other)
    lost = min(owned(hung))
    orders.append("orders", ids(1), partition=lost)
    assert read(hung) == [0]
    clock.advance(seconds=SESSION + 1)
    assert read(other) == [0]
    assert owned(other) == {0, 1, 2, 3}
    with pytest.raises(MemberFenced) as raised:
        hung.commit()
    assert (raised.value.group, raised.value.member) == ("billing", hung.member)
    assert orders.committed("billing", "orders") == {}
    rebalance(hung, other)  # it joins again
    assert len(owned(hung)) == 2
    assert owned(hung) | owned(other) == {0, 1, 2, 3}


def test_a_member_that_polls_is_not_taken_for_hung(orders: EmbeddedLog, clock: ManualClock) -> None:
    first, second = member(orders), member(orders)
    for _ in range(5):
        rebalance(first, second)
        clock.advance(seconds=SESSION * 0.9)
    assert len(owned(first)) == 2


def test_a_static_member_keeps_its_partitions_over_a_restart(orders: EmbeddedLog, clock: ManualClock) -> None:
    first, second = member(orders, "worker-1"), member(orders, "worker-2")
    rebalance(first, second)
    before = owned(first)
    first.close()
    clock.advance(seconds=SESSION / 2)
    rebalance(second)
    assert owned(second).isdisjoint(before)
    again = member(orders, "worker-1")
    assert owned(again) == before
    again.close()
    clock.advance(seconds=SESSION / 2)
    rebalance(second)
    clock.advance(seconds=SESSION / 2 + 1)
    rebalance(second)
    assert owned(second) == {0, 1, 2, 3}


def test_the_newer_of_two_static_members_of_one_name_wins(orders: EmbeddedLog) -> None:
    old, new = member(orders, "worker-1"), member(orders, "worker-1")
    orders.append("orders", ids(1), partition=0)
    assert read(new) == [0]
    for _ in range(2):
        with pytest.raises(MemberFenced):
            old.poll(seconds=0)
    old.close()
    assert owned(new) == {0, 1, 2, 3}


def test_a_forgotten_consumer_leaves_its_group(orders: EmbeddedLog) -> None:
    forgotten, other = member(orders), member(orders)
    rebalance(forgotten, other)
    del forgotten
    gc.collect()
    rebalance(other)
    assert owned(other) == {0, 1, 2, 3}


@pytest.mark.process
@pytest.mark.core
def test_a_forked_child_does_not_keep_its_parents_place(orders: EmbeddedLog) -> None:
    dead, living = member(orders), member(orders)
    rebalance(dead, living)
    from_child, to_parent = os.pipe()
    from_parent, to_child = os.pipe()
    child_id = os.fork()
    if child_id == 0:  # it says that it lives, and waits for its end
        os.write(to_parent, b".")
        os.read(from_parent, 1)
        os._exit(0)
    os.read(from_child, 1)
    die(dead)
    rebalance(living)
    assert owned(living) == {0, 1, 2, 3}
    os.write(to_child, b".")
    os.waitpid(child_id, 0)
    for descriptor in (from_child, to_parent, from_parent, to_child):
        os.close(descriptor)


# -- real processes ---------------------------------------------------------------------------------------------------

MEMBER = """
consumer = log.consumer("orders", "billing", session_seconds_max=600, heartbeat_seconds=300)
while True:
    consumer.poll(seconds=0.05)
    say(len(consumer.assignment.get("orders", [])))
"""


@pytest.mark.process
@pytest.mark.core
def test_a_killed_process_is_replaced_at_once(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        log.create("orders", SCHEMA, partitions=4)
        consumer = log.consumer("orders", "billing", session_seconds_max=600, heartbeat_seconds=300)
        with child(log.path, MEMBER) as other:
            until(lambda: (consumer.poll(seconds=0.01), len(owned(consumer)) == 2)[1])
            while other.line() != "2":
                pass
            other.kill()
            for number in range(4):
                log.append("orders", ids(1, start=number), partition=number)
            # Heartbeats are minutes apart here: only the lock that the kernel took away can have told.
            began = time.monotonic()
            seen: set[int] = set()
            while len(seen) < 4 and time.monotonic() - began < 30:
                seen |= {row["id"] for batch in consumer.poll(seconds=30) for row in batch.rows()}
            assert seen == {0, 1, 2, 3}
            assert time.monotonic() - began < 10


FAN_OUT = """
group = sys.stdin.readline().strip()
with log.consumer("orders", group) as consumer:
    say("joined")
    for row in consumer.rows():
        say(row["id"])
        if row["id"] == 199:
            break
"""


@pytest.mark.process
def test_groups_in_different_processes_read_everything_each(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        log.create("orders", SCHEMA)
        with child(log.path, FAN_OUT) as billing, child(log.path, FAN_OUT) as shipping:
            billing.tell("billing")
            shipping.tell("shipping")
            assert billing.line() == shipping.line() == "joined"
            for start in range(0, 200, 20):
                log.append("orders", ids(20, start=start))
            expected = [str(number) for number in range(200)]
            assert billing.lines() == expected
            assert shipping.lines() == expected
        assert [lag.rows for lag in log.groups.lag()] == [0, 0]


WORKER = """
consumer = log.consumer("orders", "billing", rows_max=5)
say("joined")
while True:
    for batch in consumer.poll(seconds=0.05):
        say(*(row["id"] for row in batch.rows()))
"""


@pytest.mark.process
@pytest.mark.core
def test_no_row_is_lost_when_workers_are_killed_while_they_read(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        log.create("orders", SCHEMA, partitions=4)
        with child(log.path, WORKER) as first, child(log.path, WORKER) as second, child(log.path, WORKER) as third:
            workers = [first, second, third]
            for worker in workers:
                assert worker.line() == "joined"
            seen: set[int] = set()
            for start in range(0, 400, 10):
                log.append("orders", ids(10, start=start), partition=start // 10 % 4)
                if start in (100, 200):
                    dead = workers.pop()
                    dead.kill()
                    seen |= {int(word) for line in dead.lines() for word in line.split()}
            # A row is committed only after its worker said it: when nothing is left, all has been said.
            until(lambda: sum(lag.rows for lag in log.groups.lag("billing")) == 0)
            first.kill()
            seen |= {int(word) for line in first.lines() for word in line.split()}
        assert seen == set(range(400))


# -- looking after groups ---------------------------------------------------------------------------------------------


def test_a_group_is_described_with_its_members_and_its_lag(orders: EmbeddedLog, clock: ManualClock) -> None:
    first, second = member(orders, "worker-1"), member(orders)
    rebalance(first, second)
    orders.append("orders", ids(3), partition=0)
    clock.advance(seconds=5)
    info = orders.groups.describe("billing")
    assert [each.id for each in info.members] == ["worker-1", second.member]
    assert [each.static for each in info.members] == [True, False]
    assert all(each.alive for each in info.members)
    assert [set(each.assignment["orders"]) for each in info.members] == [owned(first), owned(second)]
    assert info.rows == 3
    zero = info.partitions[0]
    assert (zero.committed, zero.rows, zero.seconds) == (None, 3, 5.0)
    assert zero.member == ("worker-1" if 0 in owned(first) else second.member)
    die(second)
    assert [each.alive for each in orders.groups.describe("billing").members] == [True, False]


def test_lag_is_that_of_one_group_or_of_all(orders: EmbeddedLog) -> None:
    orders.append("orders", ids(3), partition=0)
    orders.commit_offsets("billing", "orders", {0: 1})
    orders.commit_offsets("shipping", "orders", {0: 3})
    assert orders.groups.names() == ["billing", "shipping"]
    assert [lag.rows for lag in orders.groups.lag("billing")] == [2, 0, 0, 0]
    assert sum(lag.rows for lag in orders.groups.lag()) == 2
    with pytest.raises(NotFound, match="Did you mean 'billing'"):
        orders.groups.lag("biling")


def test_a_group_without_members_can_be_moved(orders: EmbeddedLog) -> None:
    orders.append("orders", ids(5), partition=0)
    orders.commit_offsets("billing", "orders", {0: 4})
    preview = orders.groups.seek("billing", "orders", {0: 1}, dry_run=True)
    assert [(step.current, step.new, step.rows) for step in preview] == [(4, 1, 3)]
    assert orders.committed("billing", "orders") == {0: 4}
    orders.groups.seek("billing", "orders", {0: 1})
    assert orders.committed("billing", "orders") == {0: 1}
    steps = orders.groups.seek("billing", "orders", "latest")
    assert [step.rows for step in steps] == [-4, 0, 0, 0]
    with pytest.raises(OffsetAhead):
        orders.groups.seek("billing", "orders", {0: 6})


def test_a_group_with_members_is_neither_moved_nor_deleted(orders: EmbeddedLog) -> None:
    living = member(orders)
    with pytest.raises(GroupActive):
        orders.groups.seek("billing", "orders", "earliest")
    assert len(orders.groups.seek("billing", "orders", "earliest", dry_run=True)) == 4
    with pytest.raises(GroupActive):
        orders.groups.delete("billing")
    die(living)
    orders.groups.seek("billing", "orders", "earliest")
    orders.groups.delete("billing")
    assert orders.groups.names() == []
    assert orders.committed("billing", "orders") == {}


def test_a_deleted_group_can_be_joined_again(orders: EmbeddedLog) -> None:
    orders.append("orders", ids(1), partition=0)
    with member(orders) as consumer:
        assert read(consumer) == [0]
    orders.groups.delete("billing")
    with member(orders) as consumer:
        assert read(consumer) == [0]


# -- the law ----------------------------------------------------------------------------------------------------------


class GroupMachine(RuleBasedStateMachine):
    """For all actions and failures of members: committed rows were delivered, and in the end all rows were."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-groups-"))
        self.clock = ManualClock()
        self.log = open_log(self.folder / "log", clock=self.clock, config=Config(maintenance="manual"))
        self.log.create("orders", SCHEMA, partitions=3, durability="os")
        self.delivered: set[tuple[int, int]] = set()
        self.committed = dict.fromkeys(range(3), 0)
        self.alive = [member(self.log, auto_commit=False) for _ in range(2)]
        self.names = 0

    def chosen(self, number: int) -> Consumer:
        return self.alive[number % len(self.alive)]

    @precondition(lambda self: len(self.alive) < MEMBERS_MAX)
    @rule(static=st.booleans())
    def join(self, static: bool) -> None:
        self.names += 1
        self.alive.append(member(self.log, f"worker-{self.names}" if static else None, auto_commit=False))

    @rule(partition=st.integers(0, 2), count=st.integers(1, 3))
    def append(self, partition: int, count: int) -> None:
        self.log.append("orders", ids(count), partition=partition)

    @rule(number=NUMBERS)
    def poll(self, number: int) -> None:
        consumer = self.chosen(number)
        before = self.owned_by_others(consumer)
        batches = consumer.poll(seconds=0)
        state = GroupFolder(self.log.path, "billing").load()
        assert before.items() <= state.owners.items()
        for batch in batches:
            assert state.owners[Place("orders", batch.partition)] == consumer.member
            self.delivered |= {(batch.partition, row["_offset"]) for row in batch.rows()}

    def owned_by_others(self, consumer: Consumer) -> dict[Place, str]:
        """Partitions of other live members, which only they may release."""
        folder = GroupFolder(self.log.path, "billing")
        state, now_us = folder.load(), self.clock.now_us()
        living = {
            each.member
            for each in self.alive
            if each is not consumer and now_us - folder.heartbeat_us(str(each.member)) <= SESSION * 1e6
        }
        return {place: owner for place, owner in state.owners.items() if owner in living}

    @rule(number=NUMBERS)
    def commit(self, number: int) -> None:
        before = self.log.committed("billing", "orders")
        try:
            self.chosen(number).commit()
        except MemberFenced:
            assert self.log.committed("billing", "orders") == before
        self.what_is_committed_was_delivered_and_stays()

    @rule(number=NUMBERS)
    def work(self, number: int) -> None:
        self.poll(number)
        self.commit(number)

    @rule(number=NUMBERS)
    def oversleep(self, number: int) -> None:
        """One holds rows for too long, another takes over and gets further, and then the first commits."""
        for reader in (number, number + 1):
            for partition in range(3):
                self.append(partition, 1)
            self.poll(reader)
            self.clock.advance(seconds=SESSION + 1)
        self.work(number + 1)
        self.commit(number)

    @precondition(lambda self: len(self.alive) > 1)
    @rule(number=NUMBERS)
    def leave(self, number: int) -> None:
        consumer = self.chosen(number)
        self.alive.remove(consumer)
        consumer.close()

    @precondition(lambda self: len(self.alive) > 1)
    @rule(number=NUMBERS)
    def kill(self, number: int) -> None:
        """The dead are found by their locks, while the clock stands still; static ones are waited for."""
        consumer = self.chosen(number)
        self.alive.remove(consumer)
        die(consumer)
        self.poll(number)
        state = GroupFolder(self.log.path, "billing").load()
        assert consumer._membership is not None
        assert consumer._membership.static or consumer.member not in state.members

    @rule(number=NUMBERS)
    def restart(self, number: int) -> None:
        consumer = self.chosen(number)
        self.alive.remove(consumer)
        die(consumer)
        assert consumer._membership is not None
        name = consumer.member if consumer._membership.static else None
        self.alive.append(member(self.log, name, auto_commit=False))

    @rule(seconds=st.sampled_from([1.5, SESSION + 1]))
    def hang(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    @invariant()
    def what_is_committed_was_delivered_and_stays(self) -> None:
        if not hasattr(self, "log"):
            return
        for partition, offset in self.log.committed("billing", "orders").items():
            assert offset >= self.committed[partition]
            assert all((partition, before) in self.delivered for before in range(offset))
            self.committed[partition] = offset

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        try:
            self.clock.advance(seconds=SESSION + 1)  # static members that did not come back are given up
            self.alive.append(member(self.log, auto_commit=False))
            for _ in range(4):
                for number in range(len(self.alive)):
                    self.poll(number)
                self.clock.advance(seconds=1.5)
            ends = self.log.end_offsets("orders")
            assert self.delivered == {(number, offset) for number, end in ends.items() for offset in range(end)}
            places = [place for consumer in self.alive for place in consumer.positions.get("orders", {})]
            assert sorted(places) == [0, 1, 2]
        finally:
            self.log.close()
            shutil.rmtree(self.folder)


GroupMachine.TestCase.settings = settings(stateful_step_count=25)
TestGroups = GroupMachine.TestCase


def test_offsets_can_be_committed_again_after_their_topic_was_removed(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", config=Config(maintenance="manual")) as log:
        log.create("orders", SCHEMA)
        log.append("orders", ids(9))
        log.commit_offsets("billing", "orders", {0: 7})
        assert log.committed("billing", "orders") == {0: 7}
        log._catalogue.delete("__offsets")  # as a program of an earlier version could
        assert log.committed("billing", "orders") == {}
        with log.transaction() as transaction:
            transaction.commit_offsets("billing", "orders", {0: 3})
        log.commit_offsets("audit", "orders", {0: 4})
        assert [log.committed(group, "orders") for group in ("billing", "audit")] == [{0: 3}, {0: 4}]
