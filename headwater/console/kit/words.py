"""Numbers, sizes and times as people read and write them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from headwater.errors import ArgumentInvalid


def count(value: float) -> str:
    """A whole number, exactly.

    >>> count(73314510714175488)
    '73,314,510,714,175,488'
    """
    return f"{int(value):,}"


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


def counted(number: int, noun: str) -> str:
    """How many of something there are.

    >>> counted(1, "column"), counted(1_200, "row")
    ('1 column', '1,200 rows')
    """
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def short(value: float) -> str:
    """A number in three or four characters.

    >>> short(0.25), short(950), short(12_345), short(7_654_321)
    ('0.2', '950', '12.3 k', '7.65 M')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            shown = value / size
            return f"{shown:.{0 if shown >= 100 else 1 if shown >= 10 else 2}f} {letter}"
    return f"{value:.1f}" if 0 < abs(value) < 10 and value != int(value) else f"{value:.0f}"


def size(value: float) -> str:
    """Bytes.

    >>> size(0), size(2048), size(5 * 1024**3)
    ('0 B', '2.0 KiB', '5.0 GiB')
    """
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return f"{value / 1024**power:.1f} {unit}"
    return f"{value:.0f} B"


def span(seconds: float | None) -> str:
    """A length of time.

    >>> span(0.4), span(75), span(7300), span(200_000), span(None)
    ('0.4 s', '1 min 15 s', '2 h 1 min', '2 d 7 h', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for first, second, factor in (("d", "h", 86_400), ("h", "min", 3_600), ("min", "s", 60)):
        if whole >= factor:
            rest = whole % factor // {"d": 3_600, "h": 60, "min": 1}[first]
            return f"{whole // factor} {first}" + (f" {rest} {second}" if rest else "")
    return f"{whole} s"


def ago(us: int | None) -> str:
    """How long ago a moment was, given in microseconds since 1970."""
    return "never" if us is None else f"{span(max(0.0, time.time() - us / 1e6))} ago"


def moment(us: int | None) -> str:
    """A moment in UTC to the millisecond.

    >>> moment(0)
    '1970-01-01 00:00:00.000'
    """
    if us is None:
        return "–"
    try:
        return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):
        return str(us)
