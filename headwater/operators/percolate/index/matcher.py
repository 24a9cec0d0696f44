"""Which queries of a segment are true of which documents of a batch: all pairs at once, over arrays.

Covers give pairs that may match. Those go through the clauses of their query, first clause first: in each round all
pairs that are left are asked together, and most are gone after the first. Phrases are words at their places: without
slop they are checked over arrays, with it pair by pair.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from headwater.operators.percolate.index.compiler import (
    CALENDAR,
    EARTH_RADIUS_METRES,
    NESTED,
    NODE,
    NUMBER,
    PHRASE,
    POINT,
    TERM,
    high_of,
    low_of,
)
from headwater.operators.percolate.index.documents import Bools, Documents, Floats, Ints, expanded
from headwater.operators.percolate.index.segment import Segment, Small
from headwater.operators.percolate.query.tree import Bound, Moment, Range

if TYPE_CHECKING:
    from headwater.operators.percolate.index.segment import Segment

#: So many pairs are looked at together, at most: what they need stays in the processor's caches.
PAIRS_MAX = 131_072
#: Occurrences beyond the first add less and less, as in BM25 with k1 = 1.2.
SATURATION = 1.2
#: More than any place of a word.
PLACES_MAX = 1 << 40


@dataclass(frozen=True)
class Pairs:
    """Documents and the queries of a segment that were tried on them; which of them match, and the work that it took."""

    documents: Ints
    queries: Ints
    matched: Bools
    rounds: Ints


def tried(segment: Segment, documents: Documents, alive: Bools) -> Iterator[Pairs]:
    """All pairs that may match, in portions, and whether they do."""
    matcher = Matcher(segment, documents)
    living = alive[segment.slots]
    all_live = bool(living.all())
    for owners, queries in candidates(segment, documents):
        if not all_live:
            kept = living[queries]
            owners, queries = owners[kept], queries[kept]
        yield asked(segment, documents, matcher, owners, queries)


def asked(segment: Segment, documents: Documents, matcher: Matcher, owners: Ints, queries: Ints) -> Pairs:
    """Whether queries are true of documents, pair by pair."""
    matched, rounds = np.zeros(len(queries), bool), np.ones(len(queries), np.int64)
    left = np.flatnonzero(_may_match(segment, documents, owners, queries))
    left = left[_has_other_term(segment, documents, owners[left], queries[left])]
    matched[left], rounds[left] = matcher.true_of(owners[left], segment.roots[queries[left]].astype(np.int64))
    _drop_doubles(segment, owners, queries, matched)
    return Pairs(owners, queries, matched, rounds)


def _may_match(segment: Segment, documents: Documents, owners: Ints, queries: Ints) -> Bools:
    """Whether documents have a number in the range that a query asks for first."""
    first, (table, many) = segment.first_ranges, documents.singles
    fields = first.fields[queries]
    values = table[fields, owners]
    found: Bools = (values >= first.lows[queries]) & (values <= first.highs[queries])
    return found | many[fields] if many.any() else found


def _has_other_term(segment: Segment, documents: Documents, owners: Ints, queries: Ints) -> Bools:
    """Whether documents have a term that a query needs besides the one that it was found by."""
    terms = segment.other_terms[queries].astype(np.int64)
    first, last = terms[:, 0], terms[:, 1]
    found: Bools = first < 0
    there = np.flatnonzero(~found)
    found[there] = documents.has(owners[there], first[there])
    there = np.flatnonzero(~found & (first != last))
    found[there] = documents.has(owners[there], last[there])
    return found


def _drop_doubles(segment: Segment, owners: Ints, queries: Ints, matched: Bools) -> None:
    """A pair that several parts of a cover have found matches once. Few match, so that it is seen to afterwards."""
    twice = np.flatnonzero(matched & segment.found_twice[queries])
    keys = owners[twice] * segment.size + queries[twice]
    order = np.argsort(keys, kind="stable")
    again = np.flatnonzero(np.diff(keys[order]) == 0) + 1
    matched[twice[order[again]]] = False


def candidates(segment: Segment, documents: Documents) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of documents and queries that may match; one may come twice where its cover has several parts."""
    starts, counts = segment.by_term.counts(documents.key_numbers)
    found = [(documents.key_owners, starts, counts, segment.by_term.queries)]
    for number, tree in segment.by_range.items():
        column = documents.numbers[number]
        nodes, which = tree.nodes(column.values)
        owners = np.repeat(np.arange(documents.count), np.diff(column.starts))[which]
        found.append((owners, *tree.filed.counts(nodes), tree.filed.queries))
    totals = np.full(documents.count, len(segment.open), np.int64)
    for owners, _, counts, _ in found:
        totals += np.bincount(owners, counts, documents.count).astype(np.int64)
    for first, stop in portions(totals, PAIRS_MAX):
        yield _expanded(segment, found, first, stop)


def portions(totals: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Cuts a row of numbers so that each part adds up to at most so much, or is one number."""
    first, total = 0, 0
    for place, one in enumerate(totals.tolist()):
        if total + one > most and place > first:
            yield first, place
            first, total = place, 0
        total += one
    if total:
        yield first, len(totals)


def _expanded(
    segment: Segment, found: list[tuple[Ints, Ints, Ints, Small]], first: int, stop: int
) -> tuple[Ints, Ints]:
    owners_of, queries_of = [], []
    for owners, starts, counts, queries in found:
        begin, end = np.searchsorted(owners, (first, stop)).tolist()  # they are in order
        asked = begin + np.flatnonzero(counts[begin:end])
        which, within = expanded(counts[asked])
        owners_of.append(owners[asked][which])
        queries_of.append(queries[starts[asked][which] + within].astype(np.int64))
    owners_of.append(np.repeat(np.arange(first, stop), len(segment.open)))
    queries_of.append(np.tile(segment.open, stop - first))
    return np.concatenate(owners_of), np.concatenate(queries_of)


class Matcher:
    """Asks nodes of a segment of documents. The same for the elements of a list, as documents of their own."""

    def __init__(self, segment: Segment, documents: Documents) -> None:
        self._segment = segment
        self._documents = documents
        self._phrases = Phrases(segment, documents)

    def true_of(self, documents: Ints, nodes: Ints) -> tuple[Bools, Ints]:
        """Whether nodes are true of documents, pair by pair, and in how many rounds that was found out."""
        segment = self._segment
        matched = np.ones(len(nodes), bool)
        rounds = np.zeros(len(nodes), np.int64)
        left = np.arange(len(nodes))
        clauses = segment.node_starts[nodes].astype(np.int64)
        stops = segment.node_starts[nodes + 1]
        while True:
            more = clauses[left] < stops[left]
            left = left[more] if not more.all() else left
            if not len(left):
                return matched, rounds
            holds = self._clauses(documents[left], clauses[left])
            rounds[left] += 1
            matched[left[~holds]] = False
            left = left[holds]
            clauses[left] += 1

    def scores(self, documents: Ints, nodes: Ints) -> Floats:
        """The weight of everything that is true, summed up; for pairs that match."""
        segment = self._segment
        starts = segment.clause_starts[segment.node_starts[nodes]].astype(np.int64)
        counts = segment.clause_starts[segment.node_starts[nodes + 1]] - starts
        which, within = expanded(counts)
        literals = starts[which] + within
        scoring = (segment.weights[literals] > 0) & ~segment.negated[literals]
        which, literals = which[scoring], literals[scoring]
        parts = self._literal_scores(documents[which], literals) * segment.weights[literals]
        return np.bincount(which, parts, len(nodes)).astype(np.float64)

    # -- clauses ------------------------------------------------------------------------------------------------------

    def _clauses(self, documents: Ints, clauses: Ints) -> Bools:
        segment = self._segment
        starts = segment.clause_starts[clauses].astype(np.int64)
        counts = segment.clause_starts[clauses + 1] - starts
        least = segment.clause_least[clauses]
        if (counts == 1).all() and (least == 1).all():
            return self._literals(documents, starts)
        asked = np.where(least > 0, counts, 0)
        which, within = expanded(asked)
        truth = self._literals(documents[which], starts[which] + within)
        found: Bools = np.bincount(which, truth, len(clauses)) >= least
        return found

    def _literals(self, documents: Ints, literals: Ints) -> Bools:
        segment = self._segment
        kinds, indexes = segment.kinds[literals], segment.indexes[literals].astype(np.int64)
        truth = np.ones(len(literals), bool)
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            of = np.flatnonzero(kinds == kind)
            truth[of] = self._asked(kind, documents[of], indexes[of])
        return truth ^ segment.negated[literals]

    def _asked(self, kind: int, documents: Ints, indexes: Ints) -> Bools:
        if kind == TERM:
            return self._documents.has(documents, indexes)
        if kind == NUMBER:
            return self._numbers(documents, indexes)
        if kind == POINT:
            return self._points(documents, indexes)
        if kind == NODE:
            return self.true_of(documents, indexes)[0]
        if kind == PHRASE:
            return self._phrases.true_of(documents, indexes)
        if kind == CALENDAR:
            return self._calendars(documents, indexes)
        if kind == NESTED:
            return self._nested(documents, indexes)[0]
        return np.ones(len(documents), bool)

    # -- literals -----------------------------------------------------------------------------------------------------

    def _numbers(self, documents: Ints, indexes: Ints) -> Bools:
        segment, truth = self._segment, np.zeros(len(documents), bool)
        lows, highs = segment.lows[indexes], segment.highs[indexes]
        if segment.has_relative:
            now = self._documents.now_us[documents]
            lows = lows + np.where(segment.low_is_relative[indexes], now, 0.0)
            highs = highs + np.where(segment.high_is_relative[indexes], now, 0.0)
        fields = segment.number_fields[indexes]
        for number in np.flatnonzero(np.bincount(fields)).tolist():
            of = np.flatnonzero(fields == number)
            truth[of] = self._within(number, documents[of], lows[of], highs[of])
        return truth

    def _within(self, field: int, documents: Ints, lows: Floats, highs: Floats) -> Bools:
        column = self._documents.numbers[field]
        starts = column.starts[documents]
        counts = column.starts[documents + 1] - starts
        if len(counts) and (counts == 1).all():
            values = column.values[starts]
            return (values >= lows) & (values <= highs)
        which, within = expanded(counts)
        values = column.values[starts[which] + within]
        good = (values >= lows[which]) & (values <= highs[which])
        found: Bools = np.bincount(which[good], minlength=len(documents)) > 0
        return found

    def _points(self, documents: Ints, indexes: Ints) -> Bools:
        segment, truth = self._segment, np.zeros(len(documents), bool)
        fields = segment.point_fields[indexes]
        for number in np.flatnonzero(np.bincount(fields)).tolist():
            of = np.flatnonzero(fields == number)
            column = self._documents.points[number]
            starts = column.starts[documents[of]]
            which, within = expanded(column.starts[documents[of] + 1] - starts)
            place, centre = starts[which] + within, indexes[of][which]
            assert column.second is not None
            away = metres_between(
                column.values[place], column.second[place], segment.latitudes[centre], segment.longitudes[centre]
            )
            truth[of] = np.bincount(which[away <= segment.metres[centre]], minlength=len(of)) > 0
        return truth

    def _calendars(self, documents: Ints, indexes: Ints) -> Bools:
        """Ranges whose ends only a calendar knows, such as the beginning of this month; one after the other."""
        truth = np.zeros(len(documents), bool)
        now = self._documents.now_us[documents]
        for place, (document, index) in enumerate(zip(documents.tolist(), indexes.tolist(), strict=True)):
            field, query = self._segment.calendars[index]
            low, high = _ends(query, int(now[place]))
            column = self._documents.numbers[field]
            values = column.values[column.starts[document] : column.starts[document + 1]]
            truth[place] = bool(((values >= low) & (values <= high)).any())
        return truth

    def _nested(self, documents: Ints, indexes: Ints) -> tuple[Bools, Floats]:
        """Whether an element satisfies the query by itself, and the score of the best that does."""
        truth, scores = np.zeros(len(documents), bool), np.zeros(len(documents))
        paths = np.array([self._segment.nested[index][0] for index in indexes.tolist()])
        nodes = np.array([self._segment.nested[index][1] for index in indexes.tolist()], np.int64)
        for path in np.unique(paths).tolist():
            of = np.flatnonzero(paths == path)
            elements, all_starts = self._documents.nested(path)
            starts = all_starts[documents[of]]
            which, within = expanded(all_starts[documents[of] + 1] - starts)
            inner = Matcher(self._segment, elements)
            asked, wanted = starts[which] + within, nodes[of][which]
            good = np.flatnonzero(inner.true_of(asked, wanted)[0])
            truth[of[which[good]]] = True
            np.maximum.at(scores, of[which[good]], inner.scores(asked[good], wanted[good]))
        return truth, scores

    # -- scores -------------------------------------------------------------------------------------------------------

    def _literal_scores(self, documents: Ints, literals: Ints) -> Floats:
        segment = self._segment
        kinds, indexes = segment.kinds[literals], segment.indexes[literals].astype(np.int64)
        scores = np.zeros(len(literals))
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            of = np.flatnonzero(kinds == kind)
            scores[of] = self._score(kind, documents[of], indexes[of])
        return scores

    def _score(self, kind: int, documents: Ints, indexes: Ints) -> Floats:
        if kind == TERM:
            counts = self._documents.runs(documents, indexes)[1].astype(np.float64)
            counts = np.where(self._documents.terms.are_terms()[indexes], counts, np.minimum(counts, 1.0))
            return counts * (SATURATION + 1) / (counts + SATURATION)
        if kind == NODE:
            truth = self.true_of(documents, indexes)[0]
            scores = np.zeros(len(documents))
            scores[truth] = self.scores(documents[truth], indexes[truth])
            return scores
        if kind == NESTED:
            return self._nested(documents, indexes)[1]
        return self._asked(kind, documents, indexes).astype(np.float64)


def metres_between(latitude: Floats, longitude: Floats, other_latitude: Floats, other_longitude: Floats) -> Floats:
    """The distance on a sphere, by the haversine.

    >>> one, other = (np.array([place]) for place in (52.37, 52.52))
    >>> int(metres_between(one, np.array([4.9]), other, np.array([13.4]))[0] / 1000)
    576
    """
    first, second = np.radians(latitude), np.radians(other_latitude)
    half = np.sin((second - first) / 2) ** 2
    half = half + np.cos(first) * np.cos(second) * np.sin(np.radians(other_longitude - longitude) / 2) ** 2
    found: Floats = 2 * EARTH_RADIUS_METRES * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0)))
    return found


@lru_cache(maxsize=65_536)
def _ends(query: Range, now_us: int) -> tuple[float, float]:
    """The ends of a range at a time."""

    def at(bound: Bound | None) -> Bound | None:
        return bound.at_us(now_us) if isinstance(bound, Moment) else bound

    told = Range(query.field, gt=at(query.gt), gte=at(query.gte), lt=at(query.lt), lte=at(query.lte))
    low, high = low_of(told), high_of(told)
    assert low is not None
    assert high is not None
    return low.value, high.value


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
        choices = [
            (term, places[bisect_left(places, begin + place) : bisect_right(places, begin + place + slop)])
            for term, place, places in words
        ]
        if all(places for _, places in choices) and _assigned(choices):
            yield {place for _, places in choices for place in places}


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
