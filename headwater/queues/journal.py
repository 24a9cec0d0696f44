"""The journal of a queue: a topic with one row for each end of a delivery, by group. It is the truth that indexes follow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import NotFound
from headwater.log import Log, Transaction
from headwater.log.errors import TopicExists
from headwater.schema import parse_schema

SUFFIX = ".journal"
SCHEMA: pa.Schema = parse_schema(
    "group string not null, event string not null, partition int32 not null, offset int64 not null, "
    "attempts int32 not null, ready_at_us int64 not null, length int32"
)
#: Events after which a group is done with a message.
DONE = frozenset({"ack", "dead", "expire", "drop"})
#: What a snapshot of a group consists of: an index that is built again begins with the last one.
SNAPSHOT = frozenset({"cursor", "done", "kept"})


class Event(NamedTuple):
    """One row of the journal: `ack`, `dead`, `expire`, `drop`, `return`, `reset`, `pause`, `resume`, or part of a snapshot."""

    event: str
    partition: int = 0
    offset: int = 0
    attempts: int = 0
    ready_at_us: int = 0
    #: How many messages it is, which follow each other; rows that earlier code has written have none, and are one message.
    length: int = 1


class Journal:
    """Appends and reads the events of one group."""

    def __init__(self, log: Log, queue: str, group: str) -> None:
        self._log = log
        self._group = group
        self.topic = queue + SUFFIX

    def make(self) -> None:
        try:
            if "length" not in self._log.topic(self.topic).schema.names:  # earlier code has created it
                self._log.alter(self.topic, schema=SCHEMA)
        except NotFound:
            with contextlib.suppress(TopicExists):
                # Snapshots decide what may be deleted, never its age.
                self._log.create(self.topic, SCHEMA, partitions=1, retention="forever", segment_bytes_max="16 MiB")

    def end(self) -> int:
        return self._log.end_offsets(self.topic)[0]

    def start(self) -> int:
        return self._log.start_offsets(self.topic)[0]

    def append(self, events: Sequence[Event], *, durable: bool = False) -> int:
        """Append events, without waiting for the disk unless `durable` (`flush` does); return the offset behind them."""
        return self._log.append(self.topic, self.rows(events), partition=0, durable=durable).offsets_next[0]

    def append_to(self, transaction: Transaction, events: Sequence[Event]) -> None:
        transaction.append(self.topic, self.rows(events), partition=0)

    def flush(self) -> None:
        self._log.flush(self.topic)

    def rows(self, events: Sequence[Event]) -> pa.RecordBatch:
        columns: list[Sequence[object]] = [[self._group] * len(events), *zip(*events, strict=True)]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def since(self, offset: int) -> Iterator[tuple[list[Event], int]]:
        """The group's events from an offset on, in batches, each with the offset behind it."""
        stop = self.end()
        if stop <= offset:
            return
        if not offset:  # all of it: rows before every group's snapshot are deleted
            offset = self.start()
        for batch in self._log.read_range(self.topic, 0, start=offset, stop=stop):
            data = batch.data
            if data.num_rows:
                data = data.filter(pc.equal(data.column("group"), self._group))
                columns = [data.column(name).to_pylist() for name in Event._fields]
                columns[-1] = [length or 1 for length in columns[-1]]
                yield [Event(*row) for row in zip(*columns, strict=True)], batch.offset_next
