"""Accounts on Headwater and in the library `eventsourcing`: a deposit is a command that is decided, stored and durable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import NAMESPACE_OID, UUID, uuid5

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

import headwater as hw

#: Accounts of one writer.
ACCOUNTS = 100
PEER = "eventsourcing on SQLite"


class Client(Protocol):
    """One program with its accounts."""

    def create(self, numbers: Sequence[int]) -> None:
        """Make accounts with their first event."""

    def deposit(self, number: int) -> None:
        """Send one command; it is durable on return."""

    def deposit_many(self, numbers: Sequence[int]) -> None:
        """Send commands with one wait for the disk."""

    def balance(self, number: int) -> int:
        """Load an account."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Deposited:
    amount: int


def decide(balance: int, command: Deposit) -> list[Deposited] | hw.Rejected:
    return [Deposited(command.amount)] if balance + command.amount >= 0 else hw.Rejected(f"the balance is {balance}")


def evolve(balance: int, event: Deposited) -> int:
    return balance + event.amount


class Headwater:
    """Entities of the embedded log; every client opens the folder."""

    def __init__(
        self,
        folder: Path,
        *,
        partitions: int | None = None,
        cached_max: int = 10_000,
        snapshot_events: int | None = 100,
    ) -> None:
        self._log = hw.open(folder / "log")
        self._accounts = hw.Entities(
            self._log,
            "account",
            hw.Decider(initial=0, decide=decide, evolve=evolve),
            partitions=partitions,
            entities_cached_max=cached_max,
            snapshot_events=snapshot_events,
        )

    def create(self, numbers: Sequence[int]) -> None:
        self.deposit_many(numbers)

    def deposit(self, number: int) -> None:
        self._accounts.send(f"acc-{number}", Deposit(1))

    def deposit_many(self, numbers: Sequence[int]) -> None:
        decisions = self._accounts.send_many([(f"acc-{number}", Deposit(1)) for number in numbers])
        if any(decision.error is not None for decision in decisions):
            raise RuntimeError("a command was not done")

    def balance(self, number: int) -> int:
        balance: int = self._accounts.load(f"acc-{number}").state
        return balance

    def close(self) -> None:
        self._accounts.close()
        self._log.close()


class Account(Aggregate):
    """The same account, as an aggregate of the library."""

    @event("Opened")
    def __init__(self, number: int) -> None:
        self.number, self.balance = number, 1

    @staticmethod
    def create_id(number: int) -> UUID:
        return uuid5(NAMESPACE_OID, str(number))

    @event("Deposited")
    def deposit(self, amount: int) -> None:
        if self.balance + amount < 0:
            raise ValueError(f"the balance is {self.balance}")
        self.balance += amount


class Eventsourcing:
    """The library with its fastest settings for one writer.

    With a cache, an aggregate is neither copied nor brought up to date with the events of others before a command.
    """

    def __init__(self, folder: Path, *, cached: bool = True, snapshots: bool = False) -> None:
        environment = {
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(folder / "events.sqlite"),
            "SQLITE_LOCK_TIMEOUT": "60",
            "IS_SNAPSHOTTING_ENABLED": "y" if snapshots else "n",
            "AGGREGATE_CACHE_FASTFORWARD": "n",
            "DEEPCOPY_FROM_AGGREGATE_CACHE": "n",
        }
        if cached:
            environment["AGGREGATE_CACHE_MAXSIZE"] = "10000"
        self._bank: Application[UUID] = Application(environment)
        self._check_durable()

    def _check_durable(self) -> None:
        with self._bank.factory.datastore.transaction(commit=False) as cursor:  # type: ignore[attr-defined]
            cursor.execute("PRAGMA synchronous")
            if cursor.fetchone()[0] != 2:
                raise RuntimeError("this SQLite does not sync each transaction by default")

    def create(self, numbers: Sequence[int]) -> None:
        self._bank.save(*(Account(number) for number in numbers))

    def deposit(self, number: int) -> None:
        self.deposit_many([number])

    def deposit_many(self, numbers: Sequence[int]) -> None:
        changed: dict[int, Account] = {}
        for number in numbers:
            if number not in changed:
                changed[number] = self._load(number)
            changed[number].deposit(1)
        self._bank.save(*changed.values())

    def balance(self, number: int) -> int:
        return self._load(number).balance

    def snapshot(self, number: int) -> None:
        self._bank.take_snapshot(Account.create_id(number))

    def _load(self, number: int) -> Account:
        account: Account = self._bank.repository.get(Account.create_id(number))
        return account

    def close(self) -> None:
        self._bank.close()


@contextmanager
def both(folder: Path, *, writers: int = 1, partitions: int = 1) -> Iterator[dict[str, Client]]:
    """Ours and the peer, each with accounts for so many writers."""
    clients: dict[str, Client] = {"ours": Headwater(folder, partitions=partitions), PEER: Eventsourcing(folder)}
    try:
        for client in clients.values():
            client.create(range(ACCOUNTS * writers))
        yield clients
    finally:
        for client in clients.values():
            client.close()
