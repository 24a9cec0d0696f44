"""Rewrites of sealed segments: coalescing joins small frames, compaction keeps only the last row of each key, and a change
of rows replaces values that must not stay.

The new file is written beside the old ones, synced, and published by one rename under a name with the offsets that it
covers. From then on the old files are superseded, even if they still exist.

Compaction keeps a topic as large as the table that it represents. It works on sealed segments while writers append.
First it finds the last offset of each key over all of them; then it rewrites the segments in order and publishes each by
itself: at every moment, a reader from the start finds the last row of every key. Tombstones are removed after
`tombstone_seconds_max`, when every reader must have read them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.faults import reach
from headwater.log.decoder import SYSTEM_FIELDS, Decoder, Projection, all_columns
from headwater.log.embedded.files import open_file, sync_folder
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.producers import PartitionProducers, is_batch
from headwater.log.embedded.segment import (
    FLAG_PRODUCERS,
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentMap,
    count_frames,
    frames_to,
    segment_path,
    walk,
)
from headwater.log.embedded.state import Tail
from headwater.log.embedded.topic import TopicHandle
from headwater.log.errors import FrameCorrupt
from headwater.log.frame import (
    HEADER_BYTES,
    KIND_PUNCTUATION,
    Draft,
    Header,
    draft_punctuation,
    draft_rows,
    padding,
    payload_is_whole,
)

FRAME_ROWS_MAX = 65_536
FRAME_BYTES_MAX = 4 * 1024 * 1024
#: Segments whose frames are smaller than this on average are coalesced.
SMALL_FRAME_BYTES = 16 * 1024

#: A sealed segment, and the offset at which it ends.
Sealed = tuple[Segment, int]
Int64s = npt.NDArray[np.int64]
#: The rows of a frame with other values, at the same offsets; None if they stay as they are.
Change = Callable[[pa.RecordBatch], pa.RecordBatch | None]


class Piece(NamedTuple):
    """Rows of one frame with all system columns, so that rows of several frames can be concatenated."""

    schema_version: int
    rows: pa.RecordBatch


@dataclass
class Output:
    """A rewritten segment that is being written."""

    handle: TopicHandle
    partition: Partition
    base: int
    flags: int = 0
    #: Where it is written, if not among the segments of the partition.
    folder: Path | None = None
    drafts: list[tuple[Draft, int, int, int]] = field(default_factory=list)
    pending: list[Piece] = field(default_factory=list)

    def add(self, piece: Piece | Header) -> None:
        """Add rows, or a punctuation by its header."""
        if isinstance(piece, Header):
            self.flush()
            version, sent_at_us = piece.schema_version, piece.sent_at_us
            draft = draft_punctuation(piece.time_min_us, schema_version=version, sent_at_us=sent_at_us)
            self.drafts.append((draft, piece.offset_base, piece.appended_at_us, piece.producer))
            return
        if self.pending and (
            self.pending[0].schema_version != piece.schema_version
            or sum(one.rows.num_rows for one in self.pending) + piece.rows.num_rows > FRAME_ROWS_MAX
            or sum(one.rows.nbytes for one in self.pending) + piece.rows.nbytes > FRAME_BYTES_MAX
        ):
            self.flush()
        self.pending.append(piece)

    def flush(self) -> None:
        """Join the pending rows into one frame."""
        pieces = [piece for piece in self.pending if piece.rows.num_rows]
        self.pending = []
        if not pieces:
            return
        topic = self.handle.topic
        rows = pa.concat_batches([piece.rows for piece in pieces]) if len(pieces) > 1 else pieces[0].rows
        offsets = np.asarray(rows.column("_offset"))
        span = int(offsets[-1] - offsets[0]) + 1
        appended = np.asarray(rows.column("_appended_at").view(pa.int64()))
        sent = np.asarray(rows.column("_sent_at").view(pa.int64()))
        uniform = appended[0] == appended[-1] and (sent == sent[0]).all()
        headers = rows.column("_headers")
        tombstones = rows.column("_tombstone")
        user = rows.select([name for name in rows.schema.names if name not in SYSTEM_FIELDS])
        draft = draft_rows(
            user,
            schema_version=pieces[0].schema_version,
            codec=topic.codec,
            time=topic.time_column if topic.time_column in user.schema.names else None,
            sent_at_us=int(sent[0]),
            headers=headers if headers.null_count < len(headers) else None,
            tombstones=tombstones if tombstones.true_count else None,
            offsets=None if span == len(offsets) else rows.column("_offset"),
            appended_at=None if uniform else rows.column("_appended_at"),
            sent_at=None if uniform else rows.column("_sent_at"),
            span=span,
        )
        # With the time of the newest row: retention by age must not delete it too early.
        self.drafts.append((draft, int(offsets[0]), int(appended[-1]), 0))

    def publish(self, offset_next: int, replaced: Sequence[Segment]) -> None:
        """Write, sync and rename the segment; then unlink the superseded ones."""
        self.flush()
        folder = self.folder or self.partition.folder
        path = segment_path(folder, self.base, offset_next)
        temporary = path.with_name(f".{path.name}.tmp")
        size = SEGMENT_HEADER_BYTES + sum(draft.size for draft, *_ in self.drafts)
        with open(temporary, "wb", opener=open_file) as file:
            file.write(self.partition.segment_header(self.base, size=size, flags=self.flags))
            for draft, offset, appended_at_us, producer in self.drafts:
                file.write(draft.header(offset=offset, appended_at_us=appended_at_us, producer=producer))
                file.write(draft.payload)
                file.write(padding(draft.payload_size))
            file.flush()
            os.fsync(file.fileno())
        # After a power cut, the recorded tails must not point into a superseded file.
        self.partition.state.sync()
        reach("compaction.written")
        os.replace(temporary, path)
        sync_folder(folder)
        reach("compaction.published")
        for segment in replaced:
            if segment.path != path:
                segment.path.unlink(missing_ok=True)
        reach("compaction.unlinked")


def pieces_of(handle: TopicHandle, partition: Partition, sealed: Sealed) -> Iterator[Piece | Header]:
    """The rows of a sealed segment, frame by frame with verified checksums, and its punctuations as headers."""
    segment, end = sealed
    mapped = SegmentMap(segment.path)
    decoders: dict[int, Decoder] = {}
    for position, header in frames_to(mapped, segment, end):
        payload = mapped.buffer.slice(position + HEADER_BYTES, header.payload_size)
        if header.payload_size and not payload_is_whole(header, payload):
            why = "its payload does not match its checksum"
            raise FrameCorrupt(path=str(segment.path), position=position, offset=header.offset_base, why=why)
        if header.kind == KIND_PUNCTUATION:
            yield header
            continue
        version = header.schema_version
        if version not in decoders:
            schema = handle.schema_of(version)
            projection = Projection.under(schema, all_columns(schema, tombstones=True), topic=handle.topic.name)
            decoders[version] = Decoder(handle.current, handle.schema_of, partition.number, projection)
        batch = decoders[version].batch(header, payload, start=header.offset_base, stop=None)
        if batch is not None:
            yield Piece(version, batch.data)
        mapped.forget_before(position + header.size)


def coalesce(handle: TopicHandle, partition: Partition, sealed: Sealed) -> bool:
    """Join the small frames of one sealed segment; return False if they are large enough."""
    segment, end = sealed
    mapped = SegmentMap(segment.path)
    if count_frames(mapped.view) * SMALL_FRAME_BYTES <= mapped.length:
        return False
    headers = [header for _, header in frames_to(mapped, segment, end)]
    rows = [header for header in headers if header.kind != KIND_PUNCTUATION]
    if len(rows) < 2 or sum(header.size for header in rows) / len(rows) >= SMALL_FRAME_BYTES:
        return False
    output = Output(handle, partition, segment.base, _keep_producers(partition, mapped.flags, headers, end))
    for piece in pieces_of(handle, partition, sealed):
        output.add(piece)
    output.publish(end, [segment])
    return True


def change_rows(handle: TopicHandle, partition: Partition, sealed: Sealed, change: Change) -> int:
    """Change rows of one sealed segment, also of an archived one; return the number of frames with changed rows.

    Rows keep their offsets and times. Readers that have the old file mapped see it until they let it go.
    """
    segment, end = sealed
    pieces = (piece for piece in pieces_of(handle, partition, sealed) if isinstance(piece, Piece))
    if all(change(piece.rows) is None for piece in pieces):
        return 0
    mapped = SegmentMap(segment.path)
    headers = [header for _, header in frames_to(mapped, segment, end)]
    output = Output(handle, partition, segment.base, folder=segment.path.parent)
    output.flags = _keep_producers(partition, mapped.flags, headers, end)
    changed = 0
    for piece in pieces_of(handle, partition, sealed):
        if isinstance(piece, Piece):
            rows = change(piece.rows)
            changed += rows is not None
            piece = piece if rows is None else piece._replace(rows=rows)
        output.add(piece)
    output.publish(end, [segment])
    return changed


def compact(handle: TopicHandle, partition: Partition, sealed: Sequence[Sealed], *, now_us: int) -> int:
    """Rewrite sealed segments with only the last row of each key; return how many rows were removed."""
    kept, total = _last_offsets(handle, partition, sealed, now_us=now_us)
    if len(kept) == total:
        return 0
    run: list[Sealed] = []
    size = 0
    for segment, end in sealed:
        run.append((segment, end))
        size += segment.path.stat().st_size
        if size >= handle.topic.segment_bytes_max or end == sealed[-1][1]:
            _compact_run(handle, partition, run, kept)
            run, size = [], 0
    return total - len(kept)


def _last_offsets(
    handle: TopicHandle, partition: Partition, sealed: Sequence[Sealed], *, now_us: int
) -> tuple[Int64s, int]:
    """The offsets to keep, sorted, and the current number of rows."""
    key = handle.topic.key
    tables = [
        pa.Table.from_batches([piece.rows]).select([*key, "_offset", "_tombstone", "_appended_at"])
        for one in sealed
        for piece in pieces_of(handle, partition, one)
        if isinstance(piece, Piece)
    ]
    if not tables:
        return np.empty(0, np.int64), 0
    rows = pa.concat_tables(tables, promote_options="permissive")
    last = rows.group_by(list(key)).aggregate([("_offset", "max")])
    kept = np.sort(np.asarray(last.column("_offset_max").combine_chunks()))
    offsets = np.asarray(rows.column("_offset"))
    appended = np.asarray(rows.column("_appended_at").cast(pa.int64()))
    expired = appended < now_us - round(handle.topic.tombstone_seconds_max * 1e6)
    dead = np.asarray(rows.column("_tombstone")) & expired
    return np.setdiff1d(kept, offsets[dead], assume_unique=True), len(offsets)


def _compact_run(handle: TopicHandle, partition: Partition, run: Sequence[Sealed], kept: Int64s) -> None:
    output = Output(handle, partition, run[0][0].base)
    end = run[-1][1]
    for sealed in run:
        mapped = SegmentMap(sealed[0].path)
        output.flags |= _keep_producers(partition, mapped.flags, (header for _, header in walk(mapped.view)), end)
        for piece in pieces_of(handle, partition, sealed):
            if isinstance(piece, Piece):
                offsets = np.asarray(piece.rows.column("_offset"))
                rows = piece.rows.filter(pa.array(np.isin(offsets, kept, assume_unique=True)))
                piece = piece._replace(rows=rows)
            output.add(piece)
    output.publish(end, [segment for segment, _ in run])


def _keep_producers(partition: Partition, flags: int, headers: Iterable[Header], offset_next: int) -> int:
    """Save a snapshot of producers before their frames are joined with others; return the flags of the new segment."""
    if not flags & FLAG_PRODUCERS and not any(is_batch(header) for header in headers):
        return 0
    save_producers(partition, offset_next)
    return FLAG_PRODUCERS


def save_producers(partition: Partition, offset_next: int) -> None:
    """Save a snapshot of producers up to `offset_next`, unless one was saved when the segment was sealed."""
    if PartitionProducers.saved_behind(partition.folder, offset_next):
        return
    known = PartitionProducers(partition.folder)
    known.catch_up(Tail(0, offset_next, SEGMENT_HEADER_BYTES, offset_next, 0))
    if known.any():
        known.save(offset_next)
