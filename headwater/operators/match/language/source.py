"""The text of a pattern: its tokens, its clauses, and errors that point at a place in it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from headwater.operators.errors import PatternInvalid

Kind = Literal["word", "quoted", "text", "number", "sign", "end"]
_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<word>[^\W\d]\w*)
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
#: How each clause begins. A word may be the name of a column as well, so what follows it decides too.
HEADS: tuple[tuple[str, ...], ...] = (
    ("PARTITION", "BY"),
    ("ORDER", "BY"),
    ("MEASURES",),
    ("ONE", "ROW", "PER", "MATCH"),
    ("ALL", "ROWS", "PER", "MATCH"),
    ("AFTER", "MATCH"),
    ("EVERY", "MATCH"),
    ("PATTERN", "("),
    ("WITHIN", "INTERVAL"),
    ("GAP", "INTERVAL"),
    ("SUBSET",),
    ("DEFINE",),
)
#: What a clause's first word keeps for its body.
_KEPT = {"(", "INTERVAL"}
#: What must follow the first word of a clause for it to be one.
UNFINISHED = {
    "PATTERN": "PATTERN and a pattern in parentheses",
    "WITHIN": "a length of time, as in WITHIN INTERVAL '10' MINUTE",
    "GAP": "a length of time, as in GAP INTERVAL '30' SECOND",
    "DEFINE": "DEFINE, a variable, AS and its condition",
    "SUBSET": "SUBSET, a new name, = and variables in parentheses",
    "PARTITION": "PARTITION BY and columns",
    "ORDER": "ORDER BY and the event time",
    "ONE": "ONE ROW PER MATCH",
    "ALL": "ALL ROWS PER MATCH",
    "AFTER": "AFTER MATCH and where to go on",
    "EVERY": "EVERY MATCH",
}


@dataclass(frozen=True)
class Token:
    kind: Kind
    #: As written; of a quoted name, what is inside the quotes.
    text: str
    start: int
    end: int

    def says(self, *words: str) -> bool:
        """Whether it is one of these words, in any case, or one of these signs."""
        return self.kind in ("word", "sign") and self.text.upper() in words

    @property
    def name(self) -> str | None:
        """The name that it is, if it can be one."""
        return self.text if self.kind in ("word", "quoted") else None


@dataclass(frozen=True)
class Source:
    text: str

    def tokens(self, start: int = 0, end: int | None = None) -> Iterator[Token]:
        """The words and signs between two places, with one of kind `end` behind them."""
        end = len(self.text) if end is None else end
        for found in _TOKEN.finditer(self.text, start, end):
            kind = found.lastgroup
            text = found.group()
            if kind == "quoted":
                text = text[1:-1].replace("``", "`")
            if kind != "blank":
                yield Token(kind, text, found.start(), found.end())  # type: ignore[arg-type]  # the groups' names
        yield Token("end", "", end, end)

    def error(self, at: int, why: str, expected: str, *, meant: str | None = None) -> PatternInvalid:
        """The error that shows the line of this place, and a caret under it."""
        at = min(at, len(self.text.rstrip())) if self.text[at:].strip() == "" else at
        begin = self.text.rfind("\n", 0, at) + 1
        line = self.text[begin:].split("\n", 1)[0]
        under = re.sub(r"[^\t]", " ", self.text[begin:at])
        return PatternInvalid(
            line=self.text.count("\n", 0, at) + 1,
            column=at - begin + 1,
            place=f"{line}\n{under}^",
            why=why,
            expected=expected,
            meant=f"Did you mean {meant}?" if meant else "",
        )

    def unknown(
        self, at: int, kind: str, name: str, known: Iterable[str], *, where: str = "the pattern"
    ) -> PatternInvalid:
        """The error that a name is not among those known."""
        known = list(known)
        expected = f"one of the {kind}s {', '.join(known)}" if known else f"no {kind}: {where} has none"
        return self.error(at, f"{where} has no {kind} {name}", expected, meant=nearest(name, known))


def spoken(token: Token) -> str:
    """A token in an error."""
    return "something is missing" if token.kind == "end" else f"{token.text!r} does not fit here"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """What was probably meant."""
    options = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), options, n=1, cutoff=0.5)
    return options[found[0]] if found else None


@dataclass(frozen=True)
class Clause:
    """One clause: its name, where its head begins, and where its body begins and ends."""

    name: str
    head: int
    start: int
    end: int


def clauses(source: Source) -> dict[str, Clause]:
    """The clauses of the text by name (ONE ROW and ALL ROWS are one clause, ROWS)."""
    tokens = list(source.tokens())
    _check_pairs(source, tokens)
    tokens = _inside(source, tokens)
    found: dict[str, Clause] = {}
    heads = _heads(tokens)
    if tokens and (not heads or heads[0][0] > 0):
        raise _no_clause(source, tokens[0])
    for number, (place, words) in enumerate(heads):
        name = "ROWS" if words[0] in ("ONE", "ALL") else words[0]
        body = place + len([word for word in words if word not in _KEPT])
        if words[0] in ("ONE", "ALL"):
            body = place
        last = heads[number + 1][0] if number + 1 < len(heads) else len(tokens)
        start = tokens[body].start if body < len(tokens) else tokens[-1].end
        end = tokens[last - 1].end
        if name in found:
            raise source.error(tokens[place].start, f"{words[0]} stands here for the second time", "each clause once")
        found[name] = Clause(name, tokens[place].start, min(start, end), end)
    if "PATTERN" not in found:
        raise source.error(len(source.text), "there is no PATTERN", "a clause such as PATTERN (A B+ C)")
    return found


def _inside(source: Source, tokens: list[Token]) -> list[Token]:
    """What stands between the parentheses of MATCH_RECOGNIZE ( … ), or all, if those words are left out."""
    if not tokens[0].says("MATCH_RECOGNIZE"):
        return tokens[:-1]
    if not tokens[1].says("("):
        raise source.error(tokens[1].start, spoken(tokens[1]), "'(' after MATCH_RECOGNIZE")
    if not tokens[-2].says(")") or len(tokens) < 4:
        raise source.error(tokens[-1].start, spoken(tokens[-1]), "the ')' that closes MATCH_RECOGNIZE (")
    return tokens[2:-2]


def _check_pairs(source: Source, tokens: list[Token]) -> None:
    """Whether each parenthesis and each quote has its other half."""
    opened: list[Token] = []
    for token in tokens:
        if token.says("'", '"', "`"):
            raise source.error(token.start, "this quote is never closed", "the closing quote")
        if token.says("("):
            opened.append(token)
        elif token.says(")") and not opened:
            raise source.error(token.start, "this ')' closes nothing", "as many '(' as ')'")
        elif token.says(")"):
            opened.pop()
    if opened:
        raise source.error(opened[-1].start, "this '(' is never closed", "as many ')' as '('")


def _heads(tokens: list[Token]) -> list[tuple[int, tuple[str, ...]]]:
    """Where clauses begin: outside of all parentheses, and not where a name of a column stands."""
    depth = 0
    found = []
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else None
        if depth == 0 and (before is None or not before.says(".", "AS", "=")):
            found += [(place, words) for words in HEADS if _begins(tokens, place, words)][:1]
        depth += 1 if token.says("(") else -1 if token.says(")") else 0
    return found


def _begins(tokens: list[Token], place: int, words: tuple[str, ...]) -> bool:
    here = tokens[place : place + len(words)]
    if len(here) < len(words) or not all(one.says(word) for one, word in zip(here, words, strict=True)):
        return False
    after = tokens[place + 1 : place + 3]
    if words == ("DEFINE",):
        return not after or len(after) < 2 or after[1].says("AS")
    if words == ("SUBSET",):
        return not after or len(after) < 2 or after[1].says("=")
    if words == ("MEASURES",):
        return not after or not after[0].says(".", ")", "=", "<", ">", "+", "-", "/", "AS", ",")
    return True


def _no_clause(source: Source, token: Token) -> Exception:
    if token.text.upper() in UNFINISHED:
        return unfinished(source, token)
    names = [words[0] for words in HEADS]
    expected = f"one of {', '.join(names)}"
    return source.error(token.start, f"{token.text!r} begins no clause", expected, meant=nearest(token.text, names))


def unfinished(source: Source, token: Token) -> Exception:
    """The error where a clause should begin and does not, or not quite."""
    expected = UNFINISHED.get(token.text.upper())
    if expected is None:
        return source.error(token.start, spoken(token), "the next clause: the pattern is complete here")
    return source.error(token.start, f"this is not all that {token.text.upper()} needs", expected)


def split(source: Source, clause: Clause) -> list[list[Token]]:
    """The parts of a list, between the commas outside of parentheses. Each ends with a token of kind `end`."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in source.tokens(clause.start, clause.end):
        if token.kind == "end" or (depth == 0 and token.says(",")):
            parts[-1].append(Token("end", token.text, token.start, token.end))
            if token.kind != "end":
                parts.append([])
            continue
        depth += 1 if token.says("(") else -1 if token.says(")") else 0
        parts[-1].append(token)
    return parts
