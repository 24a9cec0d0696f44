"""Parse the text of MATCH_RECOGNIZE, clause by clause, into one `Rule`.

PATTERN has a grammar of its own, with one method per rule:

    pattern     sequence ( '|' sequence )*
    sequence    repeated+
    repeated    primary ( ( '*' | '+' | '?' | '{' n '}' | '{' n? ',' m? '}' ) '?'? )?
    primary     variable | '^' | '$' | '(' pattern? ')' | '{-' pattern '-}' | PERMUTE '(' pattern ( ',' pattern )* ')'
              | SKIP '(' variables? ')' | NOT_NEXT '(' variables ')' | NOTHING '(' variables ')'

The last line is not of the standard: it writes down what the builder builds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.operators.match.language.expression_parser import (
    ExpressionParser,
    Scope,
    check_functions,
    constant,
    is_constant,
    syntax,
)
from headwater.operators.match.language.render import text_of
from headwater.operators.match.language.rule import (
    SIZE_MAX,
    AfterMatch,
    Alternation,
    Anchor,
    Condition,
    Exclusion,
    Expression,
    GoesOn,
    Measure,
    Node,
    Nothing,
    NotNext,
    Permute,
    Repeat,
    RowsShown,
    Rule,
    Sequence,
    Skip,
    Variable,
    holds,
    is_simple,
    mapped,
    size,
    skips_to_start,
)
from headwater.operators.match.language.source import Clause, Source, Token, clauses, split, spoken, unfinished
from headwater.operators.match.language.type_check import check

ROWS: dict[tuple[str, ...], RowsShown] = {
    ("ONE", "ROW", "PER", "MATCH"): "one",
    ("ALL", "ROWS", "PER", "MATCH"): "all",
    ("ALL", "ROWS", "PER", "MATCH", "SHOW", "EMPTY", "MATCHES"): "all_show_empty",
    ("ALL", "ROWS", "PER", "MATCH", "OMIT", "EMPTY", "MATCHES"): "all_omit_empty",
    ("ALL", "ROWS", "PER", "MATCH", "WITH", "UNMATCHED", "ROWS"): "all_with_unmatched",
}
SKIPS = "SKIP PAST LAST ROW, SKIP TO NEXT ROW, SKIP TO FIRST x, SKIP TO LAST x, SKIP TO x or NO SKIP"
#: How many parts may stand inside one another, so that parsing cannot exhaust Python's stack.
DEPTH_MAX = 64


def parse(text: str, schema: pa.Schema | None = None) -> Rule:
    """The rule that a text says; with the schema of the rows, also checked against it.

    The text is the body of MATCH_RECOGNIZE, with or without that word and its parentheses. What is wrong with it is
    said by one `PatternInvalid`, which points at the place.

    >>> rule = parse("PATTERN (small{2,} big) DEFINE small AS amount < 5, big AS amount > 500")
    >>> rule.define["small"].simple
    True
    """
    source = Source(text)
    parser = _RuleParser(source, ExpressionParser(source), clauses(source))
    rule = parser.rule()
    return rule if schema is None else check(rule, schema, where=parser.where)


@dataclass
class _RuleParser:
    source: Source
    expressions: ExpressionParser
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
            order_by=self._clause("ORDER", self._time, None),
            then_by=self._clause("ORDER", self._then_by, ()),
            every=every,
        )

    def where(self, tree: Expression | str) -> tuple[Source, int]:
        """Where a part of an expression stands, or a clause."""
        if isinstance(tree, str):
            clause = self.found.get(tree, self.found["PATTERN"])
            return self.source, clause.start
        place = self.expressions.place(tree)
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
        return self._ordered(split(self.source, clause)[0], "the column of the event time")

    def _then_by(self, clause: Clause) -> tuple[str, ...]:
        """The columns that order rows of one moment."""
        _, *more = split(self.source, clause)
        return tuple(self._ordered(part, "a column that orders rows of one moment") for part in more)

    def _ordered(self, part: list[Token], expected: str) -> str:
        if part[0].name is None:
            raise self.source.error(part[0].start, spoken(part[0]), expected)
        for token in part[1:-1]:
            if token.says("DESC"):
                why = "a stream cannot be read backwards"
                raise self.source.error(token.start, why, "columns in ascending order, ASC or nothing")
            if not token.says("ASC"):
                raise self.source.error(token.start, spoken(token), "ASC, or a comma and a further column")
        return part[0].text

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
            tree = self.expressions.read(part[2].start, part[-1].start, scope)
            check_functions(self.expressions, tree, name, subsets, otherwise=part[2].start)
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
            tree = self.expressions.read(part[0].start, word.start, scope)
            found.append(Measure(name.text, text_of(tree), tree))
        return tuple(found)

    def _length(self, clause: Clause) -> int:
        def invalid(why: str, expected: str) -> Exception:
            return self.source.error(clause.start, why, expected)

        node = syntax(self.source, clause.start, clause.end)
        value = constant(node, invalid).value if is_constant(node) else None
        if not isinstance(value, int) or value <= 0:
            raise invalid("this is no length of time", "one such as INTERVAL '10' MINUTE")
        return value


@dataclass
class Grammar:
    """Reads one PATTERN clause. A variable is known by its first spelling, whatever its case."""

    source: Source
    clause: Clause
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens = list(self.source.tokens(self.clause.start, self.clause.end))
        self.place = 0
        self.depth = 0

    def pattern(self) -> Node:
        """The whole clause: one pattern in parentheses."""
        self._take("(")
        pattern = Sequence(()) if self._here.says(")") else self._alternation()
        self._take(")", among="a variable, a quantifier or ')'")
        if self._here.kind != "end":
            raise unfinished(self.source, self._here)
        return self._bounded(pattern, self.clause.start)

    def _alternation(self) -> Node:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.source.error(
                self._here.start, "the pattern is nested too deep here", f"at most {DEPTH_MAX} levels of parentheses"
            )
        options = [self._sequence()]
        while self._skip("|"):
            options.append(self._sequence())
        self.depth -= 1
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _sequence(self) -> Node:
        parts = [self._repeated()]
        while not self._ends():
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _ends(self) -> bool:
        here = self._here
        return here.kind == "end" or here.says(")", "|", ",") or (here.says("-") and self._after.says("}"))

    def _repeated(self) -> Node:
        node = self._primary()
        at = self._here.start
        bounds = self._quantifier()
        if bounds is None:
            return node
        greedy = not self._skip("?")
        return self._bounded(Repeat(node, bounds[0], bounds[1], greedy), at)

    def _quantifier(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self._here.kind == "sign" and self._here.text in simple:
            return simple[self._next().text]
        if not self._here.says("{") or self._after.says("-"):
            return None
        start = self._next().start
        least = self._count()
        most = least
        if self._skip(","):
            most = self._count()
        elif least is None:
            raise self._unfit("a number, as in {2}, {2,}, {,3} or {2,3}")
        self._take("}", among="',' or '}'")
        if most is not None and most < (least or 0):
            raise self.source.error(start, f"{least} to {most} times is not possible", "the smaller number first")
        return least or 0, most

    def _count(self) -> int | None:
        if self._here.kind != "number":
            return None
        token = self._next()
        if not token.text.isdigit():
            raise self.source.error(token.start, f"{token.text} times is not possible", "a whole number")
        return int(token.text)

    def _primary(self) -> Node:
        token = self._here
        if token.says("("):
            self._next()
            inner = Sequence(()) if self._here.says(")") else self._alternation()
            self._take(")", among="a variable, a quantifier or ')'")
            return inner
        if token.says("{") and self._after.says("-"):
            return self._exclusion()
        if token.says("^", "$"):
            return Anchor("start" if self._next().text == "^" else "end")
        if token.says("PERMUTE", "SKIP", "NOT_NEXT", "NOTHING") and self._after.says("("):
            return self._special(token)
        if token.name is None:
            raise self._unfit("a variable, '(', '{-', '^', '$' or PERMUTE")
        return Variable(self._variable())

    def _exclusion(self) -> Node:
        self._next()
        self._next()
        inner = self._alternation()
        self._take("-", among="a variable, a quantifier or '-}'")
        self._take("}")
        return Exclusion(inner)

    def _special(self, token: Token) -> Node:
        self._next()
        self._next()
        name = token.text.upper()
        if name == "PERMUTE":
            return self._permute(token)
        variables: list[str] = []
        while self._here.name is not None:
            variables.append(self._variable())
            if not self._skip(","):
                break
        if not variables and name != "SKIP":
            raise self._unfit("a variable")
        self._take(")", among="',' or ')'")
        made: dict[str, Callable[[tuple[str, ...]], Node]] = {"SKIP": Skip, "NOT_NEXT": NotNext, "NOTHING": Nothing}
        return made[name](tuple(variables))

    def _permute(self, token: Token) -> Node:
        parts = [self._alternation()]
        while self._skip(","):
            parts.append(self._alternation())
        self._take(")", among="',' or ')'")
        return parts[0] if len(parts) == 1 else self._bounded(Permute(tuple(parts)), token.start)

    def _bounded(self, node: Node, at: int) -> Node:
        large = size(node)
        if large > SIZE_MAX:
            why = f"written out, the pattern has {large:,} parts here, more than {SIZE_MAX:,}"
            raise self.source.error(at, why, "fewer repetitions or permutations, or `*` and `+` with a count in DEFINE")
        return node

    def _variable(self) -> str:
        token = self._next()
        return self.variables.setdefault(token.text.lower(), token.text)

    @property
    def _here(self) -> Token:
        return self.tokens[min(self.place, len(self.tokens) - 1)]

    @property
    def _after(self) -> Token:
        return self.tokens[min(self.place + 1, len(self.tokens) - 1)]

    def _next(self) -> Token:
        token = self._here
        self.place += 1
        return token

    def _skip(self, sign: str) -> bool:
        found = self._here.says(sign)
        self.place += found
        return found

    def _take(self, sign: str, *, among: str | None = None) -> Token:
        if not self._here.says(sign):
            raise self._unfit(among or f"'{sign}'")
        return self._next()

    def _unfit(self, expected: str) -> Exception:
        return self.source.error(self._here.start, spoken(self._here), expected)
