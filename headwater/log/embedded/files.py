"""Files: open ones that close themselves, and small ones that are replaced as a whole.

A new file, and a new folder, gets the permissions of the folder that it is put in, within the umask. The folder of a log
is made for its owner alone, so that all of it is; whoever shares a log changes the permissions of its folders.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import orjson
from google_crc32c import value as crc32c

from headwater.errors import FilesExhausted, StorageError
from headwater.log.embedded.faults import reach
from headwater.log.errors import DiskFull, FileCorrupt, FormatUnknown, ReadOnly, SyncFailed

#: A process keeps a partition, and a topic, open for so many of the files that it may open. A partition takes up to
#: five and a topic two; the rest is for segments that readers have mapped, and for whatever else the program does.
FILES_EACH = 12


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
    """Open a file, with the permissions of its folder where it is new; returns its descriptor.

    Where the process may open no more, the error says so.
    """
    try:
        mode = os.stat(os.path.dirname(path) or ".").st_mode & 0o666 if flags & os.O_CREAT else 0
        return os.open(path, flags | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise FilesExhausted(path=str(path), limit=files_max()) from error
        raise


def files_max() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else soft


class Resting(Protocol):
    """What holds files open that it can open again."""

    def rest(self) -> None: ...


class OpenPlaces:
    """The partitions of this process that hold files open; the one opened longest ago lets go when there are too many.

    It works without a lock, since a process may be forked at any moment: each step is one that Python does at once.
    """

    def __init__(self) -> None:
        self._places: OrderedDict[int, weakref.ref[Resting]] = OrderedDict()

    def opened(self, place: Resting) -> None:
        """Called by a place that opens a file."""
        self._places[id(place)] = weakref.ref(place)
        with contextlib.suppress(KeyError):  # another thread may just have dropped it
            self._places.move_to_end(id(place))
            while len(self._places) > max(1, files_max() // FILES_EACH):
                _, reference = self._places.popitem(last=False)
                dropped = reference()
                if dropped is not None and dropped is not place:
                    dropped.rest()


open_places = OpenPlaces()


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


def dump_checked(body: dict[str, Any]) -> bytes:
    """A JSON object that people can read, with a sum over its other fields."""
    return orjson.dumps({**body, "crc": f"{crc32c(orjson.dumps(body)):08x}"}, option=orjson.OPT_INDENT_2)


def load_checked(path: Path, *, format_known: int) -> dict[str, Any]:
    """What `dump_checked` wrote. Files of earlier releases have no sum, and are believed without."""
    try:
        body = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise FileCorrupt(path=str(path), why=f"it is not JSON ({error})") from error
    if not isinstance(body, dict) or "format" not in body:
        raise FileCorrupt(path=str(path), why="it does not say its format")
    if body["format"] != format_known:
        raise FormatUnknown(path=str(path), found=str(body["format"]), known=f"format {format_known}")
    told = body.pop("crc", None)
    if told is not None and told != f"{crc32c(orjson.dumps(body)):08x}":
        why = "it does not match its sum: it is damaged, or was changed by hand and still has its field `crc`"
        raise FileCorrupt(path=str(path), why=why)
    return body


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
