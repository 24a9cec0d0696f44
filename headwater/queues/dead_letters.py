"""Dead letters of a queue: written with the end of the delivery in one transaction, so that each message has exactly one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from headwater.errors import NotFound
from headwater.log import Log
from headwater.log.dead_letters import DEAD_LETTER_SCHEMA, DeadLetter, attempt_of, dead_letter_topic
from headwater.log.errors import OffsetExpired, TopicExists
from headwater.queues.journal import Event, Journal
from headwater.queues.message import DELIVERIES_HEADER, GROUP_HEADER, TRACE_HEADER, Place
from headwater.schema.encodings import json as json_lines


class DeadMessage(NamedTuple):
    """A message that will not be delivered again, and why."""

    place: Place
    error: str
    reason: str
    trace: str
    attempts: int


def write_dead_letters(log: Log, queue: str, group: str, dead: Sequence[DeadMessage], journal: Journal) -> int:
    """Append dead letters and the events of their messages; return the offset behind those in the journal.

    A redriven message goes to this group alone, and has no time to live.
    """
    topic = dead_letter_topic(queue)
    try:
        log.topic(topic)
    except NotFound:
        with contextlib.suppress(TopicExists):  # another process has just created it
            log.create(topic, DEAD_LETTER_SCHEMA, time="at", partitions=1)
    at_us = log.clock.now_us()
    letters = [letter for each in dead if (letter := _letter(log, queue, group, each, at_us)) is not None]
    with log.transaction() as transaction:
        if letters:
            transaction.append(topic, [letter.as_row() for letter in letters], partition=0)
        journal.append_to(transaction, [Event("dead", *each.place, each.attempts) for each in dead])
        appended = transaction.commit()
    return appended[journal.topic].offsets_next[0]


def _letter(log: Log, queue: str, group: str, dead: DeadMessage, at_us: int) -> DeadLetter | None:
    row = _row(log, queue, dead.place)
    if row is None:
        return None
    stored = dict(row.column("_headers")[0].as_py() or {})
    headers = {name: value for name, value in stored.items() if name not in (TRACE_HEADER, DELIVERIES_HEADER)}
    headers |= {GROUP_HEADER: group.encode(), DELIVERIES_HEADER: str(dead.attempts).encode()}
    if dead.trace:
        headers[TRACE_HEADER] = dead.trace.encode()
    return DeadLetter(
        topic=queue,
        partition=dead.place.partition,
        offset=dead.place.offset,
        row=_text(row),
        query=f"{queue}/{group}",
        error=dead.error,
        message=dead.reason,
        attempt=attempt_of(stored),
        at_us=at_us,
        headers=list(headers.items()),
    )


def _row(log: Log, queue: str, place: Place) -> pa.RecordBatch | None:
    with contextlib.suppress(OffsetExpired):  # retention was quicker
        for batch in log.read_range(queue, place.partition, start=place.offset, stop=place.offset + 1):
            if batch.data.num_rows == 1:
                return batch.data
    return None


def _text(row: pa.RecordBatch) -> str:
    columns = [name for name in row.schema.names if not name.startswith("_")]
    shown = row.select(columns)
    place = columns.index("expires_at")
    shown = shown.set_column(place, shown.schema.field(place), pa.nulls(1, shown.schema.field(place).type))
    return next(json_lines.encode_rows(shown)).decode()
