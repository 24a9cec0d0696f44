"""Read a range of one partition as the Arrow batches that Spark expects, and write dead letters for rows that cannot be read.

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

from headwater.clock import Clock, SystemClock
from headwater.engine.watermark_origin import SourceRecord
from headwater.errors import EncodingInvalid, NotFound
from headwater.log import Log
from headwater.log.dead_letters import DeadLetter, Headers, append_dead_letters, attempt_of
from headwater.log.port import SYSTEM_COLUMNS
from headwater.log.topic import Topic
from headwater.spark.errors import SourceChanged
from headwater.spark.source.columns import KEY, PUNCTUATION, TIME, TOMBSTONE, TOPIC, carried
from headwater.spark.source.decoder import Decoder, decode, decoder_of
from headwater.spark.source.options import Options

#: Batches are joined until they have so many rows; larger ones are never cut.
JOINED_ROWS_MIN = 16_384
_CONSTANT_ROWS = 65_536
#: The most dead letters in memory; a task that is repeated appends the same ones in the same groups.
DEAD_LETTERS_MAX = 10_000
#: Room for the appends of one batch between the sequences of two.
APPENDS_MAX = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Part(InputPartition):
    """What one task reads. The first part of a batch also carries what all of its tasks must know."""

    topic: str
    id: str
    partition: int
    start: int
    stop: int
    number: int = 0
    #: On the first part: the processing time of the batch, and what is known of event time up to its end.
    record: SourceRecord | None = None
    #: How many punctuations at `start` were told before, and how many at `stop` belong to this part; None for all.
    told_start: int = 0
    told_stop: int | None = None
    #: On the first part: which questions belong to the batch, from these offsets of their topic to those.
    asked: tuple[dict[int, int], dict[int, int]] | None = None


class Scan:
    """Reads parts under the schema with which the query began, also if the topic's schema has changed since."""

    def __init__(self, log: Log, options: Options, schema: pa.Schema, *, dead_letters: DeadLetterWriter) -> None:
        self._log = log
        self._options = options
        self._schema = schema
        self._dead_letters = dead_letters
        self._decoder = decoder_of(options)
        self._punctuations = PUNCTUATION in schema.names

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, in order. Rows that cannot be read are dead letters when it ends."""
        if part.start < part.stop or self._punctuations:
            yield from _joined(self._rows(part))
            self._dead_letters.close()

    def _rows(self, part: Part) -> Iterator[pa.RecordBatch]:
        topic = self._topic(part)
        ranged = self._options.since_us is not None or self._options.until_us is not None
        columns = self._columns(topic)
        if ranged and topic.time_column is not None and topic.time_column not in columns:
            columns.append(topic.time_column)
        for batch in self._log.read_range(
            part.topic,
            part.partition,
            start=part.start,
            stop=part.stop,
            columns=columns,
            since_us=self._options.since_us,
            until_us=self._options.until_us,
            punctuations=(part.told_start, part.told_stop) if self._punctuations else None,
        ):
            if batch.punctuation_us is not None:
                yield self._punctuation(batch.punctuation_us, topic, part)
                continue
            data = batch.data
            if ranged and topic.time_column is not None:
                data = _between(data, topic.time_column, self._options.since_us, self._options.until_us)
            if self._decoder is not None:
                data = self._decoded(data, self._decoder)
            if data.num_rows:
                yield self._carried(data, topic)

    def _topic(self, part: Part) -> Topic:
        try:
            topic = self._log.topic(part.topic)
        except NotFound:
            raise SourceChanged(topic=part.topic, why="it has been deleted") from None
        if topic.id != part.id:
            raise SourceChanged(topic=part.topic, why="it has been deleted and made again")
        return topic

    def _columns(self, topic: Topic) -> list[str]:
        """The columns to ask the log for: those of the query that the topic has."""
        known = {*SYSTEM_COLUMNS, *([TOMBSTONE] if topic.key else [])}
        if self._decoder is not None:
            always = ("_offset", "_headers")
            return ["key", "value", *(name for name in self._schema.names if name in known - {*always}), *always]
        known |= set(topic.schema.names)
        return [name for name in self._schema.names if name in known]

    def _decoded(self, data: pa.RecordBatch, decoder: Decoder) -> pa.RecordBatch:
        """The same rows with their values as columns, less those that cannot be read."""
        found = decode(data.column("value"), decoder)
        for fault in found.faults:
            self._dead_letters.add(
                offset=data.column("_offset")[fault.row].as_py(),
                key=data.column("key")[fault.row].as_py(),
                value=data.column("value")[fault.row].as_py(),
                error=fault.error,
                message=fault.message,
                headers=data.column("_headers")[fault.row].as_py(),
            )
        beside = data if found.rows is None else data.take(pa.array(found.rows, pa.int64()))
        columns = dict(zip(beside.schema.names, beside.columns, strict=True))
        columns[KEY] = columns.pop("key")
        del columns["value"]
        columns |= dict(zip(found.data.schema.names, found.data.columns, strict=True))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _carried(self, data: pa.RecordBatch, topic: Topic) -> pa.RecordBatch:
        if data.schema.equals(self._schema):
            return data
        columns = []
        for field in self._schema:
            index = data.schema.get_field_index(field.name)
            if field.name == TOPIC:
                columns.append(_constant(topic.name, data.num_rows))
            elif index < 0:
                columns.append(pa.nulls(data.num_rows, field.type))
            else:
                columns.append(carried(data.column(index), field.type, topic=topic.name, column=field.name))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _punctuation(self, time_us: int, topic: Topic, part: Part) -> pa.RecordBatch:
        """A row that has nothing but its times: the promise, and the event time, which Spark's watermark looks at."""
        columns = []
        for field in self._schema:
            if field.name in (PUNCTUATION, topic.time_column) and pa.types.is_timestamp(field.type):
                columns.append(pa.array([time_us], TIME).cast(field.type))
            elif field.name == TOPIC:
                columns.append(_constant(topic.name, 1))
            elif field.name == "_partition":
                columns.append(pa.array([part.partition], field.type))
            else:
                columns.append(pa.nulls(1, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


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


class DeadLetterWriter:
    """Writes the dead letters of one task. Appends are numbered, so that those of a repeated task change nothing."""

    def __init__(
        self,
        log: Log,
        topic: str,
        partition: int,
        *,
        producer: str,
        batch: int = 0,
        query: str | None = None,
        fail: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._log = log
        self._topic = topic
        self._partition = partition
        self._producer = producer
        self._sequence = batch * APPENDS_MAX
        self._query = query
        self._fail = fail
        self._clock = clock or SystemClock()
        self._waiting: list[DeadLetter] = []

    def add(
        self,
        *,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        error: str,
        message: str,
        headers: Headers | None = None,
    ) -> None:
        """Add a row, or fail if bad rows are errors. The headers of a redriven row say which attempt this was."""
        if self._fail:
            place = f"{self._topic}/{self._partition} offset {offset}"
            raise EncodingInvalid(encoding="row", position=place, why=message)
        letter = DeadLetter(
            topic=self._topic,
            partition=self._partition,
            offset=offset,
            key=key,
            value=value,
            query=self._query,
            error=error,
            message=message,
            attempt=attempt_of(headers),
            headers=headers,
            at_us=self._clock.now_us(),
        )
        self._waiting.append(letter)
        if len(self._waiting) >= DEAD_LETTERS_MAX:
            self.close()

    def close(self) -> None:
        """Append the dead letters that wait. A task that ends without it is repeated."""
        if self._waiting:
            append_dead_letters(self._log, self._topic, self._waiting, producer=self._producer, sequence=self._sequence)
            self._sequence += 1
            self._waiting = []
