"""The text of a pattern, and errors that point at a place in it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from headwater.errors import PatternInvalid

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
