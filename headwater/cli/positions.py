"""Places in a topic as people write them: `start`, `end`, `120`, `-10`, `@2026-11-15T10:00`, `@-1h`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headwater.errors import ArgumentInvalid, UsageError
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog, Offsets

EXPECTED = "start, end, an offset (120), the last rows (-10), or a time (@2026-11-15T10:00, @-1h)"
HELP = "start, end, N, -N for the last rows, @TIME (UTC) or @-1h."
_WORDS = {"start": "start", "earliest": "start", "beginning": "start", "end": "end", "latest": "end"}


@dataclass(frozen=True, kw_only=True)
class Position:
    """One of the places; exactly one field is set."""

    word: str | None = None
    offset: int | None = None
    last: int | None = None
    time_us: int | None = None


def parse_position(text: str, *, name: str, now_us: int | None = None) -> Position:
    """What a text means; times without a zone are UTC.

    >>> parse_position("-10", name="offset")
    Position(word=None, offset=None, last=10, time_us=None)
    >>> parse_position("@-1h", name="offset", now_us=7_200_000_000).time_us
    3600000000
    """
    if text in _WORDS:
        return Position(word=_WORDS[text])
    if text.isdecimal():
        return Position(offset=int(text))
    if text.startswith("-") and text[1:].isdecimal():
        return Position(last=int(text[1:]))
    time_us = _parse_time(text[1:], now_us) if text.startswith("@") else None
    if time_us is None:
        raise ArgumentInvalid(name=name, value=text, expected=EXPECTED)
    return Position(time_us=time_us)


def _parse_time(text: str, now_us: int | None) -> int | None:
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    if text == "now":
        return now_us
    try:
        if text.startswith("-"):
            return now_us - round(parse_seconds(text[1:]) * 1_000_000)
        moment = datetime.fromisoformat(text)
    except (ValueError, UsageError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000)


def resolve(log: EmbeddedLog, topic: str, position: Position, partitions: Sequence[int]) -> Offsets:
    """The place as an offset in each partition; an offset outside what a partition holds moves to its nearer end."""
    starts, ends = log.start_offsets(topic), log.end_offsets(topic)
    if position.last is not None:
        return _last_rows(log, topic, position.last, partitions)
    if position.time_us is not None:
        found = log.offset_at(topic, position.time_us)
        return {number: found[number] for number in partitions}
    if position.offset is not None:
        return {number: min(max(position.offset, starts[number]), ends[number]) for number in partitions}
    return {number: (ends if position.word == "end" else starts)[number] for number in partitions}


def _last_rows(log: EmbeddedLog, topic: str, count: int, partitions: Sequence[int]) -> Offsets:
    """Where the last `count` rows of all these partitions begin, by the time they were appended."""
    starts, ends = log.start_offsets(topic), log.end_offsets(topic)
    window = count
    while True:
        begins = {number: max(starts[number], ends[number] - window) for number in partitions}
        reader = log.read(
            topic, start=begins, stop=ends, partitions=partitions, columns=["_appended_at", "_partition", "_offset"]
        )
        rows = sorted(tuple(row.values()) for batch in reader for row in batch.to_pylist())[-count:] if count else []
        # Compaction leaves gaps between offsets, so that there can be fewer rows than offsets: look further back.
        if len(rows) == count or all(begins[number] == starts[number] for number in partitions):
            found = {number: ends[number] for number in partitions}
            for _, number, offset in reversed(rows):
                found[number] = offset
            return found
        window *= 4
