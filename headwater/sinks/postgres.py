"""The PostgreSQL sink: rows become rows of a table, exactly once.

The rows of a batch and its number are written in one transaction: COPY into a temporary table, one upsert from there,
and the batch's number in the table `headwater_commits` beside the target. So:

- a batch that Spark repeats after a crash finds its number, and changes nothing;
- a transaction that was cut off has not happened, whichever of its steps were done;
- a run that another has replaced finds its successor in `headwater_commits`, and is refused.

It costs one more copy than a bare COPY where there is a key: from the temporary table into the target.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn

import pyarrow as pa

from headwater.batches import MicroBatch
from headwater.errors import ArgumentInvalid, SinkRefused
from headwater.faults import reach
from headwater.sinks.changelog import OPERATION
from headwater.sinks.changes import Changes, without_own
from headwater.sinks.commits import Progress
from headwater.sinks.driver import DriverSink
from headwater.sinks.extras import need
from headwater.sinks.port import Guarantee
from headwater.sinks.postgres_copy import sql_type
from headwater.sinks.postgres_table import COMMITS, Target, check_target, create_target, read_target
from headwater.sinks.refusals import Refusals
from headwater.sinks.retrying import NotNow

if TYPE_CHECKING:
    from psycopg import Connection, Error

#: What the server says of itself rather than of a row, and what to do about it.
REFUSED_STATES = {
    "28": "Mend the user or the password in `url`",
    "3D": "Create the database, or mend its name in `url`",
    "42501": "Grant the user of `url` what is missing",
    "42P01": "Create the table, or let the sink do it with `create=True`",
    "42703": "Add the column to the table, or leave it out of the query",
    "42": "Mend the table or the query so that they fit",
    "25006": "Name the primary server in `url`, not a copy that can only be read",
}
#: Before a connection stands, the server's words are all there is.
REFUSED_WORDS = {
    "password authentication failed": REFUSED_STATES["28"],
    "no password supplied": REFUSED_STATES["28"],
    "no pg_hba.conf entry": REFUSED_STATES["28"],
    'role "': REFUSED_STATES["28"],
    'database "': REFUSED_STATES["3D"],
}


@dataclass(frozen=True, kw_only=True)
class PostgresSink(DriverSink):
    """Rows into a table of PostgreSQL: upserted by `key`, or appended without one; exactly once.

    With a key, the table has a row for each key: rows with `_op` or `_tombstone` change and delete it. The table needs
    a unique index over the key; `create=True` makes the table, with the key as its primary key. Structs, lists and
    maps become `jsonb`. Columns of the table that the query lacks get their defaults.

    >>> PostgresSink(url="postgresql://localhost/shop", table="spend", key="card").name
    'postgres:public.spend'
    """

    url: str
    table: str
    create: bool = False

    guarantee: ClassVar[Guarantee] = "exactly once"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.table or self.table.count(".") > 1:
            raise ArgumentInvalid(name="table", value=self.table, expected="a table's name, or `schema.table`")

    def __repr__(self) -> str:
        # Never the URL: it may hold a password, and values are printed and shown.
        return f"PostgresSink(table={self.table!r}, key={self.keys!r})"

    @property
    def name(self) -> str:
        return f"postgres:{'.'.join(self._place)}"

    @property
    def _place(self) -> tuple[str, str]:
        schema, _, table = self.table.rpartition(".")
        return schema or "public", table

    def examine(self, columns: pa.Schema) -> None:
        """Refuse columns that the table lacks or cannot hold; make the table where that was asked for."""
        super().examine(columns)
        mine = without_own(columns, keep=() if self.keys else (OPERATION,))
        for column in mine:
            sql_type(self.name, column)
        with self._connected() as connection:
            self._target(connection, mine)

    def begin(self, batch: MicroBatch) -> bool:
        with self._connected() as connection:
            from headwater.sinks.postgres_writing import make_commits

            make_commits(connection, self._place[0], self.name)
            with connection.transaction():
                return self._admit(connection, batch).has(batch)

    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        with self._connected() as connection:
            from headwater.sinks.postgres_writing import delete, placed

            some = changes.rows.num_rows or changes.gone.num_rows
            target = self._target(connection, changes.rows.schema) if some else None
            with connection.transaction():
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a row is refused here, not at the commit
                progress = self._admit(connection, batch)
                if progress.has(batch):  # an earlier attempt was committed, but its answer lost
                    return
                if target is not None:
                    delete(connection, target, changes.gone)
                    refusals.add(placed(connection, target, changes.rows, changes.positions, first=refusals.stops))
                self._remember(connection, batch, progress.after(batch))
                reach("delivery.written")
                refusals.post()

    def _target(self, connection: Connection, columns: pa.Schema) -> Target:
        target = read_target(connection, *self._place)
        if target is None and self.create:
            create_target(connection, *self._place, columns, self.keys, sink=self.name)
            target = read_target(connection, *self._place)
        if target is None:
            why = f"there is no table {'.'.join(self._place)!r}"
            raise SinkRefused(sink=self.name, why=why, what=REFUSED_STATES["42P01"])
        check_target(self.name, target, columns, self.keys)
        return target.over(columns.names, self.keys)

    def _admit(self, connection: Connection, batch: MicroBatch) -> Progress:
        """How far the query is, with this run at work. The row stays locked until the transaction ends."""
        from psycopg import sql

        commits = sql.Identifier(self._place[0], COMMITS)
        who = (batch.query, self.name)
        insert = "INSERT INTO {} (query, sink, progress) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
        connection.execute(sql.SQL(insert).format(commits), (*who, Progress().as_json().decode()))
        select = "SELECT progress FROM {} WHERE query = %s AND sink = %s FOR UPDATE"
        found = connection.execute(sql.SQL(select).format(commits), who).fetchone()
        before = Progress.from_json(None if found is None else found[0])
        progress = before.admit(self.name, batch)
        if progress != before:
            self._remember(connection, batch, progress)
        return progress

    def _remember(self, connection: Connection, batch: MicroBatch, progress: Progress) -> None:
        from psycopg import sql

        update = "UPDATE {} SET progress = %s, at = now() WHERE query = %s AND sink = %s"
        commits = sql.Identifier(self._place[0], COMMITS)
        connection.execute(sql.SQL(update).format(commits), (progress.as_json().decode(), batch.query, self.name))

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection; whatever goes wrong on it is said as what it means for the query."""
        need("psycopg", extra="postgres")
        import psycopg

        from headwater.sinks.postgres_writing import pool

        try:
            with pool.borrowed(self.url) as connection:
                yield connection
        except psycopg.Error as error:
            self._explain(error)

    def _explain(self, error: Error) -> NoReturn:
        from psycopg import ProgrammingError

        from headwater.sinks.postgres_writing import words as words_of

        state, words = error.sqlstate or "", words_of(error)
        for known in (state, state[:2]):
            if known and known in REFUSED_STATES:
                raise SinkRefused(sink=self.name, why=words, what=REFUSED_STATES[known]) from error
        if not state:
            if isinstance(error, ProgrammingError):
                raise SinkRefused(sink=self.name, why=words, what="Mend `url`") from error
            for said, what in REFUSED_WORDS.items():
                if said in words:
                    raise SinkRefused(sink=self.name, why=words, what=what) from error
        if not state or state[:2] in ("08", "40", "53", "55", "57", "58"):
            raise NotNow(words) from error
        raise SinkRefused(sink=self.name, why=words, what="Mend what the server complains of") from error
