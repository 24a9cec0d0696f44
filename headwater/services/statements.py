"""SQL of callers in processes of its own: the memory and time of a statement are never taken from the server.

DuckDB's bound on memory covers only what it counts: one expression such as `repeat('a', 3000000000)` takes any amount. So
each statement runs in a child process that the kernel bounds, in memory and in time, and that is killed and replaced when
it exceeds a bound. A child runs many statements, since starting one takes about a second.

Invariants: a child runs one statement at a time; it ends with the server, whatever it does then; and the caller's scopes
are checked in the child, by the code that finds out what a statement reads.
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
from functools import partial
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

#: Idle children that are kept for the next statement.
IDLE_MAX = 2
#: How long a statement without a bound in time waits for a free process.
WAIT_SECONDS_MAX = 60.0
_MODULE = "headwater.services.statement_process"


@dataclass(frozen=True, kw_only=True)
class StatementRequest:
    """A statement over topics and views; or a condition on one view, or on rows."""

    statement: str = ""
    #: As they come in a request, see `headwater.views.wire`.
    # Any: JSON.
    parameters: Any = None
    limit: int | None = None
    #: The app whose views are read, if several apps have one of a name.
    app: str | None = None
    bounds: Bounds
    #: The caller, whose scopes are checked; None if they were checked before.
    caller: Caller | None = None
    view: str | None = None
    where: str | dict[str, Any] | None = None
    #: Rows of one batch, with their `_offset`; see `headwater.views.conditions`.
    rows: pa.Table | None = None

    def write(self, sink: IO[bytes]) -> None:
        """Send the request to a child."""
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
    def read(source: IO[bytes]) -> StatementRequest | None:
        """Read a request; None at the end of the stream."""
        import pyarrow as pa

        from headwater.views.statement import Bounds

        if not (head := source.read(8)):
            return None
        body = json.loads(source.read(int.from_bytes(head, "little")))
        caller, bounds = body.pop("caller"), Bounds(**body.pop("bounds"))
        if caller is not None:
            caller = Caller(name=caller["name"], scopes=tuple(map(Scope.parse, caller["scopes"])))
        rows = pa.ipc.open_stream(source).read_all() if body.pop("rows") else None
        return StatementRequest(**body, bounds=bounds, caller=caller, rows=rows)


def run_here(
    log: Log,
    request: StatementRequest,
    *,
    stoppable: Stoppable | None = None,
    kept: Mapping[str, ViewKeeper] | None = None,
) -> pa.Table:
    """Run a statement in this process; for a condition on rows, the result is their offsets.

    `kept` are the views that this process maintains.
    """
    from headwater.apps.views import views_of
    from headwater.views.conditions import offsets_where
    from headwater.views.sql import Sql
    from headwater.views.wire import unpacked

    if request.rows is not None:
        return offsets_where(request.rows, str(request.where), bounds=request.bounds, stoppable=stoppable)
    given = unpacked(request.parameters)
    with views_of(log, request.app, kept=kept, bounds=request.bounds, plain=True) as views:
        if request.view is not None:
            return views.view(request.view).table(request.where, parameters=given, limit=request.limit)
        check = None if request.caller is None else partial(request.caller.require, "read")
        sql = Sql(log, views, files=False, bounds=request.bounds, check=check)
        return sql.query(request.statement, given, limit=request.limit, stoppable=stoppable)


class Statements:
    """Runs statements over a log, up to `count_max` at a time, each in a process of its own.

    `memory_max` is what a process may take beyond what it has before its first statement, and a margin.
    """

    def __init__(self, log: str | Path, *, memory_max: int, count_max: int) -> None:
        self._log = log
        self._memory_max = memory_max
        self._count_max = count_max
        self._slots = threading.BoundedSemaphore(count_max)
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        # Ends the processes also if `close` is never called.
        self._finalize = weakref.finalize(self, _end, self._idle)

    def query(self, request: StatementRequest, *, stoppable: Stoppable | None = None) -> pa.Table:
        """Run a statement; `stoppable` is called with a function that ends it from another thread."""
        if not self._slots.acquire(timeout=request.bounds.seconds_max or WAIT_SECONDS_MAX):
            raise ServerFull(what="statements that run", count_max=self._count_max, setting="statements_max")
        try:
            child = self._take()
            try:
                if stoppable is not None:
                    stoppable(child.stopper())
                return child.ask(request)
            finally:
                child.finish()
                self._give_back(child)
        finally:
            self._slots.release()

    def close(self) -> None:
        """End all processes, also those that run a statement. The next statement starts a new one."""
        with self._lock:
            for child in self._busy:
                child.stopper()()
            _end(self._idle)

    def _take(self) -> Child:
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
    """A process that runs statements, seen from the server."""

    def __init__(self, log: str | Path, *, memory_max: int) -> None:
        self._memory_max = memory_max
        self._lock = threading.Lock()
        self._turn = 0
        self._stopped = False
        self.is_usable = True
        path = os.pathsep.join(filter(None, [str(Path(headwater.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        # Arrow's own allocators reserve more than they use, which would count for the bound.
        settings = {"PYTHONPATH": path, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, str(log), str(memory_max)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **settings},
            start_new_session=True,  # Ctrl-C goes to the server, which ends its children
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: StatementRequest) -> pa.Table:
        import pyarrow as pa

        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            request.write(stdin)
            line = stdout.readline()
            reply = orjson.loads(line) if line else {}
            self.is_usable = bool(reply) and not reply["retires"]
            if not reply:
                raise self._ended(request)
            if reply["error"] is None:
                return pa.ipc.open_stream(stdout).read_all()
        except (OSError, pa.ArrowException) as error:  # it ended in the middle
            self.is_usable = False
            raise self._ended(request) from error
        cause = _Cause(reply["cause"]) if reply["cause"] else None
        raise error_from_json(500, reply, address="a process for statements") from cause

    def stopper(self) -> Callable[[], None]:
        """A function that ends the current statement and its process, from any thread, and no later statement."""
        turn = self._turn

        def stop() -> None:
            with self._lock:
                if self._turn == turn:
                    self._stopped = True
                    self._process.kill()

        return stop

    def finish(self) -> None:
        """Note that the statement has ended."""
        with self._lock:
            self._turn += 1
            self.is_usable = self.is_usable and not self._stopped

    def end(self) -> None:
        """End the process. It also ends by itself when its input is closed."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # buffered bytes have no reader
                    pipe.close()
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()

    def _ended(self, request: StatementRequest) -> HeadwaterError:
        from headwater.views.statement import shortened

        code = self._process.wait()
        statement = shortened(request.statement or str(request.where))
        if self._stopped:
            return StatementInvalid(statement=statement, why="it was stopped")
        late = code == -signal.SIGALRM
        bound = f"{request.bounds.seconds_max:g} seconds" if late else format_bytes(self._memory_max)
        return StatementExceeded(statement=statement, bound=bound)


class _Cause(Exception):
    """The error of DuckDB in the child."""


def _end(children: list[Child]) -> None:
    while children:
        children.pop().end()
