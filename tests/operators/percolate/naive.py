"""A matcher written from the definition: one document, one query, no index, nothing of what the operator does.

It takes trees, as both languages are read into them, and documents as dictionaries. Analysis is given by the caller.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from headwater.operators.percolate.query.tree import (
    All,
    Bool,
    Exists,
    Fuzzy,
    GeoDistance,
    Moment,
    Nested,
    Nothing,
    Phrase,
    Prefix,
    Query,
    Range,
    Regex,
    Term,
    Wildcard,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Document = dict[str, Any]


@dataclass(frozen=True)
class Naive:
    """`stems` maps a word in lower case to its term, None for a stop word; `texts` are the fields with words."""

    texts: frozenset[str]
    stem: Callable[[str], str | None]
    now: datetime

    # -- truth --------------------------------------------------------------------------------------------------------

    def true_of(self, query: Query, document: Document, prefix: str = "") -> bool:
        return self.score(query, document, prefix) is not None

    def score(self, query: Query, document: Document, prefix: str = "") -> float | None:
        """None where the query is not true; else the sum of what is, each occurrence counting less."""
        if isinstance(query, Nothing):
            return None
        if isinstance(query, All):
            return query.boost
        if isinstance(query, Bool):
            return self._bool(query, document, prefix)
        if isinstance(query, Nested):
            elements = [one for one in values(document, relative(query.path, prefix)) if isinstance(one, dict)]
            scores = [self.score(query.query, one, f"{query.path}.") for one in elements]
            good = [one for one in scores if one is not None]
            return query.boost * max(good) if good else None
        if isinstance(query, Term):
            count = sum(term == query.value for _, _, term in self._words(document, query.field, prefix))
            return query.boost * count * 2.2 / (count + 1.2) if count else None
        return query.boost if self._leaf(query, document, prefix) else None

    def _bool(self, query: Bool, document: Document, prefix: str) -> float | None:
        must = [self.score(one, document, prefix) for one in query.must]
        should = [self.score(one, document, prefix) for one in query.should]
        if any(one is None for one in must):
            return None
        if any(not self.true_of(one, document, prefix) for one in query.filter):
            return None
        if any(self.true_of(one, document, prefix) for one in query.must_not):
            return None
        least = query.minimum_should_match
        if least is None:
            least = 1 if query.should and not query.must and not query.filter else 0
        if sum(one is not None for one in should) < least:
            return None
        return query.boost * sum(one for one in (*must, *should) if one is not None)

    def _leaf(self, query: Query, document: Document, prefix: str) -> bool:
        assert isinstance(query, Phrase | Prefix | Wildcard | Fuzzy | Regex | Range | Exists | GeoDistance)
        if isinstance(query, Exists):
            return any(True for _ in leaves(values(document, relative(query.field, prefix))))
        if isinstance(query, GeoDistance):
            return any(
                metres(one["lat"], one["lon"], query.latitude, query.longitude) <= query.metres
                for one in values(document, relative(query.field, prefix))
            )
        if isinstance(query, Phrase):
            return self._phrase(query, document, prefix)
        if isinstance(query, Range) and not any(isinstance(bound, str) for bound in bounds_of(query)):
            return any(self._between(query, one) for one in values(document, relative(query.field, prefix)))
        return any(self._fits(query, word) for _, word, _ in self._words(document, query.field, prefix))

    def _fits(self, query: Query, word: str) -> bool:
        if isinstance(query, Prefix):
            return word.startswith(query.value)
        if isinstance(query, Wildcard):
            parts = re.findall(r"\\.|[^\\]", query.pattern, re.DOTALL)
            told = "".join({"*": ".*", "?": "."}.get(part, re.escape(part[-1])) for part in parts)
            return re.fullmatch(told, word, re.DOTALL) is not None
        if isinstance(query, Regex):
            return re.fullmatch(query.pattern, word) is not None
        if isinstance(query, Fuzzy):
            same = word[: query.prefix_length] == query.value[: query.prefix_length]
            return same and edits(query.value, word) <= query.distance
        assert isinstance(query, Range)
        return self._between(query, word)

    def _between(self, query: Range, value: Any) -> bool:
        if isinstance(value, datetime):
            value = (value - EPOCH) // timedelta(microseconds=1)

        def at(bound: Any) -> Any:
            return calendar(bound, self.now) if isinstance(bound, Moment) else bound

        return (
            (query.gt is None or value > at(query.gt))
            and (query.gte is None or value >= at(query.gte))
            and (query.lt is None or value < at(query.lt))
            and (query.lte is None or value <= at(query.lte))
        )

    def _phrase(self, query: Phrase, document: Document, prefix: str) -> bool:
        words = list(self._words(document, query.field, prefix))
        choices = [[(place, place - own) for place, _, term in words if term == wanted] for own, wanted in query.words]
        for chosen in itertools.product(*choices):
            if len({place for place, _ in chosen}) == len(chosen):
                moved = [begin for _, begin in chosen]
                if max(moved) - min(moved) <= query.slop:
                    return True
        return False

    # -- words --------------------------------------------------------------------------------------------------------

    def _words(self, document: Document, field: str, prefix: str) -> Iterator[tuple[int, str, str]]:
        """Place, word and term of everything in a field; values are a hundred places apart."""
        place = 0
        for value in values(document, relative(field, prefix)):
            if field not in self.texts:
                yield (
                    place,
                    (str(value).lower() if isinstance(value, bool) else str(value)),
                    str(str(value).lower() if isinstance(value, bool) else value),
                )
                place += 1
                continue
            for word in re.findall(r"\w+", value):
                term = self.stem(word.lower())
                if term is not None:
                    yield place, word.lower(), term
                place += 1
            place += 100


def bounds_of(query: Range) -> tuple[Any, ...]:
    return query.gt, query.gte, query.lt, query.lte


def relative(path: str, prefix: str) -> str | None:
    """The path as seen from an element; None for fields that an element does not have."""
    return path.removeprefix(prefix) if path.startswith(prefix) else None


def values(document: Any, path: str | None) -> Iterator[Any]:
    """Everything at a path, out of lists and dictionaries."""
    if path is None or document is None:
        return
    if isinstance(document, list):
        for one in document:
            yield from values(one, path)
    elif not path:
        yield document
    elif isinstance(document, dict):
        first, _, rest = path.partition(".")
        yield from values(document.get(first), rest)


def leaves(found: Any) -> Iterator[Any]:
    for one in found:
        if isinstance(one, dict) and set(one) != {"lat", "lon"}:
            yield from leaves(one.values())
        elif isinstance(one, list):
            yield from leaves(one)
        elif one is not None:
            yield one


def edits(left: str, right: str) -> int:
    """Characters inserted, deleted, replaced or swapped with their neighbour; nothing is edited twice."""
    table = {(row, -1): row + 1 for row in range(-1, len(left))} | {
        (-1, column): column + 1 for column in range(len(right))
    }
    for row, column in itertools.product(range(len(left)), range(len(right))):
        cost = int(left[row] != right[column])
        best = min(table[row - 1, column] + 1, table[row, column - 1] + 1, table[row - 1, column - 1] + cost)
        if row and column and left[row] == right[column - 1] and left[row - 1] == right[column]:
            best = min(best, table[row - 2, column - 2] + 1)
        table[row, column] = best
    return table[len(left) - 1, len(right) - 1]


def metres(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """By the angle between two vectors."""

    def vector(north: float, east: float) -> tuple[float, float, float]:
        up, around = math.radians(north), math.radians(east)
        return math.cos(up) * math.cos(around), math.cos(up) * math.sin(around), math.sin(up)

    one, other = vector(latitude, longitude), vector(other_latitude, other_longitude)
    half = math.dist(one, other) / 2
    return 2 * 6_371_008.7714 * math.asin(min(1.0, half))


def calendar(moment: Moment, now: datetime) -> int:
    """A time relative to now, by calendar; `end` takes the last microsecond of what it was rounded to."""
    units = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
    at = now
    for amount, unit in moment.steps:
        if amount and unit in units:
            at += timedelta(**{units[unit]: amount})
        elif amount:
            at = months_later(at, amount * (12 if unit == "y" else 1))
        else:
            at = rounded(at, unit)
            if moment.end:
                after = (
                    months_later(at, 12 if unit == "y" else 1) if unit in "yM" else at + timedelta(**{units[unit]: 1})
                )
                at = after - timedelta(microseconds=1)
    return (at - EPOCH) // timedelta(microseconds=1)


def months_later(at: datetime, months: int) -> datetime:
    year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
    for day in range(at.day, 0, -1):
        try:
            return at.replace(year=year, month=month + 1, day=day)
        except ValueError:
            continue
    raise AssertionError("every month has a first day")


def rounded(at: datetime, unit: str) -> datetime:
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "w":
        return midnight - timedelta(days=at.weekday())
    return {
        "y": midnight.replace(month=1, day=1),
        "M": midnight.replace(day=1),
        "d": midnight,
        "h": at.replace(minute=0, second=0, microsecond=0),
        "m": at.replace(second=0, microsecond=0),
        "s": at.replace(microsecond=0),
    }[unit]
