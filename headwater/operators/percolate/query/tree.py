"""Queries as trees. Both languages are parsed into these, with their words analysed; nothing here knows of an index.

What a tree means is said here, and a naive matcher in the tests is written from it:

- a field holds values; text is split into terms, each with a place; a list has all values of its elements;
- a leaf is true of a document if one of the field's terms, words or values is as it says;
- terms and phrases look at terms (stemmed), patterns (prefix, wildcard, fuzzy, regular expression) at words as written,
  in lower case;
- dates are `2026`, `2026-11-15T10:30`, `now-1d/d`, `2026-01-01||+1M`; a date stands for its whole span.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Bound: TypeAlias = "float | str | Moment"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIXED_US = {"w": 604_800_000_000, "d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000}
_DATE = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)"
    r"(?:[T ](?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?)?)?)?)?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?$"
)
_STEP = re.compile(r"([+-])(\d*)([yMwdhHms])|/([yMwdhHms])")
#: The smallest part that a date names says how long it lasts.
_PARTS = (("second", "s"), ("minute", "m"), ("hour", "h"), ("day", "d"), ("month", "M"), ("year", "y"))
Step = tuple[int, str]


@dataclass(frozen=True, slots=True)
class All:
    """Every document."""

    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Nothing:
    """No document: what is left of a query of which nothing remains after analysis."""


@dataclass(frozen=True, slots=True)
class Term:
    """The field has this term."""

    field: str
    value: str
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Phrase:
    """The field has these terms at these places, relative to each other, give or take `slop`.

    There is an occurrence of each word, no two words at one, so that (its place less the word's own) differs by at most
    `slop` between any two.
    """

    field: str
    words: tuple[tuple[int, str], ...]
    slop: int = 0
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Prefix:
    """A word begins so."""

    field: str
    value: str
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A word is so from end to end: `*` stands for any characters, `?` for one, a backslash takes a character as it is."""

    field: str
    pattern: str
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """A word is at most `distance` characters inserted, deleted, replaced, or swapped with their neighbour, away."""

    field: str
    value: str
    distance: int
    prefix_length: int = 0
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Regex:
    """A word matches from end to end."""

    field: str
    pattern: str
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Range:
    """A value lies between bounds: numbers, times in microseconds, times relative to now, or strings."""

    field: str
    gt: Bound | None = None
    gte: Bound | None = None
    lt: Bound | None = None
    lte: Bound | None = None
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Exists:
    """The field has a value."""

    field: str
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class GeoDistance:
    """A point lies within so many metres, on a sphere of the Earth's mean radius."""

    field: str
    latitude: float
    longitude: float
    metres: float
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Nested:
    """One element of the list at `path` satisfies the whole query by itself."""

    path: str
    query: Query
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Bool:
    """All of `must` and `filter`, none of `must_not`, and at least so many of `should`.

    `minimum_should_match` is 1 by itself where there is nothing in `must` and `filter`, else 0.
    Without anything but `must_not` it is true of all documents of which none of these is.
    """

    must: tuple[Query, ...] = ()
    should: tuple[Query, ...] = ()
    must_not: tuple[Query, ...] = ()
    filter: tuple[Query, ...] = ()
    minimum_should_match: int | None = None
    boost: float = 1.0

    @property
    def least(self) -> int:
        """How many of `should` must be true."""
        if self.minimum_should_match is not None:
            return self.minimum_should_match
        return 1 if self.should and not self.must and not self.filter else 0


Leaf: TypeAlias = "Term | Phrase | Prefix | Wildcard | Fuzzy | Regex | Range | Exists | GeoDistance"
Query: TypeAlias = "All | Nothing | Leaf | Nested | Bool"


@dataclass(frozen=True, slots=True)
class Moment:
    """A time relative to the document's own: steps such as (-1, "d"), and (0, "d") for "to the day".

    `end` rounds up, to the last microsecond, as `gt` and `lte` do.
    """

    steps: tuple[Step, ...]
    end: bool = False

    @property
    def fixed_us(self) -> int | None:
        """How far it lies from now, where that is the same at all times."""
        total = 0
        for amount, unit in self.steps:
            if not amount or unit not in FIXED_US:
                return None
            total += amount * FIXED_US[unit]
        return total

    def at_us(self, now_us: int) -> int:
        return stepped(now_us, self.steps, end=self.end)


def parse_moment(text: str, *, end: bool) -> int | Moment:
    """A bound: microseconds, or a moment where it depends on now. `end` is for the last microsecond of its span.

    >>> parse_moment("1970-01-02", end=False), parse_moment("1970-01-01T00:00:01", end=True)
    (86400000000, 1999999)
    >>> parse_moment("now-1d/d", end=False)
    Moment(steps=((-1, 'd'), (0, 'd')), end=False)
    """
    if text.startswith("now"):
        return Moment(_steps(text[3:]), end)
    date, has_steps, rest = text.partition("||")
    start, last = span(date)
    return stepped(start, _steps(rest), end=end) if has_steps else (last if end else start)


def span(text: str) -> tuple[int, int]:
    """The first and the last microsecond of what a date names."""
    found = _DATE.match(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no date such as 2026-11-15, 2026-11-15T10:30:00Z or now-1d/d")
    numbers = {
        name: int(value) for name, value in found.groupdict().items() if value and name not in ("zone", "fraction")
    }
    try:
        start = datetime(**{"month": 1, "day": 1, **numbers}, tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f"{text!r} is no date: {error}") from None
    start_us = micros(start) - _zone_us(found["zone"])
    if found["fraction"]:
        return (exact := start_us + int(found["fraction"].ljust(6, "0"))), exact
    unit = next(unit for name, unit in _PARTS if name in numbers)
    return start_us, added(start_us, 1, unit) - 1


def stepped(at_us: int, steps: tuple[Step, ...], *, end: bool) -> int:
    for amount, unit in steps:
        if amount:
            at_us = added(at_us, amount, unit)
        else:
            at_us = floor(at_us, unit)
            if end:
                at_us = added(at_us, 1, unit) - 1
    return at_us


def added(at_us: int, amount: int, unit: str) -> int:
    """So many units later; a month later than the 31st is the last day of the next. Time ends with the year 9999."""
    if unit in FIXED_US:
        return at_us + amount * FIXED_US[unit]
    at = datetime_of(at_us)
    months = at.year * 12 + at.month - 1 + amount * (12 if unit == "y" else 1)
    year, month = divmod(months, 12)
    if not FIRST.year <= year < LAST.year:
        return micros(FIRST if year < FIRST.year else LAST)
    first = at.replace(year=year, month=month + 1, day=1)
    after = first.replace(year=year + month // 11, month=(month + 1) % 12 + 1)
    return micros(first.replace(day=min(at.day, (after - first).days)))


def floor(at_us: int, unit: str) -> int:
    """The beginning of the unit that the time falls in; weeks begin on Mondays."""
    if unit == "w":
        monday = FIXED_US["d"] * 4  # 1970-01-01 was a Thursday
        return (at_us - monday) // FIXED_US["w"] * FIXED_US["w"] + monday
    if unit in FIXED_US:
        return at_us // FIXED_US[unit] * FIXED_US[unit]
    start = datetime_of(at_us).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return micros(start if unit == "M" else start.replace(month=1))


def datetime_of(at_us: int) -> datetime:
    """A time as a date, the nearest that a calendar has."""
    return EPOCH + min(max(at_us, micros(FIRST)), micros(LAST)) * MICROSECOND


def micros(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


def _steps(text: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    place = 0
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            raise ValueError(f"{text[place:]!r} is no step such as -1d or /d")
        if found[4]:
            steps.append((0, found[4].replace("H", "h")))
        else:
            amount = int(found[2] or 1) * (1 if found[1] == "+" else -1)
            if not amount or abs(amount) > 1_000_000:
                raise ValueError(f"{found[0]!r} steps too far, or nowhere")
            steps.append((amount, found[3].replace("H", "h")))
        place = found.end()
    return tuple(steps)


def _zone_us(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    return (1 if zone[0] == "+" else -1) * minutes * FIXED_US["m"]
