"""Transactions over a log and a PostgreSQL database: rows and offsets of the one and rows of the other appear together.

Both take part by two-phase commit. The order of the steps makes a record of the decision unnecessary:

1. the log prepares: its rows and offsets are durable and not visible;
2. PostgreSQL prepares: **this is the decision**;
3. the log commits;
4. PostgreSQL commits.

So a process that finds a transaction in doubt can resolve it: one that PostgreSQL has prepared is committed on both sides, one that
only the log has prepared is rolled back. A session lock of PostgreSQL lets one process at a time use a name, on the
connection that also prepares: a process that has lost its connection has lost the lock, and can prepare nothing any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headwater.errors import InUse, NotPossible, StorageError
from headwater.faults import reach
from headwater.log.errors import TransactionFinished
from headwater.log.port import Log, Transaction
from headwater.log.topic_rules import check_name
from headwater.optional import require

if TYPE_CHECKING:
    from psycopg import Connection

TABLE = "headwater_transactions"
#: How long to wait for a name: the server takes a moment to notice that a process with the name has ended.
NAME_MILLISECONDS_MAX = 2_000
#: How the names of our transactions begin in `pg_prepared_xacts`.
PREFIX = "headwater"


@dataclass(eq=False, kw_only=True)
class TransactionsDiverged(StorageError):
    """A log and a database have not committed the same transactions of a name."""

    name: str
    in_log: int
    in_database: int
    problem = (
        "The log has committed transaction {in_log} of {name!r} last, and the database transaction {in_database} "
        "in its table `headwater_transactions`: one of the two is another one, or was restored from a copy."
    )
    remedy = (
        "Name the log and the database that belong together, or restore both from the same moment. To go on with what is there, "
        "use another `name`."
    )


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The transactions that were in doubt, by their numbers, and what became of them."""

    committed: tuple[int, ...] = ()
    rolled_back: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TwoPhaseTransaction:
    """A transaction that is open on both sides."""

    log: Transaction
    """Takes rows of topics (`append`) and offsets of groups (`commit_offsets`)."""
    connection: Connection
    """Takes statements; its transaction ends with the block."""


class TwoPhaseCommit:
    """Commits to a log and to a PostgreSQL database at once, or to neither.

        with TwoPhaseCommit(log, "postgresql://localhost/shop", name="billing") as both:
            with both.begin() as transaction:
                transaction.connection.execute("INSERT INTO invoices …")
                transaction.log.append("invoices", rows)
                transaction.log.commit_offsets("billing", "orders", offsets)

    `name` identifies the program: one process at a time uses it. What a killed process has left in doubt is resolved when
    the next one opens the name. The server needs `max_prepared_transactions` above 0, and the connection must be to the
    server itself, not to a pool that changes sessions. A transaction costs about two commits on each side.
    """

    def __init__(self, log: Log, url: str, *, name: str) -> None:
        check_name("producer", name)
        require("psycopg", extra="postgres")
        self.name = name
        self.resolved = Resolved()
        self._log = log
        self._url = url
        self._connection: Connection | None = None
        self._sequence = -1
        self._epoch = 0
        self._open()

    def __repr__(self) -> str:
        # Never the URL: it may hold a password.
        return f"TwoPhaseCommit(name={self.name!r}, log={self._log.address!r})"

    @contextlib.contextmanager
    def begin(self) -> Iterator[TwoPhaseTransaction]:
        """A transaction that is committed at the end of the block, and rolled back if the block raises.

        If the connection is lost while the transaction commits, the error leaves it in doubt; the next call of `begin` connects
        again and resolves it, and `resolved` says how.
        """
        from psycopg import Error

        connection = self._open()
        sequence = self._sequence + 1
        rows = self._log.transaction(self.name, epoch=self._epoch, sequence=sequence)
        try:
            connection.tpc_begin(f"{PREFIX}:{self.name}:{sequence}:{rows.id}")
            yield TwoPhaseTransaction(log=rows, connection=connection)
            connection.execute(f"UPDATE {TABLE} SET sequence = %s, at = now() WHERE name = %s", (sequence, self.name))
        except BaseException:
            with contextlib.suppress(TransactionFinished):
                rows.rollback()
            with contextlib.suppress(Error):  # a connection that was lost has rolled back, too
                connection.tpc_rollback()
            raise
        try:
            rows.prepare()
            reach("two_phase.log_prepared")
            connection.tpc_prepare()
            reach("two_phase.prepared")
            self._log.commit(rows.id)
            reach("two_phase.log_committed")
            connection.tpc_commit()
            reach("two_phase.committed")
        except BaseException:
            self._disconnect()  # in doubt from here: the next `begin` resolves it
            raise
        self._sequence = sequence

    def close(self) -> None:
        """Give the name back. A transaction in doubt stays until it is opened again."""
        self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- opening ------------------------------------------------------------------------------------------------------

    def _open(self) -> Connection:
        """The connection that holds the name; a new one has resolved what was in doubt."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        from psycopg import connect

        connection = connect(self._url, autocommit=True)
        try:
            self._check_server(connection)
            self._take_name(connection)
            self._epoch = self._log.open_producer(self.name)
            self.resolved = self._resolve(connection)  # a transaction in doubt has the row of the table locked
            self._make_table(connection)
            self._sequence = self._checked_sequence(connection)
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @staticmethod
    def _check_server(connection: Connection) -> None:
        found = connection.execute("SHOW max_prepared_transactions").fetchone()
        if found is None or int(found[0]) == 0:
            why = "The database keeps no prepared transactions: `max_prepared_transactions` is 0"
            raise NotPossible(why=why, instead="Set it to 10 or more in postgresql.conf, and restart the server")

    def _take_name(self, connection: Connection) -> None:
        from psycopg import errors

        connection.execute(f"SET lock_timeout = {NAME_MILLISECONDS_MAX}")
        try:
            connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (f"{PREFIX}:{self.name}",))
        except errors.LockNotAvailable:
            instead = "Stop that one first, or use another name; its connection ends with it"
            what = f"The name {self.name!r} of a two-phase commit"
            raise InUse(what=what, by="another process", instead=instead) from None
        connection.execute("RESET lock_timeout")

    def _make_table(self, connection: Connection) -> None:
        if connection.execute("SELECT to_regclass(%s)", (TABLE,)).fetchone() == (None,):
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {TABLE} "
                "(name text PRIMARY KEY, sequence bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())"
            )
        start = self._log.committed_sequence(self.name)
        insert = f"INSERT INTO {TABLE} (name, sequence) VALUES (%s, %s) ON CONFLICT DO NOTHING"
        connection.execute(insert, (self.name, start))

    def _checked_sequence(self, connection: Connection) -> int:
        """The last transaction that both sides have committed."""
        found = connection.execute(f"SELECT sequence FROM {TABLE} WHERE name = %s", (self.name,)).fetchone()
        in_database, in_log = -1 if found is None else int(found[0]), self._log.committed_sequence(self.name)
        if in_database != in_log:
            raise TransactionsDiverged(name=self.name, in_log=in_log, in_database=in_database)
        return in_log

    def _resolve(self, connection: Connection) -> Resolved:
        """Commit what PostgreSQL has prepared, and roll back what only the log has prepared."""
        committed, rolled_back = [], []
        prepared = set(self._log.prepared())
        listed = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, %s)"
        for (gid,) in connection.execute(listed, (f"{PREFIX}:{self.name}:",)).fetchall():
            _, _, number, transaction = str(gid).split(":", 3)
            in_log = self._log.committed_sequence(self.name)
            if in_log < int(number) and transaction not in prepared:
                raise TransactionsDiverged(name=self.name, in_log=in_log, in_database=int(number))
            if in_log < int(number):
                self._log.commit(transaction)
            reach("two_phase.log_resolved")
            connection.tpc_commit(gid)
            prepared.discard(transaction)
            committed.append(int(number))
        for transaction in sorted(prepared):
            producer, _, rest = transaction.rpartition(".")[0].rpartition(".")
            if producer == self.name and rest.isdigit():
                self._log.rollback(transaction)
                rolled_back.append(int(rest))
        return Resolved(committed=tuple(committed), rolled_back=tuple(rolled_back))
