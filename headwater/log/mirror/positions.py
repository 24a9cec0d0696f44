"""What a mirror has copied, as rows of the target's topic `__mirror`, and offsets of the source as offsets of the target.

Each transaction of a mirror has one row here for each partition that it copies rows of: the offsets that they have in
the source, their number, and where the partition of the target ended before them. It is committed with the rows, so
the place where the mirror goes on can neither be ahead of them nor behind.

The topic is compacted. Of a partition's rows it keeps the first `FIRST_KEPT` and the last `LAST_KEPT`: an offset
between those is translated by counting from the row before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.log.errors import OffsetExpired
from headwater.log.port import Log
from headwater.log.topic import Topic
from headwater.schema import parse_schema

MIRROR_TOPIC = "__mirror"
FIRST_KEPT = 1_024
LAST_KEPT = 1_024
COPY_SCHEMA: pa.Schema = parse_schema(
    "source string not null, target string not null, partition int32 not null, slot int32 not null, "
    "number int64, offset int64, offset_next int64, rows int64, target_offset int64"
)


@dataclass(frozen=True, kw_only=True)
class Copy:
    """The rows of one partition in one transaction of a mirror."""

    number: int
    offset: int
    offset_next: int
    rows: int
    target_offset: int

    # Any: a row.
    def as_row(self, source: Topic, target: Topic, partition: int) -> dict[str, Any]:
        slot = self.number if self.number < FIRST_KEPT else FIRST_KEPT + self.number % LAST_KEPT
        return {
            "source": source.id,
            "target": target.id,
            "partition": partition,
            "slot": slot,
            "number": self.number,
            "offset": self.offset,
            "offset_next": self.offset_next,
            "rows": self.rows,
            "target_offset": self.target_offset,
        }


@dataclass
class Copies:
    """All copies of one partition that are known, in order."""

    known: list[Copy] = field(default_factory=list)

    def add(self, copy: Copy) -> None:
        self.known.append(copy)

    @property
    def number_next(self) -> int:
        return self.known[-1].number + 1 if self.known else 0

    @property
    def offset_next(self) -> int | None:
        """Where the mirror goes on in the source; None if it has copied nothing yet."""
        return self.known[-1].offset_next if self.known else None

    def at(self, offset: int) -> tuple[Copy, Copy | None] | None:
        """The last copy that begins at or before an offset of the source, and the copy after it."""
        place = bisect_right(self.known, offset, key=lambda copy: copy.offset) - 1
        if place < 0:
            return None
        return self.known[place], self.known[place + 1] if place + 1 < len(self.known) else None


def make_mirror_topic(target: Log) -> None:
    """Create the topic of copies in the target, unless it exists."""
    target.create_internal(
        Topic(
            name=MIRROR_TOPIC,
            id="3144042" + "0" * 25,
            schema=COPY_SCHEMA,
            key=("source", "target", "partition", "slot"),
            compact=True,
            created_us=target.clock.now_us(),
        )
    )


def load_copies(target: Log) -> dict[tuple[str, str], dict[int, Copies]]:
    """All copies in a target, by the ids of the two topics and by partition."""
    if not target.topics(MIRROR_TOPIC, internal=True):
        return {}
    newest: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    for row in target.read(MIRROR_TOPIC).rows():
        newest[row["source"], row["target"], row["partition"], row["slot"]] = row
    loaded: dict[tuple[str, str], dict[int, Copies]] = {}
    for row in sorted(newest.values(), key=lambda row: int(row["number"])):
        copy = Copy(**{name: int(row[name]) for name in Copy.__dataclass_fields__})
        loaded.setdefault((row["source"], row["target"]), {}).setdefault(row["partition"], Copies()).add(copy)
    return loaded


@dataclass(frozen=True)
class Translation:
    """Translates offsets of a topic in the source to offsets of its copy in the target.

    The translated offset is that of the copy of the row with the offset, or of the next row that was copied. A compacted
    topic has no longer all rows that were counted: there it is the beginning of the transaction that copied the row,
    so that a group reads some rows again but leaves none out.
    """

    source: Log
    target: Log
    topic: Topic

    def offset(self, copies: Copies, partition: int, offset: int, *, end: int) -> int:
        """Translate an offset; `end` is where the copied rows end in the target."""
        between = copies.at(offset)
        if between is None:
            return copies.known[0].target_offset if copies.known else end
        copy, following = between
        if following is not None:
            end = following.target_offset
        if offset >= copy.offset_next and (following is None or following.number == copy.number + 1):
            return end
        if self.topic.compact or offset == copy.offset:
            return copy.target_offset
        rows = self._rows_before(copy, partition, offset)
        if rows is None:
            return copy.target_offset
        if end - copy.target_offset == copy.rows and rows <= copy.rows:
            return copy.target_offset + rows  # each offset is one row
        return self._offset_of_row(partition, copy.target_offset, end, rows)

    def end(self, copies: Copies, partition: int, stop: int) -> int:
        """Where the copied rows end in the target, whose partition ends at `stop`."""
        if not copies.known or self.topic.compact:
            return stop
        last = copies.known[-1]
        if stop - last.target_offset == last.rows:
            return stop
        return self._offset_of_row(partition, last.target_offset, stop, last.rows)

    def _rows_before(self, copy: Copy, partition: int, offset: int) -> int | None:
        """The number of rows in the source from the beginning of a copy up to an offset; None if it is not known."""
        if offset <= copy.offset_next and copy.offset_next - copy.offset == copy.rows:
            return offset - copy.offset
        name, columns = self.topic.name, ["_offset"]
        try:
            batches = self.source.read_range(name, partition, start=copy.offset, stop=offset, columns=columns)
            return sum(int(batch.data.num_rows) for batch in batches)
        except OffsetExpired:
            return None

    def _offset_of_row(self, partition: int, start: int, stop: int, rows: int) -> int:
        """The offset of the row that has so many rows between `start` and itself in the target."""
        for batch in self.target.read_range(self.topic.name, partition, start=start, stop=stop, columns=["_offset"]):
            if rows < batch.data.num_rows:
                return int(batch.data.column("_offset")[rows].as_py())
            rows -= batch.data.num_rows
        return stop


def copy_rows(copies: Iterable[tuple[Topic, Topic, int, Copy]]) -> list[dict[str, Any]]:
    """Copies as rows of `__mirror`."""
    return [copy.as_row(source, target, partition) for source, target, partition, copy in copies]
