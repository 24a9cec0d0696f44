"""The event rows of a partition up to the end that is written: also those that wait for the disk.

A writer decides on rows of other processes before the disk has them, so that processes share a sync. Its own rows are
behind those, and are confirmed with them.
"""

from __future__ import annotations

from headwater.log.decoder import Decoder, Projection
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.partition_reader import PartitionReader
from headwater.log.frame import FLAG_MORE, FLAG_TRANSACTION, KIND_ROWS, Header
from headwater.sourcing.event_payload import from_payload
from headwater.sourcing.event_rows import EventRow, from_batch

#: With more rows in between, the reader looks for the next one.
SKIPPED_MAX = 1_000


class WrittenEvents:
    """Follows the written end of one partition."""

    def __init__(self, log: EmbeddedLog, topic: str, number: int) -> None:
        self._log, self._topic, self._number = log, topic, number
        self._partition: Partition | None = None
        self._next = -SKIPPED_MAX - 1

    def end(self) -> int:
        """The offset behind the rows that are written."""
        partition = self._log.handle(self._topic).partition(self._number)
        if partition is not self._partition:
            self._open(partition)
        return partition.written().offset

    def _open(self, partition: Partition) -> None:
        handle = self._log.handle(self._topic)
        current = handle.current()
        self._partition, self._next = partition, -SKIPPED_MAX - 1
        self._schema_version = current.schema_version
        self._decoder = Decoder(handle.current, handle.schema_of, self._number, Projection.of(current, None))

    def rows(self, start: int) -> list[EventRow] | None:
        """The rows from an offset to the written end; None if a process died in a transaction. Call `end` first."""
        partition = self._partition
        assert partition is not None
        if not 0 <= start - self._next <= SKIPPED_MAX:
            self._reader = PartitionReader(partition, start, unsynced=True)
        rows: list[EventRow] = []
        for header, payload in self._reader.frames():
            if header.offset_next <= start:
                continue  # rows of this process
            if header.flags & FLAG_TRANSACTION and not partition.is_committed(header.transaction):
                self._next = -SKIPPED_MAX - 1
                return None
            if header.offset_base >= start and self._is_plain(header):
                few = from_payload(payload.to_pybytes(), header.offset_base)
                if few is not None:
                    rows += few
                    continue
            batch = self._decoder.batch(header, payload, start=max(start, self._reader.since), stop=None)
            if batch is not None:
                rows += from_batch(batch.data)
        self._next = self._reader.offset
        return rows

    def _is_plain(self, header: Header) -> bool:
        return (
            header.kind == KIND_ROWS
            and not header.codec
            and not header.flags & ~FLAG_MORE
            and header.schema_version == self._schema_version
        )
