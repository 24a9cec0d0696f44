"""Idempotent producers: their epochs, and the batches that each has appended to a partition.

A producer has a name, an id derived from it, and an epoch that grows whenever the name is opened: a producer with an
older epoch is fenced. Each batch has a growing sequence; a batch whose sequence the partition already has is not written
again. The sequences are read from the frames. When a segment is sealed they are also saved in a snapshot beside the
next one, so that retention and coalescing can remove the frames.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from google_crc32c import value as crc32c

from headwater.filelock import SECONDS_MAX, FileLock
from headwater.log.embedded.files import make_folders, replace_file, storage_errors
from headwater.log.embedded.segment import FLAG_PRODUCERS, SEGMENT_HEADER_BYTES, SegmentMap, list_segments, walk
from headwater.log.embedded.state import Tail
from headwater.log.errors import FileCorrupt, ProducerFenced
from headwater.log.frame import FLAG_TRANSACTION, KIND_PUNCTUATION, Header

if TYPE_CHECKING:
    from headwater.log.embedded.partition import Identity

BATCHES_KEPT = 5
SNAPSHOTS_KEPT = 3
HOLDERS_KEPT = 100
SUFFIX = ".producers"


class Batch(NamedTuple):
    """A batch that an idempotent producer has appended."""

    epoch: int
    sequence: int
    offset: int
    offset_next: int


def producer_id(name: str) -> int:
    """The id of a producer in frames: the same in every process and release."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") or 1


def is_batch(header: Header) -> bool:
    """Whether a frame is a batch of an idempotent producer."""
    return bool(header.producer) and header.kind != KIND_PUNCTUATION and not header.flags & FLAG_TRANSACTION


class Registry:
    """The epochs of all producers of a log, one small file each."""

    def __init__(self, folder: Path, *, lock_seconds_max: float = SECONDS_MAX) -> None:
        self._folder = folder
        self._lock_seconds_max = lock_seconds_max
        #: The content of each file, by its inode when it was read.
        self._cache: dict[str, tuple[int, dict[str, Any]]] = {}

    def open(self, name: str, *, holder: str | None = None) -> int:
        """Start a new epoch for `name`; older epochs are fenced.

        A holder that calls again gets its own epoch; one that another holder has replaced is fenced.
        """
        if holder is not None and self._read(name).get("holder") == holder:
            return self.epoch(name)
        make_folders(self._folder)
        with FileLock(self._folder / ".lock", seconds_max=self._lock_seconds_max):
            before = self._read(name)
            epoch = int(before.get("epoch", 0))
            if holder is not None and before.get("holder") == holder:
                return epoch
            past = before.get("past", {})
            if holder in past:
                raise ProducerFenced(producer=name, epoch=past[holder], current=epoch)
            body = {"name": name, "id": producer_id(name), "epoch": epoch + 1}
            if holder is not None:
                past = {**past, before["holder"]: epoch} if "holder" in before else past
                body |= {"holder": holder, "past": dict(list(past.items())[-HOLDERS_KEPT:])}
            data = orjson.dumps(body)
            with storage_errors(self._folder):
                replace_file(self._folder / name, b"%08x\n" % crc32c(data) + data, durable=True)
        return epoch + 1

    def epoch(self, name: str) -> int:
        """The newest epoch of `name`, 0 if it was never opened. Costs one `stat` when nothing changed."""
        return int(self._read(name).get("epoch", 0))

    # Any: the values of a small JSON object, each read in one place above.
    def _read(self, name: str) -> dict[str, Any]:
        path = self._folder / name
        try:
            stat = os.stat(path)
        except FileNotFoundError:
            return {}
        cached = self._cache.get(name)
        if cached is None or cached[0] != stat.st_ino:
            checksum, _, body = path.read_bytes().partition(b"\n")
            if checksum != b"%08x" % crc32c(body):
                raise FileCorrupt(path=str(path), why="it does not match its checksum")
            cached = self._cache[name] = (stat.st_ino, orjson.loads(body))
        return cached[1]

    def names(self) -> list[str]:
        if not self._folder.is_dir():
            return []
        return sorted(name for name in os.listdir(self._folder) if not name.startswith("."))


class PartitionProducers:
    """The last batches of each idempotent producer in one partition."""

    def __init__(self, folder: Path, *, complete: bool = True) -> None:
        self._folder = folder
        #: Whether to raise if a snapshot that is needed is missing.
        self._complete = complete
        self._batches: dict[int, deque[Batch]] = {}
        self._segment = -1
        self._position = SEGMENT_HEADER_BYTES
        #: Whether a snapshot was loaded.
        self._is_loaded = False

    @staticmethod
    def exist(folder: Path) -> bool:
        """Whether the folder has a snapshot."""
        return any(name.endswith(SUFFIX) for name in os.listdir(folder))

    @staticmethod
    def saved_behind(folder: Path, offset: int) -> bool:
        """Whether a snapshot covers everything before `offset`."""
        return any(
            int(path.name[:20]) >= offset and read_snapshot(path) is not None for path in folder.glob(f"*{SUFFIX}")
        )

    def any(self) -> bool:
        """Whether any idempotent producer has appended to the partition."""
        return bool(self._batches)

    def epoch(self, producer: int) -> int:
        batches = self._batches.get(producer)
        return batches[-1].epoch if batches else 0

    def last_sequence(self, producer: int) -> int:
        """The highest sequence, -1 for none."""
        batches = self._batches.get(producer)
        return batches[-1].sequence if batches else -1

    def find(self, producer: int, sequence: int) -> Batch | None:
        """The batch with this sequence; for a duplicate older than the batches kept, an empty one."""
        batches = self._batches.get(producer)
        if not batches or sequence > batches[-1].sequence:
            return None
        for batch in batches:
            if batch.sequence == sequence:
                return batch
        first = batches[0]
        return Batch(first.epoch, sequence, first.offset, first.offset)

    def record(self, identity: Identity, offset: int, end: Tail) -> None:
        """Record a batch that was written up to `end`."""
        self._remember(identity.producer, Batch(identity.epoch, identity.sequence, offset, end.offset))
        self._segment, self._position = end.segment, end.position

    def catch_up(self, tail: Tail) -> None:
        """Read the headers of the frames that were written since the last call."""
        if (self._segment, self._position) == (tail.segment, tail.position):
            return
        if self._segment < tail.segment:
            # Frames of sealed segments may have been coalesced or deleted; a snapshot was saved before that.
            self._load(tail)
        chain = [segment for segment in list_segments(self._folder)[0] if self._segment <= segment.base <= tail.segment]
        for segment in chain:
            stop = tail.position if segment.base == tail.segment else segment.path.stat().st_size
            start = self._position if segment.base == self._segment and not segment.rewritten else SEGMENT_HEADER_BYTES
            if stop <= start and not segment.rewritten:
                continue
            mapped = SegmentMap(segment.path, length=stop)
            if mapped.flags & FLAG_PRODUCERS and self._complete:
                path = self._folder / f"{segment.offset_next:020d}{SUFFIX}"
                why = "it is missing or damaged, and has the only record of producers whose frames were coalesced"
                raise FileCorrupt(path=str(path), why=why)
            for _, header in walk(mapped.view, position=start, stop=stop):
                if is_batch(header):
                    batch = Batch(header.epoch, header.sequence, header.offset_base, header.offset_next)
                    self._remember(header.producer, batch)
        self._segment, self._position = tail.segment, tail.position

    def save(self, base: int) -> None:
        """Save a snapshot beside the segment with this base."""
        self._write(base)
        for path in self._snapshots()[:-SNAPSHOTS_KEPT]:
            path.unlink(missing_ok=True)

    @classmethod
    def forget_lost(cls, folder: Path, end: Tail, tail: Tail, *, is_first: bool) -> None:
        """Correct the snapshots if a power cut has lost the rows from `end` on; appends continue at `tail`.

        Snapshots are synced and the segments of an `os` topic are not, so a snapshot may be ahead of the rows that are
        left: it has batches that are lost, and later it would hide those that are appended in their place. `is_first`
        says that the first segment was never deleted.
        """
        ahead = [path for path in cls(folder)._snapshots() if int(path.name[:20]) > end.segment]
        if not ahead:
            return
        try:
            known = cls(folder)
            known.catch_up(end)
            is_complete = is_first or known._is_loaded
        except FileCorrupt:
            known = cls(folder, complete=False)
            known.catch_up(end)
            is_complete = False
        saved = next((whole for path in ahead if (whole := read_snapshot(path)) is not None), {})
        for producer, batches in saved.items():
            known._merge(int(producer), [Batch(*batch) for batch in batches], end.offset, is_complete=is_complete)
        known._write(tail.segment)
        for path in ahead:
            if int(path.name[:20]) != tail.segment:
                path.unlink(missing_ok=True)

    def _merge(self, producer: int, batches: list[Batch], end: int, *, is_complete: bool) -> None:
        """Remember the batches of a later snapshot that are not lost, i.e. before offset `end`."""
        for batch in batches:
            if batch.offset_next <= end:
                self._remember(producer, batch)
            elif not is_complete and batch.sequence - 1 > self.last_sequence(producer):
                # The frames of earlier batches were coalesced or deleted. They must not be appended twice.
                self._remember(producer, Batch(batch.epoch, batch.sequence - 1, end, end))
                return

    def _write(self, base: int) -> None:
        body = orjson.dumps({str(number): [tuple(one) for one in batches] for number, batches in self._batches.items()})
        replace_file(self._folder / f"{base:020d}{SUFFIX}", b"%08x\n" % crc32c(body) + body, durable=True)

    def _snapshots(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{SUFFIX}"))

    def _load(self, tail: Tail) -> None:
        """Load the newest snapshot that is ahead of the frames read so far."""
        for path in reversed(self._snapshots()):
            base = int(path.name[:20])
            if self._segment < base <= tail.segment and (saved := read_snapshot(path)) is not None:
                for producer, batches in saved.items():
                    self._batches[int(producer)] = deque((Batch(*batch) for batch in batches), maxlen=BATCHES_KEPT)
                self._segment, self._position = base, SEGMENT_HEADER_BYTES
                self._is_loaded = True
                return
        self._segment = max(self._segment, 0)

    def _remember(self, producer: int, batch: Batch) -> None:
        batches = self._batches.setdefault(producer, deque(maxlen=BATCHES_KEPT))
        if batches and batches[-1].sequence == batch.sequence and batches[-1].epoch == batch.epoch:
            # Several frames of one batch.
            if batch.offset_next > batches[-1].offset_next:
                batches[-1] = batches[-1]._replace(offset_next=batch.offset_next)
            return
        if not batches or batch.sequence > batches[-1].sequence:
            batches.append(batch)


def read_snapshot(path: Path) -> dict[str, list[list[int]]] | None:
    """The content of a snapshot; None if it is damaged or was removed."""
    try:
        checksum, _, body = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if checksum != b"%08x" % crc32c(body):
        return None
    found: dict[str, list[list[int]]] = orjson.loads(body)
    return found
