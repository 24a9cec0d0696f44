"""Phrases: words at their places. Without slop over arrays; with it, pair by pair."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from headwater.operators.percolate.documents import Bools, Documents, Ints, expanded

if TYPE_CHECKING:
    from headwater.operators.percolate.segment import Segment

#: More than any place of a word.
PLACES_MAX = 1 << 40


class Phrases:
    """The phrases of a segment, asked of documents."""

    def __init__(self, segment: Segment, documents: Documents) -> None:
        self._segment = segment
        self._documents = documents

    def true_of(self, documents: Ints, phrases: Ints) -> Bools:
        slops = self._segment.phrase_slops[phrases]
        truth = np.zeros(len(documents), bool)
        exact = np.flatnonzero(slops == 0)
        truth[exact] = self._exact(documents[exact], phrases[exact])
        for place in np.flatnonzero(slops > 0).tolist():
            lists = self._occurrences(int(documents[place]), int(phrases[place]))
            truth[place] = near(lists, int(slops[place]))
        return truth

    def _exact(self, documents: Ints, phrases: Ints) -> Bools:
        """Each occurrence of a first word is followed through the phrase, word by word, all of them at once."""
        segment, having = self._segment, self._documents
        truth = np.zeros(len(documents), bool)
        starts = segment.phrase_starts[phrases].astype(np.int64)
        stops = segment.phrase_starts[phrases + 1]
        firsts, counts = having.runs(documents, segment.phrase_terms[starts].astype(np.int64))
        pair, within = expanded(counts)
        begins = having.occurrences[firsts[pair] + within]
        word = np.ones(len(pair), np.int64)
        while len(pair):
            at = starts[pair] + word
            done = at >= stops[pair]
            truth[pair[done]] = True
            pair, begins, word, at = pair[~done], begins[~done], word[~done] + 1, at[~done]
            wanted = self._run_of(documents[pair], segment.phrase_terms[at].astype(np.int64)) * PLACES_MAX
            there = self._is_there(wanted + begins + segment.phrase_places[at])
            pair, begins, word = pair[there], begins[there], word[there]
        return truth

    def _run_of(self, documents: Ints, terms: Ints) -> Ints:
        """The number of a pair of document and term among those that are there, -1 for others."""
        wanted = documents * self._documents.terms.size + terms
        keys = self._documents.keys
        at = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
        return np.where(keys[at] == wanted, at, -1) if len(keys) else np.full(len(wanted), -1)

    def _is_there(self, wanted: Ints) -> Bools:
        known = self._known
        at = np.minimum(np.searchsorted(known, wanted), max(0, len(known) - 1))
        return known[at] == wanted if len(known) else np.zeros(len(wanted), bool)

    @cached_property
    def _known(self) -> Ints:
        """Every occurrence as one number, in order."""
        having = self._documents
        ends = np.append(having.firsts[1:], len(having.occurrences))
        return np.repeat(np.arange(len(having.keys)), ends - having.firsts) * PLACES_MAX + having.occurrences

    def _occurrences(self, document: int, phrase: int) -> list[tuple[int, int, Sequence[int]]]:
        """For each word of a phrase its term, its place in the phrase, and its places in the document."""
        segment = self._segment
        start, stop = (int(one) for one in segment.phrase_starts[phrase : phrase + 2])
        terms = segment.phrase_terms[start:stop].astype(np.int64)
        firsts, counts = self._documents.runs(np.full(len(terms), document), terms)
        return [
            (term, place, self._documents.occurrences[first : first + count].tolist())
            for term, place, first, count in zip(
                terms.tolist(),
                segment.phrase_places[start:stop].tolist(),
                firsts.tolist(),
                counts.tolist(),
                strict=True,
            )
        ]


def near(words: Sequence[tuple[int, int, Sequence[int]]], slop: int) -> bool:
    """Whether words stand as their phrase says, give or take `slop`.

    Each word is moved back by its place in the phrase; then all of them must lie within `slop`. A term that occurs twice
    in the phrase needs two occurrences.

    >>> near([(1, 0, [5]), (2, 1, [8])], 1), near([(1, 0, [5]), (2, 1, [8])], 2), near([(1, 0, [5]), (1, 1, [5])], 9)
    (False, True, False)
    """
    return next(together(words, slop), None) is not None


def together(words: Sequence[tuple[int, int, Sequence[int]]], slop: int) -> Iterator[set[int]]:
    """The places of words, wherever they stand as their phrase says."""
    if not all(places for _, _, places in words):
        return
    for begin in sorted({one - place for _, place, places in words for one in places}):
        choices = [(term, _between(places, begin + place, begin + place + slop)) for term, place, places in words]
        if all(places for _, places in choices) and _assigned(choices):
            yield {place for _, places in choices for place in places}


def _between(places: Sequence[int], low: int, high: int) -> Sequence[int]:
    return places[bisect_left(places, low) : bisect_right(places, high)]


def _assigned(choices: list[tuple[int, Sequence[int]]]) -> bool:
    """Whether every word can have an occurrence of its own: a matching, found by augmenting paths."""
    taken: dict[tuple[int, int], int] = {}

    def give(word: int, seen: set[tuple[int, int]]) -> bool:
        term, places = choices[word]
        for place in places:
            spot = (term, place)
            if spot in seen:
                continue
            seen.add(spot)
            if spot not in taken or give(taken[spot], seen):
                taken[spot] = word
                return True
        return False

    return all(give(word, set()) for word in range(len(choices)))
