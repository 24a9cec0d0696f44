"""Projections: read models in SQLite, made of all events of one kind of entities.

Invariants:

- What events have changed is committed with the offsets behind them, so each event is applied once, by any process.
- A file of other tables, or of another projection, is refused and not touched.
- A rebuild is one transaction: readers of the file see the old model until the new one is complete.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.errors import ArgumentInvalid, HeadwaterError, NotPossible
from headwater.sourcing.errors import ProjectionFailed
from headwater.sourcing.projection_files import OFFSETS, WAIT_SECONDS, drop_tables, note_projection
from headwater.sourcing.request import RecordedEvent

if TYPE_CHECKING:
    from headwater.sourcing.entities import Entities


class Projection:
    """A read model in a SQLite file: `apply` writes what an event changes, with `db.execute`.

    `query` applies what is durable by now before it reads, so a program reads its own writes. Several processes may share
    the file. Events of one entity come in order; those of different entities in any order. Raise `version` after a
    change of `tables` or `apply`: then the model is built again from all events. Personal fields that the entities
    reveal are stored as `apply` writes them, in plain text; an erasure empties the file, and it is built again.

    >>> import tempfile, headwater as hw
    >>> from dataclasses import dataclass
    >>> from headwater.sourcing import Projection
    >>> @dataclass(frozen=True)
    ... class Deposit:
    ...     amount: int
    >>> @dataclass(frozen=True)
    ... class Deposited:
    ...     amount: int
    >>> def decide(balance: int, command: Deposit) -> list[Deposited]:
    ...     return [Deposited(command.amount)]
    >>> def evolve(balance: int, event: Deposited) -> int:
    ...     return balance + event.amount
    >>> def apply(db, event):
    ...     db.execute("INSERT OR IGNORE INTO balances VALUES (?, 0)", (event.id,))
    ...     db.execute("UPDATE balances SET amount = amount + ? WHERE id = ?", (event.event.amount, event.id))
    >>> folder = tempfile.mkdtemp()
    >>> accounts = hw.Entities(hw.open(folder), "account", hw.Decider(initial=0, decide=decide, evolve=evolve))
    >>> tables = ["CREATE TABLE balances(id TEXT PRIMARY KEY, amount INTEGER)"]
    >>> balances = Projection(accounts, f"{folder}/balances.sqlite", tables=tables, apply=apply)
    >>> _ = accounts.send("acc-1", Deposit(20))
    >>> balances.query("SELECT * FROM balances WHERE amount > ?", 5)
    [{'id': 'acc-1', 'amount': 20}]
    """

    def __init__(
        self,
        # Any: the user's state, command and event classes.
        entities: Entities[Any, Any, Any],
        path: str | Path,
        *,
        tables: Sequence[str],
        apply: Callable[[sqlite3.Connection, RecordedEvent], object],
        version: int = 1,
    ) -> None:
        if isinstance(tables, str) or not tables:
            raise ArgumentInvalid(name="tables", value=tables, expected="a list of statements that create the tables")
        self.entities, self.path = entities, str(path)
        self._tables, self._apply, self._version = list(tables), apply, version
        self._statements = ";\n".join(tables)
        self._topic_id = entities.log.topic(entities.topic).id
        self._lock = threading.Lock()
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=WAIT_SECONDS)
        self._db.row_factory = sqlite3.Row
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")  # the topic has what a power failure takes
        except sqlite3.Error as error:
            self._db.close()
            raise ArgumentInvalid(name="path", value=self.path, expected=f"a file of SQLite ({error})") from error
        if entities.shows_personal:
            note_projection(entities.log, self.path, entities.name)

    def catch_up(self) -> int:
        """Apply the events that are durable by now, and return how many there were."""
        with self._lock:
            return self._catch_up()

    # Any: values of SQLite.
    def query(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        """The rows of a SELECT, after all events that are durable by now."""
        with self._lock:
            self._catch_up()
            self._db.execute("PRAGMA query_only = ON")
            try:
                return [dict(row) for row in self._db.execute(sql, parameters)]
            except sqlite3.Error as error:
                raise ArgumentInvalid(name="sql", value=sql, expected=f"a SELECT ({error})") from error
            finally:
                self._db.execute("PRAGMA query_only = OFF")

    def _catch_up(self) -> int:
        ends = self.entities.log.end_offsets(self.entities.topic)
        known = self._offsets()
        if known is not None and all(known.get(number, 0) >= end for number, end in ends.items()):
            return 0
        self._db.execute("BEGIN IMMEDIATE")
        try:
            known = self._offsets()  # another process may have applied them
            if known is None:
                self._create()
                known = {}
            count = 0
            for number, end in ends.items():
                for event in self.entities.events(number, start=known.get(number, 0), stop=end):
                    self._apply_event(event)
                    count += 1
                self._db.execute(
                    f"INSERT INTO {OFFSETS} VALUES (?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT(partition) DO UPDATE SET next = max(next, excluded.next)",
                    (number, end, self.entities.name, self._topic_id, self._version, self._statements),
                )
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        return count

    def _offsets(self) -> dict[int, int] | None:
        """The offsets behind the applied events; None if the model is to be built."""
        names = {row["name"] for row in self._db.execute("SELECT name FROM sqlite_master")}
        rows = self._db.execute(f"SELECT * FROM {OFFSETS}").fetchall() if OFFSETS in names else []
        if names and {row["entities"] for row in rows} != {self.entities.name}:
            raise self._refused("has tables that are not of this projection", "Give it a file of its own")
        if not rows:
            return None
        known = rows[0]
        if known["version"] > self._version:
            raise self._refused(f"was made by version {known['version']}", "Use the newer program, or another file")
        if known["version"] == self._version and known["tables"] != self._statements:
            raise self._refused("was made with other `tables`", "Raise `version`, or use another file")
        if (known["topic"], known["version"]) != (self._topic_id, self._version):
            return None
        return {row["partition"]: row["next"] for row in rows}

    def _refused(self, why: str, instead: str) -> NotPossible:
        return NotPossible(why=f"{self.path} {why}", instead=instead)

    def _create(self) -> None:
        """Empty tables in the place of those of an older version."""
        drop_tables(self._db)
        self._db.execute(
            f"CREATE TABLE {OFFSETS}(partition INTEGER PRIMARY KEY, next INTEGER NOT NULL, entities TEXT NOT NULL, "
            "topic TEXT NOT NULL, version INTEGER NOT NULL, tables TEXT NOT NULL)"
        )
        for statement in self._tables:
            try:
                self._db.execute(statement)
            except sqlite3.Error as error:
                raise ArgumentInvalid(name="tables", value=statement, expected=f"statements ({error})") from error

    def _apply_event(self, event: RecordedEvent) -> None:
        try:
            self._apply(self._db, event)
        except HeadwaterError:
            raise
        except Exception as error:
            raise ProjectionFailed(
                path=self.path,
                entities=self.entities.name,
                entity=event.id,
                version=event.version,
                why=f"{type(error).__name__}: {error}",
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
