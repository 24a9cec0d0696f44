"""The load: a process that changes the tables until SIGTERM, by transactions of all kinds.

    python -m tests.chaos.capture.load KIND ADDRESS WRITERS SEED

Every change of `items` writes a new version of its row, and the same version into `audit`, in the same transaction: so
`audit` has what was committed, whatever became of the connection meanwhile. Each writer has keys of its own, beside a few
that all of them change.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

from tests.chaos.capture.databases import Session, connect

HOT_IDS = range(4)
SEEDED_ROWS = 1_000
LARGE_ROWS = 1_200
LIVE_ROWS_MAX = 4_000
ADDED_COLUMNS_MAX = 5
PAUSE_SECONDS = 0.03
RECONNECT_SECONDS_MAX = 60.0
#: The last transaction of a load: with it in the topics, all that came before is there.
LAST_ID = 10**15


class RolledBack(Exception):
    """Ends a transaction on purpose."""


@dataclass
class Columns:
    """The columns that `items` has got meanwhile, known to all writers."""

    names: list[str] = field(default_factory=list)


class Writer:
    """One connection that changes its own keys."""

    def __init__(self, kind: str, address: str, *, number: int, writers: int, seed: int, columns: Columns) -> None:
        self._kind, self._address = kind, address
        self._number, self._writers = number, writers
        self._chance = random.Random(seed * 100 + number)
        self._columns = columns
        self._version = 0
        self._next_id = 0
        self._live: set[int] = set()
        self._deleted: set[int] = set()
        self._added: str | None = None
        self.committed = self.rolled_back = self.failed = 0
        self._session: Session | None = None

    # -- transactions -------------------------------------------------------------------------------------------------

    def work(self, stop: threading.Event) -> None:
        while not stop.is_set():
            kinds = (self._small, self._savepoints, self._notes, self._large, self._key_change, self._new_column)
            kind = self._chance.choices(kinds, weights=(58, 14, 14, 6, 5, 3))[0]
            self._try(kind, roll_back=self._chance.random() < 0.15)
            stop.wait(self._chance.random() * 2 * PAUSE_SECONDS * self._writers)

    def _try(self, kind: Callable[[Session], None], *, roll_back: bool) -> None:
        self._added = None
        try:
            session = self._connected()
            before = set(self._live)
            session.run(session.begin)
            try:
                kind(session)
                if roll_back:
                    raise RolledBack
            except RolledBack:
                session.run("ROLLBACK")
                self._live = before
                self.rolled_back += 1
            else:
                session.run("COMMIT")
                self.committed += 1
                self._columns.names += [self._added] if self._added is not None else []
        except Exception as error:  # any driver's: the database restarts, or two writers wait for each other
            print(f"writer {self._number}: {str(error).strip()[:200]}", flush=True)
            self.failed += 1
            if self._session is not None:
                self._session.close()
            self._session = None

    def _connected(self) -> Session:
        """A connection, and what the last transaction before it left."""
        deadline = time.monotonic() + RECONNECT_SECONDS_MAX
        while self._session is None:
            try:
                session = connect(self._kind, self._address)
                rows = session.run(
                    f"SELECT id FROM items WHERE id >= {len(HOT_IDS)} AND id % {self._writers} = {self._number}"
                )
                ((last, version),) = session.run(
                    f"SELECT coalesce(max(id), 0), coalesce(max(version), 0) FROM audit WHERE id % {self._writers} = {self._number}"
                )
            except Exception:  # any driver's: the database is not there yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
                continue
            self._session = session
            self._live = {int(row[0]) for row in rows}
            self._next_id = max(self._next_id, int(last) // self._writers + len(HOT_IDS))
            self._version = max(self._version, int(version))
        return self._session

    def _small(self, session: Session) -> None:
        for _ in range(self._chance.randrange(1, 8)):
            match self._chance.random():
                case chance if chance < 0.45 or not self._live:
                    self._insert(session, [self._new_id()])
                case chance if chance < 0.8:
                    self._update(session, [self._some()])
                case _:
                    self._delete(session, [self._some()])
        if self._chance.random() < 0.3:
            self._update_hot(session)

    def _savepoints(self, session: Session) -> None:
        """Changes of which a part is rolled back, small or large, once inside another."""
        self._small(session)
        for name in ("a", "b"):
            before = set(self._live)
            session.run(f"SAVEPOINT {name}")
            if self._chance.random() < 0.2:
                self._large(session)
            self._small(session)
            if self._chance.random() < 0.6:
                session.run(f"ROLLBACK TO SAVEPOINT {name}")
                self._live = before
        self._small(session)

    def _large(self, session: Session) -> None:
        """Thousands of rows in one transaction."""
        some = sorted(self._live)[:LARGE_ROWS]
        if len(self._live) > LIVE_ROWS_MAX:
            self._delete(session, some)
        elif len(some) > LARGE_ROWS // 2 and self._chance.random() < 0.5:
            self._update(session, some)
        else:
            self._insert(session, [self._new_id() for _ in range(self._chance.randrange(500, LARGE_ROWS))])

    def _notes(self, session: Session) -> None:
        """Rows of the table without a key, some of them equal."""
        who = self._new_id()
        body = self._chance.choice(("tea", "milk", "bread"))
        session.run_many("INSERT INTO notes (who, body) VALUES (?, ?)", [(who, body)] * self._chance.randrange(1, 4))
        if self._chance.random() < 0.3:
            session.run("DELETE FROM notes WHERE who = ?", (who - self._writers * self._chance.randrange(1, 50),))
        self._small(session)

    def _key_change(self, session: Session) -> None:
        if not self._live:
            return
        old, new = self._some(), self._new_id()
        self._audit(session, [(old, self._new_version(), "d"), (new, version := self._new_version(), "c")])
        session.run("UPDATE items SET id = ?, version = ? WHERE id = ?", (new, version, old))
        self._live -= {old}
        self._live |= {new}

    def _new_column(self, session: Session) -> None:
        """Add a column, and change rows in the same transaction; the writers use it after the commit."""
        if self._number == 0 and len(self._columns.names) < ADDED_COLUMNS_MAX:
            name = f"x{len(self._columns.names) + 1}"
            if name not in session.columns("items"):  # it is there if a commit was not confirmed
                session.run(f"ALTER TABLE items ADD COLUMN {name} BIGINT")
                if self._kind == "mariadb":  # a change of the schema ends the transaction
                    session.run(session.begin)
            self._added = name
        self._small(session)

    # -- changes ------------------------------------------------------------------------------------------------------

    def _insert(self, session: Session, ids: list[int]) -> None:
        rows = [(one, self._new_version()) for one in ids]
        extra = self._columns.names
        names, marks = "".join(f", {name}" for name in extra), ", ?" * len(extra)
        session.run_many(
            f"INSERT INTO items (id, version, body{names}) VALUES (?, ?, ?{marks})",
            [(one, version, f"body of {version}", *[version] * len(extra)) for one, version in rows],
        )
        self._audit(session, [(*row, "c") for row in rows])
        self._live |= set(ids)

    def _update(self, session: Session, ids: list[int]) -> None:
        rows = [(one, self._new_version()) for one in ids]
        also = "".join(f", {name} = {name} + 1" for name in self._columns.names)
        session.run_many(
            f"UPDATE items SET version = ?, body = ?{also} WHERE id = ?",
            [(version, f"body of {version}" if version % 3 else None, one) for one, version in rows],
        )
        self._audit(session, [(*row, "u") for row in rows])

    def _update_hot(self, session: Session) -> None:
        """Change a row that other writers change as well."""
        one = self._chance.choice(HOT_IDS)
        ((version,),) = session.run(f"SELECT version FROM items WHERE id = ?{session.lock}", (one,))
        session.run("UPDATE items SET version = ?, body = 'hot' WHERE id = ?", (version + 1, one))
        self._audit(session, [(one, version + 1, "u")])

    def _delete(self, session: Session, ids: list[int]) -> None:
        session.run_many("DELETE FROM items WHERE id = ?", [(one,) for one in ids])
        self._audit(session, [(one, self._new_version(), "d") for one in ids])
        self._live -= set(ids)
        self._deleted |= set(ids[:5])

    def _audit(self, session: Session, rows: list[tuple[int, int, str]]) -> None:
        session.run_many("INSERT INTO audit (id, version, op) VALUES (?, ?, ?)", rows)

    def _some(self) -> int:
        return self._chance.choice(tuple(self._live))

    def _new_id(self) -> int:
        """A key of this writer, now and then one that it has deleted."""
        if self._chance.random() < 0.2:
            while self._deleted:
                if (one := self._deleted.pop()) not in self._live:
                    return one
        self._next_id += 1
        return self._next_id * self._writers + self._number

    def _new_version(self) -> int:
        self._version += 1
        return self._version


def seed_rows(session: Session) -> None:
    """Rows that are there before the capture: what its snapshot reads."""
    ids = [*HOT_IDS, *range(10**9, 10**9 + SEEDED_ROWS)]
    session.run(session.begin)
    session.run_many("INSERT INTO items (id, version, body) VALUES (?, 1, 'seeded')", [(one,) for one in ids])
    session.run_many("INSERT INTO audit (id, version, op) VALUES (?, 1, 'c')", [(one,) for one in ids])
    session.run_many("INSERT INTO notes (who, body) VALUES (?, 'seeded')", [(one,) for one in ids])
    session.run("COMMIT")


def finish(session: Session) -> None:
    """The last transaction: a row in each table."""
    session.run(session.begin)
    session.run("INSERT INTO items (id, version, body) VALUES (?, 1, 'last')", (LAST_ID,))
    session.run("INSERT INTO audit (id, version, op) VALUES (?, 1, 'c')", (LAST_ID,))
    session.run("INSERT INTO notes (who, body) VALUES (?, 'last')", (LAST_ID,))
    session.run("COMMIT")


def main() -> int:
    kind, address, writers, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    stop = threading.Event()

    def tell(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, tell)
    parent = os.getppid()
    columns = Columns()
    crew = [
        Writer(kind, address, number=number, writers=writers, seed=seed, columns=columns) for number in range(writers)
    ]
    threads = [threading.Thread(target=one.work, args=(stop,)) for one in crew]
    for thread in threads:
        thread.start()
    while not stop.wait(0.2):
        if os.getppid() != parent:
            stop.set()
    for thread in threads:
        thread.join()
    session = connect(kind, address)
    finish(session)
    session.close()
    counts = (sum(one.committed for one in crew), sum(one.rolled_back for one in crew), sum(one.failed for one in crew))
    print(
        f"{counts[0]} transactions committed, {counts[1]} rolled back, {counts[2]} failed, "
        f"{len(columns.names)} columns added"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
