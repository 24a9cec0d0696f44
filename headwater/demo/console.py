"""The console over the company: the one place where it is chosen, and where its pages are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from headwater.runtime.home import Runner as Announced
    from headwater.runtime.runner import Runner


def served(runner: Runner, *, port: int = 0) -> AbstractContextManager[Announced]:
    """Serve the company, with the console."""
    from headwater.console import served_with_console

    return served_with_console(runner, port=port)


def page_of(address: str) -> str:
    """What a person opens in a browser."""
    from headwater.console.serving import PATH

    return f"{address}{PATH}"
