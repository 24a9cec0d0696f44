"""Where sinks write in tests: a real server or folder each, with a way to look at what is there, and to take it away."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.batches import MicroBatch
from headwater.sinks import PostgresSink, Retry
from headwater.sinks.driver import DriverSink
from tests.servers import Postgres, postgres_server

#: A row of a test: what happens to a key, the key, and a value.
Row = tuple[str, int, str | None]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("_op", pa.string())])
SHORT = Retry(seconds_max=0.2, first_seconds=0.01)
LONG = Retry(seconds_max=60, first_seconds=0.01, pause_seconds_max=0.1)


def batch_of(rows: Sequence[Row]) -> list[pa.RecordBatch]:
    """Rows as a sink gets them."""
    columns = [[row[1] for row in rows], [row[2] for row in rows], [row[0] for row in rows]]
    return [pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)]


def micro(number: int, *, query: str = "q", run: str = "r1") -> MicroBatch:
    return MicroBatch(query=query, number=number, run=run)


class Place(ABC):
    """One target of a sink: fresh, and the test's own."""

    #: Whether the target holds a row for each key, rather than all rows.
    keyed = True

    def __init__(self, home: Path) -> None:
        self.home = home

    @abstractmethod
    def sink(self, **options: Any) -> DriverSink:
        """A sink that writes here."""

    @abstractmethod
    def content(self) -> Any:
        """What is here: a value for each key, or all rows in some order."""

    def down(self) -> contextlib.AbstractContextManager[None]:
        """Take the target away for a while."""
        raise NotImplementedError

    def expected(self, batches: Sequence[Sequence[Row]]) -> Any:
        """What should be here, by the simplest thinkable program."""
        if not self.keyed:
            return sorted((row[1], row[2] or "", row[0]) for batch in batches for row in batch)
        table: dict[int, str | None] = {}
        for operation, key, value in (row for batch in batches for row in batch):
            if operation in ("-D", "-U"):
                table.pop(key, None)
            else:
                table[key] = value
        return table


class PostgresPlace(Place):
    """A table of a database of its own."""

    server: Postgres
    _manager: contextlib.AbstractContextManager[Postgres]

    @classmethod
    def start(cls) -> None:
        cls._manager = postgres_server()
        cls.server = cls._manager.__enter__()

    @classmethod
    def stop(cls) -> None:
        cls._manager.__exit__(None, None, None)

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.url = self.server.new_database()

    def sink(self, **options: Any) -> PostgresSink:
        given: dict[str, Any] = {"url": self.url, "table": "spend", "key": "id", "create": True}
        return PostgresSink(**(given | options))

    def content(self) -> dict[int, str | None]:
        if not self.server.execute("SELECT 1 FROM pg_tables WHERE tablename = 'spend'", conninfo=self.url):
            return {}
        return dict(self.server.execute("SELECT id, name FROM spend", conninfo=self.url))

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()


PLACES: dict[str, type[Any]] = {"postgres": PostgresPlace}
