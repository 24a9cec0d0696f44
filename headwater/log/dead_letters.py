"""Dead letters: rows that could not be processed, stored completely with the error, under one schema.

The dead letters of a topic are in the topic `<name>.dlq`. `value` and `key` are the original bytes if the topic has no
schema; otherwise `row` is the row as JSON. `query` names what failed to process it: a query's id, or a queue's or group's
name. A row that is redriven (see `headwater.log.redrive`) has the number of its attempt in a header; if it fails again,
the new dead letter has that number.

The internal topic `__letters` has the status of dead letters: it is compacted, with one row for each that was redriven
or parked, and a tombstone for each that was unparked. A dead letter without a row there is open. The key has the id of
the dead-letter topic, so that a later topic of the same name has only open dead letters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from headwater.clock import time_us
from headwater.errors import ArgumentInvalid, NotFound
from headwater.log.errors import TopicExists
from headwater.log.port import Appended, Log
from headwater.log.topic import Topic
from headwater.schema import parse_schema

SUFFIX = ".dlq"
#: Header of a redriven row: the number of the attempt, counted from 1.
ATTEMPT_HEADER = "headwater.attempt"
#: Header of a redriven row: its dead letter, as `topic/partition/offset`.
LETTER_HEADER = "headwater.letter"

#: The maximum of the column `attempt`.
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
    """One row that could not be processed, its place in its topic, and the error.

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
        """The dead letter as a row of `DEAD_LETTER_SCHEMA`."""
        row = asdict(self)
        row["at"] = EPOCH + timedelta(microseconds=row.pop("at_us"))
        return row


def dead_letter_topic(topic: str) -> str:
    """The name of the dead-letter topic of a topic.

    >>> dead_letter_topic("orders")
    'orders.dlq'
    """
    return topic + SUFFIX


def attempt_of(headers: Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None] | None) -> int:
    """The number of the attempt in the headers of a row: 1 if there is none, or it is invalid.

    >>> attempt_of(None), attempt_of([("headwater.attempt", b"3")]), attempt_of({"headwater.attempt": b"many"})
    (1, 3, 1)
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    found = [value for name, value in pairs if name == ATTEMPT_HEADER and value is not None and value.isdigit()]
    return min(max(1, int(found[-1][:9])), ATTEMPT_MAX) if found else 1


def make_dead_letter_topic(log: Log, topic: str) -> str:
    """Create the dead-letter topic of a topic if there is none, and return its name."""
    name = dead_letter_topic(topic)
    try:
        log.topic(name)
    except NotFound:
        with contextlib.suppress(TopicExists):  # another process has just created it
            log.create(name, DEAD_LETTER_SCHEMA, time="at")
    return name


def append_dead_letters(
    log: Log,
    topic: str,
    letters: Sequence[DeadLetter],
    *,
    producer: str | None = None,
    sequence: int | None = None,
) -> Appended:
    """Append dead letters of one topic to its dead-letter topic, which is created if there is none.

    With a producer and a sequence the call is idempotent.
    """
    name = make_dead_letter_topic(log, topic)
    rows = [letter.as_row() for letter in letters]
    return log.append(name, rows, partition=0, producer=producer, sequence=sequence)


# -- the status of dead letters -----------------------------------------------------------------------------------------

STATUS_TOPIC = "__letters"
#: The id of the dead-letter topic, in the status of each dead letter.
TOPIC_ID = "letters"
STATUS_SCHEMA: pa.Schema = parse_schema(
    f"{TOPIC_ID} string not null, partition int32 not null, offset int64 not null, "
    "state string not null, to string, at timestamp not null"
)

State = Literal["open", "redriven", "parked"]
STATES: tuple[State, ...] = ("open", "redriven", "parked")


class Place(NamedTuple):
    """The place of a dead letter in its dead-letter topic."""

    partition: int
    offset: int


class Status(NamedTuple):
    """The status of a dead letter: its state, the topic to which it was redriven, and when."""

    state: State
    to: str | None
    at_us: int


@dataclass(frozen=True, kw_only=True)
class StoredDeadLetter:
    """A dead letter with its place and status."""

    place: Place
    letter: DeadLetter
    status: Status | None = None

    @property
    def state(self) -> State:
        return "open" if self.status is None else self.status.state


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A filter of dead letters; None or an empty value excludes none. Times are those at which they were written.

    >>> letter = DeadLetter(topic="orders", partition=0, offset=7, error="RowInvalid", message="column 'id'", at_us=5)
    >>> found = StoredDeadLetter(place=Place(0, 0), letter=letter)
    >>> Selection(reasons=("RowInvalid",), text="ID").includes(found), Selection(since_us=6).includes(found)
    (True, False)
    """

    reasons: tuple[str, ...] = ()
    query: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    offsets: tuple[range, ...] = ()
    partition: int | None = None
    text: str | None = None
    states: tuple[State, ...] = ()

    def includes(self, found: StoredDeadLetter) -> bool:
        letter = found.letter
        return (
            (not self.reasons or letter.error in self.reasons)
            and (self.query is None or letter.query == self.query)
            and (self.since_us is None or letter.at_us >= self.since_us)
            and (self.until_us is None or letter.at_us < self.until_us)
            and (not self.offsets or any(found.place.offset in offsets for offsets in self.offsets))
            and (self.partition is None or found.place.partition == self.partition)
            and (self.text is None or self.text.casefold() in letter.message.casefold())
            and (not self.states or found.state in self.states)
        )


class Statuses:
    """The status of the dead letters of one dead-letter topic; each query reads the new rows first."""

    def __init__(self, log: Log, topic: Topic) -> None:
        self._log = log
        self._id = topic.id
        self._table: dict[Place, Status] = {}
        self._next = 0

    def now(self) -> dict[Place, Status]:
        """The status of each dead letter that is not open. The mapping changes with the next call."""
        if not self._log.topics(STATUS_TOPIC, internal=True):
            return self._table
        start = self._log.start_offsets(STATUS_TOPIC)[0]
        for batch in self._log.read(STATUS_TOPIC, start=max(self._next, start)).batches():
            for row in batch.rows():
                if row[TOPIC_ID] == self._id:
                    self._take(row)
            self._next = batch.offset_next
        return self._table

    def _take(self, row: dict[str, Any]) -> None:
        place = Place(row["partition"], row["offset"])
        if row["_tombstone"]:
            self._table.pop(place, None)
        else:
            self._table[place] = Status(row["state"], row["to"], time_us(row["at"]))


def make_status_topic(log: Log) -> None:
    """Create the topic of statuses unless it exists."""
    if not log.topics(STATUS_TOPIC, internal=True):
        log.create_internal(
            Topic(
                name=STATUS_TOPIC,
                id="1e77e25" + "0" * 25,
                schema=STATUS_SCHEMA,
                key=(TOPIC_ID, "partition", "offset"),
                compact=True,
                tombstone_seconds_max=3_600.0,
                segment_bytes_max=8 * 1024 * 1024,
                created_us=log.clock.now_us(),
            )
        )


def dead_letter_topics(log: Log) -> list[str]:
    """The names of the dead-letter topics of a log."""
    return [name for name in log.topics(f"*{SUFFIX}") if _has_letters(log.topic(name))]


def find_dead_letter_topic(log: Log, name: str) -> Topic:
    """The dead-letter topic with this name, or that of the topic with this name."""
    topic = log.topic(name if name.endswith(SUFFIX) else name + SUFFIX)
    if not _has_letters(topic):
        raise ArgumentInvalid(name="topic", value=topic.name, expected="a topic whose rows are dead letters")
    return topic


def stored_dead_letters(data: pa.RecordBatch, partition: int, statuses: dict[Place, Status]) -> list[StoredDeadLetter]:
    """The dead letters in a batch of a dead-letter topic."""
    found = []
    for row in data.to_pylist():
        place = Place(partition, row["_offset"])
        found.append(StoredDeadLetter(place=place, letter=_letter(row), status=statuses.get(place)))
    return found


# Any: a row of the one schema, whose columns are as declared.
def _letter(row: dict[str, Any]) -> DeadLetter:
    names = [name for name in DEAD_LETTER_SCHEMA.names if name != "at"]
    return DeadLetter(**{name: row[name] for name in names}, at_us=time_us(row["at"]))


def _has_letters(topic: Topic) -> bool:
    return set(DEAD_LETTER_SCHEMA.names) <= set(topic.schema.names)
