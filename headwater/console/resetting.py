"""Where a group shall go on: the choices that the page offers, as an offset in each partition. Nothing is changed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from headwater.errors import ArgumentInvalid, UsageError
from headwater.log.groups import SeekStep
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog
    from headwater.log.port import Offsets

Way = Literal["start", "end", "offset", "time", "by"]
#: What the page calls the ways.
WAYS: dict[Way, str] = {
    "start": "Start",
    "end": "End",
    "offset": "Offset",
    "time": "Time",
    "by": "Back or forward",
}


@dataclass(frozen=True, kw_only=True)
class Where:
    """A place as somebody has chosen it; `text` says more where the way needs it."""

    way: Way
    text: str = ""


def offsets_at(
    log: EmbeddedLog, group: str, topic: str, where: Where, *, partitions: Sequence[int] = (), now_us: int
) -> Offsets:
    """The place in each partition, or in some of them; never outside what a partition holds."""
    starts, ends = log.start_offsets(topic), log.end_offsets(topic)
    chosen = [number for number in sorted(ends) if not partitions or number in partitions]
    wanted = _wanted(log, group, topic, where, starts, ends, now_us)
    return {number: min(max(wanted[number], starts[number]), ends[number]) for number in chosen}


def _wanted(
    log: EmbeddedLog, group: str, topic: str, where: Where, starts: Offsets, ends: Offsets, now_us: int
) -> Offsets:
    match where.way:
        case "start":
            return starts
        case "end":
            return ends
        case "time":
            return log.offset_at(topic, time_of(where.text, now_us=now_us))
        case "offset":
            return dict.fromkeys(ends, whole_number(where.text, expected="an offset such as 1200", least=0))
        case "by":
            step = whole_number(where.text, expected="a number of rows, such as -100 to read 100 rows again")
            committed = log.committed(group, topic)
            return {number: max(committed.get(number, 0), starts[number]) + step for number in ends}


def whole_number(text: str, *, expected: str, least: int | None = None) -> int:
    """A whole number as people write it.

    >>> whole_number(" -1,200 ", expected="a number")
    -1200
    """
    bare = text.strip().replace(",", "").replace("_", "").replace("−", "-")
    digits = bare.removeprefix("-").removeprefix("+")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 19 or (least is not None and int(bare) < least):
        raise ArgumentInvalid(name="place", value=text, expected=expected)
    return int(bare)


def time_of(text: str, *, now_us: int) -> int:
    """A moment in microseconds since 1970: a date and time in UTC, or how long ago.

    >>> time_of("1970-01-01 00:00:01", now_us=0), time_of("1h", now_us=3_600_000_001), time_of("-1 min", now_us=60_000_000)
    (1000000, 1, 0)
    """
    bare = text.strip().removeprefix("@")
    try:
        moment = datetime.fromisoformat(bare)
    except ValueError:
        try:
            return max(0, now_us - round(parse_seconds(bare.removeprefix("-").removesuffix("ago").strip()) * 1e6))
        except UsageError as error:
            expected = "a time in UTC, such as 2026-11-15 10:00, or how long ago, such as 1h"
            raise ArgumentInvalid(name="time", value=text, expected=expected) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1_000_000))


def told(steps: Sequence[SeekStep]) -> str:
    """What a reset does, in one sentence.

    >>> told([SeekStep(group="g", topic="t", partition=0, current=100, new=40)])
    'Reads 60 rows again.'
    """
    again, over = sum(max(0, one.rows) for one in steps), sum(max(0, -one.rows) for one in steps)
    parts = [f"reads {_rows(again)} again"] if again else []
    parts += [f"passes {_rows(over)} over"] if over else []
    sentence = " and ".join(parts) or "stays where it is"
    return f"{sentence[0].upper()}{sentence[1:]}."


def _rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"
