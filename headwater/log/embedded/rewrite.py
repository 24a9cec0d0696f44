"""Rewrites of sealed segments: coalescing joins small frames, compaction keeps the last row of each key.

The new file is written beside the old ones, synced, and published by one rename under a name with the offsets that it
covers. From then on the old files are superseded, even if they still exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headwater.log.embedded.faults import reach
from headwater.log.embedded.files import open_file, sync_folder
from headwater.log.embedded.frame import (
    HEADER_BYTES,
    KIND_PUNCTUATION,
    Draft,
    Header,
    draft_punctuation,
    draft_rows,
    payload_is_whole,
)
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.partition_reader import SYSTEM_FIELDS, Decoder, Projection, all_columns
from headwater.log.embedded.producers import PartitionProducers, is_batch
from headwater.log.embedded.segment import (
    FLAG_PRODUCERS,
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentMap,
    count_frames,
    frames_to,
    segment_header,
    segment_path,
)
from headwater.log.embedded.state import Tail
from headwater.log.embedded.topic import TopicHandle
from headwater.log.errors import FrameCorrupt

FRAME_ROWS_MAX = 65_536
FRAME_BYTES_MAX = 4 * 1024 * 1024
#: Segments whose frames are smaller than this on average are coalesced.
SMALL_FRAME_BYTES = 16 * 1024


@dataclass
class Piece:
    """Rows of one frame with all system columns, so that rows of several frames can be concatenated."""

    schema_version: int
    rows: pa.RecordBatch
    offset_next: int
    punctuation: Header | None = None


@dataclass
class Output:
    """A rewritten segment that is being written."""

    handle: TopicHandle
    partition: Partition
    base: int
    drafts: list[tuple[Draft, int, int, int]] = field(default_factory=list)
    pending: list[Piece] = field(default_factory=list)
    bytes: int = 0
    flags: int = 0

    def add(self, piece: Piece) -> None:
        if piece.punctuation is not None:
            self.flush()
            header = piece.punctuation
            draft = draft_punctuation(
                header.time_min_us, schema_version=header.schema_version, sent_at_us=header.sent_at_us
            )
            self.drafts.append((draft, header.offset_base, header.appended_at_us, header.producer))
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
        rows = pa.concat_batches([piece.rows for piece in pieces]) if len(pieces) > 1 else pieces[0].rows
        draft, appended_at_us = self._draft(rows, pieces[0].schema_version)
        self.bytes += draft.size
        self.drafts.append((draft, rows.column("_offset")[0].as_py(), appended_at_us, 0))

    def _draft(self, rows: pa.RecordBatch, schema_version: int) -> tuple[Draft, int]:
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
            schema_version=schema_version,
            codec=self.handle.topic.codec,
            time=self.handle.topic.time_column if self.handle.topic.time_column in user.schema.names else None,
            sent_at_us=int(sent[0]),
            headers=headers if headers.null_count < len(headers) else None,
            tombstones=tombstones if tombstones.true_count else None,
            offsets=None if span == len(offsets) else rows.column("_offset"),
            appended_at=None if uniform else rows.column("_appended_at"),
            sent_at=None if uniform else rows.column("_sent_at"),
            span=span,
        )
        # The time of the newest row: retention by age must not delete it too early.
        return draft, int(appended[-1])

    def publish(self, offset_next: int, replaced: Sequence[Segment]) -> None:
        """Write, sync and rename the segment; then unlink the superseded ones."""
        self.flush()
        folder = self.partition.folder
        path = segment_path(folder, self.base, offset_next)
        temporary = path.with_name(f".{path.name}.tmp")
        topic = int(self.handle.topic.id[:15], 16)
        with open(temporary, "wb", opener=open_file) as file:
            file.write(
                segment_header(
                    partition=self.partition.number,
                    base=self.base,
                    created_us=self.partition.clock.now_us(),
                    topic=topic,
                    size=SEGMENT_HEADER_BYTES + sum(draft.size for draft, *_ in self.drafts),
                    flags=self.flags,
                )
            )
            for draft, offset, appended_at_us, producer in self.drafts:
                file.write(draft.header(offset=offset, appended_at_us=appended_at_us, producer=producer))
                file.write(draft.payload)
                file.write(bytes(-draft.payload_size % 8))
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


def pieces_of(handle: TopicHandle, partition: Partition, segment: Segment, offset_next: int) -> Iterator[Piece]:
    """The rows of a sealed segment up to `offset_next`, frame by frame with verified checksums, and punctuations."""
    mapped = SegmentMap(segment.path)
    for position, header in frames_to(mapped, segment, offset_next):
        payload = mapped.buffer.slice(position + HEADER_BYTES, header.payload_size)
        if header.payload_size and not payload_is_whole(header, payload):
            raise FrameCorrupt(
                path=str(segment.path),
                position=position,
                offset=header.offset_base,
                why="its payload does not match its checksum",
            )
        if header.kind == KIND_PUNCTUATION:
            yield Piece(header.schema_version, pa.RecordBatch.from_pylist([]), header.offset_base, header)
            continue
        yield Piece(header.schema_version, _full(handle, partition, header, payload), header.offset_next)
        mapped.forget_before(position + header.size)


def _full(handle: TopicHandle, partition: Partition, header: Header, payload: pa.Buffer) -> pa.RecordBatch:
    schema = handle.schema_of(header.schema_version)
    projection = Projection.under(schema, all_columns(schema, tombstones=True), topic=handle.topic.name)
    decoder = Decoder(handle.current, handle.schema_of, partition.number, projection)
    batch = decoder.batch(header, payload, start=header.offset_base, stop=None)
    return (
        batch.data
        if batch is not None
        else pa.RecordBatch.from_arrays([pa.array([], f.type) for f in projection.output], schema=projection.output)
    )


def coalesce(handle: TopicHandle, partition: Partition, segment: Segment, offset_next: int) -> bool:
    """Join the small frames of one sealed segment; return False if they are large enough."""
    mapped = SegmentMap(segment.path)
    if count_frames(mapped.view) * SMALL_FRAME_BYTES <= mapped.length:
        return False
    headers = [header for _, header in frames_to(mapped, segment, offset_next)]
    rows = [header for header in headers if header.kind != KIND_PUNCTUATION]
    if len(rows) < 2 or sum(header.size for header in rows) / len(rows) >= SMALL_FRAME_BYTES:
        return False
    output = Output(handle, partition, segment.base)
    output.flags = keep_producers(partition, mapped.flags, headers, offset_next)
    for piece in pieces_of(handle, partition, segment, offset_next):
        output.add(piece)
    output.publish(offset_next, [segment])
    return True


def keep_producers(partition: Partition, flags: int, headers: Iterable[Header], offset_next: int) -> int:
    """Save a snapshot of producers before their frames are joined with others; return the flags of the new segment."""
    if not flags & FLAG_PRODUCERS and not any(is_batch(header) for header in headers):
        return 0
    save_producers(partition, offset_next)
    return FLAG_PRODUCERS


def save_producers(partition: Partition, offset_next: int) -> None:
    """Save a snapshot of producers up to `offset_next`, unless one was saved when the segment was sealed."""
    if PartitionProducers.saved_behind(partition.folder, offset_next):
        return
    known = PartitionProducers(partition.folder, is_committed=partition.is_committed)
    known.catch_up(Tail(0, offset_next, 64, offset_next, 0))
    if known.any():
        known.save(offset_next)
