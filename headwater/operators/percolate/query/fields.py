"""The fields of documents, and the analysis of their text. What is not declared follows from the schema.

Words are runs of alphabetic characters, digits and underscores, in lower case, without stop words, stemmed. Text is split over the
bytes of whole columns; everything after it is done once for each distinct word.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.optional import require

NOT_WORD = r"[^\p{L}\p{M}\p{N}_]+"
#: Scripts without spaces between words: each sign is a word.
SIGN = r"([\p{Han}\p{Hiragana}])"
_ASCII_WORD = re.compile(r"[a-zA-Z0-9_]+")
_STOP_WORDS = """
    a an and are as at be but by for if in into is it no not of on or
    such that the their then there these they this to was will with
"""
#: The words that Lucene leaves out of English text, where stop words are asked for and none are given.
ENGLISH_STOP_WORDS = frozenset(_STOP_WORDS.split())
#: Bytes that belong to words. Those beyond ASCII are looked at again, once for each distinct word.
_IS_WORD = np.array([chr(byte).isalnum() or byte >= 128 or chr(byte) == "_" for byte in range(256)])


#: Where the addresses of version 4 lie among those of version 6.
_MAPPED = 0xFFFF << 32


@dataclass(frozen=True)
class Text:
    """Text, split into words in lower case; with a language they are stemmed. `stop_words=True` leaves English ones out.

    With `keep_case`, words stay as they are written, and `IT` is not `it`; stop words are left out in any case.

    >>> Text("english", stop_words=True).analyzer.terms("The streams")
    [None, 'stream']
    >>> Text(keep_case=True).analyzer.terms("IT made it")
    ['IT', 'made', 'it']
    """

    language: str | None = None
    stop_words: bool | tuple[str, ...] = False
    keep_case: bool = False

    def __post_init__(self) -> None:
        if self.keep_case and self.language is not None:
            expected = "none beside `keep_case`: stems are those of words in lower case"
            raise ArgumentInvalid(name="language", value=self.language, expected=expected)
        if self.language is not None and self.language not in languages():
            raise ArgumentInvalid(name="language", value=self.language, expected=f"one of {', '.join(languages())}")

    @cached_property
    def analyzer(self) -> Analyzer:
        words = self.stop_words
        stop = frozenset(words) if isinstance(words, tuple) else ENGLISH_STOP_WORDS if words else frozenset()
        return Analyzer(self.language, stop, keep_case=self.keep_case)

    def __getstate__(self) -> dict[str, object]:
        # The analyzer stays: a worker makes its own.
        return {"language": self.language, "stop_words": self.stop_words, "keep_case": self.keep_case}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True)
class Keyword:
    """A word as it is: an identifier, a category, true or false."""


@dataclass(frozen=True)
class Number:
    """A number, compared as a double."""


@dataclass(frozen=True)
class Date:
    """A date or a time, to the microsecond; without a zone it is in UTC."""


@dataclass(frozen=True)
class Geo:
    """A point: a struct of `lat` and `lon`, or a text such as "52.37,4.90"."""


@dataclass(frozen=True)
class Ip:
    """An IP address as text, version 4 or 6: equal to another, within a network such as `10.0.0.0/8`, or in a range.

    A text that is no address fits none of them.
    """


Kind: TypeAlias = Text | Keyword | Number | Date | Geo | Ip
#: The kinds whose values are one word each, as a whole.
WHOLE_WORDS = (Keyword, Ip)


@dataclass(frozen=True)
class Fields:
    """All fields of the documents by their path, the lists of structs among them, and where words without a field look."""

    kinds: Mapping[str, Kind]
    nested: frozenset[str] = frozenset()
    default: tuple[str, ...] = field(default=())

    def near(self, name: str) -> str:
        """A hint for the error that a field is not there."""
        found = difflib.get_close_matches(name, self.kinds, n=1)
        return f"; did you mean {found[0]!r}?" if found else f"; there are {', '.join(sorted(self.kinds)[:20])}"

    def below(self, path: str) -> list[str]:
        """The fields at or under a path."""
        return [name for name in self.kinds if name == path or name.startswith(path + ".")]

    @cached_property
    def prefixes(self) -> frozenset[str]:
        """Every path that leads to a field."""
        parts = (name.split(".") for name in self.kinds)
        return frozenset(".".join(one[:size]) for one in parts for size in range(1, len(one) + 1))

    def __getstate__(self) -> dict[str, object]:
        return {"kinds": self.kinds, "nested": self.nested, "default": self.default}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


def fields_of(
    schema: pa.Schema, declared: Mapping[str, Kind], default: tuple[str, ...] | None, *, operator: str = "Percolate"
) -> Fields:
    """The fields of documents of a schema. Where no default is given, words are looked for in all text.

    >>> sorted(fields_of(pa.schema({"title": "string", "price": "int64"}), {}, None).kinds)
    ['price', 'title']
    """
    found: dict[str, Kind] = {}
    nested: set[str] = set()
    for name, kind, is_list in _walk(schema, "", declared):
        if is_list:
            nested.add(name)
        if kind is not None:
            found[name] = kind
    for name in (*declared, *(default or ())):
        if name not in found:
            raise ColumnUnknown(topic=operator, column=name, columns=", ".join(found))
    chosen = default if default is not None else tuple(name for name, kind in found.items() if isinstance(kind, Text))
    return Fields(found, frozenset(nested), chosen)


def _walk(
    parents: pa.Schema | pa.StructType, prefix: str, declared: Mapping[str, Kind]
) -> Iterator[tuple[str, Kind | None, bool]]:
    for one in parents:
        if not prefix and one.name.startswith("_"):
            continue
        path = prefix + one.name
        inner, is_list = element(one.type)
        if path in declared:
            _check(path, declared[path], inner)
            yield path, declared[path], False
        elif pa.types.is_struct(inner) and not _is_point(inner):
            yield path, None, is_list
            yield from _walk(inner, f"{path}.", declared)
        else:
            yield path, _inferred(inner), False


def element(kind: pa.DataType) -> tuple[pa.DataType, bool]:
    """What a list holds, however deep, and whether it is one."""
    is_list = False
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind, is_list = kind.value_type, True
    return kind, is_list


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_date(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _is_point(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) and {one.name for one in kind} == {"lat", "lon"})


def _inferred(kind: pa.DataType) -> Kind | None:
    if is_text(kind):
        return Text()
    if pa.types.is_boolean(kind):
        return Keyword()
    if is_number(kind):
        return Number()
    if is_date(kind):
        return Date()
    return Geo() if _is_point(kind) else None


def _check(path: str, kind: Kind, column: pa.DataType) -> None:
    fits = {
        Text: is_text(column),
        Keyword: is_text(column) or pa.types.is_boolean(column) or pa.types.is_integer(column),
        Number: is_number(column),
        Date: is_date(column),
        Geo: is_text(column) or _is_point(column),
        Ip: is_text(column),
    }
    if not isinstance(kind, tuple(fits)) or not fits[type(kind)]:
        expected = f"a kind of field that a column of {column} can be"
        raise ArgumentInvalid(name=f"fields[{path!r}]", value=kind, expected=expected)


def address_bits(text: str) -> str | None:
    """The bits of an IP address, those of version 4 as part of version 6; None: it is none.

    As text, they are in the order of addresses, and those of a network begin alike.

    >>> bits = address_bits("10.0.0.1")
    >>> len(bits), bits[96:104], address_bits("::ffff:10.0.0.1") == bits, address_bits("10.0.0.256")
    (128, '00001010', True, None)
    """
    try:
        found = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    return format(_MAPPED | int(found) if found.version == 4 else int(found), "0128b")


def network_bits(text: str) -> str | None:
    """The bits with which all addresses of a network such as 10.0.0.0/8 begin; None: it is none.

    >>> address_bits("10.1.2.3").startswith(network_bits("10.0.0.0/8")), network_bits("10.0.0.1/8")
    (True, None)
    """
    try:
        found = ipaddress.ip_network(text.strip())
    except ValueError:
        return None
    bits = address_bits(str(found.network_address))
    assert bits is not None
    return bits[: found.prefixlen + (96 if found.version == 4 else 0)]


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
    for word in split(text):  # between two words there are no word characters, so that each is where it is first seen
        start = text.index(word, place)
        place = start + len(word)
        found.append((start, place))
    return found


@cache
def stemmer(language: str):  # type: ignore[no-untyped-def]  # PyStemmer has no types
    """The stemmer of a language, made once per process."""
    require("Stemmer", extra="search")
    import Stemmer

    return Stemmer.Stemmer(language)


def languages() -> list[str]:
    require("Stemmer", extra="search")
    import Stemmer

    return list(Stemmer.algorithms())


class Analyzer:
    """Terms of one kind of field. Equal words give equal terms, so what was found is kept."""

    def __init__(self, language: str | None, stop_words: frozenset[str], *, keep_case: bool = False) -> None:
        self._stem = None if language is None else stemmer(language).stemWord
        self._stop_words = stop_words
        self._keep_case = keep_case
        self._known: dict[str, list[str | None]] = {}

    def term(self, word: str) -> str | None:
        """The term of a word, None for a stop word."""
        if word.lower() in self._stop_words:
            return None
        return self.seen(word) if self._stem is None else str(self._stem(word.lower()))

    def words(self, text: str) -> list[str]:
        """The words of a text as patterns see them, without stop words."""
        return [self.seen(word) for word in split(text) if word.lower() not in self._stop_words]

    def seen(self, word: str) -> str:
        """A word as patterns see it."""
        return word if self._keep_case else word.lower()

    def terms(self, text: str) -> list[str | None]:
        """The terms of a text, in order, with None in the place of a stop word."""
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= 100_000:
                self._known.clear()
            found = self._known[text] = [self.term(word) for word in split(text)]
        return found
