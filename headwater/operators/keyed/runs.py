"""A run: the state of some keys as one batch left it, in a file that is written once and then only mapped.

Rows are sorted by the hash of their key; a key may have several rows, which stand together, or one row that says that
it is gone. Timers stand in a second file, sorted by time, each with the number of the row that set it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.keyed.files import Folder

Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]

HASH = "_hash"
LIVE = "_live"
EVENT_TIMER = "_wake_at"
PROCESSING_TIMER = "_wake_at_processing"
TIMERS = (EVENT_TIMER, PROCESSING_TIMER)


class Match(NamedTuple):
    """Where keys were found in a run: `keys[i]` owns the row `rows[i]`."""

    keys: Rows
    rows: Rows


class Run:
    """A run on disk, mapped: what is looked at is read, the rest is not."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self._folder = folder
        self.table = folder.map(name)
        self.hashes: Hashes = _array(self.table, HASH)

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def find(self, hashes: Hashes) -> Match:
        """The rows of these hashes, in their order. Two keys of one hash both come: the caller compares the keys."""
        first = np.searchsorted(self.hashes, hashes, side="left")
        inside = np.flatnonzero(first < self.rows)
        found = inside[self.hashes[first[inside]] == hashes[inside]]
        first = first[found]
        counts = np.searchsorted(self.hashes, hashes[found], side="right") - first
        return Match(np.repeat(found, counts), ranges(first, counts))

    def due(self, timer: str, *, after_us: int | None, until_us: int) -> Rows:
        """The rows whose timer lies in (after, until]."""
        timers = self._folder.map_if_there(timer_name(self.name, timer))
        if timers is None:
            return np.empty(0, np.int64)
        at: Rows = _array(timers, "at_us")
        start = 0 if after_us is None else int(np.searchsorted(at, after_us, side="right"))
        stop = int(np.searchsorted(at, until_us, side="right"))
        rows: Rows = _array(timers, "row")
        return rows[start:stop]


def write_run(folder: Folder, name: str, table: pa.Table) -> None:
    """Write a table that is sorted by hash, and its timers."""
    for timer in TIMERS:
        if timer in table.column_names:
            at = table.column(timer).cast(pa.int64())
            rows = np.flatnonzero(np.asarray(at.is_valid()))
            if len(rows):
                times = np.asarray(at.take(pa.array(rows)))
                order = np.argsort(times, kind="stable")
                timers = pa.table({"at_us": times[order], "row": rows[order]})
                folder.write(timer_name(name, timer), timers)
    folder.write(name, table)


def timer_name(run: str, timer: str) -> str:
    return f"{run}.{timer[1:]}"


def ranges(starts: Rows, counts: Rows) -> Rows:
    """All numbers of several ranges, one after the other.

    >>> ranges(np.array([3, 10]), np.array([2, 3])).tolist()
    [3, 4, 10, 11, 12]
    """
    ends = np.cumsum(counts)
    numbers: Rows = np.arange(int(counts.sum())) + np.repeat(starts - (ends - counts), counts)
    return numbers


def _array(table: pa.Table, column: str) -> Any:
    """A column as an array over the mapped bytes. Any: the caller knows the type, Arrow does not say it."""
    chunks = table.column(column)
    return np.asarray(chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks())
