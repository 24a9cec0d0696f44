"""From text to terms: words are runs of letters, digits and underscores, in lower case, without stop words, stemmed.

Splitting is done over the bytes of whole columns; everything after it is done once for each distinct word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
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


@dataclass(frozen=True)
class Split:
    """The words of many texts: `words` has each once, `codes` says which stand in the texts, one after the other.

    `counts` says how many of them each text has. `starts` and `stops` say where they stand in it; None where some text
    has other than ASCII signs.
    """

    words: list[str]
    codes: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64] | None
    stops: npt.NDArray[np.int64] | None


#: Bytes that belong to words. Those beyond ASCII are looked at again, once for each distinct word.
_IS_WORD = np.array([chr(byte).isalnum() or byte >= 128 or chr(byte) == "_" for byte in range(256)])


def split_column(texts: pa.Array) -> Split:
    """The words of each text as they are written.

    >>> found = split_column(pa.array(["to be, or not to be", "Zürich-West"]))
    >>> [found.words[code] for code in found.codes], found.counts.tolist()
    (['to', 'be', 'or', 'not', 'to', 'be', 'Zürich', 'West'], [6, 2])
    """
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    held = texts.buffers()[2]
    data = np.frombuffer(held, np.uint8)[offsets[0] : offsets[-1]] if held is not None else np.zeros(0, np.uint8)
    borders = offsets - offsets[0]
    is_word = _IS_WORD[data]
    starts, stops = _runs(is_word, borders)
    ends = np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.int32)
    words = pa.StringArray.from_buffers(len(starts), pa.py_buffer(ends), pa.py_buffer(data[is_word]))
    coded = words.dictionary_encode()
    firsts = np.searchsorted(starts, borders)
    counts, codes = np.diff(firsts), np.asarray(coded.indices).astype(np.int64)
    distinct = coded.dictionary.to_pylist()
    if not len(data) or data.max() < 128:
        begin = np.repeat(borders[:-1], counts)
        return Split(distinct, codes, counts, starts - begin, stops - begin)
    return _split_further(distinct, codes, counts)


def _runs(is_word: npt.NDArray[np.bool_], borders: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], ...]:
    """Where runs of word bytes begin and end; none goes over a border between texts."""
    begins, ends = is_word.copy(), is_word.copy()
    begins[1:] &= ~is_word[:-1]
    ends[:-1] &= ~is_word[1:]
    inner = borders[(borders > 0) & (borders < len(is_word))]
    begins[inner] = is_word[inner]
    ends[inner - 1] = is_word[inner - 1]
    return np.flatnonzero(begins), np.flatnonzero(ends) + 1


def _split_further(words: list[str], codes: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> Split:
    """Words beyond ASCII split again: among their signs are some that belong to no word, or are words of their own."""
    odd = [number for number, word in enumerate(words) if not word.isascii()]
    parts = [[word] for word in words]
    for number, found in zip(odd, split_all(pa.array([words[number] for number in odd])).to_pylist(), strict=True):
        parts[number] = [word for word in found if word]
    sizes = np.array([len(some) for some in parts], np.int64)
    firsts = np.cumsum(sizes) - sizes
    each = sizes[codes]
    within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    flat = pa.array([word for some in parts for word in some], pa.string()).dictionary_encode()
    new = np.asarray(flat.indices).astype(np.int64)[np.repeat(firsts[codes], each) + within]
    of_text = np.repeat(np.arange(len(counts)), counts)
    return Split(flat.dictionary.to_pylist(), new, np.bincount(of_text, each, len(counts)).astype(np.int64), None, None)


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
