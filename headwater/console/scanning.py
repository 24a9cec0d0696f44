"""Looking through a topic a little at a time, from either end, always saying how far it has come.

A scan is over the rows that were there when it began. It may be stopped after any row and go on from there; over all
its steps it sees each row once. Rows that retention deletes before it comes to them are counted, not forgotten.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.console.matching import Matcher
from headwater.console.paging import batches_of
from headwater.console.records import Record, records_of
from headwater.errors import ArgumentInvalid, OffsetExpired

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog

#: Rows, and bytes of them, that are looked at before the clock is.
WINDOW_ROWS_MAX = 16_384
WINDOW_BYTES_MAX = 16 * 1024 * 1024


class Scan:
    """One search: what it has seen, and where it goes on."""

    def __init__(
        self,
        log: EmbeddedLog,
        topic: str,
        matcher: Matcher,
        *,
        newest_first: bool = True,
        partition: int | None = None,
        window_rows: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._topic, self._matcher, self._clock = log, log.topic(topic), matcher, clock
        self.newest_first = newest_first
        described = log.describe(topic)
        each = described.bytes / max(1, described.rows)
        self._window = window_rows or max(16, min(WINDOW_ROWS_MAX, int(WINDOW_BYTES_MAX / max(1.0, each))))
        wanted = [one for one in described.partitions if partition in (None, one.partition)]
        #: What is left of each partition: the first offset, and the one behind the last.
        self._left = {one.partition: (one.offset_start, one.offset_next) for one in wanted}
        #: The append time that each partition has been seen up to; None before its first window.
        self._reached: dict[int, int | None] = dict.fromkeys(self._left)
        self._cancelled = threading.Event()
        self.total = sum(stop - start for start, stop in self._left.values())
        self.found = 0
        self.expired = 0
        self.from_us: int | None = None
        self.to_us: int | None = None

    @property
    def scanned(self) -> int:
        """How many offsets it has come past."""
        return self.total - sum(stop - start for start, stop in self._left.values())

    @property
    def is_done(self) -> bool:
        return self.scanned == self.total

    def cancel(self) -> None:
        """End the step that runs, soon; the next one goes on where it ended."""
        self._cancelled.set()
        self._matcher.cancel()

    def step(self, *, seconds: float, found_max: int) -> list[Record]:
        """Go on for so long, or until so many rows are found; at least one batch is looked at."""
        self._cancelled.clear()
        until, found = self._clock() + seconds, list[Record]()
        while not self.is_done and len(found) < found_max:
            number = self._next_partition()
            try:
                found += self._look(number, found_max - len(found))
            except ArgumentInvalid:  # also of a condition that was ended: its window is looked at again
                if not self._cancelled.is_set():
                    raise
            if self._clock() >= until or self._cancelled.is_set():
                break
        self.found += len(found)
        return found

    def _next_partition(self) -> int:
        """The partition whose next rows are likely to be the newest, or the oldest."""
        open_ones = [number for number, (start, stop) in self._left.items() if start < stop]
        unseen = [number for number in open_ones if self._reached[number] is None]
        if unseen:
            return unseen[0]
        choose = max if self.newest_first else min
        return choose(open_ones, key=lambda number: self._reached[number] or 0)

    def _look(self, number: int, room: int) -> list[Record]:
        """Look at one window of a partition, up to the last row that there is room for."""
        start, stop = self._left[number]
        begin = self._log.start_offsets(self._topic.name)[number]
        if begin > start:  # retention was quicker
            self.expired += min(begin, stop) - start
            start = min(begin, stop)
            self._left[number] = (start, stop)
        low, high = (
            (max(start, stop - self._window), stop) if self.newest_first else (start, min(stop, start + self._window))
        )
        found, edge = self._matches(number, low, high, room)
        if self.newest_first:
            self._left[number] = (start, low if edge is None else edge)
        else:
            self._left[number] = (high if edge is None else edge + 1, stop)
        if self._left[number][0] >= self._left[number][1]:
            self._left[number] = (stop, stop)
        return found

    def _matches(self, number: int, low: int, high: int, room: int) -> tuple[list[Record], int | None]:
        """Rows of a window that fit, in the order of the scan, and the offset of the last one if there is no more room."""
        batches: list[pa.RecordBatch] = []
        if low < high:
            with contextlib.suppress(OffsetExpired):
                batches = _joined(batches_of(self._log, self._topic.name, number, low, high))
        found: list[Record] = []
        for data in reversed(batches) if self.newest_first else batches:
            fits = np.flatnonzero(self._matcher.mask(self._topic, data))
            taken = (fits[::-1] if self.newest_first else fits)[: room - len(found)]
            found += records_of(self._topic, data.take(pa.array(taken, pa.int64()))) if len(taken) else []
            is_full = len(found) == room and len(taken) > 0
            self._note_times(number, data, int(taken[-1]) if is_full else None)
            if is_full:
                return found, found[-1].offset
        return found, None

    def _note_times(self, number: int, data: pa.RecordBatch, last: int | None) -> None:
        times = data.column("_appended_at").cast(pa.int64())
        ends = (0, len(times) - 1) if last is None else ((last, len(times) - 1) if self.newest_first else (0, last))
        first_us, last_us = int(times[ends[0]].as_py()), int(times[ends[1]].as_py())
        self.from_us = first_us if self.from_us is None else min(self.from_us, first_us)
        self.to_us = last_us if self.to_us is None else max(self.to_us, last_us)
        self._reached[number] = first_us if self.newest_first else last_us


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows in few batches, however small the appends were: each costs a condition a trip to its process."""
    return pa.Table.from_batches(batches).combine_chunks().to_batches() if len(batches) > 1 else batches
