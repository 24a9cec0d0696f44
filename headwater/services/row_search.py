"""Search of a topic in steps, from either end, with its progress.

Rows are matched by a text, by a regular expression (RE2: linear time), or by a condition in SQL. The search is over the
text that is shown: the key and the value, and each header as `name: value`.

A scan is over the rows at its beginning, in the order of their append times over all partitions: a row that was found
waits until no other partition can have one before it. It may be stopped after any row and continued; over all its steps it
reads each row once. Rows that retention deletes before they are read are counted.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ArgumentInvalid
from headwater.log.errors import OffsetExpired
from headwater.log.port import Log
from headwater.log.topic import Topic
from headwater.services.row_pages import joined
from headwater.services.row_text import PARTS, Part, Row, headers_of, keys_of, lines_of, rows_of
from headwater.services.statements import StatementRequest, Statements
from headwater.units import MIB
from headwater.views.conditions import offsets_where
from headwater.views.errors import StatementExceeded, StatementInvalid
from headwater.views.statement import Bounds

Mask = npt.NDArray[np.bool_]
#: How long a condition may take for one batch.
CONDITION_SECONDS_MAX = 5.0
#: The memory that DuckDB counts. Other memory is bounded by the process that a condition runs in.
CONDITION_MEMORY_MAX = 512 * MIB
#: Rows and bytes that are read before the clock is checked.
WINDOW_ROWS_MAX = 16_384
WINDOW_BYTES_MAX = 16 * 1024 * 1024


class Scan:
    """One search: what it has read, and where it continues."""

    def __init__(
        self,
        log: Log,
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
        #: Rows of each partition that were found and not returned yet, in the order of the scan.
        self._waiting: dict[int, list[Row]] = {number: [] for number in self._left}
        self._cancelled = threading.Event()
        self.total = sum(stop - start for start, stop in self._left.values())
        self.found = 0
        self.expired = 0
        self.from_us: int | None = None
        self.to_us: int | None = None

    @property
    def scanned(self) -> int:
        """How many offsets it has passed."""
        return self.total - sum(stop - start for start, stop in self._left.values())

    @property
    def is_done(self) -> bool:
        return self.scanned == self.total and not any(self._waiting.values())

    def cancel(self) -> None:
        """Stop the current step soon; the next one continues where it stopped."""
        self._cancelled.set()
        self._matcher.cancel()

    def step(self, *, seconds: float, found_max: int) -> list[Row]:
        """Continue for so long, or until so many rows are found; at least one batch is read.

        When the time is over, all rows that were found are returned, also those that others could still come before.
        """
        self._cancelled.clear()
        until, found, is_over = self._clock() + seconds, list[Row](), False
        while not self.is_done and len(found) < found_max:
            number = None if is_over else self._partition_to_read()
            if number is None:
                if not any(self._waiting.values()):
                    break
                found.append(self._waiting[self._partition_of_next_row()].pop(0))
                continue
            try:
                self._waiting[number] += self._look(number, found_max)
            except ArgumentInvalid:  # also of a condition that was stopped: its window is read again
                if not self._cancelled.is_set():
                    raise
            is_over = self._clock() >= until or self._cancelled.is_set()
        self.found += len(found)
        return found

    def _partition_to_read(self) -> int | None:
        """The partition that may have a row before all rows that wait; None if the next of these is certain."""
        unread = [number for number, (start, stop) in self._left.items() if start < stop and not self._waiting[number]]
        unseen = [number for number in unread if self._reached[number] is None]
        if unseen or not unread:
            return unseen[0] if unseen else None
        choose = max if self.newest_first else min
        number = choose(unread, key=self._sort_time)
        if any(self._waiting.values()):
            next_us = self._waiting[self._partition_of_next_row()][0].appended_us
            is_certain = next_us >= self._sort_time(number) if self.newest_first else next_us <= self._sort_time(number)
            return None if is_certain else number
        return number

    def _sort_time(self, number: int) -> int:
        return self._reached[number] or 0

    def _partition_of_next_row(self) -> int:
        choose = max if self.newest_first else min
        waiting = [number for number, rows in self._waiting.items() if rows]
        return choose(waiting, key=lambda number: self._waiting[number][0].appended_us)

    def _look(self, number: int, room: int) -> list[Row]:
        """Search one window of a partition, up to the last row that there is room for."""
        start, stop = self._left[number]
        begin = self._log.start_offsets(self._topic.name)[number]
        if begin > start:  # retention has deleted rows
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

    def _matches(self, number: int, low: int, high: int, room: int) -> tuple[list[Row], int | None]:
        """Rows of a window that match, in the order of the scan, and the offset of the last one if there is no more room."""
        batches: list[pa.RecordBatch] = []
        if low < high:
            with contextlib.suppress(OffsetExpired):
                batches = joined(
                    self._log.read(self._topic.name, start={number: low}, stop={number: high}, partitions=[number])
                )
        found: list[Row] = []
        for data in reversed(batches) if self.newest_first else batches:
            fits = np.flatnonzero(self._matcher.mask(self._topic, data))
            taken = (fits[::-1] if self.newest_first else fits)[: room - len(found)]
            found += rows_of(self._topic, data.take(pa.array(taken, pa.int64()))) if len(taken) else []
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


# -- matchers ---------------------------------------------------------------------------------------------------------


class Matcher(Protocol):
    """Decides which rows of a batch match."""

    def mask(self, topic: Topic, data: pa.RecordBatch) -> Mask: ...
    def cancel(self) -> None: ...


class TextMatcher:
    """Rows that contain a text, or match a pattern, in one of some parts."""

    def __init__(
        self, text: str, *, is_pattern: bool = False, match_case: bool = False, parts: Sequence[Part] = PARTS
    ) -> None:
        if not text:
            raise ArgumentInvalid(name="text", value=text, expected="something to look for")
        if not parts:
            raise ArgumentInvalid(name="where", value="nowhere", expected="the key, the value or the headers")
        self._text, self._is_pattern, self._ignore_case = text, is_pattern, not match_case
        self._parts = tuple(parts)
        self._fits(pa.array([""]))  # raises if the pattern is invalid

    def mask(self, topic: Topic, data: pa.RecordBatch) -> Mask:
        found = np.zeros(data.num_rows, dtype=np.bool_)
        own = data.select([name for name in topic.schema.names if name in data.schema.names])
        for part in self._parts:
            texts = self._texts(part, topic, own, data)
            if texts is not None:
                found |= self._fits(texts)
        return found

    def cancel(self) -> None:
        """Do nothing: the time for a batch is linear in its length."""

    def _texts(self, part: Part, topic: Topic, own: pa.RecordBatch, data: pa.RecordBatch) -> pa.Array | None:
        if part == "value":
            return pa.array(lines_of(topic, own), pa.large_string())
        if part == "key":
            if not topic.schemaless and not topic.key:
                return None
            return pa.array(keys_of(topic, own), pa.large_string())
        headers = data.column("_headers")
        if headers.null_count == len(headers):
            return None
        lines = ["\n".join(f"{name}: {text}" for name, text in headers_of(pairs)) for pairs in headers.to_pylist()]
        return pa.array(lines, pa.large_string())

    def _fits(self, texts: pa.Array) -> Mask:
        try:
            find = pc.match_substring_regex if self._is_pattern else pc.match_substring
            found = find(texts, self._text, ignore_case=self._ignore_case)
        except pa.ArrowInvalid as error:
            why = str(error).split(": ", 1)[-1]
            expected = f"a regular expression as RE2 reads them ({why})"
            raise ArgumentInvalid(name="pattern", value=self._text, expected=expected) from error
        return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)


class ConditionMatcher:
    """Rows for which a condition in SQL is true. It has the row's columns, `_partition`, `_offset` and the others.

    It runs in a process of `statements`, which the kernel bounds; in this process without them.
    """

    def __init__(self, topic: Topic, condition: str, *, statements: Statements | None = None) -> None:
        if not condition.strip():
            raise ArgumentInvalid(name="condition", value=condition, expected="SQL, such as amount > 100")
        self._condition, self._statements = condition, statements
        self._stop: Callable[[], None] | None = None
        self.mask(topic, _empty(topic))  # raises if the condition is invalid

    def mask(self, topic: Topic, data: pa.RecordBatch) -> Mask:
        rows = pa.Table.from_batches([_readable(topic, data)])
        bounds = Bounds(seconds_max=CONDITION_SECONDS_MAX, memory_max=CONDITION_MEMORY_MAX, threads_max=1)
        try:
            if self._statements is None:
                found = offsets_where(rows, self._condition, bounds=bounds, stoppable=self._stoppable)
            else:
                request = StatementRequest(rows=rows, where=self._condition, bounds=bounds)
                found = self._statements.query(request, stoppable=self._stoppable)
        except StatementExceeded as error:
            is_late = error.bound.endswith("seconds")
            raise self._refused("it takes too long" if is_late else f"it takes more than {error.bound}") from error
        except StatementInvalid as error:
            raise self._refused(error.why) from error
        return np.isin(np.asarray(data.column("_offset")), np.asarray(found.column(0)))

    def cancel(self) -> None:
        if self._stop is not None:
            self._stop()

    def _stoppable(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def _refused(self, why: str) -> ArgumentInvalid:
        return ArgumentInvalid(
            name="condition", value=self._condition, expected=f"SQL that is true or false for a row ({why})"
        )


def _readable(topic: Topic, data: pa.RecordBatch) -> pa.RecordBatch:
    """Key and value of a topic without a schema as text, for conditions."""
    if not topic.schemaless:
        return data
    texts: dict[str, Any] = {
        "key": pa.array(keys_of(topic, data), pa.large_string()),
        "value": pa.array(lines_of(topic, data), pa.large_string()),
    }
    names = data.schema.names
    return pa.RecordBatch.from_arrays(
        [texts.get(name, data.column(at)) for at, name in enumerate(names)], names=list(names)
    )


def _empty(topic: Topic) -> pa.RecordBatch:
    from headwater.log.decoder import Projection

    schema = Projection.of(topic, None).output
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
