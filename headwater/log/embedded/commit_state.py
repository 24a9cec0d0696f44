"""The file `transactions/state`: for each commit log the progress of its current commit, and the witness of its last one.

The *witness* is the serial of the last record that is known to be durable. It is stored after the record was synced, so
it may be behind the file (after a crash between the two, or a power cut), but never ahead.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from google_crc32c import value as crc32c

from headwater.log.embedded.files import OpenFile
from headwater.log.embedded.state import boot_mark

#: How many commit logs a log may use: so many processes may be stopped in a commit before all others have to wait.
COMMIT_LOGS = 8
INTENT, STARTED, FINISHED = 8, 16, 24
_SLOT_BYTES = 64
_COUNTERS = struct.Struct("<IIQQQ")
_WITNESS = struct.Struct("<IQ")
_WITNESS_AT = _COUNTERS.size
_STATE_BYTES = _SLOT_BYTES * COMMIT_LOGS

#: (intent, started, finished) of each commit log.
Counters = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class CommitState:
    """The state of all commit logs. Writers of a slot hold the lock of its commit log."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self._file = OpenFile(path, os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT)
        # New, or cut short by a power cut: zeros mean another boot. It never shrinks, since other processes may map it.
        if os.fstat(self._file.descriptor).st_size < _STATE_BYTES and not read_only:
            os.ftruncate(self._file.descriptor, _STATE_BYTES)
        whole = os.fstat(self._file.descriptor).st_size >= _STATE_BYTES
        self._map: mmap.mmap | bytes = bytes(_STATE_BYTES)  # a read-only process does without a file that is too short
        if whole:
            self._map = mmap.mmap(self._file.descriptor, _STATE_BYTES, access=mmap.ACCESS_READ)
        self.slots = [CommitSlot(self, number) for number in range(COMMIT_LOGS)]

    def counters(self) -> Counters:
        """The counters of all commit logs."""
        every = _ALL_COUNTERS.unpack_from(self._map, 0)
        return every[0::3], every[1::3], every[2::3]

    def sync(self) -> None:
        os.fdatasync(self._file.descriptor)

    def load(self, at: int, size: int) -> bytes:
        return self._map[at : at + size]

    def store(self, at: int, data: bytes) -> None:
        os.pwrite(self._file.descriptor, data, at)


_ALL_COUNTERS = struct.Struct("<" + "8xQQQ32x" * COMMIT_LOGS)


class CommitSlot:
    """The state of one commit log."""

    def __init__(self, state: CommitState, number: int) -> None:
        self._state = state
        self._at = number * _SLOT_BYTES

    def counters(self) -> tuple[int, int, int]:
        """(intent, started, finished)."""
        _, _, intent, started, finished = _COUNTERS.unpack(self._state.load(self._at, _COUNTERS.size))
        return intent, started, finished

    def count(self, counter: int, value: int) -> None:
        self._state.store(self._at + counter, struct.pack("<Q", value))

    @property
    def is_used(self) -> bool:
        """Whether a commit has begun in this log."""
        return any(self.counters())

    @property
    def is_finished(self) -> bool:
        """Whether the last commit is finished, and since the last boot no earlier one has to be recovered."""
        intent, started, finished = self.counters()
        return intent == started == finished and self.of_this_boot

    @property
    def of_this_boot(self) -> bool:
        return int.from_bytes(self._state.load(self._at, 4), "little") == boot_mark()

    def mark_boot(self) -> None:
        self._state.store(self._at, struct.pack("<I", boot_mark()))

    def witness(self) -> int | None:
        """The serial of the last commit that is known to be durable; None if it was never stored, or is torn."""
        data = self._state.load(self._at + _WITNESS_AT, _WITNESS.size)
        crc, serial = _WITNESS.unpack(data)
        return serial if serial and crc == crc32c(data[4:]) else None

    def set_witness(self, serial: int) -> None:
        body = struct.pack("<Q", serial)
        self._state.store(self._at + _WITNESS_AT, crc32c(body).to_bytes(4, "little") + body)

    def sync(self) -> None:
        self._state.sync()
