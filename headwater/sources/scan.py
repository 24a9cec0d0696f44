"""A task's share of a read: a range of one partition as the Arrow batches that Spark expects.

Large frames go from the file's memory to Spark's socket as they are; small ones are joined first, for each batch costs
Spark a fixed effort.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from headwater.errors import SourceChanged, TopicNotFound
from headwater.log import EmbeddedLog
from headwater.log.embedded import Piece, read_range
from headwater.sources.columns import PUNCTUATION, TIME, TOPIC, carried

#: Batches are joined until they have so many rows; larger ones are never cut.
JOINED_ROWS_MIN = 16_384
_CONSTANT_ROWS = 65_536


@dataclass(frozen=True, kw_only=True)
class Part(InputPartition):
    """What one task reads. The first part of a batch also carries its processing time."""

    topic: str
    id: str
    partition: int
    start: int
    stop: int
    number: int = 0
    at_us: int | None = None
    mark_start_us: int | None = None
    mark_stop_us: int | None = None


class Scan:
    """Reads parts under the schema that the query began with, whatever has become of the topic since."""

    def __init__(
        self,
        log: EmbeddedLog,
        schema: pa.Schema,
        *,
        since_us: int | None = None,
        until_us: int | None = None,
        skip_expired: bool = False,
    ) -> None:
        self._log = log
        self._schema = schema
        self._since_us = since_us
        self._until_us = until_us
        self._skip_expired = skip_expired
        #: Offsets that retention had taken before they were read: (first, first one left).
        self.skipped: tuple[int, int] | None = None

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The rows of a part, in order."""
        if part.start >= part.stop and PUNCTUATION not in self._schema.names:
            return
        yield from _joined(self._rows(part))

    def _rows(self, part: Part) -> Iterator[pa.RecordBatch]:
        time = self._time_column(part)
        names = self._names(part)
        for piece in self._pieces(part, [*names, *([time] if time and time not in names else [])]):
            batch = piece.batch
            if batch.punctuation_us is not None:
                if PUNCTUATION in self._schema.names and _is_due(piece, part):
                    yield self._punctuation(part, batch.punctuation_us)
                continue
            data = batch.data
            if time is not None and (self._since_us is not None or self._until_us is not None):
                data = _between(data, time, self._since_us, self._until_us)
            if data.num_rows:
                yield self._carried(data, part)

    def _pieces(self, part: Part, names: list[str]) -> Iterator[Piece]:
        start = part.start
        if self._skip_expired:
            oldest = self._log.start_offsets(part.topic)[part.partition]
            if oldest > start:
                self.skipped = (start, min(oldest, part.stop))
                start = min(oldest, part.stop)
        if start >= part.stop and PUNCTUATION not in self._schema.names:
            return
        yield from read_range(
            self._log,
            part.topic,
            part.partition,
            start=start,
            stop=part.stop,
            columns=names,
            since_us=self._since_us,
            until_us=self._until_us,
        )

    def _names(self, part: Part) -> list[str]:
        """The columns to ask the log for: those of the query that the topic has."""
        try:
            topic = self._log.topic(part.topic)
        except TopicNotFound:
            raise SourceChanged(topic=part.topic, why="it has been deleted") from None
        if topic.id != part.id:
            raise SourceChanged(topic=part.topic, why="it has been deleted and made again")
        names = [name for name in self._schema.names if name not in (TOPIC, PUNCTUATION)]
        known = set(topic.schema.names)
        return [name for name in names if name in known or (name.startswith("_") and name != "_tombstone")] + [
            name for name in names if name == "_tombstone" and topic.compact
        ]

    def _time_column(self, part: Part) -> str | None:
        return self._log.topic(part.topic).time

    def _carried(self, data: pa.RecordBatch, part: Part) -> pa.RecordBatch:
        if data.schema.equals(self._schema):
            return data
        columns = []
        for field in self._schema:
            index = data.schema.get_field_index(field.name)
            if field.name == TOPIC:
                columns.append(_constant(part.topic, data.num_rows))
            elif index < 0:
                columns.append(pa.nulls(data.num_rows, field.type))
            else:
                columns.append(carried(data.column(index), field.type, topic=part.topic, column=field.name))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _punctuation(self, part: Part, time_us: int) -> pa.RecordBatch:
        """A row that has nothing but its times: the promise, and the event time, which Spark's watermark looks at."""
        given = {PUNCTUATION: time_us, self._time_column(part): time_us}
        columns = []
        for field in self._schema:
            if field.name in given and pa.types.is_timestamp(field.type):
                columns.append(pa.array([given[field.name]], TIME).cast(field.type))
            elif field.name == TOPIC:
                columns.append(_constant(part.topic, 1))
            elif field.name == "_partition":
                columns.append(pa.array([part.partition], field.type))
            else:
                columns.append(pa.nulls(1, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _is_due(piece: Piece, part: Part) -> bool:
    """Whether a punctuation belongs to this part: those at its edges are told apart by when they were appended."""
    if piece.batch.offset >= part.stop and part.mark_stop_us is not None and piece.appended_at_us > part.mark_stop_us:
        return False
    return not (
        piece.batch.offset <= part.start
        and part.mark_start_us is not None
        and piece.appended_at_us <= part.mark_start_us
    )


def _between(data: pa.RecordBatch, time: str, since_us: int | None, until_us: int | None) -> pa.RecordBatch:
    column = data.column(time).cast(TIME, safe=False)
    mask = column.is_valid()
    if since_us is not None:
        mask = pc.and_(mask, pc.greater_equal(column, pa.scalar(since_us, TIME)))
    if until_us is not None:
        mask = pc.and_(mask, pc.less(column, pa.scalar(until_us, TIME)))
    return data.filter(mask)


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if not waiting and batch.num_rows >= JOINED_ROWS_MIN:
            yield batch
            continue
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= JOINED_ROWS_MIN:
            yield pa.concat_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_batches(waiting) if len(waiting) > 1 else waiting[0]


@lru_cache(maxsize=64)
def _constants(text: str) -> pa.Array:
    return pa.repeat(pa.scalar(text), _CONSTANT_ROWS)


def _constant(text: str, count: int) -> pa.Array:
    return _constants(text).slice(0, count) if count <= _CONSTANT_ROWS else pa.repeat(pa.scalar(text), count)
