"""Simulated power loss: rebuild a folder with only those bytes and names that were durable.

A `Disk` records the calls that make things durable. Bytes are durable once `fsync` or `fdatasync` of their file has
returned, names once `fsync` of their folder has. Everything else may survive a power cut, or not, or in part: `Disk.cut`
decides that by a seed, and builds the folder that the machine would find after the reboot.

The model is harsher than any one file system: names of one folder survive independently of each other, and a page may
survive while the page before it does not. Software that survives this survives ext4, XFS and Btrfs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import stat
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from headwater.log.embedded import state

#: The fates of bytes that were written but never synced.
LOSSES = ("lost", "cut", "zeroed", "garbage", "flipped", "pages", "kept")
#: The fates of names that were created, moved or removed, but whose folder was never synced.
NAME_LOSSES = ("lost", "some", "kept")
SECTOR_BYTES = 512
PAGE_BYTES = 4096

Names = dict[str, int]


class Disk:
    """The durable bytes and names of a folder.

    The record is in a second folder on the same file system, so that it survives the process: watch in a child, kill
    it, and let the parent `cut`.
    """

    def __init__(self, folder: Path, record: Path) -> None:
        self.folder = folder
        self.record = record
        self._lock = threading.RLock()
        self._real: dict[str, Any] = {}
        self._in_place: set[int] = set()
        self._random = random.Random(0)

    # -- watching -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def watching(self, *, seed: int = 0) -> Iterator[None]:
        """Record what becomes durable. Everything that the folder held before the record counts as durable.

        Syncs are recorded, not done: the real machine keeps running.
        """
        self._random = random.Random(seed)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.record.exists():
            for name in ("content", "names", "pins", "between"):
                (self.record / name).mkdir(parents=True)
            self._everything_is_safe()
        replaced: dict[str, Callable[..., Any]] = {
            "fsync": self._sync,
            "fdatasync": self._sync,
            "unlink": self._unlink,
            "remove": self._unlink,
            "rmdir": self._rmdir,
            "rename": self._rename,
            "replace": self._replace,
            "open": self._open,
            "pwrite": self._pwrite,
        }
        self._real = {name: getattr(os, name) for name in replaced}
        for name, function in replaced.items():
            setattr(os, name, function)
        try:
            yield
        finally:
            for name, function in self._real.items():
                setattr(os, name, function)

    def _everything_is_safe(self) -> None:
        for root, _, files in os.walk(self.folder):
            self._names_are_safe(Path(root))
            for name in files:
                path = Path(root, name)
                self._keep("content", path.stat().st_ino, path.read_bytes())

    def _sync(self, descriptor: int | Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        with self._alone():
            found = os.fstat(number)
            path = Path(os.readlink(f"/proc/self/fd/{number}"))
            if stat.S_ISDIR(found.st_mode):
                self._names_are_safe(path)
            elif found.st_nlink:
                self._keep("content", found.st_ino, _read_all(number))

    def _names_are_safe(self, folder: Path) -> None:
        if folder.is_dir():
            names = {entry.name: entry.inode() for entry in os.scandir(folder)}
            self._keep("names", folder.stat().st_ino, orjson.dumps(names))

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        with self._alone():
            self._pin(path, dir_fd)
            self._real["unlink"](path, dir_fd=dir_fd)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        # Moved instead of removed: its inode must not be reused by another folder while a cut may restore it.
        with self._alone():
            if dir_fd is None and not self._is_ours(path):
                self._real["rmdir"](path)
                return
            grave = self.record / "pins" / uuid.uuid4().hex
            found = os.stat(path, dir_fd=dir_fd)
            self._real["rename"](path, grave, src_dir_fd=dir_fd)
            self._real["rename"](grave, self.record / "pins" / str(found.st_ino))

    def _rename(self, source: Any, target: Any, **folders: Any) -> None:
        with self._alone():
            self._pin(target, None)
            self._real["rename"](source, target, **folders)

    def _replace(self, source: Any, target: Any, **folders: Any) -> None:
        with self._alone():
            self._pin(target, None)
            self._real["replace"](source, target, **folders)

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        descriptor: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        if Path(os.fsdecode(path)).name == "state" and flags & os.O_RDWR:
            self._in_place.add(descriptor)
        else:
            self._in_place.discard(descriptor)
        return descriptor

    def _pwrite(self, descriptor: int, data: Any, position: int) -> int:
        written: int = self._real["pwrite"](descriptor, data, position)
        # A file that is written in place may reach the disk at any moment: keep some of its versions.
        if descriptor in self._in_place and self._random.random() < 0.2:
            with self._alone():
                found = os.fstat(descriptor)
                if found.st_nlink:
                    self._keep("between", found.st_ino, _read_all(descriptor))
        return written

    def _pin(self, path: Any, dir_fd: int | None) -> None:
        """Keep a file's bytes and inode for the case that its removal never reaches the disk."""
        with contextlib.suppress(OSError):
            found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                os.link(path, self.record / "pins" / str(found.st_ino), src_dir_fd=dir_fd)

    def _is_ours(self, path: Any) -> bool:
        return Path(os.path.abspath(os.fsdecode(path))).is_relative_to(self.folder.absolute())

    def _keep(self, kind: str, number: int, data: bytes) -> None:
        # Atomically, since another thread may kill the process while this one is writing.
        temporary = self.record / kind / f".{number}.{threading.get_ident()}"
        temporary.write_bytes(data)
        self._real.get("replace", os.replace)(temporary, self.record / kind / str(number))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock, (self.record / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # -- cutting ------------------------------------------------------------------------------------------------------

    def cut(self, into: Path, *, loss: str, names: str, seed: int) -> None:
        """Build one of the folders that may be found after a power cut, chosen by the seed."""
        randomness = random.Random(seed)
        now = {path.stat().st_ino: path for path in self.folder.rglob("*")}
        now |= {int(pin.name): pin for pin in (self.record / "pins").iterdir()}
        for grave in (self.record / "pins").iterdir():
            if grave.is_dir():
                now |= {path.stat().st_ino: path for path in grave.rglob("*")}
        self._rebuild(self.folder.stat().st_ino, self.folder, into, now, loss, names, randomness)

    def _rebuild(
        self,
        number: int,
        live: Path | None,
        into: Path,
        now: dict[int, Path],
        loss: str,
        names: str,
        chance: random.Random,
    ) -> None:
        into.mkdir(parents=True)
        for name, inode in sorted(self._surviving_names(number, live, names, chance).items()):
            path = now.get(inode)
            if path is None:
                continue
            if path.is_dir():
                self._rebuild(inode, path, into / name, now, loss, names, chance)
            else:
                data = self._surviving_bytes(inode, path, loss, chance)
                (into / name).write_bytes(data)

    def _surviving_names(self, number: int, live: Path | None, names: str, chance: random.Random) -> Names:
        path = self.record / "names" / str(number)
        safe: Names = orjson.loads(path.read_bytes()) if path.exists() else {}
        current: Names = {} if live is None else {entry.name: entry.inode() for entry in os.scandir(live)}
        if names == "kept":
            return current
        if names == "lost":
            return safe
        result: Names = {}
        for name in sorted({*safe, *current}):
            chosen = chance.choice((safe, current))
            if name in chosen:
                result[name] = chosen[name]
        return result

    def _surviving_bytes(self, inode: int, path: Path, loss: str, chance: random.Random) -> bytes:
        kept = self.record / "content" / str(inode)
        safe = kept.read_bytes() if kept.exists() else b""
        current = path.read_bytes()
        between = self.record / "between" / str(inode)
        if between.exists():  # written in place: any version since the last sync
            moments = [safe, current, between.read_bytes()] if _is_newer(between, kept) else [safe, current]
            return _mixed(chance.choice(moments), chance.choice(moments), SECTOR_BYTES, chance)
        return damaged(safe, current, loss=loss, chance=chance)


def damaged(safe: bytes, current: bytes, *, loss: str, chance: random.Random) -> bytes:
    """The possible content of a file after a power cut, whose synced bytes are `safe` and whose newest are `current`.

    >>> damaged(b"synced", b"synced, not synced", loss="lost", chance=random.Random(1))
    b'synced'
    >>> damaged(b"synced", b"synced, not", loss="zeroed", chance=random.Random(1))
    b'synced\\x00\\x00\\x00\\x00\\x00'
    """
    if loss == "kept" or safe == current:
        return current
    if loss == "lost":
        return safe
    start = _common(safe, current)
    if start < min(len(safe), len(current)) or len(current) < len(safe):
        return _mixed(safe, current, SECTOR_BYTES, chance)  # overwritten or cut: a mix of old and new sectors
    size = len(current) - start
    if loss == "cut":
        return current[: start + chance.randrange(size)]
    if loss == "zeroed":
        return current[:start] + bytes(size)
    if loss == "garbage":
        return current[:start] + chance.randbytes(size)
    if loss == "flipped":
        place = start + chance.randrange(size)
        return current[:place] + bytes([current[place] ^ (1 << chance.randrange(8))]) + current[place + 1 :]
    if loss == "pages":
        # With whole pages, small files would survive completely or not at all: vary the size.
        return _mixed(safe + bytes(size), current, chance.choice((64, SECTOR_BYTES, PAGE_BYTES)), chance)
    raise ValueError(f"loss is {loss!r}, which is none of {', '.join(LOSSES)}")


def reboot(identity: str) -> None:
    """Simulate a reboot of the machine for this process and its forks."""
    state.boot_identity = identity.encode
    state.boot_mark.cache_clear()


def _read_all(descriptor: int) -> bytes:
    with Path(f"/proc/self/fd/{descriptor}").open("rb") as file:
        return file.read()


def _is_newer(path: Path, other: Path) -> bool:
    return not other.exists() or path.stat().st_mtime_ns > other.stat().st_mtime_ns


def _common(one: bytes, other: bytes) -> int:
    """The length of the common prefix."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _mixed(old: bytes, new: bytes, size: int, chance: random.Random) -> bytes:
    length = chance.choice((len(old), len(new)))
    pieces = [
        (chance.choice((old, new))[at : at + size]).ljust(min(size, length - at), b"\0")[: length - at]
        for at in range(0, length, size)
    ]
    return b"".join(pieces)
