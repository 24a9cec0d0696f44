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

#: Of messages with a row each so many at the end of a range are looked at: a share of the range, between these bounds.
SHARE = 20
ROWS_MIN, ROWS_MAX = 4_000, 20_000
#: Of frames the last few are, and as many more as have about these bytes.
FRAMES_MIN, FRAMES_MAX = 4, 20_000
FRAME_BYTES_MAX = 1024 * 1024


def event_times(
    reader: TopicReader, known: KafkaTopic, number: int, start: int, stop: int, *, until_us: int | None
) -> EventTimes:
    """The latest event time of the last messages of a range, and the latest punctuation among them."""
    numbers = numbering(known)
    if known.values.per_row:
        first = max(start, stop - min(ROWS_MAX, max(ROWS_MIN, (stop - start) // SHARE)))
        if known.topic.time_column is not None:
            return _of_rows(reader, known, number, first, stop, until_us)
        return _of_messages(reader, known, number, first, stop, until_us)[0]
    first = max(start, numbers.first(numbers.stop(stop) - FRAMES_MIN))
    found, size = _of_messages(reader, known, number, first, stop, until_us)
    more = min(FRAMES_MAX, FRAMES_MIN * FRAME_BYTES_MAX // max(size, 1)) - FRAMES_MIN
    if first == start or more <= 0:
        return found
    earlier = _of_messages(reader, known, number, max(start, first - numbers.first(more)), first, until_us)[0]
    promised = earlier.promised_us if found.promised_us is None else found.promised_us
    return EventTimes(_later(earlier.latest_us, found.latest_us), promised)


def _of_messages(
    reader: TopicReader, known: KafkaTopic, number: int, start: int, stop: int, until_us: int | None
) -> tuple[EventTimes, int]:
    """What messages tell without being decoded, and their bytes; those that do not tell it are read."""
    numbers, column = numbering(known), known.topic.time_column
    latest: int | None = None
    promised: int | None = None
    unsure: list[tuple[int, int]] = []
    size = 0
    for some in reader.cluster.messages(known.kafka, number, numbers.message(start), numbers.stop(stop)):
        for message in some:
            size += len(message.value or b"")
            if is_punctuation(message):
                promised = punctuation_us(message)
            elif column is not None:
                begin, behind = numbers.first(message.offset), numbers.first(message.offset + 1)
                times = known.values.times(message) if start <= begin and behind <= stop else None
                if times is None or (until_us is not None and times[1] > until_us):
                    unsure.append((max(begin, start), min(behind, stop)))
                elif times[1] != TIME_NONE:
                    latest = _later(latest, times[1])
    for begin, behind in joined(unsure):
        latest = _later(latest, _of_rows(reader, known, number, begin, behind, until_us).latest_us)
    return EventTimes(latest, promised), size


def _of_rows(
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
        latest = _later(latest, pc.max(times).as_py())
    return EventTimes(latest, promised)


def _later(one: int | None, other: int | None) -> int | None:
    return one if other is None or (one is not None and one > other) else other


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
