"""Commands decided into events, and entities loaded from them."""

from __future__ import annotations

import errno
import os
import signal
import threading
from pathlib import Path

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Log
from headwater.log.errors import SyncFailed
from headwater.sourcing import CommandRejected, CommandRequest, VersionConflict
from headwater.sourcing.errors import CommandUnknown, HistoryBroken, NotEntities
from headwater.sourcing.event_rows import SCHEMA
from tests.conditions import until
from tests.sourcing.account import (
    DECIDER,
    Account,
    Accounts,
    Deposit,
    Deposited,
    Open,
    Opened,
    Withdraw,
    Withdrawn,
)


def test_a_command_becomes_events_and_they_become_state(log: Log, accounts: Accounts) -> None:
    decision = accounts.send("a", Open("Ada"))
    assert (decision.version, decision.events, decision.duplicate) == (1, (Opened("Ada"),), False)
    accounts.send("a", Deposit(5))
    assert accounts.load("a").state == Account("Ada", 5, (5,))
    assert accounts.load("unknown") == hw.sourcing.Entity(id="unknown", version=0, state=Account())
    assert [row["event"] for row in log.read("account.events").rows()] == ["Opened", "Deposited"]


def test_a_rejected_command_leaves_no_event(log: Log, accounts: Accounts) -> None:
    with pytest.raises(CommandRejected, match="the balance is 0"):
        accounts.send("a", Withdraw(1))
    assert log.read("account.events").count() == 0


def test_a_command_of_another_class_is_refused(accounts: Accounts) -> None:
    with pytest.raises(CommandUnknown, match="Opened"):
        accounts.send("a", Opened("Ada"))  # type: ignore[arg-type]


@pytest.mark.parametrize("id", ["", "x" * 257])
def test_an_id_is_text_that_can_be_stored(accounts: Accounts, id: str) -> None:
    with pytest.raises(ArgumentInvalid):
        accounts.send(id, Open("Ada"))


def test_a_command_with_an_id_is_done_once(log: Log, accounts: Accounts) -> None:
    first = accounts.send("a", Deposit(5), command_id="c-1")
    again = accounts.send("a", Deposit(5), command_id="c-1")
    assert again.duplicate
    assert (again.events, again.version, again.offset_next) == (first.events, first.version, first.offset_next)
    with hw.Entities(log, "account", DECIDER) as others:
        assert others.send("a", Deposit(5), command_id="c-1").duplicate
        assert not others.send("b", Deposit(5), command_id="c-1").duplicate
    assert accounts.load("a").state.balance == 5


def test_a_command_that_expects_another_version_is_refused(accounts: Accounts) -> None:
    accounts.send("a", Open("Ada"), expected_version=0)
    with pytest.raises(VersionConflict, match="is at version 1, not at 0"):
        accounts.send("a", Deposit(1), expected_version=0)
    assert accounts.send("a", Deposit(1), expected_version=1).version == 2


def test_commands_of_a_batch_see_those_before_them(accounts: Accounts) -> None:
    decisions = accounts.send_many(
        [
            ("a", Deposit(5)),
            ("b", Deposit(7)),
            ("a", Withdraw(5)),
            ("a", Withdraw(1)),
            CommandRequest(id="b", command=Deposit(1), command_id="c"),
            CommandRequest(id="b", command=Deposit(1), command_id="c"),
        ]
    )
    assert [each.events for each in decisions[:3]] == [(Deposited(5),), (Deposited(7),), (Withdrawn(5),)]
    assert isinstance(decisions[3].error, CommandRejected)
    assert [each.duplicate for each in decisions] == [False] * 5 + [True]
    assert accounts.load("b").state.balance == 8
    assert accounts.send_many([]) == []


def test_what_another_process_appended_is_decided_upon(log: Log, accounts: Accounts) -> None:
    accounts.send("a", Deposit(5))
    with hw.Entities(log, "account", DECIDER) as others:
        others.send("a", Withdraw(5))
        with pytest.raises(CommandRejected):
            accounts.send("a", Withdraw(1))
        accounts.send("a", Deposit(2))
        assert others.load("a").state.movements == (5, -5, 2)


def test_rows_that_wait_for_the_disk_are_decided_upon_and_synced_with_those_behind_them(
    log: Log, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts.send("a", Deposit(5), command_id="c-1")
    syncs: list[int] = []
    monkeypatch.setattr("os.fdatasync", syncs.append)
    with hw.Entities(log, "account", DECIDER) as others:
        waiting = CommandRequest(id="a", command=Withdraw(3), command_id="c-2")
        others.store_of("a").submit([waiting])
        place = others.store_of("a").partition
        assert log.end_offsets("account.events")[place] == 1
        with pytest.raises(CommandRejected, match="the balance is 2"):
            accounts.send("a", Withdraw(3))
        assert (log.end_offsets("account.events")[place], len(syncs)) == (2, 1)
        others.store_of("a").submit([CommandRequest(id="a", command=Deposit(1), command_id="c-3")])
        assert accounts.send("a", Deposit(1), command_id="c-3").duplicate
        assert (log.end_offsets("account.events")[place], len(syncs)) == (3, 2)
        others.store_of("a").submit([CommandRequest(id="a", command=Deposit(number)) for number in range(1, 50)])
        assert accounts.send("a", Deposit(1)).version == 53
        assert len(syncs) == 3
        assert others.send("a", Deposit(1)).version == 54
    assert [each.version for each in accounts.history("a")] == list(range(1, 55))


def test_rows_of_a_transaction_are_decided_upon(log: Log, accounts: Accounts) -> None:
    accounts.send("a", Deposit(5))
    with hw.Entities(log, "account", DECIDER) as others:
        others.send("a", Deposit(1))
        with accounts.transaction() as transaction:
            transaction.send("a", Withdraw(6))
        with pytest.raises(CommandRejected, match="the balance is 0"):
            others.send("a", Withdraw(1))
        assert others.send("a", Deposit(1)).version == 4


def test_threads_lose_no_command(accounts: Accounts) -> None:
    def send() -> None:
        for _ in range(20):
            accounts.send("a", Deposit(1))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert accounts.load("a").version == accounts.load("a").state.balance == 80


def test_a_thread_that_is_interrupted_while_it_waits_holds_no_other_up(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = accounts.store_of("a")
    syncing, go_on = threading.Event(), threading.Event()
    sync = os.fdatasync

    def slow_sync(file: int) -> None:
        syncing.set()
        assert go_on.wait(30)
        sync(file)

    def interrupt() -> None:
        until(lambda: len(store._jobs) == 2, "two threads wait for the first")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    monkeypatch.setattr("os.fdatasync", slow_sync)
    others = [threading.Thread(target=accounts.send, args=("a", Deposit(number))) for number in (1, 2)]
    others[0].start()
    assert syncing.wait(30)
    interrupter = threading.Thread(target=interrupt)
    # A process that a shell has started in the background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        interrupter.start()
        others[1].start()
        accounts.send("a", Deposit(4))
    signal.signal(signal.SIGINT, before)
    go_on.set()
    for thread in (*others, interrupter):
        thread.join(30)
    assert accounts.send("a", Deposit(8)).version == 3
    assert accounts.load("a").state.movements == (1, 2, 8)


def test_an_error_of_the_disk_reaches_all_whose_commands_wait_for_it(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fdatasync
    accounts.send("a", Deposit(1))

    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fdatasync", failing)
    with pytest.raises(SyncFailed):
        accounts.send("a", Deposit(1))
    monkeypatch.setattr("os.fdatasync", sync)
    assert accounts.send("a", Deposit(2)).version == 3  # the one before is stored, too


def test_an_entity_can_be_seen_as_it_was(clock: ManualClock, accounts: Accounts) -> None:
    offsets, times = [], []
    for amount in range(1, 5):
        offsets.append(accounts.send("a", Deposit(amount)).offset_next - 1)
        times.append(clock.now_us())
        clock.advance(seconds=1)
    for count in range(1, 5):
        balance = sum(range(1, count + 1))
        assert accounts.at("a", version=count).state.balance == balance
        assert accounts.at("a", offset=offsets[count - 1]).state.balance == balance
        assert accounts.at("a", time=times[count - 1]).state.balance == balance
    assert accounts.at("a", version=0).state == Account()
    with pytest.raises(NotFound):
        accounts.at("a", version=9)
    with pytest.raises(ArgumentInvalid):
        accounts.at("a", version=1, offset=1)


def test_history_says_who_when_and_why(clock: ManualClock, accounts: Accounts) -> None:
    accounts.send("a", Open("Ada"), by="clerk", why="a visit", correlation="v-1", causation="c-0", command_id="c-1")
    accounts.send("a", Deposit(1))
    first, second = accounts.history("a")
    assert (first.event, first.by, first.why, first.correlation) == (Opened("Ada"), "clerk", "a visit", "v-1")
    assert (first.causation, first.command_id, first.tags) == ("c-0", "c-1", ("kind:Opened", "owner:Ada"))
    assert int(first.at.timestamp() * 1_000_000) == clock.now_us()
    assert (second.version, second.by, second.command_id) == (2, None, None)


def test_a_command_can_be_tried_without_being_done(log: Log, accounts: Accounts) -> None:
    accounts.send("a", Deposit(5))
    tried = accounts.try_command("a", Withdraw(5))
    assert (tried.events, tried.version) == ((Withdrawn(5),), 2)
    assert isinstance(accounts.try_command("a", Withdraw(6)).error, CommandRejected)
    assert log.read("account.events").count() == 1


def test_a_missing_or_damaged_index_is_built_again(log: Log, accounts: Accounts) -> None:
    for number in range(30):
        accounts.send(f"a-{number % 3}", Deposit(1), command_id=str(number))
    accounts.close()
    for path in sorted(Path(log.home / "entities").rglob("*.sqlite")):
        path.unlink() if path.name.startswith("0") else path.write_bytes(b"no database" * 1000)
    with hw.Entities(log, "account", DECIDER) as again:
        assert [again.load(f"a-{number}").state.balance for number in range(3)] == [10, 10, 10]
        assert again.send("a-0", Deposit(1), command_id="0").duplicate
        assert again.ids() == [("a-0", 10), ("a-1", 10), ("a-2", 10)]
        assert again.ids(after="a-0", limit=1, prefix="a-") == [("a-1", 10)]


def test_an_index_that_is_ahead_of_the_log_is_built_again(log: Log, accounts: Accounts) -> None:
    accounts.send_many([("a", Deposit(1))] * 3)
    accounts.close()
    import sqlite3

    for path in Path(log.home / "entities").rglob("*.sqlite"):
        database = sqlite3.connect(path)
        database.execute("UPDATE meta SET value = 99 WHERE name = 'next'")
        database.execute("DELETE FROM events")
        database.commit()
        database.close()
    with hw.Entities(log, "account", DECIDER) as again:
        assert again.load("a").version == 3


def test_partitions_of_entities_do_not_change(log: Log, accounts: Accounts) -> None:
    for number in range(8):
        accounts.send(f"a-{number}", Deposit(1))
    log.alter("account.events", partitions=3)
    with pytest.raises(HistoryBroken, match="had 2 partitions"):
        accounts.send("a-0", Deposit(1))
    accounts.close()
    with hw.Entities(log, "account", DECIDER) as again, pytest.raises(HistoryBroken):
        [again.load(f"a-{number}") for number in range(8)]


def test_rows_that_are_no_history_are_an_error(log: Log, accounts: Accounts) -> None:
    accounts.send("a", Deposit(1))
    row = log.read("account.events").rows()[0]
    log.append("account.events", {name: row[name] for name in SCHEMA.names} | {"version": 7})
    with pytest.raises(HistoryBroken, match="version 7 follows 1"):
        accounts.load("a")


def test_entities_need_a_topic_of_their_own(log: Log) -> None:
    log.create("shop.events", {"id": "int64"})
    with pytest.raises(NotEntities):
        hw.Entities(log, "shop", DECIDER)
    with pytest.raises(ArgumentInvalid):
        hw.Entities(log, "account", DECIDER, snapshot_events=0)
