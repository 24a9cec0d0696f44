"""Files: open ones that close themselves, and small ones that are replaced as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import uuid
from collections.abc import Iterator
from pathlib import Path

from headwater.errors import DiskFull, FilesExhausted, ReadOnly, StorageError, SyncFailed
from headwater.log.embedded.faults import reach

#: Of the files that a process may open, one in so many is for partitions, and one in so many for topics: the rest is
#: for segments that readers have mapped, and for whatever else the program does.
FILES_PER_PARTITION = 10
FILES_PER_TOPIC = 10


class OpenFile:
    """An open file that is closed when its last user lets go: never under the feet of another thread."""

    __slots__ = ("descriptor", "reserved")

    def __init__(self, path: Path, flags: int) -> None:
        self.descriptor = open_descriptor(path, flags)
        #: Up to where space was reserved through this file.
        self.reserved = 0

    def __del__(self) -> None:
        descriptor, self.descriptor = getattr(self, "descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)


def open_descriptor(path: Path, flags: int) -> int:
    """Open a file; where the process may open no more, raise an error that says so."""
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise FilesExhausted(path=str(path), limit=files_max()) from error
        raise


def files_max() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else soft


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Say in our words what the disk refuses."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


def storage_error(error: OSError, path: Path) -> StorageError:
    """The error of ours for what the system refused to do with `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(path=str(path))
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return ReadOnly(path=str(path))
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return FilesExhausted(path=str(path), limit=files_max())
    return SyncFailed(path=str(path), why=str(error))


def replace_file(path: Path, data: bytes, *, durable: bool, point: str | None = None) -> None:
    """Put `data` at `path` in one step; when `durable`, it is safe from a power cut on return.

    After a crash either the old or the new content is there, never a mixture.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if point is not None:
            reach(point)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder as durable as the files behind them."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, *, levels: int) -> None:
    """Make a folder that is as durable as what will be put there, with the `levels` above it that may be new."""
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(levels):
        # Also where it is there already: whoever made it may have died before its name was durable.
        folder = folder.parent
        sync_folder(folder)
