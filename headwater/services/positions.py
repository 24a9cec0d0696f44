"""A position in a topic, as the command line, the console and HTTP write it.

`start`, `end`, an offset (`120`), the last rows (`-10`), a time (`@2026-11-15T10:00`, `@-1h`), a number of rows from where a
group is (`shift:-100`), and one offset per partition (`0:5,1:9`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headwater.errors import ArgumentInvalid, UsageError
from headwater.log.errors import partition_not_found
from headwater.log.remote.wire import offsets_from_text
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from headwater.log.port import Log, Offsets

EXPECTED = (
    "start, end, an offset (120), the last rows (-10), a time in UTC (@2026-11-15T10:00) or how long ago (@-1h), "
    "rows from where a group is (shift:-100), or an offset per partition (0:5,1:9)"
)
_WORDS = {"start": "start", "earliest": "start", "beginning": "start", "end": "end", "latest": "end"}
_DIGITS_MAX = 18


@dataclass(frozen=True, kw_only=True)
class Position:
    """A position; exactly one field is set."""

    word: str | None = None
    offset: int | None = None
    last: int | None = None
    time_us: int | None = None
    shift: int | None = None
    offsets: Mapping[int, int] | None = None


def parse_position(text: str, *, name: str, now_us: int | None = None) -> Position:
    """Parse a position; times without a zone are UTC.

    >>> parse_position("-10", name="offset").last, parse_position("shift:-100", name="to").shift
    (10, -100)
    >>> parse_position("@-1h", name="offset", now_us=7_200_000_000).time_us
    3600000000
    """
    if text in _WORDS:
        return Position(word=_WORDS[text])
    if _is_number(text):
        return Position(offset=int(text))
    if text.startswith("-") and _is_number(text[1:]):
        return Position(last=int(text[1:]))
    if text.startswith("shift:") and _is_number(text.removeprefix("shift:").lstrip("+-")):
        return Position(shift=int(text.removeprefix("shift:")))
    time_us = _parse_time(text[1:], now_us) if text.startswith("@") else None
    if time_us is not None:
        return Position(time_us=time_us)
    if text[:1].isdecimal() and ":" in text:
        return Position(offsets=offsets_from_text(text, name=name))
    raise ArgumentInvalid(name=name, value=text, expected=EXPECTED)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX


def _parse_time(text: str, now_us: int | None) -> int | None:
    """A date and time, how long ago, or microseconds since 1970.

    >>> [_parse_time(text, 3_600_000_001) for text in ("1970-01-01 00:00:01", "-1 min", "1h ago", "17")]
    [1000000, 3540000001, 1, 17]
    """
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    text = text.strip()
    if text == "now":
        return now_us
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        if _is_number(text):
            return int(text)
        try:
            ago = text.removeprefix("-").removesuffix("ago").strip()
            return max(0, now_us - round(parse_seconds(ago) * 1_000_000))
        except UsageError:
            return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1_000_000))


def resolve(
    log: Log,
    topic: str,
    position: Position,
    partitions: Sequence[int] | None = None,
    *,
    committed: Mapping[int, int] | None = None,
) -> Offsets:
    """The offset of a position in each partition, or in some of them.

    An offset outside a partition moves to its nearer end. Offsets per partition are not changed. `committed` are the
    offsets that a shift begins at.
    """
    starts, ends = log.start_offsets(topic), log.end_offsets(topic)
    for number in partitions or ():
        if number not in ends:
            raise partition_not_found(topic=topic, partition=number, partitions=len(ends))
    numbers = sorted(ends) if partitions is None else partitions
    if position.offsets is not None:
        return {
            number: offset for number, offset in position.offsets.items() if partitions is None or number in numbers
        }
    if position.last is not None:
        from headwater.services.row_pages import last_offsets

        return last_offsets(log, topic, {number: ends[number] for number in numbers}, rows=position.last)
    if position.time_us is not None:
        wanted = log.offset_at(topic, position.time_us)
    elif position.offset is not None:
        wanted = dict.fromkeys(ends, position.offset)
    elif position.shift is not None:
        if committed is None:
            expected = "a position that does not depend on a group: start, end, an offset, the last rows or a time"
            raise ArgumentInvalid(name="position", value=f"shift:{position.shift}", expected=expected)
        wanted = {number: max(committed.get(number, 0), starts[number]) + position.shift for number in ends}
    else:
        wanted = ends if position.word == "end" else starts
    return {number: min(max(wanted[number], starts[number]), ends[number]) for number in numbers}
