"""Files: open ones that close themselves, and small ones that are replaced as a whole.

A new file, and a new folder, gets the permissions of the folder that it is put in, within the umask. The folder of a log
is made for its owner alone, so that all of it is; whoever shares a log changes the permissions of its folders.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from headwater.log.embedded.faults import reach


class OpenFile:
    """An open file that is closed when its last user lets go: never under the feet of another thread."""

    __slots__ = ("descriptor", "reserved")

    def __init__(self, path: Path, flags: int) -> None:
        self.descriptor = open_file(path, flags)
        #: Up to where space was reserved through this file.
        self.reserved = 0

    def __del__(self) -> None:
        descriptor, self.descriptor = getattr(self, "descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)


def open_file(path: str | Path, flags: int) -> int:
    """Open a file, with the permissions of its folder where it is new; returns its descriptor."""
    mode = os.stat(os.path.dirname(path) or ".").st_mode & 0o666 if flags & os.O_CREAT else 0
    return os.open(path, flags | os.O_CLOEXEC, mode)


def make_folders(folder: Path) -> None:
    """Make a folder and those above it that are missing, each with the permissions of the one above it."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    folder.mkdir(mode=os.stat(folder.parent).st_mode & 0o777, exist_ok=True)


def replace_file(path: Path, data: bytes, *, durable: bool, point: str | None = None) -> None:
    """Put `data` at `path` in one step; when `durable`, it is safe from a power cut on return.

    After a crash either the old or the new content is there, never a mixture.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with open(temporary, "wb", opener=open_file) as file:
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
    make_folders(folder)
    for _ in range(levels):
        # Also where it is there already: whoever made it may have died before its name was durable.
        folder = folder.parent
        sync_folder(folder)
