"""What all services of one log share: the log, its limits, the audit, and what is remembered between calls."""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from headwater.errors import LogError
from headwater.services.bell import Bell
from headwater.services.settings import Settings

if TYPE_CHECKING:
    from anyio import CapacityLimiter
    from starlette.requests import Request

    from headwater.alerts import Watcher
    from headwater.apps.runner import Runner
    from headwater.log import Log
    from headwater.log.port import Cursor
    from headwater.services.audit import Audit
    from headwater.services.callers import Caller
    from headwater.services.statements import Statements

T = TypeVar("T")
#: Threads for requests that read and write; those that wait have none.
WORKERS_MAX = 64
#: What clients are told when the server is full.
TRY_AGAIN_SECONDS = 1.0


@dataclass(eq=False, kw_only=True)
class ServerFull(LogError):
    """The server holds as many open things of a kind as it may."""

    what: str
    count_max: int
    setting: str
    seconds: float
    http_status: ClassVar[int] = 429
    problem = "The server holds {count_max:,} {what}, as many as it may; try again in {seconds:.1f} s."
    remedy = "End some of them sooner, or raise the server's `{setting}`."


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
class Host:
    """One log and what all services on it share."""

    log: Log
    settings: Settings
    bell: Bell = field(default_factory=Bell)
    started_at: float = field(default_factory=time.time)
    streams: int = 0
    closing: bool = False
    cursors: Kept[Cursor] = field(init=False)
    workers: CapacityLimiter | None = None
    #: The app that this process runs; None if the log is served alone.
    runner: Runner | None = None
    #: Where SQL of callers runs; None for this process itself.
    statements: Statements | None = None
    #: Where changes are recorded; None where nothing is, as for the owner of a folder at the command line.
    audit: Audit | None = None
    # Any: each service keeps values of its own kind.
    _shared: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.cursors = Kept(count_max=self.settings.cursors_max, seconds_max=600.0)

    @functools.cached_property
    def watcher(self) -> Watcher:
        """The alert rules of the log. They are evaluated here only if this process was asked to watch."""
        from headwater.alerts import Watcher

        return Watcher(self.log)

    def share(self, name: str, make: Callable[[], T]) -> T:
        """What all callers of a service have in common, made for the first of them."""
        with self._lock:
            if name not in self._shared:
                self._shared[name] = make()
            found: T = self._shared[name]
            return found

    @property
    def limiter(self) -> CapacityLimiter:
        """The threads that calls run in, away from the event loop."""
        import anyio

        if self.workers is None:
            self.workers = anyio.CapacityLimiter(WORKERS_MAX)
        return self.workers

    async def run(self, work: Callable[[], T]) -> T:
        """Do work that may touch the disk, away from the event loop."""
        import anyio.to_thread

        return await anyio.to_thread.run_sync(work, limiter=self.limiter)

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
