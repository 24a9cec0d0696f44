"""Files: open ones that are closed with their last reference, and small ones that are replaced atomically.

A new file or folder gets the permissions of its parent folder, within the umask. The folder of a log is created for its
owner alone; a user who shares a log changes the permissions of its folders.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import orjson
from google_crc32c import value as crc32c

from headwater.errors import FilesExhausted, StorageError
from headwater.faults import reach
from headwater.log.errors import DiskFull, FileCorrupt, FormatUnknown, ReadOnly, SyncFailed

#: A process keeps one partition and one topic open per so many files that it may open. A partition needs up to five and
#: a topic two; the rest is for mapped segments and for the rest of the program.
FILES_EACH = 12
#: Files are copied in pieces of this size.
COPY_BYTES = 1024 * 1024


class OpenFile:
    """An open file that is closed with its last reference, so never while another thread uses it."""

    __slots__ = ("descriptor", "reserved")

    def __init__(self, path: Path, flags: int) -> None:
        self.descriptor = open_file(path, flags)
        #: The position up to which space was reserved.
        self.reserved = 0

    def __del__(self) -> None:
        descriptor, self.descriptor = getattr(self, "descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)


def open_file(path: str | Path, flags: int) -> int:
    """Open a file and return its descriptor. A new file gets the permissions of its folder.

    Raise `FilesExhausted` if the process has too many open files.
    """
    try:
        mode = os.stat(os.path.dirname(path) or ".").st_mode & 0o666 if flags & os.O_CREAT else 0
        return os.open(path, flags | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise FilesExhausted(path=str(path), limit=files_max()) from error
        raise


def files_max() -> int:
    """The limit of open files of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else soft


class FileHolder(Protocol):
    """Holds open files that it can open again."""

    def release_files(self) -> None: ...


class OpenPlaces:
    """The partitions of this process with open files; with too many, the one opened longest ago closes its files.

    It uses no lock, since a process may fork at any moment: each step is atomic in Python.
    """

    def __init__(self) -> None:
        self._places: OrderedDict[int, weakref.ref[FileHolder]] = OrderedDict()

    def opened(self, place: FileHolder) -> None:
        """A partition has opened a file."""
        self._places[id(place)] = weakref.ref(place)
        with contextlib.suppress(KeyError):  # another thread may have removed it
            self._places.move_to_end(id(place))
            while len(self._places) > max(1, files_max() // FILES_EACH):
                _, reference = self._places.popitem(last=False)
                dropped = reference()
                if dropped is not None and dropped is not place:
                    dropped.release_files()


open_places = OpenPlaces()


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise `OSError` as the matching `StorageError`."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


def storage_error(error: OSError, path: Path) -> StorageError:
    """The `StorageError` for an `OSError` at `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(path=str(path))
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return ReadOnly(path=str(path))
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return FilesExhausted(path=str(path), limit=files_max())
    return SyncFailed(path=str(path), why=str(error))


def dump_checked(body: dict[str, Any]) -> bytes:
    """An indented JSON object with a checksum of its other fields."""
    return orjson.dumps({**body, "crc": f"{crc32c(orjson.dumps(body)):08x}"}, option=orjson.OPT_INDENT_2)


def load_checked(path: Path, *, format_known: int) -> dict[str, Any]:
    """Read what `dump_checked` wrote. Files of earlier releases have no checksum, and are accepted without it."""
    try:
        body = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise FileCorrupt(path=str(path), why=f"it is not JSON ({error})") from error
    if not isinstance(body, dict) or "format" not in body:
        raise FileCorrupt(path=str(path), why="it has no field `format`")
    if body["format"] != format_known:
        raise FormatUnknown(path=str(path), found=str(body["format"]), known=f"format {format_known}")
    told = body.pop("crc", None)
    if told is not None and told != f"{crc32c(orjson.dumps(body)):08x}":
        why = "it does not match its checksum: it is damaged, or was edited by hand and still has its field `crc`"
        raise FileCorrupt(path=str(path), why=why)
    return body


def make_folders(folder: Path) -> None:
    """Create a folder and its missing parents, each with the permissions of its parent."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    folder.mkdir(mode=os.stat(folder.parent).st_mode & 0o777, exist_ok=True)


def replace_file(path: Path, data: bytes, *, durable: bool, point: str | None = None) -> None:
    """Replace the content of `path` atomically; if `durable`, it survives a power cut on return."""
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
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, *, levels: int) -> None:
    """Create a folder durably, with the `levels` above it that may be new."""
    make_folders(folder)
    for _ in range(levels):
        # Also if it exists: the process that created it may have died before it synced the parent.
        folder = folder.parent
        sync_folder(folder)


# -- reserved space -----------------------------------------------------------------------------------------------------
#
# Space is reserved behind the tail of a segment, so that appends write into allocated blocks and a sync has less to do: a
# write takes a quarter less time, and so does its sync. The cost is disk space: as much again as the segment holds, at
# most `RESERVED_BYTES_MAX`, until it is sealed. The size of the file does not change, and a file system that cannot
# reserve space is only slower.

#: Smaller segments reserve nothing, so that ten thousand small topics need no extra space.
RESERVED_FROM_BYTES = 64 * 1024
RESERVED_BYTES_MAX = 8 * 1024 * 1024
_KEEP_SIZE = 1


def reserve(descriptor: int, position: int, end: int, *, size_max: int) -> int:
    """Reserve space for a write from `position` to `end` and for later ones; return the end of the reserved space."""
    stop = min(end + min(end, RESERVED_BYTES_MAX), max(end, size_max))
    fallocate = _fallocate()
    if fallocate is not None:
        # Errors are ignored: on a full disk the write itself fails, and other file systems only write slower.
        fallocate(descriptor, _KEEP_SIZE, position, stop - position)
    return stop


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """The function of the C library: Python's `posix_fallocate` would change the size of the file."""
    try:
        call = ctypes.CDLL(None).fallocate64
    except (OSError, AttributeError, TypeError):
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    found: Callable[[int, int, int, int], int] = call
    return found
