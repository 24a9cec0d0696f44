"""A statement of a reader: which SQL may run, how much time and memory it may take, and how it is ended when it takes more."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.units import GIB, MIB, format_bytes
from headwater.views.errors import StatementExceeded, StatementInvalid

if TYPE_CHECKING:
    import duckdb


BATCH_ROWS = 65_536
#: Is handed what ends a statement from another thread.
Stoppable = Callable[[Callable[[], None]], object]
#: DuckDB forgets an interruption that comes while it runs nothing, so that it is told again.
TOLD_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a statement may take; None is as much as it needs."""

    seconds_max: float | None = None
    rows_max: int | None = None
    #: Of DuckDB's own work where it has a database of its own; and of what it gives, unless `bytes_max` says less.
    memory_max: int | None = None
    bytes_max: int | None = None
    threads_max: int | None = None

    def settings(self) -> list[str]:
        """How DuckDB is told, for a database that only this statement uses."""
        found = []
        if self.memory_max is not None:
            # Nothing goes to the disk instead: it is as little without end as memory is.
            found += [f"SET memory_limit = '{max(1, self.memory_max // MIB)}MiB'", "SET temp_directory = ''"]
        if self.threads_max is not None:
            found.append(f"SET threads = {self.threads_max}")
        return found


UNBOUNDED = Bounds()
#: For statements that come from elsewhere.
SERVED = Bounds(seconds_max=60.0, rows_max=100_000, memory_max=GIB, threads_max=2)


class Ending:
    """Ends a statement from another thread: when it is stopped, or when its time is over.

    `end` is called again and again until the block is left, for it may do nothing while nothing runs yet.
    """

    def __init__(self, end: Callable[[], None], statement: str, *, seconds_max: float | None = None) -> None:
        self._end = end
        self._statement = statement
        self._seconds_max = seconds_max
        self._woken = threading.Event()
        self._over = threading.Event()
        self._late = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._seconds_max is not None:
            self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        was_ended = self._late or self._woken.is_set()
        self._over.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()  # or the next statement on this connection would be ended
        if was_ended and isinstance(error, _interruptions()):
            raise self._ended() from error

    def stop(self) -> None:
        """End the statement, from any thread."""
        self._woken.set()

    def stoppable(self) -> Callable[[], None]:
        """What stops the statement."""
        self._begin()
        return self.stop

    def check(self) -> None:
        """Raise where the statement was ended."""
        if self._late or self._woken.is_set():
            raise self._ended()

    def _ended(self) -> HeadwaterError:
        if self._late:
            return StatementExceeded(statement=shortened(self._statement), bound=f"{self._seconds_max:g} seconds")
        return StatementInvalid(statement=shortened(self._statement), why="it was stopped")

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="headwater-statement", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        if not self._woken.wait(self._seconds_max):
            self._late = True
        while not self._over.is_set():
            with contextlib.suppress(Exception):  # a connection that was closed has nothing to end
                self._end()
            self._over.wait(TOLD_AGAIN_SECONDS)


def _interruptions() -> tuple[type[Exception], ...]:
    duckdb = sys.modules.get("duckdb")  # where it was not loaded, nothing of it was interrupted
    return () if duckdb is None else (duckdb.InterruptException,)


# Any: whatever gives Arrow batches.
def collected(reader: Any, statement: str, bounds: Bounds) -> pa.Table:
    """The batches as one table, or `StatementExceeded` as soon as there are too many of them."""
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    bytes_max = bounds.memory_max if bounds.bytes_max is None else bounds.bytes_max
    with contextlib.closing(reader):  # what is left of a result that was not read to its end would hold the connection
        for batch in reader:
            batches.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if bounds.rows_max is not None and rows > bounds.rows_max:
                raise StatementExceeded(statement=shortened(statement), bound=f"{bounds.rows_max:,} rows")
            if bytes_max is not None and size > bytes_max:
                raise StatementExceeded(statement=shortened(statement), bound=format_bytes(bytes_max))
        return pa.Table.from_batches(batches, reader.schema)


def run_duckdb(
    relation: Callable[[], duckdb.DuckDBPyRelation], statement: str, bounds: Bounds, ending: Ending
) -> pa.Table:
    """The result of a relation within its bounds, with DuckDB's errors in our words."""
    import duckdb

    try:
        if bounds.rows_max is None and bounds.memory_max is None and bounds.bytes_max is None:
            return relation().to_arrow_table()
        return collected(relation().to_arrow_reader(BATCH_ROWS), statement, bounds)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        ending.check()
        if isinstance(error, (duckdb.OutOfMemoryException, MemoryError)):
            most = "the memory that there is" if bounds.memory_max is None else format_bytes(bounds.memory_max)
            raise StatementExceeded(statement=shortened(statement), bound=most) from error
        raise invalid(statement, error) from error


_COMMENT = re.compile(r"\s*(?:--[^\n]*(?:\n|\Z)|/\*.*?\*/)\s*", re.DOTALL)
_READING = ("select", "with", "values", "from", "table", "(")


def check_reading(statement: str) -> None:
    """Refuse what cannot be a query by its first word; stores run what is left in a transaction that only reads.

    >>> check_reading("-- all of it\\nselect * from spend")
    """
    rest = _COMMENT.sub(" ", statement).strip().lower()
    if not rest:
        raise StatementInvalid(statement=statement, why="it is empty")
    if not rest.startswith(_READING):
        raise StatementInvalid(statement=shortened(statement), why=f"{rest.split()[0].upper()} is no query")


def check_single(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Refuse what DuckDB does not parse, and anything but one query."""
    import duckdb

    check_reading(statement)
    try:
        found = connection.extract_statements(statement)
    except duckdb.Error as error:
        raise invalid(statement, error) from error
    if len(found) != 1:
        raise StatementInvalid(statement=shortened(statement), why=f"there are {len(found)} statements in it")
    if found[0].type != duckdb.StatementType.SELECT:
        raise StatementInvalid(statement=shortened(statement), why=f"{found[0].type.name} is no query")


def invalid(statement: str, error: Exception) -> StatementInvalid:
    """The database's own word on a statement, without the drawing below it."""
    why = str(error).split("\n\nLINE ")[0].strip().splitlines()
    text = " ".join(line.strip() for line in why if line.strip()).rstrip(".")
    return StatementInvalid(statement=shortened(statement), why=hinted(text))


def hinted(why: str) -> str:
    """The database's own word, with what most often is the matter where it cannot read something.

    >>> hinted('syntax error at or near ">"')
    'syntax error at or near ">" (a column with a name that SQL keeps for itself goes in double quotes: "at")'
    """
    hint = ' (a column with a name that SQL keeps for itself goes in double quotes: "at")'
    return why + hint if "syntax error" in why else why


def shortened(statement: str) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= 200 else text[:199] + "…"
