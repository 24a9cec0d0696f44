"""Everything that a document can have, by number: terms, patterns that one of its words fits, fields that it has at all.

Numbers are given once and never change, so that all parts of an index speak of the same.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headwater.operators.percolate.query.builder import regex_of
from headwater.operators.percolate.query.fields import Fields, Ip, Text, address_bits
from headwater.operators.percolate.query.tree import Fuzzy, Prefix, Range, Regex, Wildcard

#: Words whose numbers are known without looking them up again.
WORDS_KNOWN_MAX = 500_000
#: Longer words have too many rests; patterns that long are tried directly.
RESTS_LENGTH_MAX = 24
_PLAIN_START = re.compile(r"(?:[A-Za-z0-9_](?![*?{+]))+")


class Terms:
    """The numbers, and for each word of a field those that it stands for."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        #: Of each number, whether it is a term; the others have no frequency that could count.
        self._is_term = array("b")
        #: Of each number, the field whose words it is about.
        self._field = array("i")
        self._field_names: list[str] = [""]
        self.exists: dict[str, int] = {}
        #: Fields with numbers or dates that some query asks for, and those with points: by path.
        self.numbers: dict[str, int] = {}
        self.points: dict[str, int] = {}
        self._terms: dict[str, dict[str, int]] = {}
        self._patterns: dict[str, Patterns] = {}
        self._known: dict[str, dict[str, tuple[int, ...]]] = {}
        self._known_count = 0

    @property
    def size(self) -> int:
        return len(self._is_term)

    def are_terms(self) -> npt.NDArray[np.bool_]:
        return np.array(self._is_term, bool)

    def field_of(self, number: int) -> str:
        """The field whose words a number is about; empty where it is only about a field being there."""
        return self._field_names[self._field[number]]

    @property
    def words(self) -> set[str]:
        """The fields whose words some query asks for."""
        return {*self._terms, *self._patterns}

    def term(self, field: str, term: str) -> int:
        terms = self._terms.setdefault(field, {})
        found = terms.get(term)
        if found is None:
            found = terms[term] = self._new(field, is_term=True)
        return found

    def pattern(self, pattern: Pattern) -> int:
        patterns = self._patterns.setdefault(pattern.field, Patterns())
        plain = replace(pattern, boost=1.0)
        found = patterns.number(plain)
        if found is None:
            found = self._new(pattern.field, is_term=False)
            patterns.add(plain, found)
        return found

    def existing(self, path: str) -> int:
        if path not in self.exists:
            self.exists[path] = self._new("", is_term=False)
        return self.exists[path]

    def number(self, path: str) -> int:
        return self.numbers.setdefault(path, len(self.numbers))

    def point(self, path: str) -> int:
        return self.points.setdefault(path, len(self.points))

    def is_words(self, range_: Range) -> bool:
        """Whether a range is one of words, and so a pattern."""
        bounds = (range_.gt, range_.gte, range_.lt, range_.lte)
        return any(isinstance(bound, str) for bound in bounds)

    def of_words(self, field: str, words: list[str]) -> list[tuple[int, ...]]:
        """For each of some different words of a field, as they are written, the numbers that they stand for."""
        known = self._known.setdefault(field, {})
        found = []
        for word in words:
            numbers = known.get(word)
            if numbers is None:
                numbers = self._looked_up(field, word)
                if self._known_count >= WORDS_KNOWN_MAX:
                    self._forget()
                    known = self._known.setdefault(field, {})
                known[word] = numbers
                self._known_count += 1
            found.append(numbers)
        return found

    def _looked_up(self, field: str, word: str) -> tuple[int, ...]:
        kind = self.fields.kinds[field]
        seen, term = word, word
        if isinstance(kind, Text):
            analysed = kind.analyzer.term(word)
            if analysed is None:
                return ()
            seen, term = kind.analyzer.seen(word), analysed
        elif isinstance(kind, Ip):
            bits = address_bits(word)
            if bits is None:
                return ()
            seen = term = bits
        number = self._terms.get(field, {}).get(term)
        patterns = self._patterns.get(field)
        fitting = tuple(patterns.fitting(seen)) if patterns is not None else ()
        return fitting if number is None else (number, *fitting)

    def _new(self, field: str, *, is_term: bool) -> int:
        self._forget()
        if field not in self._field_names:
            self._field_names.append(field)
        self._field.append(self._field_names.index(field))
        self._is_term.append(is_term)
        return len(self._is_term) - 1

    def _forget(self) -> None:
        if self._known_count:
            self._known.clear()
            self._known_count = 0


Pattern: TypeAlias = Prefix | Wildcard | Fuzzy | Regex | Range


class Patterns:
    """The patterns of one field, each with the number by which queries know it."""

    def __init__(self) -> None:
        self._numbers: dict[Pattern, int] = {}
        self._prefixes: dict[str, list[int]] = {}
        self._filed: dict[str, list[tuple[Pattern, int]]] = {}
        self._tried: list[tuple[Pattern, int]] = []
        self._lengths: set[int] = set()
        self._has_trigrams = False
        self._distance = 0

    def number(self, pattern: Pattern) -> int | None:
        return self._numbers.get(pattern)

    def add(self, pattern: Pattern, number: int) -> None:
        self._numbers[pattern] = number
        if isinstance(pattern, Prefix):
            self._prefixes.setdefault(pattern.value, []).append(number)
            self._lengths.add(len(pattern.value))
            return
        marks = self._marks(pattern)
        if not marks:
            self._tried.append((pattern, number))
        for mark in marks:
            self._filed.setdefault(mark, []).append((pattern, number))

    def fitting(self, word: str) -> Iterator[int]:
        """The numbers of all patterns that a word fits."""
        for length in self._lengths:
            if length <= len(word):
                yield from self._prefixes.get(word[:length], ())
        near: dict[int, Pattern] = {}
        for mark in self._of(word):
            for pattern, number in self._filed.get(mark, ()):
                near[number] = pattern
        for pattern, number in (*((one, number) for number, one in near.items()), *self._tried):
            if fits(pattern, word):
                yield number

    def _of(self, word: str) -> Iterator[str]:
        """The marks that a word has."""
        if not self._filed:
            return
        for length in self._lengths:
            yield f"^{word[:length]}"
        if self._has_trigrams:
            for place in range(len(word) - 2):
                yield f"*{word[place : place + 3]}"
        if self._distance and len(word) <= RESTS_LENGTH_MAX + self._distance:
            for rest in rests(word, self._distance):
                yield f"-{rest}"

    def _marks(self, pattern: Pattern) -> list[str]:
        start, trigram_source = "", ""
        if isinstance(pattern, Wildcard):
            literals = literals_of(pattern.pattern)
            start, trigram_source = literals[0], max(literals, key=len)
        elif isinstance(pattern, Regex):
            found = _PLAIN_START.match(pattern.pattern) if "|" not in pattern.pattern else None
            start = found[0] if found is not None else ""
        elif isinstance(pattern, Fuzzy):
            start = pattern.value[: pattern.prefix_length]
            if not start and pattern.distance and len(pattern.value) <= RESTS_LENGTH_MAX:
                self._distance = max(self._distance, pattern.distance)
                return [f"-{rest}" for rest in rests(pattern.value, pattern.distance)]
        if len(start) < 3 <= len(trigram_source):
            self._has_trigrams = True
            return [f"*{trigram_source[:3]}"]
        if start:
            self._lengths.add(len(start))
            return [f"^{start}"]
        return []


def fits(pattern: Pattern, word: str) -> bool:
    """Whether one word fits one pattern."""
    if isinstance(pattern, Prefix):
        return word.startswith(pattern.value)
    if isinstance(pattern, Wildcard):
        return glob(pattern.pattern, word)
    if isinstance(pattern, Regex):
        return _compiled(pattern.pattern).fullmatch(word) is not None
    if isinstance(pattern, Fuzzy):
        return _is_near(pattern, word)
    return (
        (pattern.gt is None or word > str(pattern.gt))
        and (pattern.gte is None or word >= str(pattern.gte))
        and (pattern.lt is None or word < str(pattern.lt))
        and (pattern.lte is None or word <= str(pattern.lte))
    )


def _is_near(pattern: Fuzzy, word: str) -> bool:
    from rapidfuzz.distance import OSA

    if word[: pattern.prefix_length] != pattern.value[: pattern.prefix_length]:
        return False
    return OSA.distance(pattern.value, word, score_cutoff=pattern.distance) <= pattern.distance


# Any: RE2 has no types. Few are kept: compiled ones are large.
_compiled: Callable[[str], Any] = lru_cache(maxsize=4096)(regex_of)


def rests(word: str, distance: int) -> set[str]:
    """What is left of a word when up to so many characters are taken away.

    >>> sorted(rests("abc", 1))
    ['ab', 'abc', 'ac', 'bc']
    """
    found = newest = {word}
    for _ in range(distance):
        newest = {one[:place] + one[place + 1 :] for one in newest for place in range(len(one))}
        found = found | newest
    return found


def literals_of(pattern: str) -> list[str]:
    """What stands between the wildcards of a pattern, the first and the last at its ends.

    >>> literals_of("st*e?m"), literals_of("*x*")
    (['st', 'e', 'm'], ['', 'x', ''])
    """
    return ["".join(sign for sign, _ in run) for run in _runs(signs_of(pattern))]


def signs_of(pattern: str) -> list[tuple[str, bool]]:
    """The signs of a pattern, and of each whether it is a wildcard."""
    signs: list[tuple[str, bool]] = []
    escaped = False
    for sign in pattern:
        if escaped:
            signs.append((sign, False))
            escaped = False
        elif sign == "\\":
            escaped = True
        else:
            signs.append((sign, sign in "*?"))
    return signs


def _runs(signs: list[tuple[str, bool]]) -> list[list[tuple[str, bool]]]:
    runs: list[list[tuple[str, bool]]] = [[]]
    for sign in signs:
        if sign[1]:
            runs.append([])
        else:
            runs[-1].append(sign)
    return runs


def glob(pattern: str, word: str) -> bool:
    """Whether a word is as a pattern with wildcards says. Goes back only to the last star, so it never explodes.

    >>> glob("s*a?", "stream"), glob("s*a?", "streak"), glob("*", "")
    (True, True, True)
    """
    signs = signs_of(pattern)
    at = place = 0
    star, kept = -1, 0
    while place < len(word):
        if at < len(signs) and signs[at] == ("*", True):
            star, kept = at, place
            at += 1
        elif at < len(signs) and (signs[at] == ("?", True) or signs[at] == (word[place], False)):
            at += 1
            place += 1
        elif star >= 0:
            kept += 1
            at, place = star + 1, kept
        else:
            return False
    return all(sign == ("*", True) for sign in signs[at:])
