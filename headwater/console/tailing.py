"""Following a topic for one visitor: rows as they come, and an exact count of those that were left out.

A browser shows so many rows a second and no more. Whoever is behind by more than `behind_max` rows goes on with the last
of them; the rest is never read, only counted. So a million rows that pass cost no more than a few thousand. What is
counted are offsets: in a topic that is compacted some of them have no row any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.console.paging import page_after, page_before
from headwater.console.records import Record

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog, Offsets

#: Rows shown at once when somebody begins to follow, so that a quiet topic is not an empty page.
CONTEXT_ROWS = 50


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Rows that have come, oldest first, and how many offsets before them were left out."""

    records: list[Record]
    skipped: int


class Tailing:
    """A place at the end of a topic, for one partition or for all."""

    def __init__(
        self, log: EmbeddedLog, topic: str, *, partition: int | None = None, behind_max: int, context_rows: int = 0
    ) -> None:
        self._log, self._topic, self._partition = log, topic, partition
        self._behind_max = behind_max
        self._id = log.topic(topic).id
        self._positions = self._ends()
        #: Read at once: compaction may have left them far behind the end, where they would be passed over.
        self._context = (
            page_before(log, topic, self._positions, rows=context_rows).records[::-1] if context_rows else []
        )

    def waiting(self) -> int:
        """How many offsets have come that were not read yet."""
        self._follow()
        return sum(_behind(self._positions, self._ends()).values())

    def read(self, *, rows_max: int) -> Piece:
        """The next rows that are there; none where there are none yet."""
        if self._context:
            records, self._context = self._context[:rows_max], self._context[rows_max:]
            return Piece(records=records, skipped=0)
        self._follow()
        skipped = self._catch_up()
        leaf = page_after(self._log, self._topic, self._positions, rows=rows_max)
        self._positions = leaf.next
        return Piece(records=leaf.records, skipped=skipped)

    def _ends(self) -> Offsets:
        ends = self._log.end_offsets(self._topic)
        return {number: offset for number, offset in ends.items() if self._partition in (None, number)}

    def _follow(self) -> None:
        """Partitions may be added, and a topic may be made anew under its name: that one is read from its start."""
        identity = self._log.topic(self._topic).id
        starts = self._log.start_offsets(self._topic)
        known = self._positions if identity == self._id else {}
        self._id = identity
        self._positions = {number: known.get(number, starts[number]) for number in self._ends()}

    def _catch_up(self) -> int:
        """Leave out what is too much, and what retention has taken; says how many offsets that were."""
        starts, ends = self._log.start_offsets(self._topic), self._ends()
        skips = skipped_rows(_behind(self._positions, ends), self._behind_max)
        before = sum(self._positions.values())
        self._positions = {
            number: max(offset + skips[number], starts[number]) for number, offset in self._positions.items()
        }
        return sum(self._positions.values()) - before


def skipped_rows(behind: Mapping[int, int], most: int) -> dict[int, int]:
    """How many rows to leave out in each partition, so that at most so many are left; each gives its share.

    >>> skipped_rows({0: 900, 1: 100}, 500), skipped_rows({0: 10, 1: 5}, 500)
    ({0: 450, 1: 50}, {0: 0, 1: 0})
    """
    total = sum(behind.values())
    if total <= most:
        return dict.fromkeys(behind, 0)
    return {number: rows - rows * most // total for number, rows in behind.items()}


def _behind(positions: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
    return {number: max(0, end - positions.get(number, end)) for number, end in ends.items()}
