"""SQL statements of a page: bounded in rows and time, stopped when the page is closed, with the place of a mistake."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headwater.console.kit.live import STATEMENTS, read
from headwater.errors import HeadwaterError
from headwater.services.sql import Sql
from headwater.views.errors import StatementInvalid

ROWS_MAX = 1_000
SECONDS_MAX = 60.0
_LINE = re.compile(r"LINE (\d+): (.*)\n( *)(\^+)")
_QUOTED = re.compile(r'"([^"\n]+)"|with name (\w+) does|\'([^\'\n]+)\'')

#: The statements that run now.
_running: set[Statement] = set()


@dataclass(frozen=True)
class Answer:
    """The rows that a statement returns."""

    table: pa.Table
    seconds: float
    is_cut: bool
    """Whether there are more rows than were asked for."""


class ClosablePage(Protocol):
    """A page, as far as its end is concerned: a client of NiceGUI."""

    # Any: what NiceGUI takes as a handler.
    def on_delete(self, handler: Callable[..., Any]) -> None: ...


class Statement:
    """One statement. `stop` interrupts it, from any thread; after `seconds_max` it is interrupted by itself."""

    def __init__(self, text: str, *, sql: Sql, rows_max: int = ROWS_MAX, seconds_max: float = SECONDS_MAX) -> None:
        self.text, self._sql, self._rows_max, self._seconds_max = text, sql, rows_max, seconds_max
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self.stopped = ""
        """Why it was stopped, if it was."""

    def run(self) -> Answer:
        if self.stopped:  # while it waited for a thread
            raise StatementInvalid(statement=self.text, why=self.stopped)
        timer = threading.Timer(self._seconds_max, self.stop, [f"It took longer than {self._seconds_max:.0f} s."])
        timer.daemon = True
        timer.start()
        _running.add(self)
        began = time.perf_counter()
        try:
            table = self._sql.query(self.text, limit=self._rows_max + 1, stoppable=self._stoppable)
        finally:
            timer.cancel()
            _running.discard(self)
        seconds = time.perf_counter() - began
        return Answer(table.slice(0, self._rows_max), seconds, is_cut=table.num_rows > self._rows_max)

    def stop(self, why: str = "You have stopped it.") -> None:
        with self._lock:
            self.stopped = self.stopped or why
            if self._end is not None:
                self._end()

    def _stoppable(self, end: Callable[[], None]) -> None:
        with self._lock:
            if self.stopped:
                raise StatementInvalid(statement=self.text, why=self.stopped)
            self._end = end


class StatementRunner:
    """Runs the statements of one page, one at a time; closing the page stops the one that runs."""

    def __init__(self, sql: Sql, client: ClosablePage) -> None:
        self._sql = sql
        self._statement: Statement | None = None
        self.stopped = ""
        """Why the last statement was stopped, if it was."""
        self.is_closed = False
        """Whether the page was closed."""
        client.on_delete(self._close)

    @property
    def is_busy(self) -> bool:
        return self._statement is not None

    async def ask(self, text: str) -> Answer:
        """Run a statement; if it was stopped, `stopped` says why."""
        statement = self._statement = Statement(text, sql=self._sql)
        try:
            return await read(statement.run, pool=STATEMENTS)
        finally:
            self._statement, self.stopped = None, statement.stopped

    def stop(self) -> None:
        if self._statement is not None:
            self._statement.stop()

    def _close(self) -> None:
        self.is_closed = True
        if self._statement is not None:
            self._statement.stop("The page was closed.")


def stop_all() -> None:
    """Stop all statements: the server goes down."""
    for statement in list(_running):
        statement.stop("The server goes down.")


def problem_of(error: HeadwaterError) -> str:
    """What is wrong with a statement, without the statement: the user sees that."""
    return f"{error.why[:1].upper()}{error.why[1:]}." if isinstance(error, StatementInvalid) else str(error)


def spot(text: str, error: HeadwaterError) -> tuple[int, int] | None:
    """The range of characters in which a statement is wrong; None where the error does not say.

    >>> spot("SELECT cardd FROM spend", StatementInvalid(statement="", why='Referenced column "cardd" not found'))
    (7, 12)
    """
    cause = str(error.__cause__ or "")
    if line := _LINE.search(cause):
        return _of_line(text, int(line[1]), line[2], len(line[3]) - len(f"LINE {line[1]}: "), len(line[4]))
    why = error.why if isinstance(error, StatementInvalid) else str(error)
    for named in _QUOTED.finditer(cause or why):
        word = next(part for part in named.groups() if part)
        at = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)
        if at is not None:
            return at.span()
    return None


def _of_line(text: str, number: int, drawn: str, column: int, width: int) -> tuple[int, int] | None:
    """A range in one line of the statement, of which DuckDB may quote only a part."""
    lines = text.split("\n")
    if not 1 <= number <= len(lines):
        return None
    line, begin = lines[number - 1], sum(len(before) + 1 for before in lines[: number - 1])
    if drawn.startswith("..."):
        column -= 3
        part = drawn.strip(".")
        column += max(0, line.find(part))
    start = min(begin + max(0, column), len(text))
    return start, min(max(start + width, start + 1), max(len(text), start + 1))
