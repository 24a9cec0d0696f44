"""A topic as a stream: Spark asks how far it may go, and gets the rows between two offsets.

The driver side of this class lives in a planner process of Spark's that knows no session; `read` runs in the workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headwater.batches import MicroBatch, current_batch, record_once, time_folder
from headwater.clock import Clock, SystemClock
from headwater.errors import OffsetExpired, SourceChanged, TopicNotFound
from headwater.faults import reach
from headwater.log import EmbeddedLog
from headwater.log.embedded import punctuations_at
from headwater.log.port import Topic
from headwater.sources.columns import arrow_schema
from headwater.sources.combining import combine_of
from headwater.sources.letters import Letters
from headwater.sources.logs import shared_log
from headwater.sources.offsets import Offsets, Progress, admit, parts, ranges
from headwater.sources.options import Options, is_pattern
from headwater.sources.scan import Part, Scan
from headwater.sources.ticks import Ticks
from headwater.sources.topics import found_topics, positions, time_column
from headwater.workers import freeze_modules

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Records of batches this far back are never asked for again: Spark keeps the offsets of a hundred batches.
BATCHES_KEPT = 200


#: How long a stream without news sleeps before Spark hears that there are none. Appends end the sleep.
WAIT_SECONDS = 0.1


class FileClock:
    """A clock that stands in a file, as microseconds, so that a test can move it for processes that it did not start."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def now_us(self) -> int:
        return int(self._path.read_text())


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow."""

    def __init__(self, options: Options, schema: StructType, *, state: Path) -> None:
        self._options = options
        self._schema: pa.Schema = arrow_schema(schema)
        self._state = state
        self._target: Offsets | None = None
        self._until_us: int | None = None
        self._asked_until: dict[int, int] | None = None
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
        """How far the next batch goes, None where there is nothing for it to do."""
        log = shared_log(self._options.log)
        topics = self._topics(before)
        began = self._began(before, topics)
        known = _merged(before.topics, began)
        ends = self._ends(topics, known)
        if not isinstance(limit, ReadAllAvailable):
            ends = admit(
                known,
                ends,
                rows_max=self._options.rows_max,
                bytes_max=self._options.bytes_max,
                row_bytes=self._row_bytes(topics) if self._options.bytes_max is not None else {},
            )
        told = self._told(ends) if self._options.punctuations else {}
        # A run that ends when it has caught up also ends in time: at the moment it began.
        now_us = max(self._until_us if self._until_us is not None else self._clock().now_us(), before.at_us)
        asked = self._asked(before)
        if not before.initial and not began and (ends, told, asked) == (before.topics, before.told, before.asked):
            if not self._ticks.is_due(before.at_us, now_us):
                return None
        else:
            self._ticks.rows_came(now_us)
        ids = {name: log.topic(name).id for name in topics}
        return Progress(topics=ends, ids=ids, at_us=now_us, began=began, told=told, asked=asked)

    def _wait(self, before: Progress) -> None:
        """Sleep until somebody appends, for a moment at most: Spark asks again at once, and would ask all the time."""
        seconds = WAIT_SECONDS if self._options.tick_seconds is None else min(WAIT_SECONDS, self._options.tick_seconds)
        if before.topics and not isinstance(self._options.stop, dict):
            with contextlib.suppress(TopicNotFound):  # which the next call tells in its own words
                asked = {} if self._options.asks is None else {self._options.asks[0]: before.asked}
                shared_log(self._options.log).wait({**before.topics, **asked}, seconds=seconds)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        log = shared_log(self._options.log)
        self._target = {}
        with contextlib.suppress(TopicNotFound):  # which the next call tells in its own words
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
        return [replace(first, at_us=after.at_us, asked=asked), *found[1:]]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: how far a query has read stands in its checkpoint, and retention asks nobody."""

    def stop(self) -> None:
        """Nothing to do: the planner's process ends, and with it what it has open."""

    # -- the workers' side ----------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: Part = partition  # type: ignore[assignment]  # ours, from `partitions`
        freeze_modules()
        batch = current_batch()
        if part.at_us is not None and batch is not None:
            self._tell_time(part.at_us, batch)
            self._tell_asked(part, batch)
        if not part.topic:
            return
        log = shared_log(self._options.log)
        part = self._left(log, part, batch)
        letters = Letters(
            log,
            part.topic,
            part.partition,
            producer=f"{batch.query if batch else 'none'}-{self._options.source}-{part.partition}-{part.number}",
            batch=batch.number if batch else 0,
            query=batch.query if batch else None,
            fail=self._options.bad_rows == "fail",
            clock=self._clock(),
        )
        combine = combine_of(self._options)
        schema = self._schema if combine is None else combine.rows
        batches = Scan(log, self._options, schema, letters=letters).batches(part)
        for found in batches if combine is None else combine(batches):
            reach("source.read")
            yield found

    def _tell_time(self, at_us: int, batch: MicroBatch) -> None:
        folder = time_folder(self._state, batch.query)
        source = self._options.source
        record_once(folder, f"time-{batch.number}-{source}", {"at_us": at_us})
        reach("source.timed")
        (folder / f"time-{batch.number - BATCHES_KEPT}-{source}.json").unlink(missing_ok=True)

    def _tell_asked(self, part: Part, batch: MicroBatch) -> None:
        """Write down which questions the operators of this batch are to answer."""
        folder, name = time_folder(self._state, batch.query), f"asked-{{}}-{self._options.source}"
        if part.asked is not None and self._options.asks is not None:
            topic, query = self._options.asks
            start, stop = ({str(number): offset for number, offset in one.items()} for one in part.asked)
            about = {"log": self._options.log, "topic": topic, "query": query, "start": start, "stop": stop}
            record_once(folder, name.format(batch.number), about)
        (folder / f"{name.format(batch.number - BATCHES_KEPT)}.json").unlink(missing_ok=True)

    def _left(self, log: EmbeddedLog, part: Part, batch: MicroBatch | None) -> Part:
        """What retention has left of a part, where a reader that fell behind may skip; what is skipped is recorded."""
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
        """The topics as they are now, after checking that they are those that the query has been reading."""
        log = shared_log(self._options.log)
        try:
            topics = found_topics(log, self._options)
        except TopicNotFound as error:
            if error.topic in progress.ids:
                raise SourceChanged(topic=error.topic, why="it has been deleted") from None
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
        """Where partitions begin that the query has not seen yet: at `start` when it is new, else at their beginning."""
        log = shared_log(self._options.log)
        fresh = positions(log, topics, self._options.start if before.initial else "earliest")
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
        """How far questions go that the next batch answers; a run up to given offsets answers none."""
        if isinstance(self._options.stop, dict):
            return before.asked
        return self._asked_now() if self._asked_until is None else self._asked_until

    def _asked_now(self) -> dict[int, int]:
        if self._options.asks is not None:
            with contextlib.suppress(TopicNotFound):
                return dict(shared_log(self._options.log).end_offsets(self._options.asks[0]))
        return {}

    def _row_bytes(self, topics: dict[str, Topic]) -> dict[str, float]:
        log = shared_log(self._options.log)
        described = {name: log.describe(name) for name in topics}
        return {name: each.bytes / max(1, each.rows) for name, each in described.items()}

    def _told(self, ends: Offsets) -> Offsets:
        log = shared_log(self._options.log)
        return {
            name: {number: len(punctuations_at(log, name, number, offset)) for number, offset in offsets.items()}
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
