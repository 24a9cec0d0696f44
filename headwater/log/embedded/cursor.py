"""A cursor: a position in one partition from which a consumer continues to read without seeking again."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headwater.log.embedded.partition import Partition
from headwater.log.embedded.partition_reader import Decoder, PartitionReader, Projection, check_range
from headwater.log.embedded.topic import TopicHandle
from headwater.log.port import Batch, Cursor

#: Frames with fewer rows are concatenated; larger ones are returned without a copy.
JOINED_ROWS_MAX = 8_192


class EmbeddedCursor(Cursor):
    """Reads one partition from an offset on. It holds no lock, and its batches share the memory of the file."""

    def __init__(
        self, handle: TopicHandle, partition: Partition, offset: int, *, columns: tuple[str, ...] | None = None
    ) -> None:
        # An expired offset raises at the first read, not here: a consumer may skip the gap.
        check_range(partition, offset, 0, partition.visible().offset)
        self._handle = handle
        self._partition = partition
        self._columns = columns
        self._reader = PartitionReader(partition, offset)
        self._rest: Batch | None = None
        self._offset = offset
        self._version = -1
        self._decoder: Decoder

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def deleted(self) -> bool:
        return self._handle.deleted

    def read(self, *, rows_max: int) -> list[Batch]:
        self._follow_schema()
        pieces: list[Batch] = []
        left = rows_max
        while left > 0 and (piece := self._piece()) is not None:
            if piece.data.num_rows > left:
                piece, self._rest = _cut(piece, left)
            left -= piece.data.num_rows
            self._offset = piece.offset_next
            pieces.append(piece)
        return joined(pieces)

    def _piece(self) -> Batch | None:
        if self._rest is not None:
            piece, self._rest = self._rest, None
            return piece
        for header, payload in self._reader.frames():
            batch = self._decoder.batch(header, payload, start=self._reader.since, stop=None)
            if batch is not None:
                return batch
        # Offsets at the end whose rows compaction removed count as read.
        self._offset = max(self._offset, self._reader.offset)
        return None

    def _follow_schema(self) -> None:
        topic = self._handle.current()
        if topic.schema_version != self._version:
            projection = Projection.of(topic, self._columns)
            number = self._partition.number
            self._decoder = Decoder(self._handle.current, self._handle.schema_of, number, projection)
            self._version = topic.schema_version


def joined(pieces: list[Batch]) -> list[Batch]:
    """Concatenate consecutive small batches; punctuations stay between the rows."""
    result: list[Batch] = []
    run: list[Batch] = []
    for piece in pieces:
        if run and not _may_follow(run[-1], piece):
            result.append(_join(run))
            run = []
        run.append(piece)
    if run:
        result.append(_join(run))
    return result


def _may_follow(before: Batch, after: Batch) -> bool:
    return (
        before.punctuation_us is None
        and after.punctuation_us is None
        and before.producer == after.producer
        and before.data.num_rows < JOINED_ROWS_MAX
        and after.data.num_rows < JOINED_ROWS_MAX
        and before.data.schema.equals(after.data.schema)
    )


def _join(run: list[Batch]) -> Batch:
    if len(run) == 1:
        return run[0]
    return replace(run[0], offset_next=run[-1].offset_next, data=pa.concat_batches([piece.data for piece in run]))


def _cut(batch: Batch, rows: int) -> tuple[Batch, Batch]:
    head, tail = batch.data.slice(0, rows), batch.data.slice(rows)
    if batch.offset_next - batch.offset == batch.data.num_rows or "_offset" not in batch.data.schema.names:
        middle = batch.offset + rows
    else:
        middle = tail.column("_offset")[0].as_py()
    return replace(batch, offset_next=middle, data=head), replace(batch, offset=middle, data=tail)
