"""Reads of topics on Kafka: bounded reads, ranges of one partition, cursors, and looking for more."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.clock import time_us
from headwater.errors import ArgumentInvalid, NotFound
from headwater.log.client_config import Start
from headwater.log.decoder import Projection
from headwater.log.errors import OffsetAhead, OffsetExpired, partition_not_found
from headwater.log.frame import HEADERS_TYPE, TIME_TYPE
from headwater.log.kafka.catalogue import Catalogue, KafkaTopic
from headwater.log.kafka.cluster import Cluster, at_time
from headwater.log.kafka.errors import ValueUnreadable
from headwater.log.kafka.keys import decode_keys
from headwater.log.kafka.row_counts import RowCounts
from headwater.log.kafka.row_offsets import ROWS_MAX, Numbering
from headwater.log.kafka.values.port import HEADER_PREFIX, Decoded, Headers, Incoming, Messages
from headwater.log.kafka.writer import PUNCTUATION_HEADER, SENT_HEADER, time_of
from headwater.log.port import Batch, Cursor, Offsets, Reader, RowWatch

#: Ends that were asked for so recently are used again by cursors, which look at each poll.
RECENT_SECONDS = 0.003
MESSAGES_MAX = 10_000
JOINED_BYTES_MIN = 256 * 1024


class TopicReader:
    """Reads the topics of one log."""

    def __init__(self, cluster: Cluster, catalogue: Catalogue) -> None:
        self.cluster = cluster
        self.catalogue = catalogue
        self._ends: dict[str, tuple[float, Offsets]] = {}
        self._counts: dict[tuple[str, int], RowCounts] = {}

    # -- offsets ------------------------------------------------------------------------------------------------------

    def starts(self, known: KafkaTopic) -> Offsets:
        numbers = numbering(known)
        return {number: numbers.first(offset) for number, offset in self.catalogue.oldest(known).items()}

    def ends(self, known: KafkaTopic) -> Offsets:
        numbers = numbering(known)
        return {number: numbers.first(offset) for number, offset in self.catalogue.ends(known).items()}

    def recent_ends(self, known: KafkaTopic) -> Offsets:
        """The ends, as they were a moment ago at most."""
        found = self._ends.get(known.kafka)
        if found is None or time.monotonic() - found[0] > RECENT_SECONDS:
            found = self._ends[known.kafka] = (time.monotonic(), self.ends(known))
        return found[1]

    def rows_between(self, known: KafkaTopic, number: int, start: int, stop: int) -> int:
        """How many rows have these offsets. In a topic of frames they are counted."""
        if known.values.per_row:
            return max(0, stop - start)
        if start >= stop:
            return 0
        key = (known.kafka_id, number)
        counts = self._counts.get(key) or self._counts.setdefault(key, RowCounts(self.cluster, known.kafka, number))
        return counts.between(start, stop)

    def offset_step(self, known: KafkaTopic) -> float:
        """About how many offsets a row takes: in a topic of frames, as many as the last frame with rows tells."""
        if known.values.per_row:
            return 1.0
        for number, end in self.ends(known).items():
            # Behind the last frame may be the marker of its transaction.
            for back in (1, 2, 3):
                start = end - back * ROWS_MAX
                if start >= 0 and (rows := self.rows_between(known, number, start, end)):
                    return back * ROWS_MAX / rows
        return float(ROWS_MAX)

    def offset_at(self, known: KafkaTopic, at: datetime | int) -> Offsets:
        ends = self.catalogue.ends(known)
        # Kafka keeps milliseconds.
        found = self.cluster.offsets(known.kafka, ends, at_time(-(-time_us(at) // 1000)))
        numbers = numbering(known)
        return {
            number: numbers.first(ends[number] if offset < 0 else min(offset, ends[number]))
            for number, (offset, _) in found.items()
        }

    def read(
        self,
        known: KafkaTopic,
        *,
        start: Start,
        stop: Start | None,
        partitions: Sequence[int] | None,
        columns: Sequence[str] | None,
        limit: int | None,
    ) -> KafkaRead:
        topic = known.topic
        projection = Projection.of(topic, columns)
        numbers = list(range(topic.partitions)) if partitions is None else list(partitions)
        for number in numbers:
            check_partition(known, number)
        oldest, ends = self.starts(known), self.ends(known)
        starts = self._resolve(known, start, numbers, oldest, ends)
        stops = ends if stop is None else self._resolve(known, stop, numbers, oldest, ends)
        ranges = {}
        for number in numbers:
            check_range(topic.name, number, starts[number], oldest[number], ends[number])
            ranges[number] = (starts[number], min(stops[number], ends[number]))
        return KafkaRead(self, known, ranges, projection, limit=limit)

    def _resolve(
        self, known: KafkaTopic, position: Start, numbers: Sequence[int], oldest: Offsets, ends: Offsets
    ) -> Offsets:
        if isinstance(position, str) and position == "latest":
            return ends
        if isinstance(position, str) and position == "earliest":
            return oldest
        if isinstance(position, Mapping):
            return {number: position.get(number, oldest[number]) for number in numbers}
        if isinstance(position, datetime):
            return self.offset_at(known, position)
        if isinstance(position, (int, np.integer)) and not isinstance(position, bool):
            if position >= 0:
                return dict.fromkeys(numbers, int(position))
            return {
                number: self._back(known, number, oldest[number], ends[number], -int(position)) for number in numbers
            }
        raise ArgumentInvalid(
            name="start",
            value=position,
            expected="'earliest', 'latest', an offset, minus so many rows, a time or {partition: offset}",
        )

    def _back(self, known: KafkaTopic, number: int, oldest: int, end: int, rows: int) -> int:
        """The offset of the row that so many rows follow up to the end: offsets have gaps, so rows are counted."""
        numbers = numbering(known)
        step = rows * numbers.span if numbers.span == 1 else numbers.span
        start = end
        while start > oldest:
            start = max(oldest, end - step)
            batches = list(self.batches(known, number, start, end, Projection.of(known.topic, ["_offset"])))
            found = [
                offset
                for batch in batches
                if batch.punctuation_us is None
                for offset in batch.data.column(0).to_pylist()
            ]
            if len(found) >= rows:
                return int(found[-rows])
            step *= 4
        return oldest

    # -- rows ---------------------------------------------------------------------------------------------------------

    def batches(
        self,
        known: KafkaTopic,
        number: int,
        start: int,
        stop: int,
        projection: Projection,
        *,
        count_max: int = MESSAGES_MAX,
    ) -> Iterator[Batch]:
        """The rows with offsets from `start` up to `stop`, and the punctuations between them, in order."""
        numbers = numbering(known)
        messages = self.cluster.messages(
            known.kafka, number, numbers.message(start), numbers.stop(stop), count_max=count_max
        )
        for some in messages:
            for is_time, run in _runs(some):
                if is_time:
                    yield from (self._punctuation(known, number, message, projection) for message in run)
                    continue
                for piece in [run] if known.values.per_row else _joined(run):
                    batch = self._rows(known, number, piece, projection, start, stop)
                    if batch is not None:
                        yield batch

    @staticmethod
    def _punctuation(known: KafkaTopic, number: int, message: Incoming, projection: Projection) -> Batch:
        numbers = numbering(known)
        return Batch(
            topic=known.topic.name,
            partition=number,
            offset=numbers.first(message.offset),
            # A punctuation is a message, so that it has an offset.
            offset_next=numbers.first(message.offset + 1),
            data=pa.RecordBatch.from_arrays(
                [pa.array([], field.type) for field in projection.output], schema=projection.output
            ),
            punctuation_us=punctuation_us(message),
        )

    def _rows(
        self, known: KafkaTopic, number: int, messages: Messages, projection: Projection, start: int, stop: int
    ) -> Batch | None:
        try:
            decoded = known.values.decode(messages)
        except ValueUnreadable as error:
            raise ValueUnreadable(**(error.facts() | {"partition": number})) from error
        places = _RowPlaces.of(messages, decoded, numbering(known))
        data = self._columns(known, number, messages, decoded, places, projection)
        offsets = places.offsets
        first, last = int(np.searchsorted(offsets, start)), int(np.searchsorted(offsets, stop))
        if first >= last:
            return None
        span = numbering(known)
        offset_next = min(stop, span.first(messages.offsets[-1] + 1)) if last == len(offsets) else int(offsets[last])
        return Batch(
            topic=known.topic.name,
            partition=number,
            offset=int(offsets[first]),
            offset_next=offset_next,
            data=data.slice(first, last - first),
        )

    @staticmethod
    def _columns(
        known: KafkaTopic,
        number: int,
        messages: Messages,
        decoded: Decoded,
        places: _RowPlaces,
        projection: Projection,
    ) -> pa.RecordBatch:
        count = decoded.data.num_rows
        keys = _keys_of_tombstones(known, messages, decoded)
        columns = []
        for name in projection.names:
            if name == "_partition":
                columns.append(_numbers(np.full(count, number, np.int32), pa.int32()))
            elif name == "_offset":
                columns.append(_numbers(places.offsets, pa.int64()))
            elif name == "_appended_at":
                times = np.array(messages.appended_us, np.int64)
                columns.append(_numbers(places.spread(times), TIME_TYPE))
            elif name == "_sent_at":
                times = np.array(_sent_us(messages), np.int64)
                columns.append(_numbers(places.spread(times), TIME_TYPE))
            elif name == "_headers":
                columns.append(_headers(messages, decoded, count))
            elif name == "_tombstone":
                columns.append(_tombstones(messages, decoded))
            elif keys is not None and name in keys.schema.names:
                columns.append(keys.column(name))
            else:
                columns.append(decoded.data.column(name))
        return pa.RecordBatch.from_arrays(columns, schema=projection.output)


@dataclass(frozen=True)
class _RowPlaces:
    """Where rows are: their offsets, and how many each message has."""

    offsets: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64] | None

    @staticmethod
    def of(messages: Messages, decoded: Decoded, numbers: Numbering) -> _RowPlaces:
        first = np.array(messages.offsets, np.int64) * numbers.span
        if decoded.counts is None:
            return _RowPlaces(first, None)
        counts = np.asarray(decoded.counts, np.int64)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        return _RowPlaces(np.repeat(first, counts) + np.arange(int(counts.sum())) - before, counts)

    def spread(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """A value of each message as one of each row."""
        return values if self.counts is None else np.repeat(values, self.counts)


class KafkaRead(Reader):
    """A bounded, lazy read of partitions of a topic, one after the other."""

    def __init__(
        self,
        reader: TopicReader,
        known: KafkaTopic,
        ranges: dict[int, tuple[int, int]],
        projection: Projection,
        *,
        limit: int | None,
    ) -> None:
        self._reader = reader
        self._known = known
        self._ranges = ranges
        self._projection = projection
        self._limit = limit

    @property
    def schema(self) -> pa.Schema:
        return self._projection.output

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        return dict(self._ranges)

    def batches(self) -> Iterator[Batch]:
        left = self._limit
        for number, (start, stop) in self._ranges.items():
            count = MESSAGES_MAX if left is None else max(1, min(left, MESSAGES_MAX))
            for batch in self._reader.batches(self._known, number, start, stop, self._projection, count_max=count):
                if left is not None and batch.punctuation_us is None:
                    if batch.data.num_rows >= left:
                        # Where the next row lies is not known without offsets: a reader that goes on repeats, and loses none.
                        is_whole = batch.data.num_rows == left
                        yield (
                            batch
                            if is_whole
                            else replace(batch, data=batch.data.slice(0, left), offset_next=batch.offset)
                        )
                        return
                    left -= batch.data.num_rows
                yield batch


class KafkaCursor(Cursor):
    """A position in one partition; what it has read ahead waits in memory."""

    def __init__(
        self, reader: TopicReader, known: KafkaTopic, number: int, offset: int, columns: Sequence[str] | None
    ) -> None:
        check_partition(known, number)
        end = reader.ends(known)[number]
        if offset > end:
            raise OffsetAhead(partition=f"{known.topic.name}/{number}", asked=offset, end=end)
        self._reader = reader
        self._known = known
        self._number = number
        self._columns = columns
        self._offset = offset
        self._ahead: list[Batch] = []
        self._shows_offsets, self._shown = True, list[str]()
        self._deleted_at = 0.0
        self._deleted = False

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def deleted(self) -> bool:
        """Whether the topic was deleted, as it was known a second ago at most."""
        if not self._deleted and time.monotonic() - self._deleted_at > 1.0:
            self._deleted_at = time.monotonic()
            try:
                self._deleted = (
                    self._reader.catalogue.get(self._known.topic.name, fresh=False).kafka_id != self._known.kafka_id
                )
            except NotFound:
                self._deleted = True
        return self._deleted

    def read(self, *, rows_max: int) -> list[Batch]:
        if not self._ahead:
            self._fetch(rows_max)
        found: list[Batch] = []
        left = rows_max
        while self._ahead and left > 0:
            batch = self._ahead.pop(0)
            if batch.data.num_rows > left:
                batch, rest = cut(batch, left)
                self._ahead.insert(0, rest)
            left -= batch.data.num_rows
            self._offset = batch.offset_next
            found.append(batch if self._shows_offsets else replace(batch, data=batch.data.select(self._shown)))
        return found

    def _fetch(self, rows_max: int) -> None:
        known = self._known
        end = self._reader.recent_ends(known).get(self._number, 0)
        if end <= self._offset:
            return
        now = self._reader.catalogue.get(known.topic.name, fresh=False)
        if now.kafka_id != known.kafka_id:
            return
        self._known = known = now
        projection = Projection.of(known.topic, self._columns)
        self._shows_offsets, self._shown = "_offset" in projection.names, list(projection.names)
        if not self._shows_offsets:
            projection = Projection.of(known.topic, [*projection.names, "_offset"])
        rows = 0
        count = min(rows_max, MESSAGES_MAX)
        for batch in self._reader.batches(known, self._number, self._offset, end, projection, count_max=count):
            self._ahead.append(batch)
            rows += batch.data.num_rows
            if rows >= rows_max:
                return
        if not self._ahead:  # only markers of transactions, or what compaction removed
            self._offset = end
        else:
            self._ahead[-1] = replace(self._ahead[-1], offset_next=end)


class KafkaRowWatch(RowWatch):
    """Looks at the ends of topics: a punctuation is a message, and moves them too."""

    def __init__(self, reader: TopicReader, topics: Mapping[str, Offsets]) -> None:
        self._reader = reader
        self._topics = topics
        self._known = {name: reader.catalogue.get(name) for name in topics}

    @property
    def paths(self) -> list[Path]:
        return []

    def arrived(self) -> bool:
        try:
            for name, known in self._known.items():
                if self._reader.catalogue.id_now(name) != known.kafka_id:
                    return True
                ends = self._reader.ends(known)
                if any(ends.get(number, 0) > offset for number, offset in self._topics[name].items()):
                    return True
        except NotFound:
            return True
        return False

    def wait(self, seconds: float, stopped: Callable[[], bool]) -> bool:
        """Wait at the brokers until something arrives."""
        if self.arrived():
            return True
        positions = {
            (known.kafka, number): numbering(known).message(offset)
            for name, known in self._known.items()
            for number, offset in self._topics[name].items()
            if number < known.topic.partitions
        }
        return self._reader.cluster.wait(positions, seconds=seconds, stopped=stopped)


# -- parts of rows ----------------------------------------------------------------------------------------------------


def numbering(known: KafkaTopic) -> Numbering:
    return Numbering(per_row=known.values.per_row)


def check_partition(known: KafkaTopic, number: int) -> None:
    """Raise unless the topic has such a partition."""
    if not 0 <= number < known.topic.partitions:
        raise partition_not_found(topic=known.topic.name, partition=number, partitions=known.topic.partitions)


def check_range(topic: str, number: int, start: int, oldest: int, end: int) -> None:
    """Raise unless a reader can begin at an offset."""
    if start > end:
        raise OffsetAhead(partition=f"{topic}/{number}", asked=start, end=end)
    if start < oldest:
        raise OffsetExpired(partition=f"{topic}/{number}", asked=start, oldest=oldest)


def cut(batch: Batch, rows: int) -> tuple[Batch, Batch]:
    """The first rows of a batch, and the others; the batch has the column `_offset`, as offsets have gaps."""
    head, tail = batch.data.slice(0, rows), batch.data.slice(rows)
    middle = int(tail.column("_offset")[0].as_py())
    return replace(batch, offset_next=middle, data=head), replace(batch, offset=middle, data=tail)


def _runs(messages: Messages) -> Iterator[tuple[bool, Messages]]:
    """Messages that follow each other and are all punctuations, or all rows."""
    if messages.headers is None:
        yield False, messages
        return
    first = 0
    for is_time, run in itertools.groupby(map(_is_time, messages.headers)):
        behind = first + sum(1 for _ in run)
        yield is_time, messages[first:behind]
        first = behind


def _joined(messages: Messages) -> Iterator[Messages]:
    """Frames that become one batch: small ones together, for each batch has its price; a large one alone, so that it is not copied."""
    first = size = 0
    for behind, value in enumerate(messages.values, start=1):
        size += len(value or b"")
        if size >= JOINED_BYTES_MIN or behind == len(messages):
            yield messages[first:behind]
            first, size = behind, 0


def is_punctuation(message: Incoming) -> bool:
    """Whether a message is a punctuation."""
    return _is_time(message.headers)


def _is_time(headers: Headers) -> bool:
    return any(name == PUNCTUATION_HEADER for name, _ in headers)


def punctuation_us(message: Incoming) -> int:
    """The time of a punctuation."""
    return next(time_of(value) for name, value in message.headers if name == PUNCTUATION_HEADER)


def _sent_us(messages: Messages) -> list[int]:
    if messages.headers is None:
        return messages.appended_us
    return [
        next((time_of(value) for name, value in headers if name == SENT_HEADER), appended_us)
        for headers, appended_us in zip(messages.headers, messages.appended_us, strict=True)
    ]


def _keys_of_tombstones(known: KafkaTopic, messages: Messages, decoded: Decoded) -> pa.RecordBatch | None:
    """The key columns of all rows if one of them is a tombstone, which has them only in its key."""
    if not known.values.per_row or known.topic.schemaless or not known.topic.key:
        return None
    if not messages.has_tombstones:
        return None
    keys = decode_keys(messages.keys, known.topic.key, known.topic.schema, topic=known.topic.name)
    return keys if keys.num_rows == decoded.data.num_rows else None


def _headers(messages: Messages, decoded: Decoded, count: int) -> pa.Array:
    if decoded.headers is not None:
        return decoded.headers
    if decoded.counts is not None or messages.headers is None:
        return pa.nulls(count, HEADERS_TYPE)
    shown = [[pair for pair in one if not pair[0].startswith(HEADER_PREFIX)] or None for one in messages.headers]
    return pa.array(shown, HEADERS_TYPE) if any(shown) else pa.nulls(count, HEADERS_TYPE)


def _tombstones(messages: Messages, decoded: Decoded) -> pa.Array:
    if decoded.tombstones is not None:
        return decoded.tombstones
    if decoded.counts is not None:
        return pa.array(np.zeros(decoded.data.num_rows, np.bool_))
    return pa.array([value is None for value in messages.values], pa.bool_())


def _numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    # Not by `pa.array`: its first call imports pandas where that is installed, which takes a second.
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
