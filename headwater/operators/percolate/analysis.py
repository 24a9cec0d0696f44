"""From text to terms: words are runs of letters, digits and underscores, in lower case, without stop words, stemmed.

Splitting is done by Arrow over whole columns; everything after it is done once for each distinct word.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import PackageMissing

NOT_WORD = r"[^\p{L}\p{M}\p{N}_]+"
#: Scripts without spaces between words: each sign is a word.
SIGN = r"([\p{Han}\p{Hiragana}])"
_ASCII_WORD = re.compile(r"[a-zA-Z0-9_]+")
#: The words that Lucene leaves out of English text, where stop words are asked for and none are given.
ENGLISH_STOP_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "but",
        "by",
        "for",
        "if",
        "in",
        "into",
        "is",
        "it",
        "no",
        "not",
        "of",
        "on",
        "or",
        "such",
        "that",
        "the",
        "their",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "was",
        "will",
        "with",
    ]
)


def split_all(texts: pa.Array) -> pa.ListArray:
    """The words of each text as they are written; an empty one may stand at either end."""
    plain = pc.replace_substring_regex(texts, NOT_WORD, " ")
    if pc.any(pc.match_substring_regex(plain, SIGN)).as_py():
        plain = pc.replace_substring_regex(plain, SIGN, r" \1 ")
    return pc.split_pattern(plain, " ")


def split(text: str) -> list[str]:
    """The words of one text.

    >>> split("Don't stop: Zürich-West, 東京!")
    ['Don', 't', 'stop', 'Zürich', 'West', '東', '京']
    """
    if text.isascii():
        return _ASCII_WORD.findall(text)
    return [word for word in split_all(pa.array([text]))[0].as_py() if word]


def spans(text: str) -> list[tuple[int, int]]:
    """Where the words of a text begin and end.

    >>> spans("one, two")
    [(0, 3), (5, 8)]
    """
    if text.isascii():
        return [match.span() for match in _ASCII_WORD.finditer(text)]
    found, place = [], 0
    for word in split(text):  # between two words there are no letters, so that each is where it is first seen
        start = text.index(word, place)
        place = start + len(word)
        found.append((start, place))
    return found


@cache
def stemmer(language: str):  # type: ignore[no-untyped-def]  # PyStemmer has no types
    """The stemmer of a language, made once per process."""
    need("Stemmer")
    import Stemmer

    return Stemmer.Stemmer(language)


def languages() -> list[str]:
    need("Stemmer")
    import Stemmer

    return list(Stemmer.algorithms())


def need(package: str) -> None:
    if find_spec(package) is None:
        raise PackageMissing(package=package, extra="search")


class Analyzer:
    """Terms of one kind of field. Equal words give equal terms, so what was found is kept."""

    def __init__(self, language: str | None, stop_words: frozenset[str]) -> None:
        self._stem = None if language is None else stemmer(language).stemWord
        self._stop_words = stop_words
        self._known: dict[str, list[str | None]] = {}

    def term(self, word: str) -> str | None:
        """The term of a word, None for a stop word."""
        lower = word.lower()
        if lower in self._stop_words:
            return None
        return lower if self._stem is None else str(self._stem(lower))

    def words(self, text: str) -> list[str]:
        """The words of a text in lower case, as patterns see them, without stop words."""
        return [lower for word in split(text) if (lower := word.lower()) not in self._stop_words]

    def terms(self, text: str) -> list[str | None]:
        """The terms of a text, in order, with None in the place of a stop word."""
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= 100_000:
                self._known.clear()
            found = self._known[text] = [self.term(word) for word in split(text)]
        return found
