"""Accounts on Headwater and in the library `eventsourcing`, on SQLite and on PostgreSQL.

A deposit is a command that is decided, stored and durable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import NAMESPACE_OID, UUID, uuid5

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

import headwater as hw
from tests.servers import postgres_server

#: Accounts of one writer.
ACCOUNTS = 100
SQLITE = "eventsourcing on SQLite"
POSTGRES = "eventsourcing on PostgreSQL"
#: In the folder of a benchmark: how to connect to the server that it has started.
_SERVER_FILE = "postgres.json"
#: A commit waits for the disk, as in SQLite; and what only replicas need is left out.
_SERVER_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "shared_buffers": "256MB",
}


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


DECIDER = hw.Decider(initial=0, decide=decide, evolve=evolve)


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
        self.accounts = hw.Entities(
            self._log,
            "account",
            DECIDER,
            partitions=partitions,
            entities_cached_max=cached_max,
            snapshot_events=snapshot_events,
        )

    def create(self, numbers: Sequence[int]) -> None:
        self.deposit_many(numbers)

    def deposit(self, number: int) -> None:
        self.accounts.send(f"acc-{number}", Deposit(1))

    def deposit_many(self, numbers: Sequence[int]) -> None:
        decisions = self.accounts.send_many([(f"acc-{number}", Deposit(1)) for number in numbers])
        if any(decision.error is not None for decision in decisions):
            raise RuntimeError("a command was not done")

    def balance(self, number: int) -> int:
        balance: int = self.accounts.load(f"acc-{number}").state
        return balance

    def close(self) -> None:
        self.accounts.close()
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

    With a cache, an aggregate is neither copied nor brought up to date with the events of others before a command. On
    PostgreSQL the functions in the database save round trips.
    """

    def __init__(self, folder: Path, *, store: str = SQLITE, cached: bool = True, snapshots: bool = False) -> None:
        environment = {
            "IS_SNAPSHOTTING_ENABLED": "y" if snapshots else "n",
            "AGGREGATE_CACHE_FASTFORWARD": "n",
            "DEEPCOPY_FROM_AGGREGATE_CACHE": "n",
        }
        environment |= _of_sqlite(folder) if store == SQLITE else _of_postgres(folder)
        if cached:
            environment["AGGREGATE_CACHE_MAXSIZE"] = "10000"
        self._bank: Application[UUID] = Application(environment)
        self._check_durable("PRAGMA synchronous" if store == SQLITE else "SHOW synchronous_commit")

    def _check_durable(self, question: str) -> None:
        with self._bank.factory.datastore.transaction(commit=False) as cursor:  # type: ignore[attr-defined]
            cursor.execute(question)
            answer = cursor.fetchone()
            if (answer["synchronous_commit"] if isinstance(answer, dict) else answer[0]) not in (2, "on"):
                raise RuntimeError("this database does not sync each transaction")

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


def _of_sqlite(folder: Path) -> dict[str, str]:
    return {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": str(folder / "events.sqlite"),
        "SQLITE_LOCK_TIMEOUT": "60",
    }


def _of_postgres(folder: Path) -> dict[str, str]:
    server: dict[str, str] = json.loads((folder / _SERVER_FILE).read_text())
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": "bank",
        "POSTGRES_HOST": "127.0.0.1",
        "POSTGRES_PORT": server["port"],
        "POSTGRES_USER": server["user"],
        "POSTGRES_PASSWORD": server["password"],
        "POSTGRES_ENABLE_DB_FUNCTIONS": "y",
        "POSTGRES_LOCK_TIMEOUT": "0",
        "POSTGRES_POOL_SIZE": "8",
    }


def open_client(subject: str, folder: Path) -> Client:
    """A program with the accounts of a folder."""
    return Headwater(folder) if subject == "ours" else Eventsourcing(folder, store=subject)


@contextmanager
def beside(folder: Path, *peers: str, writers: int = 1, partitions: int = 1) -> Iterator[dict[str, Client]]:
    """Ours and the peers, each with accounts for so many writers."""
    with ExitStack() as opened:
        if POSTGRES in peers:
            opened.enter_context(_server(folder))
        clients: dict[str, Client] = {"ours": Headwater(folder, partitions=partitions)}
        clients |= {peer: Eventsourcing(folder, store=peer) for peer in peers}
        for client in clients.values():
            opened.callback(client.close)
            client.create(range(ACCOUNTS * writers))
        yield clients


@contextmanager
def _server(folder: Path) -> Iterator[None]:
    with postgres_server(settings=_SERVER_SETTINGS) as server:
        server.execute("CREATE DATABASE bank")
        about = {"port": str(server.port), "user": server.user, "password": server.password}
        (folder / _SERVER_FILE).write_text(json.dumps(about))
        yield
