"""Dead letters: what could not be read or done, kept whole with the reason, under one schema for all who write them.

The letters of a topic are in the topic `<name>.dlq`. `value` and `key` are the original bytes where the topic has no
schema; where it has one, `row` is the row as JSON. `query` is who gave up: a query's id, or a queue's or group's name.
A row that is put back (see `headwater.log.redrive`) carries the number of its attempt in a header; whoever gives it up
again says that number in the new letter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from headwater.errors import TopicExists, TopicNotFound
from headwater.log.port import Appended, Log
from headwater.schema import parse_schema

SUFFIX = ".dlq"
#: The header of a row that was put back: which attempt this is, counted from 1.
ATTEMPT_HEADER = "headwater.attempt"
#: The header that says which letter such a row came from: `topic/partition/offset` of the letter.
LETTER_HEADER = "headwater.letter"

#: What the column can hold.
ATTEMPT_MAX = 2**31 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Headers = Sequence[tuple[str, bytes | None]]

DEAD_LETTER_SCHEMA: pa.Schema = parse_schema(
    "topic string not null, partition int32 not null, offset int64 not null, key binary, value binary, row string, "
    "query string, error string not null, message string not null, attempt int32 not null, at timestamp not null, "
    "headers map<string, binary>"
)


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """One row that was given up, where it stands in its topic, and why.

    >>> DeadLetter(topic="orders", partition=0, offset=7, value=b"{", error="EncodingInvalid", message="…", at_us=0).row
    """

    topic: str
    partition: int
    offset: int
    error: str
    message: str
    at_us: int
    key: bytes | None = None
    value: bytes | None = None
    row: str | None = None
    query: str | None = None
    attempt: int = 1
    headers: Headers | None = None

    def as_row(self) -> dict[str, object]:
        """The letter under `DEAD_LETTER_SCHEMA`."""
        row = asdict(self)
        row["at"] = EPOCH + timedelta(microseconds=row.pop("at_us"))
        return row


def dead_letter_topic(topic: str) -> str:
    """Where the dead letters of a topic go.

    >>> dead_letter_topic("orders")
    'orders.dlq'
    """
    return topic + SUFFIX


def attempt_of(headers: Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None] | None) -> int:
    """Which attempt a row is, by its headers: 1 where they do not say, or not in a way that can be read.

    >>> attempt_of(None), attempt_of([("headwater.attempt", b"3")]), attempt_of({"headwater.attempt": b"many"})
    (1, 3, 1)
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    found = [value for name, value in pairs if name == ATTEMPT_HEADER and value is not None and value.isdigit()]
    return min(max(1, int(found[-1][:9])), ATTEMPT_MAX) if found else 1


def append_dead_letters(
    log: Log,
    topic: str,
    letters: Sequence[DeadLetter],
    *,
    producer: str | None = None,
    sequence: int | None = None,
) -> Appended:
    """Append letters of one topic to its dead-letter topic, which is made where there is none.

    With a producer and a sequence, letters that were appended before change nothing, so that a retry doubles none.
    """
    name = dead_letter_topic(topic)
    try:
        log.topic(name)
    except TopicNotFound:
        with contextlib.suppress(TopicExists):  # somebody else was quicker
            log.create(name, DEAD_LETTER_SCHEMA, time="at")
    rows = [letter.as_row() for letter in letters]
    return log.append(name, rows, partition=0, producer=producer, sequence=sequence)
