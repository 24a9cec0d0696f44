"""File locks between threads and processes. A process that dies, even by `kill -9`, holds none of them.

A process that is stopped (`SIGSTOP`, a debugger) keeps its locks. So calls of the log wait for `seconds_max` at most, and
then raise `Locked`, which names the holder. A `LeaderLock` is held for the life of a process instead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.errors import FilesExhausted, Locked

#: How long a call waits for a lock unless a setting says otherwise.
SECONDS_MAX = 30.0
#: Pauses grow with the time waited so far, so that a short wait stays short and a long one needs no CPU.
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 0.000_02, 0.005
#: What another process does for all that wait, such as a sync, takes at least so long.
_WORK_SECONDS_MIN = 0.000_3


class _LockFile:
    """An open file that is closed with its last reference, so never while another thread holds its lock."""

    __slots__ = ("descriptor",)

    def __init__(self, path: Path) -> None:
        self.descriptor = -1
        try:
            mode = os.stat(path.parent).st_mode & 0o666  # as all files of a log: that of the folder
            self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                raise FilesExhausted(path=str(path), limit=limit) from error
            raise

    def __del__(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class FileLock:
    """An exclusive lock on a file, held against other threads and other processes alike."""

    def __init__(self, path: Path, *, seconds_max: float = SECONDS_MAX) -> None:
        self._path = path
        self._seconds_max = seconds_max
        self._thread = threading.RLock()
        self._file: _LockFile | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        if not self._thread.acquire(False) and not self._thread.acquire(timeout=self._seconds_max):
            raise self.held(self._seconds_max)
        try:
            if self._depth == 0:
                if self._file is None:
                    self._file = _LockFile(self._path)
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
        """Release the lock. Only the thread that holds it may call this."""
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
                    self._file = _LockFile(self._path)
                fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._thread.release()
            return False
        self._depth += 1
        return True

    def acquire_unless(self, is_done: Callable[[], bool]) -> bool:
        """Wait for the lock, and `release` it then; return False, without the lock, as soon as `is_done`."""
        began = time.monotonic()
        while not is_done():
            if self._thread.acquire(blocking=False):
                try:
                    if self._depth == 0:
                        if self._file is None:
                            self._file = _LockFile(self._path)
                        fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._thread.release()
                except BaseException:
                    self._thread.release()
                    raise
                else:
                    self._depth += 1
                    return True
            waited = time.monotonic() - began
            if waited >= self._seconds_max:
                raise self.held(waited)
            time.sleep(max(_WORK_SECONDS_MIN, _pause(waited)))
        return False

    def exists(self) -> bool:
        """Whether any process ever took the lock."""
        return os.path.exists(self._path)

    def held(self, waited: float) -> Locked:
        """The error that names the holder of the lock."""
        return Locked(what=str(self._path), waited=waited, holder=holder_of(self._path))

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._thread:  # not while another thread holds the lock: closing the file would release it
            self._file = None

    def release_file(self) -> None:
        """Close the file unless the lock is held; never waits."""
        if self._thread.acquire(blocking=False):
            try:
                if self._depth == 0:
                    self._file = None
            finally:
                self._thread.release()

    def abandon(self) -> None:
        """In a forked child: close the file without releasing the parent's lock."""
        self._thread = threading.RLock()
        self._file = None
        self._depth = 0


class LeaderLock:
    """A lock that one of several processes holds while it does their common work, such as running an app.

    It is not bound to a thread, and only its owner may read its file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "leader.lock"
    >>> first, second = LeaderLock(path), LeaderLock(path)
    >>> first.acquire(), second.acquire(), is_locked(path), first.release(), is_locked(path)
    (True, False, True, None, False)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def is_mine(self) -> bool:
        return self._descriptor is not None

    def is_held(self) -> bool:
        """Whether a process, this one or another, holds the lock."""
        return is_locked(self.path)

    def acquire(self, *, wait: bool = False) -> bool:
        """Take the lock if it is free, or wait for it without a limit (`wait`); return whether it is held."""
        if self._descriptor is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BaseException as error:
                os.close(descriptor)
                if isinstance(error, OSError):
                    return False
                raise
            self._descriptor = descriptor
        return True

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the lock, and hold it while the block runs."""
        self.acquire(wait=True)
        try:
            yield
        finally:
            self.release()


def is_locked(path: Path) -> bool:
    """Whether a process, this one or another, holds the lock of a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no process ever took it
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file if no other process holds a lock on it that excludes this one."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def unlock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def wait_for_lock(descriptor: int, path: Path, *, seconds_max: float = SECONDS_MAX, shared: bool = False) -> None:
    """Lock an open file, or raise `Locked` after `seconds_max`.

    `flock` has no timeout, and a signal would only reach the main thread, so it is called repeatedly with pauses.
    """
    began, mode = time.monotonic(), fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        waited = time.monotonic() - began
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if waited >= seconds_max:
                raise Locked(what=str(path), waited=waited, holder=holder_of(path)) from None
        else:
            return
        time.sleep(_pause(waited))


def _pause(waited: float) -> float:
    """The seconds until a lock is tried again."""
    return min(_PAUSE_SECONDS_MAX, max(_PAUSE_SECONDS_MIN, waited / 4))


def holder_of(path: Path) -> str:
    """A description of the process that holds the lock of a file; "another process" if it is not known."""
    try:
        place = os.stat(path)
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return "another process"
    device = f"{os.major(place.st_dev):02x}:{os.minor(place.st_dev):02x}"
    # Columns: number: FLOCK ADVISORY WRITE process major:minor:inode start end; an arrow marks a process that waits.
    found = [
        (int(words[4]), words[5].startswith(f"{device}:"))
        for words in held
        if len(words) >= 6 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(place.st_ino)
    ]
    # Some file systems have another device here than in `stat`: then the inode alone must match.
    processes = [process for process, exact in found if exact] or [process for process, _ in found]
    return _described(processes[0]) if processes and processes[0] > 0 else "another process"


def _described(process: int) -> str:
    name, stopped = "", ""
    with contextlib.suppress(OSError):  # it has just ended, or belongs to another user
        before, _, after = Path(f"/proc/{process}/stat").read_text().rpartition(")")
        name = f" ({before.partition('(')[2]})"
        stopped = ", which is stopped," if after.split()[0] in ("T", "t") else ""
    return f"process {process}{name}{stopped}"
