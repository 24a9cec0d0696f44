"""A matcher written from the definition alone: recursive, slow, and plain. The engine must find what it finds.

The definition (ISO/IEC 19075-5 where it says something; the rest is ours):

- The rows of a key stand in the order of event time. The search goes over them with a *start*. From a start the
  pattern is tried by preference; the first mapping that fits is the match. Afterwards the search goes on where `after`
  says, or at the next row if there was no match or an empty one.
- A repetition may take rounds without rows up to `least`; each round above it must move on.
- PERMUTE is the alternation of all orders of its parts, in lexical order of the places where they are written.
- Before the first row of a match nothing is skipped: `Skip` there goes on at once. So a match begins at its start.
- *The time of a match*: with `within_us`, rows may be taken up to `within_us` after the first row's time, that moment
  included. With `between_us`, also up to `between_us` after the row taken last. A row that comes later, or none, is
  called *out of time* here. A row that is out of time is neither taken nor skipped.
- `Skip` passes over rows for which none of `unless` fits, the fewest first.
- `NotNext` fails if the next row is in time and fits one of its variables, as if it were mapped to it.
- `Nothing` fails if any row from here on, up to `within_us` after the first row's time, fits one of its variables,
  each tried as if it came right after the rows taken so far. (`between_us` does not matter to it.)
- `$` holds behind the last row of the key: in a stream, only when the stream has ended.
- With `every` and `after` "none", all different mappings from a start are matches, in the order of preference. With
  any other strategy `every` means nothing: after a match the search has left its start.
- SKIP TO a variable that has no row in the match, or to the first row of the match, raises `SkipImpossible`.
- Each match has a number from 1; empty ones have too, also where they are not shown. In DEFINE it is the number that
  the match would have which is being sought.
- A search may look at `partials_max` rows, from its start on. If it wants one more, which is there and in time, the start
  is *dropped*; with every match only that way is given up, and the start is dropped when it has no others left.
- Unmatched rows are those in no match, and at which no empty match began.

*A timed-out partial match* (only for rules with `within_us` or `between_us`): at a start at which no match was found,
not even an empty one, the search took at least one row and then wanted a row for a variable, and the next row was out
of time. The rows taken until then are the partial match. Where there are several at one start it is the first by
preference. (Without `Skip` all of them have equally many rows.) At the end of the input all time is over: no next row
counts as one out of time. A partial match has no match number (null); its measures are those of its rows, FINAL.

In DEFINE the row that is tried counts as mapped: LAST(A.x) in the condition of A is the row at hand. PREV and NEXT move
among all rows of the key, also outside of the match. A condition that is null does not fit.
Inside an aggregate the row that is added is the row at hand (`here`, CLASSIFIER()); nulls are left out, as in Spark:
COUNT(x) counts the others, SUM of none is null, ARRAY_AGG of none is empty, STDDEV of fewer than two is null. x / 0 and
x % 0 are null.

*What is certain* while rows may still come (`reached_us` says up to when all are there): a way that wants a row which is
not there, and whose time is not over, *waits*; so does one whose condition or measure looks ahead at such a row. Where one
match is preferred to others, a way that waits leaves those behind it uncertain; with every match it does not. Where a
match decides at which row the search goes on, or matches have numbers, a start with a way that waits leaves the starts
behind it uncertain, and with every match its own matches too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

from headwater.operators.errors import SkipImpossible
from headwater.operators.match.language.rule import (
    Alternation,
    Anchor,
    Exclusion,
    MatchNumber,
    Node,
    Nothing,
    NotNext,
    Permute,
    Repeat,
    Rule,
    Skip,
    Variable,
    leaves,
    references_in,
)
from headwater.operators.match.language.rule import Sequence as Parts
from tests.operators.match.naive_values import Row, Sight, Taken, value
from tests.operators.match.strategies import COLUMNS, events, rules

__all__ = [
    "COLUMNS",
    "Outcome",
    "SearchResult",
    "Taken",
    "TooHard",
    "events",
    "output",
    "partials",
    "rules",
    "search",
    "shown",
]


class TooHard(Exception):
    """The search took more steps than a test should wait for."""


@dataclass(frozen=True)
class SearchResult:
    """A match, or a partial one (then its number is None): where it began and which rows it has."""

    number: int | None
    start: int
    taken: tuple[Taken, ...]


@dataclass(frozen=True)
class Outcome:
    matches: list[SearchResult]
    unmatched: list[int]
    timed_out: list[SearchResult]
    #: The starts that wanted too many rows.
    dropped: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _At:
    """How far a search has come: the next row, and the rows taken. A way may be `stuck`: it waits, or wants too many rows."""

    place: int
    taken: tuple[Taken, ...] = ()
    stuck: str = ""


class _Ahead(Exception):
    """A condition looks at a row that is not there yet."""


@dataclass
class _Search:
    """The search from one start."""

    rule: Rule
    rows: Sequence[Row]
    on: str
    start: int
    number: int
    steps_max: int
    partials_max: int
    #: Up to which time all rows are there; None: all that there will ever be.
    reached_us: int | None
    timed_out: tuple[Taken, ...] = ()
    steps: int = field(default=0)

    def ways(self) -> Iterator[_At]:
        """All ways through the pattern, each mapping once, and where others are stuck; the preferred ones first."""
        seen: set[tuple[tuple[int, str], ...]] = set()
        ahead = max([0, *(one.shift for measure in self.rule.measures for one in references_in(measure.tree))])
        for end in self.walk(self.rule.pattern, _At(self.start)):
            mapping = tuple((one.row, one.variable) for one in end.taken)
            if not end.stuck and ahead and end.taken and self._is_missing(end.taken[-1].row + ahead):
                end = replace(end, stuck="waits")
            if end.stuck or mapping not in seen:
                yield end
            if not end.stuck:
                seen.add(mapping)

    def walk(self, node: Node, at: _At) -> Iterator[_At]:
        """Where the search can stand behind this part of the pattern, the preferred place first."""
        self.steps += 1
        if self.steps > self.steps_max:
            raise TooHard
        match node:
            case Variable():
                yield from self._variable(node.name, at)
            case Parts():
                yield from self._parts(node.parts, at)
            case Alternation():
                for option in node.options:
                    yield from self.walk(option, at)
            case Permute():
                for order in permutations(node.parts):
                    yield from self._parts(order, at)
            case Repeat():
                yield from self._repeat(node, at, 0)
            case Exclusion():
                for end in self.walk(node.of, at):
                    new = (replace(one, excluded=True) for one in end.taken[len(at.taken) :])
                    yield replace(end, taken=(*at.taken, *new))
            case Anchor():
                if node.where == "end" and at.place == len(self.rows) and self.reached_us is not None:
                    yield replace(at, stuck="waits")
                elif at.place == (0 if node.where == "start" else len(self.rows)):
                    yield at
            case Skip():
                yield from self._skip(node.unless, at)
            case NotNext():
                state = self._next(at)
                if state == "there":
                    state = self._any_fits(node.variables, at, at.place)
                if state in ("waits", "rows"):
                    yield replace(at, stuck=state)
                elif state != "yes":
                    yield at
            case Nothing():
                yield from self._nothing(node.variables, at)

    def _variable(self, name: str, at: _At) -> Iterator[_At]:
        state = self._next(at)
        if state == "over":
            self.timed_out = self.timed_out or at.taken
        if state == "there":
            state = self._any_fits((name,), at, at.place)
        if state == "yes":
            yield _At(at.place + 1, (*at.taken, Taken(at.place, name)))
        elif state in ("waits", "rows"):
            yield replace(at, stuck=state)

    def _parts(self, parts: tuple[Node, ...], at: _At) -> Iterator[_At]:
        if not parts or at.stuck:
            yield at
            return
        for between in self.walk(parts[0], at):
            yield from self._parts(parts[1:], between)

    def _repeat(self, node: Repeat, at: _At, done: int) -> Iterator[_At]:
        enough = done >= node.least
        if enough and not node.greedy:
            yield at
        if node.most is None or done < node.most:
            for end in self.walk(node.of, at):
                if end.stuck:
                    yield end
                elif not enough or end.place > at.place:
                    yield from self._repeat(node, end, done + 1)
        if enough and node.greedy:
            yield at

    def _skip(self, unless: tuple[str, ...], at: _At) -> Iterator[_At]:
        yield at
        while at.taken:
            state = self._next(at)
            if state == "there":
                state = self._any_fits(unless, at, at.place)
            if state in ("waits", "rows"):
                yield replace(at, stuck=state)
            if state != "no":
                return
            at = replace(at, place=at.place + 1)
            yield at

    def _nothing(self, variables: tuple[str, ...], at: _At) -> Iterator[_At]:
        assert self.rule.within_us is not None, "`Nothing` needs `within`"
        until = self._time(self.start) + self.rule.within_us
        for row in range(at.place, len(self.rows)):
            if self._time(row) > until:
                break
            state = "rows" if row >= self.start + self.partials_max else self._any_fits(variables, at, row)
            if state in ("waits", "rows"):
                yield replace(at, stuck=state)
            if state != "no":
                return
        else:
            if self.reached_us is not None and self.reached_us <= until:
                yield replace(at, stuck="waits")
                return
        yield at

    def _next(self, at: _At) -> str:
        """Whether there is a next row, and it comes while the match may last: there, over, waits or rows (too many)."""
        rule = self.rule
        limits = [] if rule.within_us is None else [self._time(self.start) + rule.within_us]
        if rule.between_us is not None and at.taken:
            limits.append(self._time(at.taken[-1].row) + rule.between_us)
        if at.place >= len(self.rows):
            waits = self.reached_us is not None and all(self.reached_us <= until for until in limits)
            return "waits" if waits else "over"
        if any(self._time(at.place) > until for until in limits):
            return "over"
        return "rows" if at.place >= self.start + self.partials_max else "there"

    def _is_missing(self, row: int) -> bool:
        return row >= len(self.rows) and self.reached_us is not None

    def _any_fits(self, names: tuple[str, ...], at: _At, row: int) -> str:
        """Whether a row fits any of these variables: yes, no or waits."""
        waits = False
        for name in names:
            try:
                if self._fits(name, at, row):
                    return "yes"
            except _Ahead:
                waits = True
        return "waits" if waits else "no"

    def _fits(self, name: str, at: _At, row: int) -> bool:
        condition = self.rule.define.get(name)
        if condition is None:
            return True
        seen = (*at.taken, Taken(row, name))
        sight = Sight(self.rows, seen, seen, row, self.number, self.rule.subsets)
        for one in references_in(condition.tree):
            place = value(replace(one, column="row", shift=0), replace(sight, rows=self.numbered))
            if place is not None and self._is_missing(place + one.shift):
                raise _Ahead
        return value(condition.tree, sight) is True

    @property
    def numbered(self) -> list[Row]:
        return [{"row": number} for number in range(len(self.rows))]

    def _time(self, row: int) -> int:
        return int(self.rows[row][self.on])


def search(
    rule: Rule,
    rows: Sequence[Row],
    *,
    on: str = "at",
    steps_max: int = 200_000,
    partials_max: int = 1_000_000,
    reached_us: int | None = None,
) -> Outcome:
    """All matches among the rows of one key, which stand in order. Times are whole microseconds in column `on`.

    With `reached_us`, those that are certain although rows of that time or later may come; so are all else that is told.
    """
    outcome = Outcome([], [], [])
    every = rule.every and rule.after.where == "none"
    trees = [*(one.tree for one in rule.define.values()), *(one.tree for one in rule.measures)]
    numbered = any(isinstance(leaf, MatchNumber) for tree in trees for leaf in leaves(tree))
    alone = rule.after.where in ("none", "to_next") and not numbered
    start, undecided = 0, len(rows)
    while start < len(rows):
        number = len(outcome.matches) + 1
        one = _Search(rule, rows, rule.order_by or on, start, number, steps_max, partials_max, reached_us)
        found: list[SearchResult] = []
        stuck: set[str] = set()
        for way in one.ways():
            if way.stuck:
                stuck.add(way.stuck)
            else:
                found.append(SearchResult(one.number, start, way.taken))
                one.number += 1
            if not every:
                break
        partial = not found and one.timed_out and (rule.within_us, rule.between_us) != (None, None)
        ahead = max([0, *(one.shift for measure in rule.measures for one in references_in(measure.tree))])
        if partial and ahead and not stuck and one._is_missing(one.timed_out[-1].row + ahead):
            stuck.add("waits")
        if "waits" in stuck:
            undecided = min(undecided, start)
            if not alone:
                break
        elif "rows" in stuck:
            outcome.dropped.append(start)
        elif partial:
            outcome.timed_out.append(SearchResult(None, start, one.timed_out))
        outcome.matches.extend(found)
        start = _next_start(rule, found[0]) if found else start + 1
    matched = {one.row for match in outcome.matches for one in match.taken}
    matched |= {one.start for one in outcome.matches if not one.taken}
    outcome.unmatched.extend(row for row in range(undecided) if row not in matched)
    return outcome


def _next_start(rule: Rule, found: SearchResult) -> int:
    where, variable = rule.after.where, rule.after.variable
    if not found.taken or where in ("to_next", "none"):
        return found.start + 1
    if where == "past_last":
        return found.taken[-1].row + 1
    assert variable is not None
    names = rule.subsets.get(variable, (variable,))
    among = [one.row for one in found.taken if one.variable in names]
    if not among:
        raise SkipImpossible(variable=variable, why="no row of the match is mapped to it")
    target = among[0] if where == "to_first" else among[-1]
    if target == found.start:
        raise SkipImpossible(variable=variable, why="it is the row at which the match began")
    return target


def output(rule: Rule, rows: Sequence[Row], **settings: Any) -> list[dict[str, Any]]:
    """The rows that come out, match by match; unmatched rows come last."""
    return shown(rule, rows, search(rule, rows, **settings))


def shown(rule: Rule, rows: Sequence[Row], outcome: Outcome) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for found in outcome.matches:
        out += _one_row(rule, rows, found) if rule.rows == "one" else _all_rows(rule, rows, found)
    if rule.rows == "all_with_unmatched":
        nothing = {measure.name: None for measure in rule.measures}
        out += [{**rows[place], **nothing} for place in outcome.unmatched]
    return out


def partials(rule: Rule, rows: Sequence[Row], **settings: Any) -> list[dict[str, Any]]:
    """One row for each partial match whose time was over: the columns of the key and the measures."""
    return [row for found in search(rule, rows, **settings).timed_out for row in _one_row(rule, rows, found)]


def _one_row(rule: Rule, rows: Sequence[Row], found: SearchResult) -> list[dict[str, Any]]:
    key = {name: rows[found.start][name] for name in rule.by}
    return [{**key, **_measures(rule, rows, found, len(found.taken))}]


def _all_rows(rule: Rule, rows: Sequence[Row], found: SearchResult) -> list[dict[str, Any]]:
    if not found.taken:
        return [] if rule.rows == "all_omit_empty" else [{**rows[found.start], **_measures(rule, rows, found, 0)}]
    return [
        {**rows[one.row], **_measures(rule, rows, found, count)}
        for count, one in enumerate(found.taken, 1)
        if not one.excluded
    ]


def _measures(rule: Rule, rows: Sequence[Row], found: SearchResult, count: int) -> dict[str, Any]:
    """The measures as of the row with this number in the match."""
    seen = found.taken[:count]
    here = seen[-1].row if seen else None
    sight = Sight(rows, seen, found.taken, here, found.number, rule.subsets)
    return {measure.name: value(measure.tree, sight) for measure in rule.measures}
