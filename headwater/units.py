"""Sizes and durations as people write them: "64 MiB", "7 days", "500 ms".

Inside Headwater a size is always whole bytes and a duration always seconds; only this module knows other units.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta

from headwater.errors import ArgumentInvalid

#: A duration as users write it: "30 seconds", a number of seconds, or a timedelta.
Duration = str | float | timedelta

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

MINUTE = 60.0
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_BYTES = {"": 1, "b": 1, "byte": 1, "bytes": 1}
_BYTES |= {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB}

_SECONDS = {"": 1.0}
_SECONDS |= dict.fromkeys(("us", "µs", "μs", "microsecond", "microseconds"), 1e-6)
_SECONDS |= dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3)
_SECONDS |= dict.fromkeys(("s", "sec", "second", "seconds"), 1.0)
_SECONDS |= dict.fromkeys(("m", "min", "minute", "minutes"), MINUTE)
_SECONDS |= dict.fromkeys(("h", "hour", "hours"), HOUR)
_SECONDS |= dict.fromkeys(("d", "day", "days"), DAY)
_SECONDS |= dict.fromkeys(("w", "week", "weeks"), 7 * DAY)

_TERM = re.compile(r"\s*(?P<number>\d[\d_]*(?:\.\d+)?)\s*(?P<unit>[a-zµμ]*)\s*", re.IGNORECASE)


def parse_bytes(value: int | str, *, name: str = "size") -> int:
    """How many bytes `value` means.

    `kB`, `MB`, `GB` count in thousands and `KiB`, `MiB`, `GiB` in 1024s, as their standards say.
    `name` is what the value is called in the error, if it is one.

    >>> parse_bytes("64 MiB"), parse_bytes("10 GB"), parse_bytes(512)
    (67108864, 10000000000, 512)
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    term = _TERM.fullmatch(value) if isinstance(value, str) else None
    scale = _BYTES.get(term["unit"].lower()) if term else None
    if term is None or scale is None:
        raise ArgumentInvalid(name=name, value=value, expected='a size such as "64 MiB", "10 GB" or 65536')
    # Whole numbers stay integers all the way, so that no size is rounded by a float.
    number = term["number"].replace("_", "")
    return int(number) * scale if number.isdigit() else round(float(number) * scale)


def parse_seconds(value: Duration, *, name: str = "duration") -> float:
    """How many seconds `value` means; terms add up, and a bare number is seconds.

    >>> parse_seconds("7 days"), parse_seconds("500 ms"), parse_seconds("1 h 30 min"), parse_seconds(2)
    (604800.0, 0.5, 5400.0, 2.0)
    """
    seconds = _seconds(value)
    if seconds is None or not 0 <= seconds < math.inf:
        raise ArgumentInvalid(name=name, value=value, expected='a duration such as "7 days", "500 ms" or 2.5')
    return seconds


def _seconds(value: object) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return _seconds_of_text(value) if isinstance(value, str) else None


def _seconds_of_text(text: str) -> float | None:
    total, position = 0.0, 0
    while position < len(text) or not text:
        term = _TERM.match(text, position)
        scale = _SECONDS.get(term["unit"].lower()) if term else None
        if term is None or scale is None:
            return None
        # A bare number is only clear when it stands alone: "1 h 30" could mean minutes or seconds.
        if not term["unit"] and term.span() != (0, len(text)):
            return None
        number = float(term["number"])
        # 1e-3 is no exact binary fraction, but 1000 is: dividing gives the float nearest to what was written.
        total += number * scale if scale >= 1 else number / round(1 / scale)
        position = term.end()
    return total


def format_bytes(count: int) -> str:
    """A size for people, with at most one decimal.

    >>> format_bytes(67108864), format_bytes(1536), format_bytes(999)
    ('64 MiB', '1.5 KiB', '999 B')
    """
    for scale, unit in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        # 0.9995 rather than 1: what would round to "1024 KiB" is "1 MiB".
        if abs(count) >= scale * 0.9995:
            return f"{_short(count / scale)} {unit}"
    return f"{count} B"


def format_seconds(seconds: float) -> str:
    """A duration for people, with at most one decimal.

    >>> format_seconds(604800), format_seconds(90), format_seconds(0.005), format_seconds(0)
    ('7 days', '1.5 min', '5 ms', '0 s')
    """
    for scale, unit in ((DAY, "days"), (HOUR, "h"), (MINUTE, "min"), (1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= scale * 0.9995:
            number = _short(seconds / scale)
            return f"{number} day" if (number, unit) == ("1", "days") else f"{number} {unit}"
    return f"{_short(seconds * 1e6)} µs" if seconds else "0 s"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
