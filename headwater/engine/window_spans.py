"""Which windows a time falls into, as arithmetic on whole columns.

Time is cut into slices, none of which any window divides: a row belongs to one slice, a slice to all windows that hold
it. So a row is aggregated once, however many windows overlap. A window holds its start and not its end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from headwater.engine.aggregation import Int64s
from headwater.engine.event_time import EVER
from headwater.errors import ArgumentInvalid
from headwater.units import Duration, parse_seconds

#: No window is longer: a size in the wrong unit must not keep everything for ever.
LONGEST_SECONDS = 10 * 366 * 86_400.0
UNITS = {"day": 1, "week": 7, "month": 1, "quarter": 3, "year": 12}
QUARTER_HOUR_US = 15 * 60 * 1_000_000


class Held(NamedTuple):
    """Windows of slices: slice number `slices[i]` is held by the window that begins at `starts[i]`."""

    slices: Int64s
    starts: Int64s


class Spans(Protocol):
    """How time is cut into windows."""

    def slices(self, at_us: Int64s) -> Int64s:
        """Where the slice of each time begins."""

    def inside(self, slices: Int64s) -> npt.NDArray[np.bool_] | None:
        """Which slices some window holds; `None` where all are held."""

    def windows(self, slices: Int64s) -> Held:
        """All windows that hold each slice."""

    def ends(self, starts: Int64s) -> Int64s:
        """Where windows end, by where they begin."""

    def last_ends(self, slices: Int64s) -> Int64s:
        """Where the last window ends that holds each slice."""


@dataclass(frozen=True)
class Fixed:
    """Windows of one size that begin every period, counted from 1970-01-01T00:00Z plus an offset.

    >>> Fixed(10, 5).windows(np.array([5])).starts.tolist()
    [5, 0]
    >>> Fixed(10).slices(np.array([-1, 0, 19])).tolist()
    [-10, 0, 10]
    """

    size_us: int
    period_us: int = 0
    offset_us: int = 0

    @property
    def _period(self) -> int:
        return self.period_us or self.size_us

    @property
    def _slice(self) -> int:
        return math.gcd(self.size_us, self._period)

    def slices(self, at_us: Int64s) -> Int64s:
        return _floored(at_us, self._slice, self.offset_us)

    def inside(self, slices: Int64s) -> npt.NDArray[np.bool_] | None:
        if self._period <= self.size_us:
            return None
        return slices < _floored(slices, self._period, self.offset_us) + self.size_us

    def windows(self, slices: Int64s) -> Held:
        newest = _floored(slices, self._period, self.offset_us)
        most = -(-self.size_us // self._period)
        starts = newest[:, None] - np.arange(most) * self._period
        held = starts + self.size_us > slices[:, None]
        return Held(np.nonzero(held)[0], starts[held])

    def ends(self, starts: Int64s) -> Int64s:
        return starts + self.size_us

    def last_ends(self, slices: Int64s) -> Int64s:
        return _floored(slices, self._period, self.offset_us) + self.size_us


def _floored(at_us: Int64s, width: int, offset: int) -> Int64s:
    # Towards the past, also before 1970: a window that begins below zero is like any other.
    floored: Int64s = (at_us - offset) // width * width + offset
    return floored


@dataclass(frozen=True)
class Calendar:
    """Days, weeks (from Monday), months, quarters or years as the clocks on a wall have them: some days have 23 hours.

    >>> berlin = Calendar("day", 1, "Europe/Berlin")
    >>> start = berlin.slices(np.array([1711872000_000000]))  # 2024-03-31T08:00Z: the day on which clocks go forward
    >>> int((berlin.ends(start) - start)[0]) // 3_600_000_000
    23
    """

    unit: str
    count: int = 1
    zone: str = "UTC"

    def slices(self, at_us: Int64s) -> Int64s:
        quarters, where = np.unique(at_us // QUARTER_HOUR_US, return_inverse=True)
        begins = np.array([self._start(int(one) * QUARTER_HOUR_US) for one in quarters], np.int64)
        ends = np.array([self._start((int(one) + 1) * QUARTER_HOUR_US - 1) for one in quarters], np.int64)
        found: Int64s = begins[where]
        for row in np.flatnonzero((begins != ends)[where]):  # a day that begins within a quarter of an hour: long ago
            found[row] = self._start(int(at_us[row]))
        return found

    def inside(self, slices: Int64s) -> npt.NDArray[np.bool_] | None:  # noqa: ARG002 - the calendar has no gaps
        return None

    def windows(self, slices: Int64s) -> Held:
        return Held(np.arange(len(slices)), slices)

    def ends(self, starts: Int64s) -> Int64s:
        known, where = np.unique(starts, return_inverse=True)
        found: Int64s = np.array([self._next(int(one)) for one in known], np.int64)[where]
        return found

    def last_ends(self, slices: Int64s) -> Int64s:
        return self.ends(slices)

    def _start(self, at_us: int) -> int:
        seconds, micros = divmod(at_us, 1_000_000)
        local = datetime.fromtimestamp(seconds, ZoneInfo(self.zone)) + timedelta(microseconds=micros)
        return self._midnight(self._first_day(local.date()))

    def _next(self, start_us: int) -> int:
        local = datetime.fromtimestamp(start_us // 1_000_000, ZoneInfo(self.zone)).date()
        if self.unit in ("day", "week"):
            return self._midnight(local + timedelta(days=self.count * UNITS[self.unit]))
        months = local.year * 12 + local.month - 1 + self.count * UNITS[self.unit]
        return self._midnight(date(months // 12, months % 12 + 1, 1))

    def _first_day(self, day: date) -> date:
        if self.unit == "day":
            return day - timedelta(days=(day - date(1970, 1, 1)).days % self.count)
        if self.unit == "week":
            weeks = (day - date(1970, 1, 5)).days // 7  # a Monday
            return date(1970, 1, 5) + timedelta(weeks=weeks - weeks % self.count)
        width = self.count * UNITS[self.unit]
        months = day.year * 12 + day.month - 1
        months -= (months - 1970 * 12) % width
        return date(months // 12, months % 12 + 1, 1)

    def _midnight(self, day: date) -> int:
        """When the day begins. Where clocks go forward at midnight, that is when they do."""
        local = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(self.zone))
        return round(local.astimezone(UTC).timestamp()) * 1_000_000


@dataclass(frozen=True)
class Whole:
    """One window of all time, which ends with the input.

    >>> Whole().windows(np.array([0, 0])).starts.tolist()
    [0, 0]
    """

    def slices(self, at_us: Int64s) -> Int64s:
        return np.zeros(len(at_us), np.int64)

    def inside(self, slices: Int64s) -> npt.NDArray[np.bool_] | None:  # noqa: ARG002 - all time is inside
        return None

    def windows(self, slices: Int64s) -> Held:
        return Held(np.arange(len(slices)), slices)

    def ends(self, starts: Int64s) -> Int64s:
        return np.full(len(starts), EVER, np.int64)

    def last_ends(self, slices: Int64s) -> Int64s:
        return self.ends(slices)


def fixed(*, size: Duration, period: Duration | None = None, offset: Duration = 0.0) -> Fixed:
    """Windows of a fixed length, checked."""
    size_us = duration_us("size", size)
    period_us = 0 if period is None else duration_us("period", period)
    sign, text = (-1, str(offset)[1:]) if str(offset).startswith("-") else (1, offset)
    return Fixed(size_us, period_us, sign * round(parse_seconds(text, name="offset") * 1e6))


def duration_us(name: str, value: Duration) -> int:
    """A length of time in microseconds: more than nothing, and not absurdly much."""
    seconds = parse_seconds(value, name=name)
    if not 0 < seconds <= LONGEST_SECONDS or round(seconds * 1e6) < 1:
        raise ArgumentInvalid(name=name, value=value, expected='a length such as "5 minutes", up to ten years')
    return round(seconds * 1e6)


def calendar(*, size: str, zone: str) -> Calendar:
    """Windows of the calendar, checked: "1 day", "2 weeks", "month", "1 quarter", "year"."""
    words = str(size).lower().split()
    count, unit = (words[0], words[1]) if len(words) == 2 else ("1", words[0] if words else "")
    unit = unit.removesuffix("s")
    longest = 3660 if unit in ("day", "week") else 120
    if unit not in UNITS or not count.isdigit() or not 0 < int(count) * UNITS[unit] <= longest:
        expected = 'days, weeks, months, quarters or years, such as "1 month", and ten years at most'
        raise ArgumentInvalid(name="size", value=size, expected=expected)
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError) as error:  # a zone that is not found is a KeyError
        raise ArgumentInvalid(name="zone", value=zone, expected='a time zone such as "Europe/Berlin"') from error
    return Calendar(unit, int(count), zone)


def is_calendar(size: Duration) -> bool:
    """Whether a size means nothing without a calendar.

    >>> is_calendar("1 month"), is_calendar("30 days")
    (True, False)
    """
    words = str(size).lower().split()
    return bool(words) and words[-1].removesuffix("s") in ("month", "quarter", "year")
