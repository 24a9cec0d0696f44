"""What the end of a range on Kafka tells of event times, by messages that no broker holds."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.kafka.catalogue import KafkaTopic
from headwater.log.kafka.event_times import FRAMES_MIN, ROWS_MIN, event_times
from headwater.log.kafka.reader import TopicReader, numbering
from headwater.log.kafka.values.port import Incoming, Messages
from headwater.log.kafka.writer import PUNCTUATION_HEADER
from headwater.log.port import EventTimes
from headwater.log.topic import Topic
from headwater.schema import RowBatch, stored_schema
from headwater.schema.event_time import EventTime

SCHEMA = pa.schema([pa.field("at", pa.timestamp("us", "UTC")), pa.field("data", pa.binary())])
#: A row has a time; a punctuation is a promise. Both are microseconds.
Item = tuple[str, int]


def topic(format: str) -> KafkaTopic:
    described = Topic(name="t", id="1", schema=SCHEMA, time=EventTime("at"))
    return KafkaTopic(topic=described, kafka="t", kafka_id="1", schemas={1: SCHEMA}, format=format)


def messages_of(known: KafkaTopic, items: list[Item], *, data: bytes | None = None) -> Messages:
    found = []
    for offset, (kind, time_us) in enumerate(items):
        if kind == "promise":
            found.append(Incoming(offset, b"", None, ((PUNCTUATION_HEADER, struct.pack(">q", time_us)),)))
            continue
        row = pa.RecordBatch.from_pylist([{"at": time_us, "data": data}], schema=stored_schema(SCHEMA))
        [message] = known.values.encode(RowBatch(row), bytes_max=1_000_000)
        found.append(Incoming(offset, message.value, None, message.headers))
    return Messages(found)


def times_of(known: KafkaTopic, messages: Messages, start: int, stop: int) -> tuple[EventTimes, set[int]]:
    """What is found in a range of messages, and the offsets of those that were fetched for it."""
    fetched: set[int] = set()

    # Any: the limit of a fetch, which these messages do not need.
    def fetch(_topic: str, _number: int, first: int, behind: int, **_limit: Any) -> Iterator[Messages]:
        fetched.update(range(max(0, first), behind))
        if first < behind:
            yield messages[max(0, first) : behind]

    # In place of the brokers; a reader asks the catalogue only for offsets.
    reader = TopicReader(cast(Any, SimpleNamespace(messages=fetch)), cast(Any, None))
    numbers = numbering(known)
    return event_times(reader, known, 0, numbers.first(start), numbers.first(stop), until_us=None), fetched


@pytest.mark.parametrize("format", ["frames", "json", "avro"])
@given(
    items=st.lists(st.tuples(st.sampled_from(["row", "promise"]), st.integers(0, 1_000)), max_size=30),
    bounds=st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
def test_a_short_range_of_small_messages_is_looked_at_as_a_whole(
    format: str, items: list[Item], bounds: tuple[int, int]
) -> None:
    known = topic(format)
    start, stop = (min(bound, len(items)) for bound in sorted(bounds))
    found, _ = times_of(known, messages_of(known, items), start, stop)
    rows = [time_us for kind, time_us in items[start:stop] if kind == "row"]
    promises = [time_us for kind, time_us in items[start:stop] if kind == "promise"]
    assert found == EventTimes(max(rows, default=None), promises[-1] if promises else None)


def test_of_large_frames_the_last_ones_are_looked_at() -> None:
    known = topic("frames")
    items = [("row", 100 - number) for number in range(30)]  # the latest one first
    found, fetched = times_of(known, messages_of(known, items, data=os.urandom(300_000)), 0, 30)
    assert fetched == set(range(30 - FRAMES_MIN, 30))
    assert found.latest_us == items[-FRAMES_MIN][1]


def test_of_many_messages_a_share_is_looked_at() -> None:
    known = topic("json")
    items = [("row", number) for number in range(3 * ROWS_MIN)]
    found, fetched = times_of(known, messages_of(known, items), 0, len(items))
    assert (len(fetched), found.latest_us) == (ROWS_MIN, len(items) - 1)
