"""Read models: rows that a function makes of events, inline in SQLite or as a view on Spark."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson
import pyarrow as pa

from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.log.topic_rules import check_name
from headwater.schema import parse_schema, to_batches
from headwater.sourcing.codec import Read, dump, reader
from headwater.sourcing.decider import Decider
from headwater.sourcing.errors import ProjectionFailed
from headwater.sourcing.event_rows import from_batch
from headwater.sourcing.projection import Projection
from headwater.sourcing.request import RecordedEvent

if TYPE_CHECKING:
    from headwater.sourcing.entities import Entities

Row = TypeVar("Row")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Deleted:
    """What `evolve` of a read model returns for a row that is there no longer."""


@dataclass(frozen=True)
class ReadModel(Generic[Row]):
    """Rows by key, each evolved by the events that are about it. `evolve` is pure.

    A row is a dataclass, and its key is the id of the event's entity, unless `by` returns other keys (none, one or
    several). Events of one entity come in order; those of different entities in any order. `inline` keeps the rows in a SQLite file, and
    the operator `Evolve` keeps the same rows as a view on Spark. Raise `version` after a change of `evolve` or `by`.

    >>> import tempfile, headwater as hw
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Deposit:
    ...     amount: int
    >>> @dataclass(frozen=True)
    ... class Deposited:
    ...     amount: int
    >>> account = hw.Decider(
    ...     initial=0,
    ...     decide=lambda balance, command: [Deposited(command.amount)],
    ...     evolve=lambda balance, event: balance + event.amount,
    ...     commands=[Deposit],
    ...     events=[Deposited],
    ... )
    >>> @dataclass(frozen=True)
    ... class Turnover:
    ...     deposits: int = 0
    ...     amount: int = 0
    >>> def add(row: Turnover, event: RecordedEvent) -> Turnover:
    ...     return Turnover(row.deposits + 1, row.amount + event.event.amount)
    >>> turnover = ReadModel("turnover", account, initial=Turnover(), evolve=add)
    >>> folder = tempfile.mkdtemp()
    >>> accounts = hw.Entities(hw.open(folder), "account", account)
    >>> _ = accounts.send("acc-1", Deposit(20))
    >>> turnover.inline(accounts, f"{folder}/turnover.sqlite").query("SELECT * FROM turnover")
    [{'entity': 'acc-1', 'deposits': 1, 'amount': 20}]
    """

    name: str
    # Any: the user's state, command and event classes.
    decider: Decider[Any, Any, Any]
    initial: Row
    evolve: Callable[[Row, RecordedEvent], Row | Deleted]
    key: str = "entity"
    by: Callable[[RecordedEvent], str | Iterable[str] | None] | None = None
    version: int = 1

    def __post_init__(self) -> None:
        check_name("read model", self.name)
        if not is_dataclass(self.initial) or isinstance(self.initial, type):
            raise ArgumentInvalid(name="initial", value=self.initial, expected="an object of a dataclass")
        if self.key in self.schema.names:
            raise ArgumentInvalid(name="key", value=self.key, expected="a name that no field of a row has")
        _ = self._read, self.decider.event_types

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a row without its key. All admit null, as a changelog's do."""
        return pa.schema([field.with_nullable(True) for field in parse_schema(type(self.initial))])

    @cached_property
    def _read(self) -> Read:
        kind: Any = type(self.initial)  # Any: mypy does not know that the class of a type variable is hashable
        return reader(kind)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def keys(self, event: RecordedEvent) -> Iterable[str]:
        """The keys of the rows that an event is about."""
        if self.by is None:
            return (event.id,)
        found = self._called("by", event, self.by, event)
        if found is None:
            return ()
        return (found,) if isinstance(found, str) else tuple(found)

    def after(self, row: Row | None, event: RecordedEvent) -> Row | None:
        """A row after an event; None for a row that is not there."""
        before = self.initial if row is None else row
        after = self._called("evolve", event, self.evolve, before, event)
        if isinstance(after, Deleted):
            return None
        if type(after) is not type(self.initial):
            kind = type(after).__name__
            why = "it returned None, as if it does not know the event" if after is None else f"it returned a {kind}"
            raise self._failed("evolve", event, why)
        return after

    # Any: what `by` and `evolve` take and return.
    def _called(self, name: str, event: RecordedEvent, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except HeadwaterError:
            raise
        except Exception as error:
            raise self._failed(name, event, f"{type(error).__name__}: {error}") from error

    def _failed(self, function: str, event: RecordedEvent, why: str) -> ProjectionFailed:
        return ProjectionFailed(
            path=self.name, entities="entity", entity=event.id, version=event.version, why=f"`{function}`: {why}"
        )

    def write(self, row: Row) -> bytes:
        """A row as JSON."""
        return dump(row)

    def read(self, stored: bytes) -> Row:
        """A row from its JSON."""
        row: Row = self._read(orjson.loads(stored))
        return row

    def table(self, rows: list[Row]) -> pa.Table:
        """Rows as columns."""
        return pa.Table.from_batches(
            [batch.data for batch in to_batches(rows, self.schema, topic=self.name)], self.schema
        )

    def events(self, rows: pa.Table) -> Iterator[RecordedEvent]:
        """Rows of a topic of events as events. Personal fields are not decrypted."""
        types, name = self.decider.event_types, self.name
        for batch in rows.to_batches():
            for row, partition in zip(from_batch(batch), batch.column("_partition").to_pylist(), strict=True):
                yield RecordedEvent(
                    id=row.entity,
                    version=row.version,
                    event=types.read(name, row.event, row.schema, row.data),
                    at=_EPOCH + timedelta(microseconds=row.at_us),
                    partition=partition,
                    offset=row.offset,
                    schema=row.schema,
                    command_id=row.command_id,
                    by=row.by,
                    why=row.why,
                    correlation=row.correlation,
                    causation=row.causation,
                    tags=tuple(row.tags or ()),
                )

    # -- inline -------------------------------------------------------------------------------------------------------

    # Any: the user's state, command and event classes.
    def inline(self, entities: Entities[Any, Any, Any], path: str | Path) -> Projection:
        """The rows in a SQLite file, kept by the programs that ask for them: the table has the name of the model.

        Nested values are JSON.
        """
        columns = "".join(f', json_extract(row, \'$."{name}"\') AS "{name}"' for name in self.schema.names)
        tables = [
            f'CREATE TABLE "_{self.name}"(key TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID',
            f'CREATE VIEW "{self.name}" AS SELECT key AS "{self.key}"{columns} FROM "_{self.name}"',
        ]
        return Projection(entities, path, tables=tables, apply=self._apply, version=self.version)

    def _apply(self, db: sqlite3.Connection, event: RecordedEvent) -> None:
        for key in self.keys(event):
            known = db.execute(f'SELECT row FROM "_{self.name}" WHERE key = ?', (key,)).fetchone()
            row = self.after(None if known is None else self.read(known[0]), event)
            if row is None:
                db.execute(f'DELETE FROM "_{self.name}" WHERE key = ?', (key,))
            else:
                db.execute(f'REPLACE INTO "_{self.name}" VALUES (?, ?)', (key, self.write(row).decode()))
