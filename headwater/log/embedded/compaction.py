"""Compaction: keep only the last row of each key, so that a topic stays as large as the table that it represents.

It works on sealed segments while writers append. First it finds the last offset of each key over all of them; then it
rewrites the segments in order and publishes each by itself: at every moment, a reader from the start finds the last row
of every key. Tombstones are removed after `tombstone_seconds_max`, when every reader must have read them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.log.embedded.partition import Partition
from headwater.log.embedded.rewrite import Output, keep_producers, pieces_of
from headwater.log.embedded.segment import Segment, SegmentMap, walk
from headwater.log.embedded.topic import TopicHandle

Int64s = npt.NDArray[np.int64]


def compact(
    handle: TopicHandle, partition: Partition, sealed: Sequence[Segment], offset_next: int, *, now_us: int
) -> int:
    """Rewrite sealed segments; return how many rows were removed."""
    sealed_to = list(zip(sealed, [*(segment.base for segment in sealed[1:]), offset_next], strict=True))
    kept, total = last_offsets(
        handle, partition, sealed_to, tombstones_before_us=now_us - round(handle.topic.tombstone_seconds_max * 1e6)
    )
    if len(kept) == total:
        return 0
    run: list[tuple[Segment, int]] = []
    size = 0
    for segment, end in sealed_to:
        run.append((segment, end))
        size += segment.path.stat().st_size
        if size >= handle.topic.segment_bytes_max or end == offset_next:
            _rewrite(handle, partition, run, end, kept)
            run, size = [], 0
    return total - len(kept)


def last_offsets(
    handle: TopicHandle, partition: Partition, sealed: Sequence[tuple[Segment, int]], *, tombstones_before_us: int
) -> tuple[Int64s, int]:
    """The offsets to keep, sorted, and the current number of rows. `sealed` has the end offset of each segment."""
    key = handle.topic.key
    tables = []
    for segment, end in sealed:
        for piece in pieces_of(handle, partition, segment, end):
            if piece.punctuation is None:
                tables.append(
                    pa.Table.from_batches([piece.rows]).select([*key, "_offset", "_tombstone", "_appended_at"])
                )
    if not tables:
        return np.empty(0, np.int64), 0
    rows = pa.concat_tables(tables, promote_options="permissive")
    last = rows.group_by(list(key)).aggregate([("_offset", "max")])
    kept = np.sort(np.asarray(last.column("_offset_max").combine_chunks()))
    offsets = np.asarray(rows.column("_offset"))
    dead = np.asarray(rows.column("_tombstone")) & (
        np.asarray(rows.column("_appended_at").cast(pa.int64())) < tombstones_before_us
    )
    return np.setdiff1d(kept, offsets[dead], assume_unique=True), len(offsets)


def _rewrite(
    handle: TopicHandle, partition: Partition, run: Sequence[tuple[Segment, int]], offset_next: int, kept: Int64s
) -> None:
    output = Output(handle, partition, run[0][0].base)
    for segment, end in run:
        mapped = SegmentMap(segment.path)
        headers = (header for _, header in walk(mapped.view))
        output.flags |= keep_producers(partition, mapped.flags, headers, offset_next)
        for piece in pieces_of(handle, partition, segment, end):
            if piece.punctuation is None:
                offsets = np.asarray(piece.rows.column("_offset"))
                piece.rows = piece.rows.filter(pa.array(np.isin(offsets, kept, assume_unique=True)))
            output.add(piece)
    output.publish(offset_next, [segment for segment, _ in run])


def is_dirty(sealed: Sequence[Segment]) -> bool:
    """Whether a segment was sealed since the last compaction."""
    return any(not segment.rewritten for segment in sealed)
