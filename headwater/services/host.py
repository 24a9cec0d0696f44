"""What all services of one log share: the log, its limits, the audit, and what is kept between calls."""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from headwater.errors import LogError
from headwater.services.settings import Settings
from headwater.services.wait import FileEvents

if TYPE_CHECKING:
    from anyio import CapacityLimiter

    from headwater.alerts import Watcher
    from headwater.apps.runner import Runner
    from headwater.log import Log
    from headwater.log.port import Cursor
    from headwater.services.audit import Audit
    from headwater.services.statements import Statements
    from headwater.sourcing import Entities

T = TypeVar("T")
#: Threads for calls that read and write.
WORKERS_MAX = 64
#: Threads for calls that wait in a thread: they must not take those of the others.
WAITING_MAX = 200
#: How soon a client may try again when the server is full.
TRY_AGAIN_SECONDS = 1.0


@dataclass(eq=False, kw_only=True)
class ServerFull(LogError):
    """The server holds as many open things of a kind as it may."""

    what: str
    count_max: int
    setting: str
    seconds: float = TRY_AGAIN_SECONDS
    http_status: ClassVar[int] = 429
    problem = "The server holds {count_max:,} {what}, as many as it may; try again in {seconds:.1f} s."
    remedy = "End some of them sooner, or raise the server's `{setting}`."


class ExpiringCache(Generic[T]):
    """Values kept between calls, each for a time after its last use, and only so many of them."""

    def __init__(self, *, count_max: int, seconds_max: float, drop: Callable[[T], None] | None = None) -> None:
        self.count_max = count_max
        self._seconds_max = seconds_max
        self._drop = drop
        self._lock = threading.Lock()
        self._values: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def get(self, name: str) -> T | None:
        with self._lock:
            kept = self._values.get(name)
            if kept is None:
                return None
            self._values[name] = (time.monotonic(), kept[1])
            self._values.move_to_end(name)
            return kept[1]

    def put(self, name: str, value: T, *, evict: bool = True) -> bool:
        """Keep a value. If the cache is full, drop the one not used for longest; without `evict`, return False instead."""
        with self._lock:
            oldest = time.monotonic() - self._seconds_max
            for expired in [one for one, (used, _) in self._values.items() if used < oldest]:
                self._remove(expired)
            if name not in self._values and len(self._values) >= self.count_max:
                if not evict:
                    return False
                self._remove(next(iter(self._values)))
            self._values[name] = (time.monotonic(), value)
            self._values.move_to_end(name)
            return True

    def pop(self, name: str) -> T | None:
        with self._lock:
            kept = self._values.pop(name, None)
            return None if kept is None else kept[1]

    def close(self) -> None:
        """Drop all values."""
        with self._lock:
            for name in list(self._values):
                self._remove(name)

    def _remove(self, name: str) -> None:
        _, value = self._values.pop(name)
        if self._drop is not None:
            self._drop(value)


@dataclass(kw_only=True)
class Host:
    """One log and what all services on it share."""

    log: Log
    settings: Settings
    file_events: FileEvents = field(default_factory=FileEvents)
    streams: int = 0
    #: Bytes of bodies with rows that are being read and appended.
    appended_bytes: int = 0
    closing: bool = False
    cursors: ExpiringCache[Cursor] = field(init=False)
    #: The app that this process runs; None if the log is served alone.
    runner: Runner | None = None
    #: Entities whose deciders this process has, by their names.
    # Any: the user's state, command and event classes.
    entities: Mapping[str, Entities[Any, Any, Any]] = field(default_factory=dict)
    #: The processes in which SQL of callers runs; None for this process itself.
    statements: Statements | None = None
    #: Where changes are recorded; None if they are not, as on a log that is read only.
    audit: Audit | None = None
    # Any: each service keeps values of its own kind.
    _shared: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.cursors = ExpiringCache(count_max=self.settings.cursors_max, seconds_max=600.0)

    @functools.cached_property
    def watcher(self) -> Watcher:
        """The alert rules of the log. They are evaluated here only if this process was asked to watch."""
        from headwater.alerts import Watcher

        return Watcher(self.log)

    def share(self, name: str, make: Callable[[], T]) -> T:
        """A value that all callers of a service share, made on first use; its `close` is called with the host's."""
        with self._lock:
            if name not in self._shared:
                self._shared[name] = make()
            value: T = self._shared[name]
            return value

    @functools.cached_property
    def _workers(self) -> CapacityLimiter:
        import anyio

        return anyio.CapacityLimiter(WORKERS_MAX)

    @functools.cached_property
    def _waiting(self) -> CapacityLimiter:
        import anyio

        return anyio.CapacityLimiter(WAITING_MAX)

    async def run(self, work: Callable[[], T], *, waits: bool = False, undo: Callable[[T], object] | None = None) -> T:
        """Run work that may touch the disk, or wait, in a thread: away from the event loop.

        A thread cannot be cancelled: if the caller is, `undo` gets what the work returns, if it is given.
        """
        import asyncio

        import anyio.to_thread

        limiter = self._waiting if waits else self._workers
        running = asyncio.ensure_future(anyio.to_thread.run_sync(work, limiter=limiter))
        try:
            return await (running if undo is None else asyncio.shield(running))
        except asyncio.CancelledError:
            if undo is not None:
                undoing = partial(undo, await running)
                await anyio.to_thread.run_sync(undoing, limiter=limiter)
            raise

    def seconds(self, wanted: float) -> float:
        """How long a call may wait: as long as it wants to, up to the bound."""
        return min(max(0.0, wanted), self.settings.wait_seconds_max)

    def open(self) -> None:
        """Begin to serve, for the first time or again."""
        if self.closing:
            self.closing, self.file_events = False, FileEvents()

    def stop(self) -> None:
        """Let calls that wait return, because the server ends."""
        self.closing = True
        self.file_events.wake_all()

    def close(self) -> None:
        self.closing = True
        self.file_events.close()
        for shared in list(self._shared.values()):
            if (close := getattr(shared, "close", None)) is not None:
                close()
        if self.statements is not None:
            self.statements.close()
