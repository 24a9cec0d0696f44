"""Locks between threads and processes. A process that dies, even by `kill -9`, holds none of them.

A process that is stopped (`SIGSTOP`, a debugger) keeps what it holds. So nobody waits without end: after `seconds_max`
the call raises `Locked`, which names the holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.errors import Locked
from headwater.log.embedded.files import OpenFile

#: How long a call waits for a lock unless a setting says otherwise.
SECONDS_MAX = 30.0
#: Pauses grow with the time waited so far, so that a short wait stays short and a long one costs nothing.
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 0.000_02, 0.005


class FileLock:
    """An exclusive lock on a file, held against other threads and other processes alike."""

    def __init__(self, path: Path, *, seconds_max: float = SECONDS_MAX) -> None:
        self._path = path
        self._seconds_max = seconds_max
        self._thread = threading.RLock()
        self._file: OpenFile | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        if not self._thread.acquire(False) and not self._thread.acquire(timeout=self._seconds_max):
            raise self.held(self._seconds_max)
        try:
            if self._depth == 0:
                if self._file is None:
                    self._file = OpenFile(self._path, os.O_RDWR | os.O_CREAT)
                try:
                    fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    wait_for_lock(self._file.descriptor, self._path, seconds_max=self._seconds_max)
            self._depth += 1
        except BaseException:
            self._thread.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let go of the lock. Only for the thread that holds it."""
        self._depth -= 1
        if self._depth == 0 and self._file is not None:
            fcntl.flock(self._file.descriptor, fcntl.LOCK_UN)
        self._thread.release()

    def try_acquire(self) -> bool:
        """Take the lock if it is free; `release` it then."""
        if not self._thread.acquire(blocking=False):
            return False
        try:
            if self._depth == 0:
                if self._file is None:
                    self._file = OpenFile(self._path, os.O_RDWR | os.O_CREAT)
                fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._thread.release()
            return False
        self._depth += 1
        return True

    def held(self, waited: float) -> Locked:
        """The error that says who holds the lock."""
        return Locked(what=str(self._path), waited=waited, holder=holder_of(self._path))

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._thread:  # not while another thread holds the lock: closing the file would let others in
            self._file = None

    def rest(self) -> None:
        """Let go of the file as `close` does, unless the lock is held just now; never waits."""
        if self._thread.acquire(blocking=False):
            try:
                if self._depth == 0:
                    self._file = None
            finally:
                self._thread.release()

    def abandon(self) -> None:
        """In a forked child: forget that the parent may hold the lock. The parent keeps it."""
        self._thread = threading.RLock()
        self._file = None
        self._depth = 0


def wait_for_lock(descriptor: int, path: Path, *, seconds_max: float = SECONDS_MAX, mode: int = fcntl.LOCK_EX) -> None:
    """Lock an open file, or raise `Locked` when its holder has kept it for too long.

    The kernel cannot wait for such a lock with a limit, and a signal would only reach the main thread: hence the pauses.
    """
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if waited >= seconds_max:
                raise Locked(what=str(path), waited=waited, holder=holder_of(path)) from None
        else:
            return
        time.sleep(min(_PAUSE_SECONDS_MAX, max(_PAUSE_SECONDS_MIN, waited / 4)))


def holder_of(path: Path) -> str:
    """The process that holds the lock of a file, in words; "another process" where the system does not tell."""
    try:
        place = os.stat(path)
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return "another process"
    device = f"{os.major(place.st_dev):02x}:{os.minor(place.st_dev):02x}"
    # number: FLOCK ADVISORY WRITE process major:minor:inode start end; a line with an arrow is one that waits.
    found = [
        (int(words[4]), words[5].startswith(f"{device}:"))
        for words in held
        if len(words) >= 6 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(place.st_ino)
    ]
    # Some file systems show another device here than they tell of their files: then the inode alone must do.
    processes = [process for process, exact in found if exact] or [process for process, _ in found]
    return _described(processes[0]) if processes and processes[0] > 0 else "another process"


def _described(process: int) -> str:
    name, stopped = "", ""
    with contextlib.suppress(OSError):  # it has just ended, or belongs to another user
        before, _, after = Path(f"/proc/{process}/stat").read_text().rpartition(")")
        name = f" ({before.partition('(')[2]})"
        stopped = ", which is stopped," if after.split()[0] in ("T", "t") else ""
    return f"process {process}{name}{stopped}"
