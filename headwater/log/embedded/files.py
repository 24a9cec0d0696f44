"""Files: open ones that close themselves, and small ones that are replaced as a whole."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from headwater.log.embedded.faults import reach


class OpenFile:
    """An open file that is closed when its last user lets go: never under the feet of another thread."""

    __slots__ = ("descriptor", "reserved")

    def __init__(self, path: Path, flags: int) -> None:
        self.descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
        #: Up to where space was reserved through this file.
        self.reserved = 0

    def __del__(self) -> None:
        descriptor, self.descriptor = getattr(self, "descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)


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
