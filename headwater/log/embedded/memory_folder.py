"""The folder in shared memory that a topic with `durability="memory"` has instead of its folder on disk.

All users of the machine share this place, so a folder is checked before it is used. Its link `topic` points to the
topic's folder on disk. A log that is deleted by its folder leaves its topics in memory behind: a process that gives a topic
a new folder removes those that lead nowhere, once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from headwater.log.errors import FolderUnsafe

#: A folder that was written to within this time is kept, even if its log is not found: a process that sees other file
#: systems may use it.
IDLE_SECONDS_MIN = 3600.0


def memory_folder(log_id: str, topic_id: str) -> Path:
    return _shared_memory() / f"headwater-{log_id[:12]}-{topic_id[:12]}"


def _shared_memory() -> Path:
    return Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(tempfile.gettempdir())


def check_memory_folder(storage: Path, topic: Path) -> None:
    """Raise if another user owns the folder in shared memory, or could read or write it.

    It must be no link, belong to this user or to the owner of the topic, and have no permissions that the topic's folder
    on disk does not have.
    """
    found, allowed = os.lstat(storage), os.stat(topic)
    if not stat.S_ISDIR(found.st_mode):
        raise FolderUnsafe(path=str(storage), why="it is not a folder")
    if found.st_uid not in (os.geteuid(), allowed.st_uid):
        raise FolderUnsafe(path=str(storage), why=f"it belongs to the user with the number {found.st_uid}")
    if found.st_mode & ~allowed.st_mode & 0o077:
        raise FolderUnsafe(
            path=str(storage),
            why=f"its permissions are {found.st_mode & 0o777:o}, those of the topic {allowed.st_mode & 0o777:o}",
        )


def link_to_topic(storage: Path, topic: Path) -> None:
    """Record in the folder in memory which topic it belongs to; correct it after the log was moved."""
    link, target = storage / "topic", str(topic.resolve())
    with contextlib.suppress(OSError):  # another process is doing the same, or this one may not write
        if not link.is_symlink() or os.readlink(link) != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)


@functools.cache
def remove_orphans_once() -> None:
    """Remove orphans at the first call in this process: their search reads the whole place."""
    remove_orphans()


def remove_orphans(*, idle_seconds_min: float = IDLE_SECONDS_MIN) -> list[Path]:
    """Remove this user's folders in memory whose topic no longer exists; return them."""
    orphans = list(_orphans(idle_seconds_min))
    for folder in orphans:
        shutil.rmtree(folder, ignore_errors=True)
    return orphans


def _orphans(idle_seconds_min: float) -> Iterator[Path]:
    written_before = time.time() - idle_seconds_min
    for folder in _shared_memory().glob("headwater-*-*"):
        with contextlib.suppress(OSError):  # removed in the meantime
            found, link = os.lstat(folder), folder / "topic"
            is_mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if (
                is_mine
                and link.is_symlink()
                and not link.exists()
                and (folder / "state").stat().st_mtime < written_before
            ):
                yield folder
