"""Spark's readers of topics: a stream asks how far each batch may go, a table is read between two positions.

The driver side of a reader lives in a planner process of Spark's that knows no session; `read` runs in the workers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headwater.clock import Clock, SystemClock
from headwater.engine.micro_batch import (
    BATCHES_KEPT,
    MicroBatch,
    current_batch,
    record_of_batch,
    record_once,
    time_folder,
)
from headwater.engine.open_logs import shared_log
from headwater.engine.reader_protocol import stage_of_option
from headwater.engine.watermark_origin import SourceRecord, source_name
from headwater.errors import NotFound
from headwater.faults import reach
from headwater.log import Log
from headwater.log.errors import OffsetExpired
from headwater.log.topic import Topic
from headwater.spark.errors import SourceChanged
from headwater.spark.source.columns import arrow_schema
from headwater.spark.source.event_times import EventTimeProgress
from headwater.spark.source.offsets import Offsets, Progress, admit, parts, ranges
from headwater.spark.source.options import Options, is_pattern
from headwater.spark.source.scan import DeadLetterWriter, Part, Scan
from headwater.spark.source.topics import found_topics, positions, recorded_time, time_column
from headwater.workers import freeze_modules

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: How long an idle stream waits for an append before it answers Spark's poll.
WAIT_SECONDS = 0.1
#: In place of an offset: the end at the time when the part is read.
NOW = -1


class FileClock:
    """A clock whose time is in a file, in microseconds, so that a test can set it for other processes."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def now_us(self) -> int:
        return int(self._path.read_text())


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow."""

    def __init__(self, options: Options, schema: StructType, *, state: str | Path) -> None:
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)
        self._state = state
        self._target: Offsets | None = None
        self._until_us: int | None = None
        self._asked_until: dict[int, int] | None = None
        self._event_times = EventTimeProgress(options)
        self._ticks = Ticks(
            seconds=options.tick_seconds, count=options.ticks_max, rest_seconds=options.tick_rest_seconds
        )

    # -- the driver's side ----------------------------------------------------------------------------------------

    # Any, here and below: Spark's offsets are JSON.
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        # Always the same, for Spark asks again when it repeats the first batch; where that batch began stands in its
        # end, as `began`.
        return Progress(initial=True).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = Progress.from_json(start)
        found = self._next(before, limit)
        if found is None and self._target is None:
            self._wait(before)
            found = self._next(before, limit)
        return start if found is None else found.to_json()

    def _next(self, before: Progress, limit: ReadLimit) -> Progress | None:
        """Return the end of the next batch; None if there is nothing to process."""
        log = shared_log(self._options.log)
        topics = self._topics(before)
        began = self._began(before, topics)
        known = _merged(before.topics, began)
        ends = reachable = self._ends(topics, known)
        if not isinstance(limit, ReadAllAvailable):
            ends = admit(
                known,
                ends,
                rows_max=self._options.rows_max,
                bytes_max=self._options.bytes_max,
                row_bytes=self._row_bytes(topics) if self._options.bytes_max is not None else {},
                steps={name: log.offset_step(name) for name in topics},
            )
        told = self._told(ends) if self._options.punctuations else {}
        # A run that ends when it has caught up also ends in time: at the moment it began.
        now_us = max(self._until_us if self._until_us is not None else self._clock().now_us(), before.at_us)
        asked = self._asked(before)
        is_end = self._options.end_of_input and ends == reachable
        begun = replace(before, topics=known)
        promised = self._event_times.promised(log, topics, begun, ends, now_us=now_us, is_end=is_end)
        same = (ends, told, asked, promised) == (before.topics, before.told, before.asked, before.promised)
        if not before.initial and not began and same:
            is_due = self._ticks.is_due(before.at_us, now_us) if self._target is None else self._ticks.is_left()
            if not is_due:
                return None
        else:
            self._ticks.rows_came(now_us)
        ids = {name: topic.id for name, topic in topics.items()}
        times = self._event_times.times(begun, ends, promised, now_us=now_us)
        return Progress(
            topics=ends,
            ids=ids,
            at_us=now_us,
            began=began,
            told=told,
            asked=asked,
            times=times,
            promised=promised,
        )

    def _wait(self, before: Progress) -> None:
        """Wait for an append, for a moment at most: Spark polls without a pause."""
        seconds = WAIT_SECONDS if self._options.tick_seconds is None else min(WAIT_SECONDS, self._options.tick_seconds)
        if before.topics and not isinstance(self._options.stop, dict):
            with contextlib.suppress(NotFound):  # the next call raises a better error
                asked = {} if self._options.asks is None else {self._options.asks[0]: before.asked}
                shared_log(self._options.log).wait({**before.topics, **asked}, seconds=seconds)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        log = shared_log(self._options.log)
        self._target = {}
        with contextlib.suppress(NotFound):  # the next call raises a better error
            self._target = {name: log.end_offsets(name) for name in found_topics(log, self._options)}
        self._until_us = self._clock().now_us()
        self._asked_until = self._asked_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        log = shared_log(self._options.log)
        topics = found_topics(log, self._options)
        ends = {name: log.end_offsets(name) for name in topics}
        ids = {name: topic.id for name, topic in topics.items()}
        return Progress(topics=ends, ids=ids, at_us=self._clock().now_us()).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = Progress.from_json(start), Progress.from_json(end)
        self._topics(after)
        wanted = ranges(before, after)
        self._check_expired(wanted)
        reach("source.planned")
        found = [
            Part(
                topic=topic,
                id=after.ids[topic],
                partition=partition,
                start=first,
                stop=stop,
                number=number,
                # A part that begins within a partition's range begins where none was told yet.
                told_start=before.told.get(topic, {}).get(partition, 0) if number == 0 else 0,
                told_stop=after.told.get(topic, {}).get(partition, 0) if stop == wanted[topic, partition][1] else 0,
            )
            for topic, partition, first, stop, number in parts(
                wanted, self._options.partitions_min, empty=self._options.punctuations
            )
        ]
        # A batch without rows still has its processing time to tell: timers fire by it.
        first = found[0] if found else Part(topic="", id="", partition=0, start=0, stop=0)
        # A query that could not be asked before begins with what is asked from now on.
        known = bool(before.asked) or before.initial
        asked = (before.asked, after.asked) if known and after.asked != before.asked else None
        time = recorded_time(self._topics(after), self._options)
        name = None if time is None else source_name(self._options.log, self._options.topics, time.column)
        record = SourceRecord(name=name, at_us=after.at_us, times=after.places())
        return [replace(first, record=record, asked=asked), *found[1:]]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: how far a query has read stands in its checkpoint, and retention does not depend on it."""

    def stop(self) -> None:
        """Nothing to do: the planner's process ends, and with it what it has open."""

    # -- the workers' side ----------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: Part = partition  # type: ignore[assignment]  # ours, from `partitions`
        freeze_modules()
        batch = current_batch()
        if part.record is not None and batch is not None:
            self.tell(part.record, batch)
            self._tell_asked(part, batch)
        if not part.topic:
            return
        log = shared_log(self._options.log)
        part = self._left(log, part, batch)
        dead_letters = DeadLetterWriter(
            log,
            part.topic,
            part.partition,
            producer=f"{batch.query if batch else 'none'}-{self._options.source}-{part.partition}-{part.number}",
            batch=batch.number if batch else 0,
            query=batch.query if batch else None,
            fail=self._options.bad_rows == "fail",
            clock=self._clock(),
        )
        stage = None if self._options.reader_stage is None else stage_of_option(self._options.reader_stage)
        schema = self._schema if stage is None else stage.rows
        batches = Scan(log, self._options, schema, dead_letters=dead_letters).batches(part)
        for found in batches if stage is None else stage(batches):
            reach("source.read")
            yield found

    def tell(self, record: SourceRecord, batch: MicroBatch) -> None:
        """Record what all tasks of a batch must know of time, and whether anything follows."""
        folder, source = time_folder(self._state, batch.query), self._options.source
        body = record.to_json()
        # Two reads of the same rows in one query have one name, and each may have come to other offsets.
        mark = hashlib.sha256(json.dumps(body).encode()).hexdigest()[:8]
        record_once(folder, f"time-{batch.number}-{source}-{mark}", body)
        reach("source.timed")
        record_once(folder, f"source-{source}", {})
        if record.is_final:
            record_once(folder, f"final-{source}", {"batch": batch.number})
        for old in folder.names(f"time-{batch.number - BATCHES_KEPT}-{source}-"):
            folder.remove(old)

    def _tell_asked(self, part: Part, batch: MicroBatch) -> None:
        """Record which questions the operators of this batch answer."""
        folder, name = time_folder(self._state, batch.query), f"asked-{{}}-{self._options.source}"
        if part.asked is not None and self._options.asks is not None:
            topic, query = self._options.asks
            start, stop = ({str(number): offset for number, offset in one.items()} for one in part.asked)
            about = {"log": self._options.log, "topic": topic, "query": query, "start": start, "stop": stop}
            record_once(folder, name.format(batch.number), about)
        folder.remove(f"{name.format(batch.number - BATCHES_KEPT)}.json")

    def _left(self, log: Log, part: Part, batch: MicroBatch | None) -> Part:
        """Cut a part to the offsets that retention has left, if the reader may skip; record what is skipped."""
        oldest = log.start_offsets(part.topic)[part.partition]
        if self._options.on_expired == "fail" or oldest <= part.start:
            return part
        start = min(oldest, part.stop)
        if batch is not None:
            name = f"skipped-{batch.number}-{self._options.source}-{part.topic}-{part.partition}-{part.number}"
            record_once(time_folder(self._state, batch.query), name, {"start": part.start, "stop": start})
        return replace(part, start=start)

    # -- behind the calls -----------------------------------------------------------------------------------------

    def _clock(self) -> Clock:
        return SystemClock() if self._options.clock == "system" else FileClock(self._options.clock)

    def _topics(self, progress: Progress) -> dict[str, Topic]:
        """Return the topics as they are now, after checking that they are those that the query has been reading."""
        log = shared_log(self._options.log)
        try:
            topics = found_topics(log, self._options)
        except NotFound as error:
            if error.name in progress.ids:
                raise SourceChanged(topic=error.name, why="it has been deleted") from None
            raise
        time_column(topics, self._options)
        for name, known in progress.ids.items():
            if name not in topics:
                pattern = any(is_pattern(topic) for topic in self._options.topics)
                why = "it has been deleted" if pattern else "the checkpoint is of a query that read another topic"
                raise SourceChanged(topic=name, why=why)
            if topics[name].id != known:
                raise SourceChanged(topic=name, why="it was deleted and made again, or it is in another log")
        return topics

    def _began(self, before: Progress, topics: dict[str, Topic]) -> Offsets:
        """Return where new partitions begin: at `start` for a new query, else at their first offset."""
        grown = {name: one for name, one in topics.items() if len(before.topics.get(name, {})) < one.partitions}
        if not grown:
            return {}
        log = shared_log(self._options.log)
        fresh = positions(log, grown, self._options.start if before.initial else "earliest")
        found: Offsets = {}
        for topic, offsets in fresh.items():
            for partition, offset in offsets.items():
                if partition not in before.topics.get(topic, {}):
                    found.setdefault(topic, {})[partition] = offset
        return found

    def _ends(self, topics: dict[str, Topic], known: Offsets) -> Offsets:
        log = shared_log(self._options.log)
        ends = {name: log.end_offsets(name) for name in topics}
        if self._target is not None:
            ends = {
                topic: {number: min(end, self._target.get(topic, {}).get(number, 0)) for number, end in offsets.items()}
                for topic, offsets in ends.items()
            }
        if isinstance(self._options.stop, dict):
            bounds = self._options.stop
            ends = {
                topic: {number: min(end, bounds.get(topic, {}).get(number, end)) for number, end in offsets.items()}
                for topic, offsets in ends.items()
            }
        # Never behind what was read: a target or a start may lie before or beyond the end.
        return {
            topic: {number: max(end, known.get(topic, {}).get(number, 0)) for number, end in offsets.items()}
            for topic, offsets in ends.items()
        }

    def _asked(self, before: Progress) -> dict[int, int]:
        """Return the end of the questions that the next batch answers; a run up to given offsets answers none."""
        if isinstance(self._options.stop, dict):
            return before.asked
        return self._asked_now() if self._asked_until is None else self._asked_until

    def _asked_now(self) -> dict[int, int]:
        if self._options.asks is not None:
            with contextlib.suppress(NotFound):
                return dict(shared_log(self._options.log).end_offsets(self._options.asks[0]))
        return {}

    def _row_bytes(self, topics: dict[str, Topic]) -> dict[str, float]:
        log = shared_log(self._options.log)
        described = {name: log.describe(name) for name in topics}
        return {name: each.bytes / max(1, each.rows) for name, each in described.items()}

    def _told(self, ends: Offsets) -> Offsets:
        log = shared_log(self._options.log)
        return {
            name: {number: len(log.punctuations_at(name, number, offset)) for number, offset in offsets.items()}
            for name, offsets in ends.items()
        }

    def _check_expired(self, wanted: dict[tuple[str, int], tuple[int, int]]) -> None:
        if self._options.on_expired == "skip":
            return
        log = shared_log(self._options.log)
        oldest = {topic: log.start_offsets(topic) for topic, _ in wanted}
        for (topic, partition), (first, stop) in wanted.items():
            if first < oldest[topic].get(partition, 0) and first < stop:
                raise OffsetExpired(partition=f"{topic}/{partition}", asked=first, oldest=oldest[topic][partition])


def _merged(one: Offsets, other: Offsets) -> Offsets:
    return {topic: {**one.get(topic, {}), **other.get(topic, {})} for topic in {**one, **other}}


class TopicReader(DataSourceReader):
    """Reads topics from one position to another."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        log = shared_log(self._options.log)
        topics = found_topics(log, self._options)
        time_column(topics, self._options)
        begin = positions(log, topics, self._options.start)
        if self._options.on_expired == "skip":
            oldest = positions(log, topics, "earliest")
            begin = {
                topic: {number: max(offset, oldest[topic][number]) for number, offset in offsets.items()}
                for topic, offsets in begin.items()
            }
        if self._options.stop == "now":
            return [
                Part(topic=topic, id=topics[topic].id, partition=partition, start=first, stop=NOW)
                for topic, offsets in begin.items()
                for partition, first in offsets.items()
            ]
        start = Progress(topics=begin)
        end = Progress(topics=positions(log, topics, self._options.stop))
        return [
            Part(topic=topic, id=topics[topic].id, partition=partition, start=first, stop=stop, number=number)
            for topic, partition, first, stop, number in parts(ranges(start, end), self._options.partitions_min)
        ] or [Part(topic="", id="", partition=0, start=0, stop=0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: Part = partition  # type: ignore[assignment]  # ours, from `partitions`
        if not part.topic:
            return
        log = shared_log(self._options.log)
        if part.stop == NOW:
            part = replace(part, stop=max(part.start, self._end(log, part)))
        # Spark may run a read any number of times: the same range under the same name is written once.
        name = f"read-{self._options.source}-{part.partition}-{part.start}-{part.stop}"
        dead_letters = DeadLetterWriter(
            log, part.topic, part.partition, producer=name, fail=self._options.bad_rows == "fail"
        )
        yield from Scan(log, self._options, self._schema, dead_letters=dead_letters).batches(part)

    def _end(self, log: Log, part: Part) -> int:
        """Return where a partition ends now; in a batch of a stream, the same for all tasks and on every retry."""
        ends = {str(number): offset for number, offset in log.end_offsets(part.topic).items()}
        batch = current_batch()
        if batch is not None and self._options.state is not None:
            folder = time_folder(self._options.state, batch.query)
            ends = record_of_batch(folder, "table", batch.number, f"{self._options.source}-{part.topic}", ends)
        return int(ends.get(str(part.partition), 0))


class Ticks:
    """Batches without rows, by which time passes for operators while no rows come: `seconds` after the last one.

    With `count` the stream becomes idle: ticks go on until `rest_seconds` have passed since the last rows, then there are `count`
    more. Timers in event time have fired by then, for only rows or an idle partition move the watermark. Timers in processing
    time need ticks for ever, and no count.
    """

    def __init__(self, *, seconds: float | None, count: int | None = None, rest_seconds: float = 0.0) -> None:
        self._period_us = None if seconds is None else round(seconds * 1e6)
        self._count = count
        self._rest_us = round(rest_seconds * 1e6)
        self._left = count
        self._rows_at_us: int | None = None

    def rows_came(self, now_us: int) -> None:
        """Reset the count of ticks."""
        self._left = self._count
        self._rows_at_us = now_us

    def is_left(self) -> bool:
        """Whether a run that ends has a batch more, so that the watermark follows the rows that it has read.

        >>> ticks = Ticks(seconds=1, count=1)
        >>> ticks.rows_came(0)
        >>> ticks.is_left(), ticks.is_left()
        (True, False)
        """
        if self._rows_at_us is None or not self._left:
            return False
        self._left -= 1
        return True

    def is_due(self, before_us: int, now_us: int) -> bool:
        """Whether there is a batch now, if the last one was at `before_us`; a yes is taken for that batch.

        >>> ticks = Ticks(seconds=1, count=2)
        >>> [ticks.is_due(before, before + 1_000_000) for before in (0, 1_000_000, 2_000_000)]
        [True, True, False]
        """
        if self._period_us is None or now_us - before_us < self._period_us:
            return False
        if self._left is None:
            return True
        if self._rows_at_us is None:  # rows came before this process did; so it is later than they were, which is safe
            self._rows_at_us = before_us
        if now_us - self._rows_at_us <= self._rest_us:
            return True
        if self._left == 0:
            return False
        self._left -= 1
        return True
