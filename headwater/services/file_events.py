"""Changes of files, for calls that wait in an event loop: one thread watches for all of them, so that a thousand tails cost
one thread and no polling."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from headwater.log.clients.groups import Sign
from headwater.log.embedded.watch import Watch

#: A writer that was killed causes no event: the files are checked this often as well.
LOOK_AGAIN_SECONDS = 1.0


class Waiter:
    """Waits for changes of some files, in the event loop that made it."""

    def __init__(self, paths: Mapping[Path, Sign]) -> None:
        self.paths = dict(paths)
        self._event = asyncio.Event()
        self._signs: set[Sign] = set()

    def wake(self, touched: set[Path] | None) -> None:
        signs = {sign for path, sign in self.paths.items() if touched is None or path in touched}
        if signs:
            self._signs |= signs
            self._event.set()

    async def wait(self, *, seconds: float) -> set[Sign]:
        """Wait for a change since the last call, and return which; an empty set after so many seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        self._event.clear()
        signs, self._signs = self._signs, set()
        return signs


class FileEvents:
    """Wakes waiters in event loops when files change."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._lock = threading.Lock()
        self._waiters: dict[asyncio.AbstractEventLoop, set[Waiter]] = {}
        self._uses: dict[Path, int] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @contextlib.contextmanager
    def waiting(self, paths: Mapping[Path, Sign]) -> Iterator[Waiter]:
        """A waiter for some files while the block runs. It misses no change from the beginning of the block on."""
        loop, waiter = asyncio.get_running_loop(), Waiter(paths)
        with self._lock:
            for path, sign in paths.items():
                self._uses[path] = self._uses.get(path, 0) + 1
                if self._uses[path] == 1:
                    self._watch.add(path, sign)
            self._waiters.setdefault(loop, set()).add(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headwater-file-events", daemon=True)
                self._thread.start()
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiters[loop].discard(waiter)
                if not self._waiters[loop]:
                    del self._waiters[loop]
                for path in paths:
                    self._uses[path] -= 1
                    if not self._uses[path]:
                        del self._uses[path]
                        self._watch.forget(path)

    def wake_all(self) -> None:
        """Wake all waiters, as if all files had changed."""
        self._wake(None)

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._watch.wake()
            self._thread.join(2 * LOOK_AGAIN_SECONDS)
        self._watch.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            touched = self._watch.touched(seconds=LOOK_AGAIN_SECONDS)
            if touched is None or touched:
                self._wake(touched)

    def _wake(self, touched: set[Path] | None) -> None:
        with self._lock:
            loops = list(self._waiters)
        for loop in loops:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wake_in, loop, touched)

    def _wake_in(self, loop: asyncio.AbstractEventLoop, touched: set[Path] | None) -> None:
        for waiter in list(self._waiters.get(loop, ())):
            waiter.wake(touched)
