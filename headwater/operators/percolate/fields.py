"""What the fields of documents are, and so how queries about them are read. What is not declared follows from the schema."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators.percolate.analysis import ENGLISH_STOP_WORDS, Analyzer, languages


@dataclass(frozen=True)
class Text:
    """Text, split into words in lower case; with a language they are stemmed. `stop_words=True` leaves English ones out.

    >>> Text("english", stop_words=True).analyzer.terms("The streams")
    [None, 'stream']
    """

    language: str | None = None
    stop_words: bool | tuple[str, ...] = False

    def __post_init__(self) -> None:
        if self.language is not None and self.language not in languages():
            raise ArgumentInvalid(name="language", value=self.language, expected=f"one of {', '.join(languages())}")

    @cached_property
    def analyzer(self) -> Analyzer:
        words = self.stop_words
        stop = frozenset(words) if isinstance(words, tuple) else ENGLISH_STOP_WORDS if words else frozenset()
        return Analyzer(self.language, stop)

    def __getstate__(self) -> dict[str, object]:
        # The analyzer stays: a worker makes its own.
        return {"language": self.language, "stop_words": self.stop_words}

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


Kind: TypeAlias = Text | Keyword | Number | Date | Geo


@dataclass(frozen=True)
class Fields:
    """All fields of the documents by their path, the lists of structs among them, and where words without a field look."""

    kinds: Mapping[str, Kind]
    nested: frozenset[str] = frozenset()
    default: tuple[str, ...] = field(default=())

    def near(self, name: str) -> str:
        """A hint for somebody who asked for a field that is not there."""
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
    }
    if not isinstance(kind, tuple(fits)) or not fits[type(kind)]:
        expected = f"a kind of field that a column of {column} can be"
        raise ArgumentInvalid(name=f"fields[{path!r}]", value=kind, expected=expected)
