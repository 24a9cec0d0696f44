"""The grammar of PATTERN, read by hand: one method per rule.

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

from headwater.operators.match.pattern import (
    Alternation,
    Anchor,
    Exclusion,
    Node,
    Nothing,
    NotNext,
    Permute,
    Repeat,
    Sequence,
    Skip,
    Variable,
)
from headwater.operators.match.size import SIZE_MAX, size
from headwater.operators.match.sql.source import Source, Token, spoken
from headwater.operators.match.sql.text import Clause, unfinished

#: How many parts may stand inside one another, so that reading them cannot exhaust Python's stack.
DEPTH_MAX = 64


@dataclass
class Grammar:
    """Reads one PATTERN clause. A variable is known by its first spelling, whatever the case of its letters."""

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
