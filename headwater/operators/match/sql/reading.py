"""The text of MATCH_RECOGNIZE, clause by clause, into one `Rule`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.operators.match.expression import Condition, Expression, Measure, RowsShown, Rule
from headwater.operators.match.pattern import AfterMatch, Exclusion, GoesOn, Node
from headwater.operators.match.sql.check import check
from headwater.operators.match.sql.constants import constant, is_constant
from headwater.operators.match.sql.dialect import syntax
from headwater.operators.match.sql.expressions import Reader, Scope
from headwater.operators.match.sql.grammar import Grammar
from headwater.operators.match.sql.parts import is_simple
from headwater.operators.match.sql.source import Source, Token, spoken
from headwater.operators.match.sql.text import Clause, clauses, split
from headwater.operators.match.sql.values_text import text_of
from headwater.operators.match.tree import holds, mapped, skips_to_start

ROWS: dict[tuple[str, ...], RowsShown] = {
    ("ONE", "ROW", "PER", "MATCH"): "one",
    ("ALL", "ROWS", "PER", "MATCH"): "all",
    ("ALL", "ROWS", "PER", "MATCH", "SHOW", "EMPTY", "MATCHES"): "all_show_empty",
    ("ALL", "ROWS", "PER", "MATCH", "OMIT", "EMPTY", "MATCHES"): "all_omit_empty",
    ("ALL", "ROWS", "PER", "MATCH", "WITH", "UNMATCHED", "ROWS"): "all_with_unmatched",
}


def parse(text: str, schema: pa.Schema | None = None) -> Rule:
    """The rule that a text says; with the schema of the rows, also checked against it.

    The text is the body of MATCH_RECOGNIZE, with or without that word and its parentheses. What is wrong with it is
    said by one `PatternInvalid`, which points at the place.

    >>> rule = parse("PATTERN (small{2,} big) DEFINE small AS amount < 5, big AS amount > 500")
    >>> rule.define["small"].simple
    True
    """
    source = Source(text)
    reading = _Reading(source, Reader(source), clauses(source))
    rule = reading.rule()
    return rule if schema is None else check(rule, schema, where=reading.where)


@dataclass
class _Reading:
    source: Source
    reader: Reader
    found: dict[str, Clause]

    def rule(self) -> Rule:
        grammar = Grammar(self.source, self.found["PATTERN"])
        pattern = grammar.pattern()
        variables, taken = grammar.variables, mapped(pattern)
        subsets = self._clause("SUBSET", lambda one: self._subsets(one, taken), {})
        within = {name.lower(): name for name in taken}
        every = "EVERY" in self.found
        after = self._clause("AFTER", lambda one: self._after(one, pattern, subsets), AfterMatch())
        if every and after.where != "none":
            raise self.source.error(
                self.found["EVERY"].head, "after a match the search leaves its first row", "AFTER MATCH NO SKIP as well"
            )
        rows = self._clause("ROWS", lambda one: self._rows(one, pattern), "one")
        return Rule(
            pattern=pattern,
            define=self._clause("DEFINE", lambda one: self._define(one, variables, within, subsets), {}),
            subsets=subsets,
            measures=self._clause("MEASURES", lambda one: self._measures(one, Scope(within, subsets)), ()),
            rows=rows,
            after=after,
            within_us=self._clause("WITHIN", self._length, None),
            between_us=self._clause("GAP", self._length, None),
            by=self._clause("PARTITION", self._columns, ()),
            on=self._clause("ORDER", self._time, None),
            every=every,
        )

    def where(self, tree: Expression | str) -> tuple[Source, int]:
        """Where a part of an expression stands, or a clause."""
        if isinstance(tree, str):
            clause = self.found.get(tree, self.found["PATTERN"])
            return self.source, clause.start
        place = self.reader.place(tree)
        return self.source, self.found["PATTERN"].head if place is None else place

    # Any: each clause has a type of its own.
    def _clause(self, name: str, read: Callable[[Clause], Any], otherwise: Any) -> Any:
        return read(self.found[name]) if name in self.found else otherwise

    def _columns(self, clause: Clause) -> tuple[str, ...]:
        names = []
        for part in split(self.source, clause):
            if part[0].name is None or part[1].kind != "end":
                wrong = part[0] if part[0].name is None else part[1]
                raise self.source.error(wrong.start, spoken(wrong), "the name of a column, and commas between several")
            names.append(part[0].text)
        return tuple(names)

    def _time(self, clause: Clause) -> str:
        first, *more = split(self.source, clause)
        if first[0].name is None:
            raise self.source.error(first[0].start, spoken(first[0]), "the column of the event time")
        for token in first[1:-1]:
            if token.says("DESC"):
                raise self.source.error(
                    token.start, "a stream cannot be read backwards", "the event time, ASC or nothing"
                )
            if not token.says("ASC"):
                raise self.source.error(token.start, spoken(token), "the event time alone")
        if more:
            expected = "the event time alone; rows of one moment keep the order in which they were appended"
            raise self.source.error(more[0][0].start, "a second column to order by", expected)
        return first[0].text

    def _rows(self, clause: Clause, pattern: Node) -> RowsShown:
        tokens = list(self.source.tokens(clause.start, clause.end))[:-1]
        words = tuple(token.text.upper() for token in tokens)
        if words not in ROWS:
            wrong = tokens[4] if len(tokens) > 4 else tokens[-1]
            options = "SHOW EMPTY MATCHES, OMIT EMPTY MATCHES or WITH UNMATCHED ROWS"
            expected = options if words[0] == "ALL" else "the next clause"
            raise self.source.error(wrong.start, spoken(wrong), expected)
        if ROWS[words] == "all_with_unmatched" and holds(pattern, Exclusion):
            why = "rows left out by {- -} would be neither matched nor unmatched"
            raise self.source.error(clause.start, why, "ALL ROWS PER MATCH, or a pattern without {- -}")
        return ROWS[words]

    def _after(self, clause: Clause, pattern: Node, subsets: dict[str, tuple[str, ...]]) -> AfterMatch:
        tokens = list(self.source.tokens(clause.start, clause.end))
        words = tuple(token.text.upper() for token in tokens[:-1])
        fixed: dict[tuple[str, ...], GoesOn] = {
            ("SKIP", "PAST", "LAST", "ROW"): "past_last",
            ("SKIP", "TO", "NEXT", "ROW"): "to_next",
            ("NO", "SKIP"): "none",
        }
        if words in fixed:
            return AfterMatch(fixed[words])
        if words[:2] != ("SKIP", "TO") or not 3 <= len(words) <= 4 or tokens[-2].name is None:
            wrong = tokens[0] if words[:1] != ("SKIP",) else tokens[min(len(tokens) - 1, 1)]
            raise self.source.error(wrong.start, "this is no way to go on", SKIPS)
        if len(words) == 4 and words[2] not in ("FIRST", "LAST"):
            raise self.source.error(tokens[2].start, spoken(tokens[2]), SKIPS)
        where: GoesOn = "to_first" if words[2:3] == ("FIRST",) and len(words) == 4 else "to_last"
        return AfterMatch(where, self._skipped(tokens[-2], where, pattern, subsets))

    def _skipped(self, token: Token, where: str, pattern: Node, subsets: dict[str, tuple[str, ...]]) -> str:
        names = {name.lower(): name for name in (*mapped(pattern), *subsets)}
        found = names.get(token.text.lower())
        if found is None:
            raise self.source.unknown(token.start, "variable", token.text, names.values())
        if skips_to_start(pattern, where, subsets.get(found, (found,))):
            why = f"each match begins with the row of {found}, so the search would find it for ever"
            raise self.source.error(token.start, why, "a variable behind the first row, or SKIP TO NEXT ROW")
        return found

    def _subsets(self, clause: Clause, taken: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        known = {name.lower(): name for name in taken}
        found: dict[str, tuple[str, ...]] = {}
        for part in split(self.source, clause):
            signs = [token.text for token in (*part[1:3], *part[-2:-1])]
            if part[0].name is None or signs != ["=", "(", ")"] or len(part) < 6:
                raise self.source.error(part[0].start, "this is no subset", "one such as SUBSET moved = (rise, fall)")
            name = part[0].text
            if name.lower() in known or name.lower() in {one.lower() for one in found}:
                raise self.source.error(part[0].start, f"{name} is there already", "a new name for the subset")
            found[name] = tuple(self._member(token, known) for token in part[3:-2] if not token.says(","))
        return found

    def _member(self, token: Token, known: dict[str, str]) -> str:
        if token.text.lower() not in known or token.name is None:
            raise self.source.unknown(token.start, "variable", token.text, known.values())
        return known[token.text.lower()]

    def _define(
        self, clause: Clause, variables: dict[str, str], within: dict[str, str], subsets: dict[str, tuple[str, ...]]
    ) -> dict[str, Condition]:
        found: dict[str, Condition] = {}
        for part in split(self.source, clause):
            if part[0].name is None or len(part) < 2 or not part[1].says("AS"):
                wrong = part[0] if part[0].name is None else part[1]
                raise self.source.error(wrong.start, spoken(wrong), "a variable, AS and its condition")
            name = variables.get(part[0].text.lower())
            if name is None:
                raise self.source.unknown(part[0].start, "variable", part[0].text, variables.values())
            if name in found:
                raise self.source.error(part[0].start, f"{name} is defined already", "one condition for each variable")
            scope = Scope({**within, name.lower(): name}, subsets, own=name)
            tree = self.reader.read(part[2].start, part[-1].start, scope)
            found[name] = Condition(text_of(tree), tree, simple=is_simple(tree))
        return found

    def _measures(self, clause: Clause, scope: Scope) -> tuple[Measure, ...]:
        found: list[Measure] = []
        for part in split(self.source, clause):
            *value, word, name, end = [part[0]] * (4 - len(part)) + part
            if not value or not word.says("AS") or name.name is None:
                raise self.source.error(end.start, "this measure has no name", "AS and a name after each measure")
            if any(name.text.lower() == one.name.lower() for one in found):
                raise self.source.error(
                    name.start, f"{name.text} is there already", "a different name for each measure"
                )
            tree = self.reader.read(part[0].start, word.start, scope)
            found.append(Measure(name.text, text_of(tree), tree))
        return tuple(found)

    def _length(self, clause: Clause) -> int:
        def refuse(why: str, expected: str) -> Exception:
            return self.source.error(clause.start, why, expected)

        node = syntax(self.source, clause.start, clause.end)
        value = constant(node, refuse).value if is_constant(node) else None
        if not isinstance(value, int) or value <= 0:
            raise refuse("this is no length of time", "one such as INTERVAL '10' MINUTE")
        return value


SKIPS = "SKIP PAST LAST ROW, SKIP TO NEXT ROW, SKIP TO FIRST x, SKIP TO LAST x, SKIP TO x or NO SKIP"
