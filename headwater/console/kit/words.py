"""Numbers, sizes, times and long texts as people read and write them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from headwater.errors import ArgumentInvalid


def count(value: float) -> str:
    """A whole number, exactly.

    >>> count(73314510714175488)
    '73,314,510,714,175,488'
    """
    return f"{int(value):,}"


def whole_number(text: str, *, expected: str, name: str = "place", least: int | None = None) -> int:
    """A whole number as people write it.

    >>> whole_number(" -1,200 ", expected="a number")
    -1200
    """
    bare = re.sub(r"[\s,_]", "", text).replace("−", "-")
    # More than 18 digits may not fit into 64 bits.
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", bare) or (least is not None and int(bare) < least):
        raise ArgumentInvalid(name=name, value=text, expected=expected)
    return int(bare)


def offset_number(text: str, *, name: str = "offset") -> int:
    """An offset, or the number of a partition, in an address or a form."""
    return whole_number(text, expected="a whole number, such as 1200", name=name, least=0)


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "column"), counted(1_200, "row")
    ('1 column', '1,200 rows')
    """
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def clipped(text: str, length: int) -> str:
    """A text, cut if it is longer.

    >>> clipped("abc", 3), clipped("abcd", 3)
    ('abc', 'ab…')
    """
    return text if len(text) <= length else text[: length - 1] + "…"


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


def duration(seconds: float) -> str:
    """How long a computation took.

    >>> duration(0.0424), duration(75)
    ('0.042 s', '1 min 15 s')
    """
    return span(seconds) if seconds >= 1 else f"{seconds:.3f} s"


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
