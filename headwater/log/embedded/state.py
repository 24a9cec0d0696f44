"""The state file of a topic: where each partition's tail is. Writers store, readers map it and look.

Per partition it holds three records, each with its own CRC32C, so that a reader that catches a store half done
notices and looks again:

- *written*: how far frames have been written (moved under the append lock);
- *visible*: how far readers may read (moved under the sync lock, after the bytes are as durable as promised);
- *start*: the oldest offset that retention has left.

Nothing here is the truth: the segments are, and this file is rebuilt from them when it is missing or too old. Each
record carries a mark of the boot it was written in. After a power cut the mark differs, and *written* (never synced)
is not believed; *visible* is, since it was stored after the bytes it speaks of were synced.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from google_crc32c import value as crc32c

from headwater.log.embedded.files import OpenFile, open_file

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
#: What marks a topic as deleted: no chance pattern that a power cut may leave.
DELETED = int.from_bytes(b"dead", "little")


class Tail(NamedTuple):
    """A position in a partition: the byte in a segment at which the frame with `offset` begins."""

    boot: int
    segment: int
    position: int
    offset: int
    appended_at_us: int


def boot_identity() -> bytes:
    """What names this boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return str(round((time.time() - time.monotonic()) / 60)).encode()


@cache
def boot_mark() -> int:
    """A number that changes with every boot of this machine."""
    return crc32c(boot_identity()) or 1


class StateFile:
    """One topic's state, mapped."""

    def __init__(self, path: Path, *, partitions: int, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._lock = threading.Lock()
        self._file = OpenFile(path, os.O_RDONLY if read_only else os.O_RDWR)
        self._descriptor = self._file.descriptor
        self._map: mmap.mmap
        self.grow(partitions)

    @staticmethod
    def make(path: Path, *, partitions: int) -> None:
        """Make an empty state file; every record in it is invalid, which sends the first writer to the segments.

        What another process has made in the meantime stays: it may have been mapped already, and must never shrink.
        """
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            size = FILE_HEADER_BYTES + SLOT_BYTES * partitions
            if os.fstat(descriptor).st_size < size:
                os.ftruncate(descriptor, size)
            os.pwrite(descriptor, MAGIC, 0)
        finally:
            os.close(descriptor)

    def grow(self, partitions: int) -> None:
        """Make room for `partitions` slots and map them."""
        size = FILE_HEADER_BYTES + SLOT_BYTES * partitions
        with self._lock:
            if os.fstat(self._descriptor).st_size < size and not self.read_only:
                os.ftruncate(self._descriptor, size)
            length = os.fstat(self._descriptor).st_size
            if length < size:
                raise OSError(f"{self.path} is too short")
            self._map = mmap.mmap(self._descriptor, length, access=mmap.ACCESS_READ)
            if self._map[:8] != MAGIC and not self.read_only:
                os.pwrite(self._descriptor, MAGIC, 0)

    def counters(self) -> tuple[int, int]:
        """(changes of topic.json so far, `DELETED` where the topic has been deleted)."""
        changes, deleted = _COUNTERS.unpack_from(self._map, _COUNTERS_AT)
        return changes, deleted

    def set_counters(self, changes: int, deleted: int) -> None:
        os.pwrite(self._descriptor, _COUNTERS.pack(changes, deleted), _COUNTERS_AT)

    def written(self, partition: int) -> Tail | None:
        return self._load(partition, _WRITTEN)

    def visible(self, partition: int) -> Tail | None:
        return self._load(partition, _VISIBLE)

    def start(self, partition: int) -> int | None:
        """The oldest offset kept, or None where nothing was ever deleted."""
        tail = self._load(partition, _START)
        return None if tail is None else tail.offset

    def set_written(self, partition: int, tail: Tail) -> None:
        self._store(partition, _WRITTEN, tail)

    def set_visible(self, partition: int, tail: Tail) -> None:
        self._store(partition, _VISIBLE, tail)

    def set_start(self, partition: int, offset: int) -> None:
        self._store(partition, _START, Tail(boot_mark(), 0, 0, offset, 0))

    def clear(self, partition: int) -> None:
        """Forget both tails of a partition, so that they are found anew."""
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
        # A store of 40 bytes takes nanoseconds; what is still torn after many looks was torn by a power cut.
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
