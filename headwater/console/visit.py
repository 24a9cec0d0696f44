"""One look at one page: who looks, and in which colours."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.server.tokens import Caller


@dataclass(frozen=True, kw_only=True)
class Visit:
    """Given to every screen as its first argument."""

    caller: Caller
    dark: bool = False
