"""Prefixes, wildcards, fuzzy words, regular expressions and ranges of words: which of them does a word satisfy?

Each pattern is filed under something that every word it fits must have: a beginning, three letters in a row, or, for
fuzzy words, what is left when letters are taken away from both (a word and one `n` edits away share such a rest). So a
word is tried against few of them; only patterns without such a mark are tried against all words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeAlias

from headwater.operators.percolate.query.making import regex_of
from headwater.operators.percolate.query.tree import Fuzzy, Prefix, Range, Regex, Wildcard

Pattern: TypeAlias = Prefix | Wildcard | Fuzzy | Regex | Range
#: Longer words have too many rests; patterns that long are tried directly.
RESTS_LENGTH_MAX = 24
_PLAIN_START = re.compile(r"(?:[A-Za-z0-9_](?![*?{+]))+")


class Patterns:
    """The patterns of one field, each with the number by which queries know it."""

    def __init__(self) -> None:
        self._numbers: dict[Pattern, int] = {}
        self._prefixes: dict[str, list[int]] = {}
        self._filed: dict[str, list[tuple[Pattern, int]]] = {}
        self._tried: list[tuple[Pattern, int]] = []
        self._lengths: set[int] = set()
        self._letters = False
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
        if self._letters:
            for place in range(len(word) - 2):
                yield f"*{word[place : place + 3]}"
        if self._distance and len(word) <= RESTS_LENGTH_MAX + self._distance:
            for rest in rests(word, self._distance):
                yield f"-{rest}"

    def _marks(self, pattern: Pattern) -> list[str]:
        start, letters = "", ""
        if isinstance(pattern, Wildcard):
            literals = literals_of(pattern.pattern)
            start, letters = literals[0], max(literals, key=len)
        elif isinstance(pattern, Regex):
            found = _PLAIN_START.match(pattern.pattern) if "|" not in pattern.pattern else None
            start = found[0] if found is not None else ""
        elif isinstance(pattern, Fuzzy):
            start = pattern.value[: pattern.prefix_length]
            if not start and pattern.distance and len(pattern.value) <= RESTS_LENGTH_MAX:
                self._distance = max(self._distance, pattern.distance)
                return [f"-{rest}" for rest in rests(pattern.value, pattern.distance)]
        if len(start) < 3 <= len(letters):
            self._letters = True
            return [f"*{letters[:3]}"]
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
@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Any:
    return regex_of(pattern)


def rests(word: str, distance: int) -> set[str]:
    """What is left of a word when up to so many letters are taken away.

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
