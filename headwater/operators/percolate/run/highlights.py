"""Why a document matched: pieces of its text with the words marked that the query asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from headwater.operators.percolate.index.compiler import NESTED, NODE, PHRASE, TERM
from headwater.operators.percolate.index.documents import VALUE_GAP, Documents, Ints, expanded
from headwater.operators.percolate.index.matcher import together
from headwater.operators.percolate.index.segment import Segment
from headwater.operators.percolate.query.fields import WHOLE_WORDS, spans

HIGHLIGHT_TYPE = pa.list_(pa.struct([("field", pa.string()), ("fragment", pa.string())]))
#: The terms of a phrase and their places in it.
Words: TypeAlias = tuple[tuple[int, int], ...]


class QueryWords(NamedTuple):
    """What a query asks for in so many words: terms and patterns by number, and phrases, each with its slop."""

    terms: tuple[int, ...]
    phrases: tuple[tuple[int, Words], ...]


@dataclass(frozen=True)
class Marking:
    """How matches are shown."""

    before: str = "<em>"
    after: str = "</em>"
    #: About so many characters around the words.
    length: int = 100
    #: So many pieces of each field.
    fragments_max: int = 3


def asked_by(segment: Segment, node: int) -> QueryWords:
    """Everything that a node asks for and that a document may show, also inside of others; nothing that is negated."""
    terms: list[int] = []
    phrases: list[tuple[int, Words]] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        first, stop = (int(segment.clause_starts[segment.node_starts[number]]) for number in (one, one + 1))
        for place in range(first, stop):
            kind, index = int(segment.kinds[place]), int(segment.indexes[place])
            if segment.negated[place]:
                continue
            if kind == TERM:
                terms.append(index)
            elif kind == NODE:
                waiting.append(index)
            elif kind == NESTED:
                waiting.append(segment.nested[index][1])
            elif kind == PHRASE:
                phrases.append(_phrase(segment, index))
    return QueryWords(tuple(sorted(set(terms))), tuple(phrases))


def _phrase(segment: Segment, index: int) -> tuple[int, Words]:
    start, stop = (int(segment.phrase_starts[number]) for number in (index, index + 1))
    terms, places = (held[start:stop].tolist() for held in (segment.phrase_terms, segment.phrase_places))
    return int(segment.phrase_slops[index]), tuple(zip(terms, places, strict=True))


class Highlighter:
    """Marks words in the documents of one batch; what it has split once it keeps."""

    def __init__(self, documents: Documents, marking: Marking) -> None:
        self._documents = documents
        self._marking = marking
        self._order = {name: number for number, name in enumerate(documents.terms.fields.kinds)}
        self._columns: dict[str, tuple[pa.Array, list[int]]] = {}
        self._texts: dict[tuple[str, int], list[tuple[str, int, list[tuple[int, int]]]]] = {}
        self._stops: dict[str, Ints] = {}
        self._cuts: dict[tuple[str, int, frozenset[int]], list[str]] = {}

    def column(self, matched: Sequence[tuple[int, QueryWords]]) -> pa.Array:
        """For each match the pieces of its document that show why it is one, field by field."""
        counts, fields, fragments = [0], list[str](), list[str]()
        for shown in self._shown(matched):
            for field, pieces in shown:
                fields += [field] * len(pieces)
                fragments += pieces
            counts.append(len(fields))
        structs = pa.StructArray.from_arrays(
            [pa.array(fields, pa.string()), pa.array(fragments, pa.string())], fields=list(HIGHLIGHT_TYPE.value_type)
        )
        return pa.ListArray.from_arrays(pa.array(counts, pa.int32()), structs).cast(HIGHLIGHT_TYPE)

    def _shown(self, matched: Sequence[tuple[int, QueryWords]]) -> Iterator[list[tuple[str, list[str]]]]:
        places = iter(self._places(matched))
        for document, asked in matched:
            found: dict[str, set[int]] = {}
            for term in asked.terms:
                self._add(found, term, next(places))
            for slop, words in asked.phrases:
                held = [(term, place, next(places)) for term, place in words]
                self._add(found, words[0][0], {place for some in together(held, slop) for place in some})
            yield [
                (field, self._pieces_of(field, document, found[field]))
                for field in sorted(found, key=self._order.__getitem__)
            ]

    def _pieces_of(self, field: str, document: int, places: set[int]) -> list[str]:
        """Many queries ask the same of a document: what was cut once is kept."""
        key = field, document, frozenset(places)
        if key not in self._cuts:
            self._cuts[key] = list(self._cut(field, document, places))
        return self._cuts[key]

    def _add(self, found: dict[str, set[int]], term: int, places: Collection[int]) -> None:
        field = self._documents.terms.field_of(term)
        if field and places:
            found.setdefault(field, set()).update(places)

    def _places(self, matched: Sequence[tuple[int, QueryWords]]) -> list[list[int]]:
        """Where each word that was asked for stands, match by match; looked up all at once."""
        terms = [[*asked.terms, *(term for _, words in asked.phrases for term, _ in words)] for _, asked in matched]
        owners = np.array(
            [document for (document, _), some in zip(matched, terms, strict=True) for _ in some], np.int64
        )
        flat = np.array([term for some in terms for term in some], np.int64)
        firsts, counts = self._documents.runs(owners, flat)
        which, within = expanded(counts)
        held = self._documents.occurrences[firsts[which] + within].tolist()
        stops = np.cumsum(counts)
        return [held[first:stop] for first, stop in zip((stops - counts).tolist(), stops.tolist(), strict=True)]

    def _cut(self, field: str, document: int, places: set[int]) -> Iterator[str]:
        left = self._marking.fragments_max
        for text, first, bounds in self._values(field, document):
            marks = [bounds[place - first] for place in sorted(places) if 0 <= place - first < len(bounds)]
            for fragment in self._pieces(text, marks):
                if left <= 0:
                    return
                left -= 1
                yield fragment

    def _pieces(self, text: str, marks: list[tuple[int, int]]) -> Iterator[str]:
        """A text cut around its marks, at the borders of words."""
        around = self._marking.length // 2
        while marks:
            start = max(0, marks[0][0] - around)
            if start and (blank := text.find(" ", start, marks[0][0])) >= 0:
                start = blank + 1
            stop = min(len(text), max(start + self._marking.length, marks[0][1]))
            if stop < len(text) and (blank := text.rfind(" ", marks[0][1], stop)) >= 0:
                stop = blank
            within = [mark for mark in marks if mark[1] <= stop]
            yield self._marked(text, start, stop, within)
            marks = marks[len(within) :]

    def _marked(self, text: str, start: int, stop: int, marks: list[tuple[int, int]]) -> str:
        parts, place = [], start
        for first, last in marks:
            parts += [text[place:first], self._marking.before, text[first:last], self._marking.after]
            place = last
        return "".join([*parts, text[place:stop]])

    def _values(self, field: str, document: int) -> list[tuple[str, int, list[tuple[int, int]]]]:
        """The texts of a field, the place of the first word of each, and where its words begin and end."""
        if (field, document) not in self._texts:
            found, place = [], 0
            is_whole = isinstance(self._documents.terms.fields.kinds[field], WHOLE_WORDS)
            first, texts = self._of(field, document)
            for number, text in enumerate(texts, first):
                bounds = [(0, len(text))] if is_whole else self._bounds(field, number, text)
                found.append((text, place, bounds))
                place += 1 if is_whole else len(bounds) + VALUE_GAP
            self._texts[field, document] = found
        return self._texts[field, document]

    def _bounds(self, field: str, number: int, text: str) -> list[tuple[int, int]]:
        """Where the words of a text are: known where it was split by its bytes, and these are its signs."""
        split = self._documents.splits.get(field)
        if split is None or split.starts is None or split.stops is None:
            return spans(text)
        if field not in self._stops:
            self._stops[field] = np.cumsum(split.counts)
        stop = int(self._stops[field][number])
        first = stop - int(split.counts[number])
        return list(zip(split.starts[first:stop].tolist(), split.stops[first:stop].tolist(), strict=True))

    def _of(self, field: str, document: int) -> tuple[int, list[str]]:
        """The texts of a field, and the number of the first of them among those of all documents."""
        if field not in self._columns:
            texts, owners = self._documents.texts(field)
            starts = np.searchsorted(owners, np.arange(self._documents.count + 1)).tolist()
            self._columns[field] = texts, starts
        texts, starts = self._columns[field]
        first, stop = starts[document], starts[document + 1]
        return first, [str(text) for text in texts[first:stop].to_pylist()]
