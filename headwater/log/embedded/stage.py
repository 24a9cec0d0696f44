"""Staged files: rows that several processes write ahead, until one transaction commits all of them.

A task writes whole frames into its own file, `transactions/staged/<name>/<sequence>.<attempt>.frames`, and returns a
`StagedFile`: the name of the file, and which frame belongs to which partition. Invariants:

- only a commit that is given its `StagedFile` reads a staged file; any other staged file is litter;
- a commit copies the frames into the partitions before its record is written, so afterwards the files are litter;
- so a staged file need not survive a power cut, and is not synced: a task whose file is lost repeats its work.

Litter is removed when a later sequence of the same name is committed, or by age.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson
import pyarrow as pa

from headwater.errors import NotFound
from headwater.faults import reach
from headwater.log.client_config import Rows
from headwater.log.embedded.files import make_folders, open_file, storage_errors
from headwater.log.embedded.partition import IOV_MAX
from headwater.log.embedded.transaction_parts import Part
from headwater.log.errors import FrameCorrupt
from headwater.log.frame import HEADER_BYTES, Draft, draft_of, padding, payload_is_whole, read_header
from headwater.log.port import Stage, Staged
from headwater.units import MIB

SUFFIX = ".frames"
#: Rows are collected up to this size before they become frames: many small frames would cost readers more.
COLLECTED_BYTES_MAX = 16 * MIB
#: Files of a name without later commits are removed at this age; no batch should take that long.
LITTER_SECONDS_MAX = 86_400.0


class Place(NamedTuple):
    """The frames that a staged file holds for one partition, by their positions in the file."""

    topic: str
    topic_id: str
    partition: int
    positions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """A complete staged file: its name, and the positions of its frames."""

    name: str
    file: str
    rows: int
    bytes: int
    places: tuple[Place, ...]

    def to_json(self) -> Staged:
        """The value as text, to send it from a task to the process that commits."""
        return Staged(orjson.dumps(asdict(self) | {"places": [list(place) for place in self.places]}).decode())

    @classmethod
    def from_json(cls, text: Staged) -> Self:
        """Parse what `to_json` wrote.

        >>> one = StagedFile(name="q", file="f", rows=1, bytes=2, places=(Place("t", "id", 0, (0, 104)),))
        >>> StagedFile.from_json(one.to_json()) == one
        True
        """
        body = orjson.loads(text)
        places = tuple(Place(topic, id, partition, tuple(at)) for topic, id, partition, at in body.pop("places"))
        return cls(**body, places=places)


class Area:
    """The folder of staged files of one log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._swept_at = 0.0

    def path(self, name: str, file: str) -> Path:
        return self._folder / name / file

    def discard(self, staged: Iterable[StagedFile]) -> None:
        """Remove staged files. Committed rows are in the partitions, and stay."""
        for one in staged:
            self.path(one.name, one.file).unlink(missing_ok=True)

    def clear(self, name: str, *, sequence_max: int) -> None:
        """Remove all files of a name up to a committed sequence."""
        self._remove(name, lambda file: _sequence_of(file) <= sequence_max)

    def clear_attempts(self, name: str, *, sequence: int, attempt: str) -> None:
        """Remove all files of a sequence whose attempts begin with `attempt`: their tasks have failed."""
        beginning = file_name(sequence, attempt).removesuffix(SUFFIX)
        self._remove(name, lambda file: file.startswith(beginning))

    def _remove(self, name: str, chosen: Callable[[str], bool]) -> None:
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._folder / name):
                if chosen(entry.name):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)

    def sweep(self, *, seconds_min: float = LITTER_SECONDS_MAX, now: float | None = None) -> list[Path]:
        """Remove files that were not written for so many seconds; return them."""
        oldest = (time.time() if now is None else now) - seconds_min
        swept = []
        for folder in self._folders():
            for entry in os.scandir(folder):
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat().st_mtime < oldest:
                        os.unlink(entry.path)
                        swept.append(Path(entry.path))
            with contextlib.suppress(OSError):  # not empty, or another process has just created it again
                if folder.stat().st_mtime < oldest or swept:
                    folder.rmdir()
        return swept

    def sweep_now_and_then(self) -> None:
        if time.monotonic() - self._swept_at > LITTER_SECONDS_MAX / 24 or not self._swept_at:
            self._swept_at = time.monotonic()
            self.sweep()

    def parts(self, staged: Iterable[StagedFile], *, topic_id: Callable[[str], str]) -> list[Part]:
        """The frames of the files by partition, memory-mapped and verified."""
        drafts: dict[tuple[str, int], list[Draft]] = {}
        for one in staged:
            buffer = _mapped(self.path(one.name, one.file)) if one.places else pa.py_buffer(b"")
            for place in one.places:
                if topic_id(place.topic) != place.topic_id:
                    raise NotFound(
                        kind="topic", name=place.topic, near=" It was deleted and created again after rows were staged."
                    )
                into = drafts.setdefault((place.topic, place.partition), [])
                into.extend(_drafts(buffer, place.positions, self.path(one.name, one.file)))
        return [Part(topic, partition, found) for (topic, partition), found in drafts.items()]

    def _folders(self) -> list[Path]:
        try:
            return [Path(entry.path) for entry in os.scandir(self._folder) if entry.is_dir()]
        except FileNotFoundError:
            return []


class EmbeddedStage(Stage):
    """A staged file that is being written; see `Log.stage`."""

    def __init__(
        self,
        area: Area,
        name: str,
        file: str,
        *,
        draft: Callable[[str, Rows], Mapping[int, list[Draft]]],
        topic_id: Callable[[str], str],
        rows_max: int,
    ) -> None:
        self._path = area.path(name, file)
        self._name = name
        self._file = file
        self._draft = draft
        self._topic_id = topic_id
        self._rows_max = rows_max
        self._descriptor = -1
        self._position = 0
        self._rows = 0
        self._waiting: dict[str, _Collected] = {}
        self._places: dict[tuple[str, str, int], list[int]] = {}

    def append(self, topic: str, rows: Rows) -> None:
        waiting = self._waiting.setdefault(topic, _Collected([]))
        if not isinstance(rows, pa.RecordBatch) or not waiting.takes(rows):
            self._flush(topic)
        if not isinstance(rows, pa.RecordBatch):
            self._write(topic, rows)
            return
        waiting.add(rows)
        if waiting.rows >= self._rows_max or waiting.bytes >= COLLECTED_BYTES_MAX:
            self._flush(topic)

    def finish(self) -> Staged:
        for topic in list(self._waiting):
            self._flush(topic)
        reach("stage.written")
        self._close()
        reach("stage.finished")
        places = tuple(Place(*key, tuple(positions)) for key, positions in self._places.items())
        file = StagedFile(name=self._name, file=self._file, rows=self._rows, bytes=self._position, places=places)
        return file.to_json()

    def abandon(self) -> None:
        self._waiting.clear()
        self._close()
        self._path.unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._close()

    def _flush(self, topic: str) -> None:
        waiting = self._waiting[topic]
        if waiting.batches:
            self._write(topic, waiting.taken())

    def _write(self, topic: str, rows: Rows) -> None:
        # The id first: if the topic is created again while the frames are encoded, they are not its rows.
        topic_id = self._topic_id(topic)
        buffers: list[Any] = []
        for partition, drafts in self._draft(topic, rows).items():
            positions = self._places.setdefault((topic, topic_id, partition), [])
            for draft in drafts:
                positions.append(self._position)
                buffers += (draft.header(offset=0, appended_at_us=0), draft.payload, padding(draft.payload_size))
                self._position += draft.size
                self._rows += draft.rows
        with storage_errors(self._path):
            self._store(buffers)

    def _store(self, buffers: list[Any]) -> None:
        if self._descriptor < 0:
            self._descriptor = _create(self._path)
        for start in range(0, len(buffers), IOV_MAX):
            part = buffers[start : start + IOV_MAX]
            size = sum(map(len, part))
            written = os.writev(self._descriptor, part)
            while written < size:  # a nearly full disk accepts a part before it fails
                written += os.write(self._descriptor, b"".join(map(bytes, part))[written:])

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class _Collected:
    """Batches that are concatenated before they are encoded."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self.batches = batches
        self.rows = 0
        self.bytes = 0

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Whether this batch has the schema of those before it."""
        return not self.batches or self.batches[0].schema.equals(batch.schema)

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def taken(self) -> pa.RecordBatch:
        batches, self.batches, self.rows, self.bytes = self.batches, [], 0, 0
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def file_name(sequence: int, attempt: str) -> str:
    """The name of a staged file; it begins with the sequence, so that a listing shows which ones are committed."""
    return f"{sequence:020d}.{attempt}{SUFFIX}"


def _sequence_of(name: str) -> float:
    number = name.partition(".")[0]
    return int(number) if number.isdigit() else float("inf")


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    while True:
        make_folders(path.parent)
        with contextlib.suppress(FileNotFoundError):  # the folder was removed between the two calls
            return open_file(path, flags)


def _mapped(path: Path) -> pa.Buffer:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FrameCorrupt(path=str(path), position=0, offset=-1, why="the staged file is gone") from None
    try:
        size = os.fstat(descriptor).st_size
        return pa.py_buffer(mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ) if size else b"")
    finally:
        os.close(descriptor)


def _drafts(buffer: pa.Buffer, positions: Iterable[int], path: Path) -> Iterator[Draft]:
    view = memoryview(buffer)
    for position in positions:
        header = read_header(view, position)
        if header is not None and position + header.size <= len(view):
            payload = buffer.slice(position + HEADER_BYTES, header.payload_size)
            if payload_is_whole(header, payload):
                yield draft_of(header, payload)
                continue
        raise FrameCorrupt(
            path=str(path), position=position, offset=-1, why="a staged frame does not match its checksum"
        )
