"""A batch of documents as arrays: who has which term where, and the numbers, dates and points of each.

Only fields that some query asks for are looked at. The elements of a list of structs are documents of their own, for
queries that must be true of one element.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.percolate.index.terms import Terms
from headwater.operators.percolate.query.fields import WHOLE_WORDS, Date, Split, split_column

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
#: How far the words of two values of one field are apart, so that no phrase reaches from one into the other.
VALUE_GAP = 100
#: A table of documents and terms may have so many cells; beyond, what is there is searched for.
CELLS_MAX = 1 << 27


class Values(NamedTuple):
    """Values of a field, and the document of each, in ascending order."""

    values: pa.Array
    owners: Ints


@dataclass(frozen=True)
class Column:
    """Numbers of all documents, one after the other: those of document `n` lie from `starts[n]` to `starts[n + 1]`."""

    starts: Ints
    values: Floats
    second: Floats | None = None


def values_at(array: pa.Array, owners: Ints, parts: list[str]) -> Values:
    """The values at the end of a path, out of lists and structs, without nulls."""
    array, owners = _out_of_lists(array, owners)
    for part in parts:
        array, owners = _out_of_lists(pc.struct_field(array, part), owners)
    if array.null_count:
        valid = np.asarray(pc.is_valid(array))
        array, owners = array.filter(pa.array(valid)), owners[valid]
    return Values(array, owners)


def _out_of_lists(array: pa.Array, owners: Ints) -> tuple[pa.Array, Ints]:
    while pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        owners = owners[np.asarray(pc.list_parent_indices(array))]
        array = pc.list_flatten(array)
    return array, owners


@dataclass
class Documents:
    """Documents of one kind: those of a batch, or the elements that they have at a path."""

    terms: Terms
    columns: dict[str, pa.Array]
    count: int
    now_us: Floats
    prefix: str = ""
    numbers: dict[int, Column] = field(default_factory=dict)
    points: dict[int, Column] = field(default_factory=dict)
    #: The words of each field with text.
    splits: dict[str, Split] = field(default_factory=dict)
    _nested: dict[str, tuple[Documents, Ints]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._fill_occurrences()
        for path, number in self.terms.numbers.items():
            self.numbers[number] = self._number_column(path)
        for path, number in self.terms.points.items():
            self.points[number] = self._point_column(path)

    # -- fields -------------------------------------------------------------------------------------------------------

    def values(self, path: str) -> Values:
        """The values of a field; none where these documents do not have it."""
        if not path.startswith(self.prefix):
            return Values(pa.nulls(0), np.zeros(0, np.int64))
        first, *rest = path.removeprefix(self.prefix).split(".")
        if first not in self.columns:
            return Values(pa.nulls(0), np.zeros(0, np.int64))
        return values_at(self.columns[first], np.arange(self.count), rest)

    def texts(self, path: str) -> Values:
        """The values of a field as text."""
        values, owners = self.values(path)
        return Values(_as_text(values), owners)

    def words(self, path: str) -> tuple[list[str], Ints, Ints, Ints]:
        """The different words of a field as they are written; of each that stands there its number among them, its
        document, and its place."""
        values, owners = self.texts(path)
        if isinstance(self.terms.fields.kinds[path], WHOLE_WORDS):
            coded = values.dictionary_encode()
            return coded.dictionary.to_pylist(), np.asarray(coded.indices).astype(np.int64), owners, _rank_in(owners)
        found = self.splits[path] = split_column(values)
        of_value = np.repeat(np.arange(len(owners)), found.counts)
        return found.words, found.codes, owners[of_value], _places(found.counts, of_value, owners)

    def _number_column(self, path: str) -> Column:
        if path.endswith("#lat"):
            points = self._point_column(path.removesuffix("#lat"))
            return Column(points.starts, points.values)
        values, owners = self.values(path)
        if isinstance(self.terms.fields.kinds[path], Date):
            values = values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False).cast(pa.int64())
        return Column(_starts(owners, self.count), np.asarray(values.cast(pa.float64(), safe=False)))

    def _point_column(self, path: str) -> Column:
        values, owners = self.values(path)
        if pa.types.is_struct(values.type):
            latitude, longitude = (pc.struct_field(values, name).cast(pa.float64()) for name in ("lat", "lon"))
            pairs = np.column_stack([np.asarray(pc.fill_null(one, np.nan)) for one in (latitude, longitude)])
        else:
            pairs = np.array([_point(text) for text in values.to_pylist()], np.float64).reshape(-1, 2)
        good = ~np.isnan(pairs).any(axis=1) if len(pairs) else np.zeros(0, bool)
        pairs, owners = pairs[good], owners[good]
        return Column(_starts(owners, self.count), pairs[:, 0].copy(), pairs[:, 1].copy())

    @cached_property
    def singles(self) -> tuple[Floats, Bools]:
        """Of each field with numbers the number of each document, none where it has none; and whether some have more.

        A last row is for queries that ask for no number.
        """
        table = np.full((len(self.numbers) + 1, self.count), np.nan)
        table[-1] = 0.0
        many = np.zeros(len(table), bool)
        for number, column in self.numbers.items():
            counts = np.diff(column.starts)
            many[number] = bool((counts > 1).any())
            table[number, counts > 0] = column.values[column.starts[:-1][counts > 0]]
        return table, many

    # -- terms --------------------------------------------------------------------------------------------------------

    def _fill_occurrences(self) -> None:
        """All occurrences, by document, number and place; `keys` has each pair of the first two once."""
        found = [self._in_words(path) for path in sorted(self.terms.words)]
        found += [self._existing(path, number) for path, number in self.terms.exists.items()]
        empty = np.zeros(0, np.int64)
        owners, numbers, places = (np.concatenate([empty, *parts]) for parts in zip(*found, strict=True)) if found else (
            empty, empty, empty,
        )  # fmt: skip
        keys, self.occurrences = _sorted(owners * self.terms.size + numbers, places)
        self.keys, self.firsts = distinct(keys)
        self.key_owners, self.key_numbers = np.divmod(self.keys, max(1, self.terms.size))
        self._local = np.zeros(self.terms.size, np.int32)
        used = np.flatnonzero(np.bincount(self.key_numbers, minlength=self.terms.size))
        self._local[used] = np.arange(1, len(used) + 1)
        self._table: Bools | None = None
        if self.count * (len(used) + 1) <= CELLS_MAX:
            self._table = np.zeros((self.count, len(used) + 1), bool)
            self._table[self.key_owners, self._local[self.key_numbers]] = True

    def _in_words(self, path: str) -> tuple[Ints, Ints, Ints]:
        words, codes, owners, places = self.words(path)
        numbers = self.terms.of_words(path, words)
        counts = np.fromiter(map(len, numbers), np.int64, len(numbers))
        flat = np.fromiter((one for each in numbers for one in each), np.int64, int(counts.sum()))
        starts = np.concatenate([[0], np.cumsum(counts)])
        asked = np.flatnonzero(counts[codes])
        codes = codes[asked]
        token, within = expanded(counts[codes])
        return owners[asked][token], flat[starts[codes][token] + within], places[asked][token]

    def _existing(self, path: str, number: int) -> tuple[Ints, Ints, Ints]:
        owners = [self.values(name).owners for name in self.terms.fields.below(path)]
        unique = np.unique(np.concatenate(owners)) if owners else np.zeros(0, np.int64)
        return unique, np.full(len(unique), number), np.zeros(len(unique), np.int64)

    def has(self, documents: Ints, numbers: Ints) -> Bools:
        """Whether documents have a term, pair by pair."""
        if self._table is not None:
            found: Bools = self._table[documents, self._local[numbers]]
            return found
        return self.runs(documents, numbers)[1] > 0

    def runs(self, documents: Ints, numbers: Ints) -> tuple[Ints, Ints]:
        """For each pair where its occurrences begin, and how many there are."""
        wanted = documents * self.terms.size + numbers
        at = np.minimum(np.searchsorted(self.keys, wanted), max(0, len(self.keys) - 1))
        if not len(self.keys):
            return at, np.zeros(len(wanted), np.int64)
        ends = np.append(self.firsts[1:], len(self.occurrences))
        counts = np.where(self.keys[at] == wanted, ends[at] - self.firsts[at], 0)
        return self.firsts[at], counts

    # -- nested -------------------------------------------------------------------------------------------------------

    def nested(self, path: str) -> tuple[Documents, Ints]:
        """The elements at a path as documents, and where those of each document begin."""
        if path not in self._nested:
            values, owners = self.values(path)
            columns = {}
            if pa.types.is_struct(values.type):
                columns = {one.name: pc.struct_field(values, one.name) for one in values.type}
            made = Documents(self.terms, columns, len(owners), self.now_us[owners], f"{path}.")
            self._nested[path] = made, _starts(owners, self.count)
        return self._nested[path]


def documents_of(batch: pa.RecordBatch, terms: Terms, now_us: Floats) -> Documents:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return Documents(terms, columns, batch.num_rows, now_us)


def expanded(counts: Ints) -> tuple[Ints, Ints]:
    """For things that there are `counts` of: which of them each one is, and its number among its own.

    >>> [part.tolist() for part in expanded(np.array([2, 0, 1]))]
    [[0, 0, 2], [0, 1, 0]]
    """
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)


def distinct(ordered: Ints) -> tuple[Ints, Ints]:
    """Each of some ordered numbers once, and where it stands first."""
    firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else ordered
    return ordered[firsts], firsts


def _sorted(keys: Ints, places: Ints) -> tuple[Ints, Ints]:
    """Keys in order, and the places that belong to them. Both fit into one number each, as a rule, and sort as one."""
    if not len(keys) or max(int(keys.max()), int(places.max())) >> 31:
        order = np.lexsort((places, keys))
        return keys[order], places[order]
    both = np.sort((keys << 32) | places)
    return both >> 32, both & 0xFFFFFFFF


def _starts(owners: Ints, count: int) -> Ints:
    return np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))]).astype(np.int64)


def _rank_in(owners: Ints) -> Ints:
    """The number of each value among those of its document."""
    if not len(owners):
        return np.zeros(0, np.int64)
    first = np.concatenate([[True], owners[1:] != owners[:-1]])
    return np.arange(len(owners)) - np.maximum.accumulate(np.where(first, np.arange(len(owners)), 0))


def _places(counts: Ints, of_value: Ints, owners: Ints) -> Ints:
    """The places of words: one after the other, and a gap before each further value of the same document."""
    before = np.cumsum(counts + VALUE_GAP) - counts - VALUE_GAP
    rank = _rank_in(owners)
    start = before - before[np.arange(len(owners)) - rank] if len(owners) else before
    first = np.cumsum(counts) - counts
    return start[of_value] + np.arange(len(of_value)) - first[of_value]


def _as_text(values: pa.Array) -> pa.Array:
    if pa.types.is_boolean(values.type):
        return pc.if_else(values, "true", "false")
    return values.cast(pa.string())


def _point(text: str) -> tuple[float, float]:
    try:
        latitude, longitude = (float(part) for part in text.split(","))
    except ValueError:
        return np.nan, np.nan
    return latitude, longitude
