"""Scheduled commands: sent by a worker when they are due, once in effect."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid
from headwater.log import Log
from headwater.sourcing import CommandRejected
from headwater.sourcing.errors import CommandUnknown
from headwater.testing.crash import CrashAt, run_until_killed
from tests.sourcing.account import DECIDER, Accounts, Deposit, Deposited, Open, Withdraw


def run(accounts: Accounts) -> None:
    accounts.worker(retries=hw.Retry(attempts=1)).run(idle_seconds_max=0.0)


def test_a_command_is_sent_when_it_is_due(clock: ManualClock, accounts: Accounts) -> None:
    due = datetime.fromtimestamp(clock.now_us() / 1e6, UTC) + timedelta(days=2)
    accounts.schedule("a", Deposit(5), at=due, by="Ada", why="her pay", command_id="pay-1")
    generated = accounts.schedule("a", Deposit(2), delay="1 day")
    run(accounts)
    assert accounts.load("a").version == 0
    clock.advance(seconds=86_400)
    run(accounts)
    assert [each.command_id for each in accounts.history("a")] == [generated]
    clock.advance(seconds=86_400)
    run(accounts)
    [_, pay] = accounts.history("a")
    assert (pay.event, pay.by, pay.why, pay.command_id) == (Deposited(5), "Ada", "her pay", "pay-1")


def test_a_command_that_is_scheduled_again_has_one_effect(clock: ManualClock, accounts: Accounts) -> None:
    for delay in (1, 1, 2):
        accounts.schedule("a", Deposit(5), delay=delay, command_id="pay-1")
    clock.advance(seconds=3)
    run(accounts)
    assert accounts.load("a").state.balance == 5


def test_a_rejected_command_becomes_a_dead_letter(log: Log, accounts: Accounts) -> None:
    accounts.schedule("a", Withdraw(5), delay=0)
    accounts.schedule("a", Open("Ada"), delay=0)
    run(accounts)
    assert accounts.load("a").state.owner == "Ada"
    with log.queue("account.scheduled", count="failures") as queue:
        assert (queue.stats().length, queue.stats().dead) == (0, 1)
        queue.redrive()
    accounts.send("a", Deposit(5))
    run(accounts)
    assert accounts.load("a").state.balance == 0


def test_a_command_that_cannot_be_sent_is_not_scheduled(accounts: Accounts) -> None:
    with pytest.raises(CommandUnknown):
        accounts.schedule("a", Deposited(1), delay=1)  # type: ignore[arg-type]
    for wrong in ({}, {"at": 0, "delay": 1}):
        with pytest.raises(ArgumentInvalid, match="a time, or a `delay`"):
            accounts.schedule("a", Deposit(1), **wrong)


@pytest.mark.process
def test_a_worker_that_is_killed_sends_no_command_twice_and_loses_none(tmp_path: Path) -> None:
    def work() -> None:
        with hw.open(tmp_path) as log, hw.Entities(log, "account", DECIDER, partitions=1) as accounts:
            accounts.worker().run(until_empty=True)

    with hw.open(tmp_path) as log, hw.Entities(log, "account", DECIDER, partitions=1) as accounts:
        for amount in (1, 2, 3):
            accounts.schedule("a", Deposit(amount), delay=0)
    for point in ("append.written", "sourcing.appended", "queue.journal_written"):
        assert run_until_killed(work, at=CrashAt(point=point)).killed
    work()
    with hw.open(tmp_path) as log, hw.Entities(log, "account", DECIDER) as accounts:
        assert sorted(accounts.load("a").state.movements) == [1, 2, 3]
        with pytest.raises(CommandRejected):
            accounts.send("a", Withdraw(7))
