"""What a query looks for: operators that find say so when they are applied, so that their matches can be shown and tried.

`Match`, `MatchRules` and `Percolate` register themselves; the plan of a query collects them with `applied_finders`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

FinderKind = Literal["pattern", "rules", "searches"]


@dataclass(frozen=True, kw_only=True)
class Finder:
    """An operator that finds: its own name, the time and the key it looks by, and the topic that holds its rules.

    `text` is the pattern of `Match`; `settings` is what `Percolate` was told of its fields, as JSON.
    """

    kind: FinderKind
    operator: str
    time: str | None = None
    by: tuple[str, ...] = ()
    rules: str | None = None
    text: str = ""
    # Any, here and below: JSON.
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As an object of JSON.

        >>> Finder.from_json(Finder(kind="rules", operator="rules", time="at", by=("card",)).to_json()).by
        ('card',)
        """
        return {**asdict(self), "by": list(self.by)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Finder:
        return cls(**{**body, "by": tuple(body.get("by", ()))})


_applied: ContextVar[list[Finder] | None] = ContextVar("headwater_finders", default=None)


@contextmanager
def applied_finders() -> Iterator[list[Finder]]:
    """Collects the operators that find and are applied inside of the block."""
    found: list[Finder] = []
    token = _applied.set(found)
    try:
        yield found
    finally:
        _applied.reset(token)


def note_finder(finder: Finder) -> None:
    """Register a finder with the block of `applied_finders` around it."""
    collected = _applied.get()
    if collected is not None:
        collected.append(finder)
