"""The event times of a range of a partition, for watermarks: from the headers of frames, or from rows that are read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.decoder import Projection
from headwater.log.frame import TIME_NONE, TIME_TYPE
from headwater.log.kafka.catalogue import KafkaTopic
from headwater.log.kafka.reader import TopicReader, is_punctuation, numbering, punctuation_us
from headwater.log.port import EventTimes

#: So many messages at the end of a range are looked at.
MESSAGES_MAX = 20_000


def event_times(
    reader: TopicReader, known: KafkaTopic, number: int, start: int, stop: int, *, until_us: int | None
) -> EventTimes:
    """The latest event time of the last messages of a range, and the latest punctuation among them."""
    numbers, column = numbering(known), known.topic.time_column
    first = max(start, numbers.first(numbers.stop(stop) - MESSAGES_MAX))
    if known.values.per_row and column is not None:
        return _read(reader, known, number, first, stop, until_us)
    latest: int | None = None
    promised: int | None = None
    unsure: list[tuple[int, int]] = []
    for some in reader.cluster.messages(known.kafka, number, numbers.message(first), numbers.stop(stop)):
        for message in some:
            if is_punctuation(message):
                promised = punctuation_us(message)
            elif column is not None:
                begin, behind = numbers.first(message.offset), numbers.first(message.offset + 1)
                times = known.values.times(message) if first <= begin and behind <= stop else None
                if times is None or (until_us is not None and times[1] > until_us):
                    unsure.append((max(begin, first), min(behind, stop)))
                elif times[1] != TIME_NONE:
                    latest = times[1] if latest is None else max(latest, times[1])
    for begin, behind in joined(unsure):
        found = _read(reader, known, number, begin, behind, until_us).latest_us
        latest = found if latest is None or (found is not None and found > latest) else latest
    return EventTimes(latest, promised)


def _read(
    reader: TopicReader, known: KafkaTopic, number: int, start: int, stop: int, until_us: int | None
) -> EventTimes:
    """The latest event time of rows that are read, and the latest punctuation between them."""
    latest: int | None = None
    promised: int | None = None
    projection = Projection.of(known.topic, [str(known.topic.time_column)])
    for batch in reader.batches(known, number, start, stop, projection):
        if batch.punctuation_us is not None:
            promised = batch.punctuation_us
            continue
        times = batch.data.column(0).cast(TIME_TYPE).cast(pa.int64())
        if until_us is not None:
            times = times.filter(pc.less_equal(times, until_us))
        most = pc.max(times).as_py()
        latest = most if latest is None or (most is not None and most > latest) else latest
    return EventTimes(latest, promised)


def joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that follow each other as one.

    >>> joined([(0, 2), (2, 5), (7, 8)])
    [(0, 5), (7, 8)]
    """
    found: list[tuple[int, int]] = []
    for start, stop in ranges:
        if found and found[-1][1] >= start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found
