"""What the routes of a server share: the log, its bounds, those who wait, and what is remembered between requests."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from headwater.server.settings import Settings
from headwater.server.waking import Bell

if TYPE_CHECKING:
    from starlette.requests import Request

    from headwater.alerts import Watcher
    from headwater.log import EmbeddedLog
    from headwater.log.port import Cursor
    from headwater.runtime.status import QueryStatus
    from headwater.server.statements import Statements
    from headwater.server.tokens import Caller

T = TypeVar("T")
#: Threads for requests that read and write; those that wait have none.
WORKERS_MAX = 64
#: What clients are told when the server is full.
TRY_AGAIN_SECONDS = 1.0


class Kept(Generic[T]):
    """Things remembered between requests, each for a while after its last use, and only so many of them."""

    def __init__(self, *, count_max: int, seconds_max: float, drop: Callable[[T], None] | None = None) -> None:
        self._count_max = count_max
        self._seconds_max = seconds_max
        self._drop = drop
        self._lock = threading.Lock()
        self._things: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def get(self, name: str) -> T | None:
        with self._lock:
            found = self._things.get(name)
            if found is None:
                return None
            self._things[name] = (time.monotonic(), found[1])
            self._things.move_to_end(name)
            return found[1]

    def put(self, name: str, thing: T, *, evict: bool = True) -> bool:
        """Remember a thing. Where there is no room, the one not used for longest goes; or this one is not taken: False."""
        with self._lock:
            self._sweep()
            if name not in self._things and len(self._things) >= self._count_max:
                if not evict:
                    return False
                self._forget(next(iter(self._things)))
            self._things[name] = (time.monotonic(), thing)
            self._things.move_to_end(name)
            return True

    def pop(self, name: str) -> T | None:
        with self._lock:
            found = self._things.pop(name, None)
            return None if found is None else found[1]

    def clear(self) -> None:
        with self._lock:
            for name in list(self._things):
                self._forget(name)

    def _sweep(self) -> None:
        oldest = time.monotonic() - self._seconds_max
        for name in [name for name, (used, _) in self._things.items() if used < oldest]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        _, thing = self._things.pop(name)
        if self._drop is not None:
            self._drop(thing)


@dataclass(kw_only=True)
class Service:
    """One served log."""

    log: EmbeddedLog
    settings: Settings
    bell: Bell = field(default_factory=Bell)
    started_at: float = field(default_factory=time.time)
    streams: int = 0
    #: Refusals of callers without a name, by status.
    unwritten: Counter[int] = field(default_factory=Counter)
    closing: bool = False
    cursors: Kept[Cursor] = field(init=False)
    workers: anyio.CapacityLimiter | None = None
    #: How the queries of a running app do; none where the log is served alone.
    statuses: Callable[[], Sequence[QueryStatus]] = tuple
    #: The alert rules of the log. It looks at them by itself only in a process that is asked to watch.
    watcher: Watcher = field(init=False)
    #: Where SQL of visitors runs; None for this process itself.
    statements: Statements | None = None

    def __post_init__(self) -> None:
        self.cursors = Kept(count_max=self.settings.cursors_max, seconds_max=600.0)

    async def run(self, work: Callable[[], T]) -> T:
        """Do work that may touch the disk, away from the event loop."""
        if self.workers is None:
            self.workers = anyio.CapacityLimiter(WORKERS_MAX)
        return await anyio.to_thread.run_sync(work, limiter=self.workers)

    def seconds(self, asked: float) -> float:
        """How long a request may wait: what it asks for, up to the bound."""
        return min(max(0.0, asked), self.settings.wait_seconds_max)

    def open(self) -> None:
        """Begin to serve, for the first time or again."""
        if self.closing:
            self.closing, self.bell = False, Bell()

    def stop(self) -> None:
        """Let requests that wait come to their end: nothing is going to happen any more."""
        self.closing = True
        self.bell.ring()

    def close(self) -> None:
        self.closing = True
        self.bell.close()
        if self.statements is not None:
            self.statements.close()


def caller_of(request: Request) -> Caller:
    """Who has sent a request; the guard has found it out."""
    found: Caller = request.state.caller
    return found
