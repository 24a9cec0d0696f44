"""How far a query has come, as its checkpoint on disk says it.

Spark writes `offsets/N` before batch N and `commits/N` after it. The offsets of the last committed batch are what the
query has read for good; the times of the files say when a batch began and ended. Spark's progress reports tell the same,
but late: they come after a batch, and not at all while a query waits, starts or has stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Offsets = dict[str, dict[int, int]]
"""Topic → partition → offset."""
#: Where a version of a query began to read. Spark deletes the offsets of its first batch after a hundred others.
BEGAN = "began.json"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint as it was read. Times are in seconds since 1970."""

    folder: Path
    commits: tuple[int, ...] = ()
    """The batches whose commits Spark keeps, the newest first."""
    began: Offsets | None = None
    """Where the query began to read; None before its first batch is planned."""
    position: Offsets | None = None
    """The first offset of each partition that is not read for good; None before the first batch is planned."""
    planned_at: float | None = None
    """When the batch began that is planned, but not committed yet; None where there is none."""
    watermark_us: int | None = None
    """The watermark of Spark's own operators."""

    @staticmethod
    def read(folder: Path) -> Checkpoint:
        """Read a checkpoint; one that does not exist has no batch."""
        commits = tuple(sorted(_numbers(folder / "commits"), reverse=True))
        began = _began(folder)
        planned = max(_numbers(folder / "offsets"), default=-1)
        return Checkpoint(
            folder=folder,
            commits=commits,
            began=began,
            position=_offsets(folder, commits[0]) if commits else began,
            planned_at=_modified(folder / "offsets" / str(planned)) if planned > max(commits, default=-1) else None,
            watermark_us=_watermark_us(folder / "commits" / str(commits[0])) if commits else None,
        )

    @property
    def batch(self) -> int | None:
        """The number of the last committed batch."""
        return self.commits[0] if self.commits else None

    @property
    def rows_read(self) -> int:
        """How many rows were read since the query began, by offsets."""
        return _rows(self.began or {}, self.position or {})

    def batch_seconds(self, *, since: float) -> float | None:
        """How long the last batch took, of a query that runs since a time; None if it has committed none since then."""
        for began_at, ended_at in self._times(since):
            return ended_at - max(began_at, since)
        return None

    def rate(self, *, now: float, seconds: float) -> float:
        """Rows a second that were committed in the last seconds."""
        recent = sum(1 for _ in self._times(now - seconds))
        if not recent:
            return 0.0
        # What these batches have read begins where the one before them ended.
        before = _offsets(self.folder, self.commits[recent]) if recent < len(self.commits) else None
        if before is None:
            oldest = self.commits[recent - 1]
            before = self.began if oldest == 0 else _offsets(self.folder, oldest)
        return _rows(before or {}, self.position or {}) / seconds

    def busy(self, *, now: float, seconds: float, since: float) -> float:
        """The share of the last seconds in which a batch ran, of a query that runs since a time."""
        begin = max(now - seconds, since)
        worked = sum(max(0.0, ended_at - max(began_at, begin)) for began_at, ended_at in self._times(begin))
        if self.planned_at is not None:
            worked += max(0.0, now - max(self.planned_at, begin))
        return min(1.0, worked / seconds)

    def _times(self, begin: float) -> Iterator[tuple[float, float]]:
        """When the batches began and ended that ended since a time, the newest first."""
        for number in self.commits:
            ended_at = _modified(self.folder / "commits" / str(number))
            if ended_at is None or ended_at < begin:
                return
            began_at = _modified(self.folder / "offsets" / str(number))
            yield (ended_at if began_at is None else began_at), ended_at


def keep_beginning(folder: Path) -> bool:
    """Record where a query began to read, once its first batch is planned; return whether that is recorded."""
    path = folder.parent / BEGAN
    if path.exists():
        return True
    began = _planned_beginning(folder)
    if began is None:
        return False
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(began))
    os.replace(temporary, path)
    return True


def _began(folder: Path) -> Offsets | None:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return _numbered(json.loads((folder.parent / BEGAN).read_text()))
    return _planned_beginning(folder)


def _planned_beginning(folder: Path) -> Offsets | None:
    """Where the first batch begins, by its own offsets, as long as Spark keeps them."""
    sources = _sources(folder / "offsets" / "0")
    return None if sources is None else _merged(source.get("began", {}) for source in sources)


def _offsets(folder: Path, number: int) -> Offsets | None:
    """Where the input of a batch ends."""
    sources = _sources(folder / "offsets" / str(number))
    return None if sources is None else _merged(source["topics"] for source in sources)


# Any, here and below: the JSON of offsets.
def _sources(path: Path) -> list[dict[str, Any]] | None:
    """The offsets of Headwater's sources in a file of Spark's; None if it does not exist."""
    try:
        lines = path.read_text().splitlines()[2:]
    except FileNotFoundError:
        return None
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):  # the offset of another kind of source, or none
            body = json.loads(line)
            if isinstance(body, dict) and "topics" in body:
                found.append(body)
    return found


def _merged(offsets: Iterable[Mapping[str, Mapping[str, int]]]) -> Offsets:
    """The offsets of several sources; of a topic that two of them read, those of the one that is further behind."""
    merged: Offsets = {}
    for each in offsets:
        for topic, partitions in _numbered(each).items():
            known = merged.setdefault(topic, {})
            for partition, offset in partitions.items():
                known[partition] = min(offset, known.get(partition, offset))
    return merged


def _numbered(body: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {topic: {int(number): int(offset) for number, offset in each.items()} for topic, each in body.items()}


def _rows(start: Offsets, stop: Offsets) -> int:
    return sum(
        max(0, offset - start.get(topic, {}).get(partition, 0))
        for topic, partitions in stop.items()
        for partition, offset in partitions.items()
    )


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except FileNotFoundError:
        return []


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # Spark deletes old files
        return None


def _watermark_us(commit: Path) -> int | None:
    """The watermark of the next batch, which stands in the commit of the last one."""
    try:
        body = json.loads(commit.read_text().splitlines()[1])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    milliseconds = int(body.get("nextBatchWatermarkMs") or 0)
    return milliseconds * 1_000 if milliseconds > 0 else None
