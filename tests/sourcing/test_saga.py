"""Sagas: entities that react to events of others and send them commands, once in effect wherever a process is killed."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid
from headwater.faults import SAGA_CRASH_POINTS
from headwater.log import Log
from headwater.sourcing import DeciderFailed, RecordedEvent, Saga, SagaFailed, Send
from headwater.sourcing.errors import DeciderInvalid
from headwater.testing.crash import CrashAt, run_until_killed
from tests.conditions import until
from tests.sourcing.account import DECIDER, Deposit, Deposited, Withdraw
from tests.sourcing.transfers import TRANSFER, Debited, Ended, Start, Started, open_bank, send


def test_a_saga_reacts_to_events_and_to_rejections_of_its_commands(log: Log) -> None:
    accounts, transfers, saga = open_bank(log)
    accounts.send("a", Deposit(10))
    transfers.send("t-1", Start("a", "b", 7), by="Ada")
    saga.run(until_idle=True)
    transfers.send("t-2", Start("a", "b", 7))
    saga.run(until_idle=True)
    assert (accounts.load("a").state.balance, accounts.load("b").state.balance) == (3, 7)
    assert [each.event for each in transfers.history("t-1")] == [
        Started("a", "b", 7),
        Debited("b", 7),
        Ended("completed"),
    ]
    assert transfers.load("t-2").state == Ended("declined: the balance is 3")
    [deposited] = accounts.history("b")
    assert (deposited.by, deposited.correlation, deposited.causation) == ("Ada", "t-1", "transfer/t-1/2")
    assert transfers.history("t-1")[1].causation == "account/a/2"


def test_a_saga_that_has_lost_its_position_does_nothing_twice(log: Log) -> None:
    accounts, transfers, saga = open_bank(log)
    accounts.send("a", Deposit(10))
    transfers.send_many([(f"t-{number}", Start("a", "b", 4)) for number in range(4)])
    saga.run(until_idle=True)
    ends = log.end_offsets("account.events"), log.end_offsets("transfer.events")
    # Now the declined ones could be done: their rejection stays.
    accounts.send("a", Deposit(100))
    log.forget_offsets(saga.group)
    saga.run(until_idle=True)
    assert sum(log.end_offsets("account.events").values()) == sum(ends[0].values()) + 1
    assert log.end_offsets("transfer.events") == ends[1]
    assert Counter(transfers.load(f"t-{number}").state.outcome[:8] for number in range(4)) == {
        "complete": 2,
        "declined": 2,
    }


def test_a_command_is_sent_after_a_delay(log: Log, clock: ManualClock) -> None:
    accounts, transfers, saga = open_bank(log)
    accounts.send("a", Deposit(10))
    transfers.send("t-1", Start("a", "b", 7))
    saga.run(until_idle=True)
    transfers.worker().run(idle_seconds_max=0)
    assert transfers.load("t-1").state == Ended("completed")
    clock.advance(seconds=3600)
    transfers.worker().run(idle_seconds_max=0)
    assert transfers.load("t-1").state == Ended("archived")


def test_targets_may_be_in_another_log(log: Log, tmp_path: Path) -> None:
    def elsewhere(own: RecordedEvent) -> list[Send]:
        return [replace(each, to="their account") if isinstance(own.event, Debited) else each for each in send(own)]

    with hw.open(tmp_path / "other") as other, hw.Entities(other, "account", DECIDER) as theirs:
        accounts, transfers, saga = open_bank(log, send=elsewhere, targets={"their account": theirs})
        accounts.send("a", Deposit(10))
        transfers.send("t-1", Start("a", "b", 7))
        saga.run(until_idle=True)
        assert theirs.load("b").state.balance == 7


def test_a_new_saga_can_begin_with_new_events(log: Log) -> None:
    accounts, transfers, saga = open_bank(
        log, start="latest", by=lambda event: ["t-1", "t-2"] if event.id == "b" else None
    )
    accounts.send("b", Deposit(1))
    saga.run(until_idle=True)
    for id in ("t-1", "t-2"):
        transfers.send(id, Start("nobody", "b", 1))
    saga.run(until_idle=True)
    assert {transfers.load(id).state for id in ("t-1", "t-2")} == {Ended("declined: the balance is 0")}
    accounts.send("b", Deposit(1))
    accounts.send("b", Withdraw(1))
    saga.run(until_idle=True)
    assert transfers.load("t-1").version == 2


def test_a_second_process_waits_until_the_first_ends(log: Log) -> None:
    accounts, transfers, first = open_bank(log)
    second = Saga(transfers, sources=[accounts], send=send)
    threads = [threading.Thread(target=each.run) for each in (first, second)]
    for each in threads:
        each.start()
    accounts.send("a", Deposit(10))
    transfers.send("t-1", Start("a", "b", 1))
    until(lambda: transfers.load("t-1").state == Ended("completed"), "the first or second transfer")
    first.stop()
    threads[0].join()
    transfers.send("t-2", Start("a", "b", 1))
    until(lambda: transfers.load("t-2").state == Ended("completed"), "a transfer of the second process")
    second.stop()
    threads[1].join()
    assert accounts.load("b").state.balance == 2


def failing(*_: Any) -> Any:
    raise ValueError("a bug")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"send": failing}, "`send` of the saga 'transfer' failed on Started of 't-1', version 1: ValueError: a bug"),
        ({"send": lambda own: [own]}, "returned RecordedEvent, which is no Send"),
        ({"send": lambda _: Send("bank", "a", Deposit(1))}, "no entities 'bank'"),
        ({"by": failing}, "`by` of the saga 'transfer' failed on Deposited of 'a', version 1"),
    ],
)
def test_a_function_that_fails_stops_the_saga_at_the_event(log: Log, settings: dict[str, Any], why: str) -> None:
    accounts, transfers, broken = open_bank(log, **settings)
    accounts.send("a", Deposit(1))
    transfers.send("t-1", Start("a", "b", 1))
    for _ in range(2):
        with pytest.raises(SagaFailed, match=why):
            broken.run(until_idle=True)
    Saga(transfers, sources=[accounts], send=send).run(until_idle=True)
    assert transfers.load("t-1").state == Ended("completed")


@pytest.mark.parametrize(
    ("made", "why"), [(failing, "ValueError: a bug"), (lambda *_: hw.Rejected("no"), "rejected what")]
)
def test_a_decider_that_fails_on_an_event_stops_the_saga(log: Log, made: Any, why: str) -> None:
    accounts = hw.Entities(log, "account", DECIDER, partitions=2)
    accounts.send("a", Deposit(1), correlation="t-1")
    wrong = replace(TRANSFER, decide=made, commands=tuple(TRANSFER.command_types.kinds))
    with hw.Entities(log, "transfer", wrong, partitions=2) as transfers:
        with pytest.raises(DeciderFailed, match=rf"transfer 't-1' failed on Deposited of 'a', version 1: .*{why}"):
            Saga(transfers, sources=[accounts], send=send).run(until_idle=True)
        assert transfers.load("t-1").version == 0


def test_a_saga_needs_a_decider_that_takes_events_and_rejections(log: Log) -> None:
    savings = hw.Entities(log, "saving", DECIDER)
    with pytest.raises(DeciderInvalid, match="does not take RecordedEvent"):
        Saga(savings, sources=[], send=send)
    with pytest.raises(ArgumentInvalid, match="not the saga itself"):
        open_bank(log, sources=[hw.Entities(log, "transfer", TRANSFER, partitions=2)])
    assert "RecordedEvent" not in TRANSFER.command_types.fields()


@pytest.mark.process
def test_a_saga_that_is_killed_at_any_step_does_each_step_once(tmp_path: Path) -> None:
    points = (
        *SAGA_CRASH_POINTS,
        "sourcing.committed",
        "sourcing.appended",
        "commit.written",
        "commit.recorded",
    )

    def work() -> None:
        with hw.open(tmp_path) as log:
            open_bank(log)[2].run(until_idle=True)

    with hw.open(tmp_path) as log:
        accounts, transfers, _ = open_bank(log)
        accounts.send("a", Deposit(20))
        transfers.close()
        accounts.close()
    for number, point in enumerate(points):
        with hw.open(tmp_path) as log:
            transfers = open_bank(log)[1]
            transfers.send_many([(f"t-{number}-{place}", Start("a", "b", 3)) for place in range(2)])
            transfers.close()
        assert run_until_killed(work, at=CrashAt(point=point)).killed, point
    work()
    with hw.open(tmp_path) as log:
        accounts, transfers, _ = open_bank(log)
        ends = Counter(transfers.load(id).state for id, _ in transfers.ids())
        assert ends == {Ended("completed"): 6, Ended("declined: the balance is 2"): 6}
        assert (accounts.load("a").state.balance, accounts.load("b").state.balance) == (2, 18)
        assert Counter(type(each.event) for each in accounts.history("b")) == {Deposited: 6}
