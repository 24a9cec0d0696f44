"""Everything that a document can have, by number: terms, patterns that one of its words fits, fields that it has at all.

Numbers are given once and never change, so that all parts of an index speak of the same.
"""

from __future__ import annotations

from array import array
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from headwater.operators.percolate.fields import Fields, Text
from headwater.operators.percolate.patterns import Pattern, Patterns
from headwater.operators.percolate.query.tree import Range

#: Words whose numbers are known without looking them up again.
WORDS_KNOWN_MAX = 500_000


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
            seen, term = word.lower(), analysed
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
