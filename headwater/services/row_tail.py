"""Following a topic: rows as they are appended, also of partitions that are added, and of a topic that is created again.

A reader that falls too far behind may skip rows: their offsets are counted. In a compacted topic some of those offsets
have no row any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from headwater.log.errors import OffsetExpired
from headwater.log.port import Batch, Cursor, Log, Offsets
from headwater.services.row_pages import BYTES_MAX, cut, in_append_order, last_offsets, read_page, selected, with_place
from headwater.units import MIB

#: How many rows are read at first, before their size is known; then about how many bytes at once.
ROWS_AT_FIRST = 16
BYTES_AT_ONCE = MIB
ROWS_AT_ONCE_MAX = 16_384
#: How often a read is repeated if retention deletes rows meanwhile.
TRIES_MAX = 5


class Follower:
    """Reads a topic on from some positions, rows of all partitions in the order in which they were appended.

    With `chosen` it reads only the partitions that it begins with; otherwise all, also those that are added.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        positions: Mapping[int, int],
        *,
        columns: Sequence[str] | None = None,
        chosen: bool = False,
        rows_at_once_max: int = ROWS_AT_ONCE_MAX,
    ) -> None:
        self._log, self._topic, self._columns, self._chosen = log, topic, columns, chosen
        self._cursors: dict[int, Cursor] = {}
        self._batches: Iterator[Batch] | None = None
        self._rows_at_once, self._rows_at_once_max = ROWS_AT_FIRST, rows_at_once_max
        #: What has happened to the topic since the call of `read` before the last.
        self.change: Literal["", "created again", "partitions added"] = ""
        #: The first offset not yet read, in each partition.
        self.positions: Offsets = dict(positions)

    def move(self, positions: Mapping[int, int]) -> None:
        """Go on from other positions."""
        self.positions = dict(positions)
        self._cursors.clear()
        self._batches = None

    def read(self, *, rows_max: int, bytes_max: int = BYTES_MAX) -> list[Batch]:
        """Read the next rows and punctuations; none if there are none yet. Never waits."""
        self.change = ""
        if not self._cursors:
            wanted = None if self._columns is None else with_place(self._columns)
            for number, offset in self.positions.items():
                self._cursors[number] = self._log.cursor(self._topic, number, offset, columns=wanted)
        if any(cursor.deleted for cursor in self._cursors.values()):
            current = self._log.topic(self._topic)  # raises if it was deleted
            self.move(dict.fromkeys(self.positions if self._chosen else range(current.partitions), 0))
            self.change = "created again"
            return []
        if found := self._next(rows_max, bytes_max):
            return [selected(batch, self._columns) for batch in found]
        # Offsets whose rows compaction has deleted count as read.
        self.positions = {number: max(at, self._cursors[number].offset) for number, at in self.positions.items()}
        if not self._chosen and self._log.topic(self._topic).partitions > len(self.positions):
            self.move(self._log.start_offsets(self._topic) | self.positions)
            self.change = "partitions added"
        return []

    def wait(self, *, seconds: float) -> bool:
        """Wait until there are rows to read; False after so many seconds."""
        if self._log.wait(self._topic, after=self.positions, seconds=seconds):
            return True
        return not self._chosen and self._log.topic(self._topic).partitions > len(self.positions)

    def _next(self, rows_max: int, bytes_max: int) -> list[Batch]:
        is_new = self._batches is None
        if self._batches is None:
            self._batches = in_append_order([self._stored(cursor) for cursor in self._cursors.values()])
        taken, rows, size = list[Batch](), 0, 0
        for found in self._batches:
            batch, count, nbytes = found, found.data.num_rows, found.data.nbytes
            room = min(rows_max - rows, max(1, (bytes_max - size) * count // max(1, nbytes)))
            if count > room:
                batch, rest = cut(found, room)
                self._batches = chain([rest], self._batches)
            taken.append(batch)
            self.positions[batch.partition] = max(self.positions[batch.partition], batch.offset_next)
            rows, size = rows + count, size + nbytes
            if count > room or rows >= rows_max or size >= bytes_max:
                return taken
        self._batches = None
        # The pass before ended exactly here: there may be more rows behind its bound.
        return taken if taken or is_new else self._next(rows_max, bytes_max)

    def _stored(self, cursor: Cursor) -> Iterator[Batch]:
        """The rows of a partition up to a bound, in reads of about `BYTES_AT_ONCE`."""
        left = self._rows_at_once_max
        while left > 0 and (found := cursor.read(rows_max=min(left, self._rows_at_once))):
            rows, size = sum(one.data.num_rows for one in found), sum(one.data.nbytes for one in found)
            if rows:
                self._rows_at_once = max(1, min(self._rows_at_once_max, BYTES_AT_ONCE * rows // max(1, size)))
            left -= max(1, rows)
            yield from found


@dataclass(frozen=True, kw_only=True)
class TailPage:
    """New rows, oldest first; how many offsets before them were skipped, and how many are not read yet."""

    batches: list[Batch]
    skipped: int
    waiting: int
    next: Offsets
    topic_id: str


def tail_page(
    log: Log,
    topic: str,
    after: Mapping[int, int] | None = None,
    *,
    topic_id: str = "",
    partition: int | None = None,
    rows_max: int,
    behind_max: int,
    context_rows: int = 0,
) -> TailPage:
    """Read the rows behind some positions, at most the last `behind_max` offsets.

    Without positions a tail begins with the last `context_rows` rows. With `rows_max=0` nothing is read: the answer says
    how many offsets are waiting.
    """
    about = log.topic(topic)
    starts, ends = log.start_offsets(topic), log.end_offsets(topic)
    ends = {number: end for number, end in ends.items() if partition in (None, number)}
    if after is None:
        begins = last_offsets(log, topic, ends, rows=context_rows)
        page = read_page(log, topic, start=begins, stop=ends, partitions=list(ends), rows_max=max(1, context_rows))
        return TailPage(batches=page.batches, skipped=0, waiting=0, next=ends, topic_id=about.id)
    # Partitions may have been added; a topic created again under its name is read from its start.
    known = after if topic_id in ("", about.id) else {}
    positions = {number: known.get(number, starts[number]) for number in ends}
    behind = {number: max(0, end - positions[number]) for number, end in ends.items()}
    if rows_max == 0:
        return TailPage(batches=[], skipped=0, waiting=sum(behind.values()), next=positions, topic_id=about.id)
    for _ in range(TRIES_MAX):
        skips = skipped_rows(behind, behind_max)
        begins = {number: max(at + skips[number], starts[number]) for number, at in positions.items()}
        skipped = sum(begins.values()) - sum(positions.values())
        try:
            page = read_page(log, topic, start=begins, stop=ends, partitions=list(ends), rows_max=rows_max)
        except OffsetExpired:  # retention has deleted rows meanwhile
            starts = log.start_offsets(topic)
            continue
        waiting = sum(end - page.next[number] for number, end in ends.items())
        return TailPage(batches=page.batches, skipped=skipped, waiting=waiting, next=page.next, topic_id=about.id)
    return TailPage(batches=[], skipped=0, waiting=sum(behind.values()), next=positions, topic_id=about.id)


def skipped_rows(behind: Mapping[int, int], most: int) -> dict[int, int]:
    """How many rows to skip in each partition so that at most `most` are left, in proportion to its rows.

    >>> skipped_rows({0: 900, 1: 100}, 500), skipped_rows({0: 10, 1: 5}, 500)
    ({0: 450, 1: 50}, {0: 0, 1: 0})
    """
    total = sum(behind.values())
    if total <= most:
        return dict.fromkeys(behind, 0)
    return {number: rows - rows * most // total for number, rows in behind.items()}
