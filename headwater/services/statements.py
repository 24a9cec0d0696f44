"""SQL of visitors, run in processes of its own: what a statement takes is taken from them, never from the server.

DuckDB keeps its own bound on memory only for what it can count: one expression such as `repeat('a', 3000000000)` takes
what it likes. So each statement runs in a child process that the kernel bounds, in memory and in time, and that is
killed and replaced when it exceeds them. A child is used for one statement after the other, since starting one takes
about a second.

Invariants: a child runs one statement at a time; it ends when the server ends, whatever it does then; and what a caller
may read is checked in the child, by the code that finds out what a statement reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson

import headwater
from headwater.errors import HeadwaterError
from headwater.log.remote.wire import error_from_json
from headwater.services.callers import Caller, Scope
from headwater.services.host import ServerFull
from headwater.units import format_bytes
from headwater.views.errors import StatementExceeded, StatementInvalid

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import Log
    from headwater.views import ViewKeeper
    from headwater.views.statement import Bounds, Stoppable

#: Children that are kept for the next statement.
IDLE_MAX = 2
#: How long a statement without a bound in time waits for a free process.
WAIT_SECONDS_MAX = 60.0
TRY_AGAIN_SECONDS = 1.0
_MODULE = "headwater.services.statement_process"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One statement over topics and views; or a condition on one view or on rows, and then it is about these alone."""

    statement: str = ""
    #: As they come in a request, see `headwater.views.wire`.
    # Any: JSON.
    parameters: Any = None
    limit: int | None = None
    #: Whose views are meant, where several apps have one of a name.
    app: str | None = None
    bounds: Bounds
    #: Who may read what it reads; None where that has been checked.
    caller: Caller | None = None
    view: str | None = None
    where: str | dict[str, Any] | None = None
    #: Of one batch, each with its `_offset`; see `headwater.views.conditions`.
    rows: pa.Table | None = None

    def write(self, sink: IO[bytes]) -> None:
        """Send it to a process for statements."""
        import pyarrow as pa

        caller = None if self.caller is None else {"name": self.caller.name, "scopes": [*map(str, self.caller.scopes)]}
        fields = {name: getattr(self, name) for name in ("statement", "parameters", "limit", "app", "view", "where")}
        fields |= {"bounds": asdict(self.bounds), "caller": caller, "rows": self.rows is not None}
        # Not orjson, here and below: parameters may be integers of any length.
        body = json.dumps(fields).encode()
        sink.write(len(body).to_bytes(8, "little") + body)
        if self.rows is not None:
            with pa.ipc.new_stream(sink, self.rows.schema) as writer:
                writer.write_table(self.rows)
        sink.flush()

    @staticmethod
    def read(source: IO[bytes]) -> Asked | None:
        """What was sent; None where nothing more comes."""
        import pyarrow as pa

        from headwater.views.statement import Bounds

        if not (head := source.read(8)):
            return None
        body = json.loads(source.read(int.from_bytes(head, "little")))
        caller, bounds = body.pop("caller"), Bounds(**body.pop("bounds"))
        if caller is not None:
            caller = Caller(name=caller["name"], scopes=tuple(map(Scope.parse, caller["scopes"])))
        rows = pa.ipc.open_stream(source).read_all() if body.pop("rows") else None
        return Asked(**body, bounds=bounds, caller=caller, rows=rows)


def answered(
    log: Log,
    asked: Asked,
    *,
    stoppable: Stoppable | None = None,
    kept: Mapping[str, ViewKeeper] | None = None,
) -> pa.Table:
    """What a statement gives, run by this process; of a condition on rows, their offsets.

    `kept` are the views that this process maintains.
    """
    from headwater.apps.views import views_of
    from headwater.views.conditions import offsets_where
    from headwater.views.sql import Sql
    from headwater.views.wire import unpacked

    if asked.rows is not None:
        return offsets_where(asked.rows, str(asked.where), bounds=asked.bounds, stoppable=stoppable)
    given = unpacked(asked.parameters)
    with views_of(log, asked.app, kept=kept, bounds=asked.bounds, plain=True) as views:
        if asked.view is not None:
            return views.view(asked.view).table(asked.where, parameters=given, limit=asked.limit)
        check = None if asked.caller is None else _checked(asked.caller)
        sql = Sql(log, views, files=False, bounds=asked.bounds, check=check)
        return sql.query(asked.statement, given, limit=asked.limit, stoppable=stoppable)


def _checked(caller: Caller) -> Callable[[str], None]:
    return lambda name: caller.require("read", name)


class Statements:
    """Runs statements over a log, as many at a time as there are places, each in a process of its own.

    `memory_max` is what a process may take beyond what it has before its first statement, and a margin.
    """

    def __init__(self, log: Path, *, memory_max: int, count_max: int) -> None:
        self._log = log
        self._memory_max = memory_max
        self._count_max = count_max
        self._places = threading.BoundedSemaphore(count_max)
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        # Ends the processes also if `close` is never called.
        self._finalize = weakref.finalize(self, _end, self._idle)

    def query(self, asked: Asked, *, stoppable: Stoppable | None = None) -> pa.Table:
        """What a statement gives; `stoppable` is handed what ends it from another thread."""
        if not self._places.acquire(timeout=asked.bounds.seconds_max or WAIT_SECONDS_MAX):
            raise ServerFull(
                what="statements that run",
                count_max=self._count_max,
                setting="statements_max",
                seconds=TRY_AGAIN_SECONDS,
            )
        try:
            child = self._taken()
            try:
                if stoppable is not None:
                    stoppable(child.stopper())
                return child.ask(asked)
            finally:
                child.finish()
                self._give_back(child)
        finally:
            self._places.release()

    def close(self) -> None:
        """End all processes, also those that run a statement. The next statement starts a new one."""
        with self._lock:
            for child in self._busy:
                child.stopper()()
            _end(self._idle)

    def _taken(self) -> Child:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.is_alive:
                    break
                child.end()
            else:
                child = Child(self._log, memory_max=self._memory_max)
            self._busy.add(child)
            return child

    def _give_back(self, child: Child) -> None:
        with self._lock:
            self._busy.discard(child)
            if not child.is_usable:
                child.end()
                # Started now, it is ready for the next statement, which it reads once it is up.
                child = Child(self._log, memory_max=self._memory_max)
            if len(self._idle) < IDLE_MAX:
                self._idle.append(child)
            else:
                child.end()


class Child:
    """A process that runs statements, as this one sees it."""

    def __init__(self, log: Path, *, memory_max: int) -> None:
        self._memory_max = memory_max
        self._lock = threading.Lock()
        self._turn = 0
        self._stopped = False
        self.is_usable = True
        path = os.pathsep.join(filter(None, [str(Path(headwater.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        # Arrow's own allocators reserve more than they use, and that would count.
        settings = {"PYTHONPATH": path, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, str(log), str(memory_max)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **settings},
            start_new_session=True,  # Ctrl-C is for the server, which ends it in order
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, asked: Asked) -> pa.Table:
        import pyarrow as pa

        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            asked.write(stdin)
            line = stdout.readline()
            told = orjson.loads(line) if line else {}
            self.is_usable = bool(told) and not told["retires"]
            if not told:
                raise self._ended(asked)
            if told["error"] is None:
                return pa.ipc.open_stream(stdout).read_all()
        except (OSError, pa.ArrowException) as error:  # it ended in the middle
            self.is_usable = False
            raise self._ended(asked) from error
        cause = _Cause(told["cause"]) if told["cause"] else None
        raise error_from_json(500, told, address="a process for statements") from cause

    def stopper(self) -> Callable[[], None]:
        """What ends the statement that is asked now, and the process with it; from any thread, and none that follows."""
        turn = self._turn

        def stop() -> None:
            with self._lock:
                if self._turn == turn:
                    self._stopped = True
                    self._process.kill()

        return stop

    def finish(self) -> None:
        """The statement has ended."""
        with self._lock:
            self._turn += 1
            self.is_usable = self.is_usable and not self._stopped

    def end(self) -> None:
        """End the process. It also ends by itself when its input is closed."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not sent has no reader
                    pipe.close()
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()

    def _ended(self, asked: Asked) -> HeadwaterError:
        from headwater.views.statement import shortened

        code = self._process.wait()
        statement = shortened(asked.statement or str(asked.where))
        if self._stopped:
            return StatementInvalid(statement=statement, why="it was stopped")
        late = code == -signal.SIGALRM
        bound = f"{asked.bounds.seconds_max:g} seconds" if late else format_bytes(self._memory_max)
        return StatementExceeded(statement=statement, bound=bound)


class _Cause(Exception):
    """What DuckDB has said in the process."""


def _end(children: list[Child]) -> None:
    while children:
        children.pop().end()
