"""What went wrong in a query, in the order in which people need it: their own line, the error, and the rest folded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """An error of a query, told to people."""

    line: str
    """All of it in one line."""
    details: tuple[str, ...] = ()
    """The user's own line of code, if the error came from there, and what it said."""
    trace: str = ""
    """Everything that is known, for those who ask."""


def trouble_of(error: BaseException) -> Trouble:
    """An error, told to people."""
    text = str(error).strip() or type(error).__name__
    return Trouble(line=text.splitlines()[0], trace=text)
