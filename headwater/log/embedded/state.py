"""The state file of a topic: the tail of each partition. Writers store records, readers map the file.

Each partition has three records, each with its own CRC32C, so that a reader detects a store that is not complete and
reads again:

- *written*: the end of the written frames (moved under the append lock);
- *visible*: the end for readers (moved under the sync lock, after the bytes are as durable as promised);
- *start*: the oldest offset after retention.

The segments are the truth: the state file is rebuilt from them if it is missing or too old. Each record has a mark of
the boot in which it was written. After a power cut the mark differs, and *written*, which is never synced, is ignored;
*visible* is valid, since it was stored after its bytes were synced.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import threading
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from google_crc32c import value as crc32c

from headwater.log.embedded.files import OpenFile, storage_errors

MAGIC = b"HWSTATE1"
FILE_HEADER_BYTES = 64
SLOT_BYTES = 128
_RECORD = struct.Struct("<IIqqqq")
_COVERED = struct.Struct("<Iqqqq")
RECORD_BYTES = _RECORD.size
_WRITTEN, _VISIBLE, _START = 0, 40, 80
_COUNTERS = struct.Struct("<II")
_COUNTERS_AT = 8
_TORN_SECONDS_MAX = 0.05
#: Marks a topic as deleted; not a pattern that a power cut may leave.
DELETED = int.from_bytes(b"dead", "little")


class Tail(NamedTuple):
    """A position in a partition: the byte in a segment at which the frame of `offset` begins."""

    boot: int
    segment: int
    position: int
    offset: int
    appended_at_us: int


def boot_identity() -> bytes:
    """The identity of the current boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return str(round((time.time() - time.monotonic()) / 60)).encode()


@cache
def boot_mark() -> int:
    """A number that changes with every boot of the machine."""
    return crc32c(boot_identity()) or 1


def _extend(descriptor: int, size: int) -> None:
    """Make a file at least so large and allocate its blocks: a full disk must fail now, not when a tail moves."""
    if os.fstat(descriptor).st_size >= size:
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        os.ftruncate(descriptor, size)


class StateFile:
    """The memory-mapped state file of one topic."""

    def __init__(self, path: Path, *, partitions: int, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._lock = threading.Lock()
        self._file: OpenFile | None = None
        self._descriptor = -1
        try:
            self._file = OpenFile(path, os.O_RDONLY if read_only else os.O_RDWR)
            self._descriptor = self._file.descriptor
        except FileNotFoundError:
            if not read_only:
                raise
        self._map: mmap.mmap | bytes
        self.grow(partitions)

    @staticmethod
    def make(path: Path, *, partitions: int) -> None:
        """Create an empty state file. Its records are invalid, so the first writer recovers from the segments.

        A file that another process has just created is kept: it may be mapped already, and must never shrink.
        """
        file = OpenFile(path, os.O_RDWR | os.O_CREAT)
        with storage_errors(path):
            _extend(file.descriptor, FILE_HEADER_BYTES + SLOT_BYTES * partitions)
            os.pwrite(file.descriptor, MAGIC, 0)

    def grow(self, partitions: int) -> None:
        """Allocate the slots of `partitions` partitions and map them."""
        size = FILE_HEADER_BYTES + SLOT_BYTES * partitions
        with self._lock, storage_errors(self.path):
            if not self.read_only:
                _extend(self._descriptor, size)
            length = os.fstat(self._descriptor).st_size if self._descriptor >= 0 else 0
            if length < size:
                self._map = bytes(size)  # it is lost, and this process may not write: ends are found by scanning
                return
            self._map = mmap.mmap(self._descriptor, length, access=mmap.ACCESS_READ)
            if self._map[:8] != MAGIC and not self.read_only:
                os.pwrite(self._descriptor, MAGIC, 0)

    def counters(self) -> tuple[int, int]:
        """(number of changes of topic.json, `DELETED` if the topic has been deleted)."""
        changes, deleted = _COUNTERS.unpack_from(self._map, _COUNTERS_AT)
        return changes, deleted

    def set_counters(self, changes: int, deleted: int) -> None:
        os.pwrite(self._descriptor, _COUNTERS.pack(changes, deleted), _COUNTERS_AT)

    def written(self, partition: int) -> Tail | None:
        return self._load(partition, _WRITTEN)

    def visible(self, partition: int) -> Tail | None:
        return self._load(partition, _VISIBLE)

    def start(self, partition: int) -> int | None:
        """The oldest offset, or None if retention never deleted anything."""
        tail = self._load(partition, _START)
        return None if tail is None else tail.offset

    def set_written(self, partition: int, tail: Tail) -> None:
        self._store(partition, _WRITTEN, tail)

    def set_visible(self, partition: int, tail: Tail) -> None:
        self._store(partition, _VISIBLE, tail)

    def set_start(self, partition: int, offset: int) -> None:
        self._store(partition, _START, Tail(boot_mark(), 0, 0, offset, 0))

    def clear(self, partition: int) -> None:
        """Clear both tails of a partition, so that recovery finds them from the segments."""
        at = FILE_HEADER_BYTES + partition * SLOT_BYTES
        os.pwrite(self._descriptor, bytes(2 * RECORD_BYTES), at)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def _load(self, partition: int, record: int) -> Tail | None:
        at = FILE_HEADER_BYTES + partition * SLOT_BYTES + record
        data = self._map[at : at + RECORD_BYTES]
        crc, boot, segment, position, offset, appended = _RECORD.unpack(data)
        if crc == crc32c(data[4:]) and boot:
            return Tail(boot, segment, position, offset, appended)
        if boot == 0 and crc == 0:
            return None
        return self._load_again(at)

    def _load_again(self, at: int) -> Tail | None:
        # A store of 40 bytes takes nanoseconds; a record that stays torn was torn by a power cut.
        deadline = time.monotonic() + _TORN_SECONDS_MAX
        while time.monotonic() < deadline:
            data = self._map[at : at + RECORD_BYTES]
            crc, *fields = _RECORD.unpack(data)
            if crc == crc32c(data[4:]) and fields[0]:
                return Tail(*fields)
        return None

    def _store(self, partition: int, record: int, tail: Tail) -> None:
        covered = _COVERED.pack(*tail)
        at = FILE_HEADER_BYTES + partition * SLOT_BYTES + record
        os.pwrite(self._descriptor, crc32c(covered).to_bytes(4, "little") + covered, at)
