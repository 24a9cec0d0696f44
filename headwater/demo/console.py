"""The console over the company: the one place where it is mounted, and where its pages are. The demo also runs without."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.runtime.runner import Runner
    from headwater.server.application import Mount


def console_of(runner: Runner) -> list[Mount]:
    """The pages that are served beside the API; none where the console is not installed."""
    console = _installed()
    if console is None:
        return []
    mounted: Callable[[Runner], Mount] = console.mounted
    return [mounted(runner)]


def page_of(address: str) -> str:
    """What a person opens in a browser: the console, or else what there is to know of the API."""
    console = _installed()
    return f"{address}/api/openapi.json" if console is None else f"{address}{console.PATH}"


def _installed() -> ModuleType | None:
    try:
        return importlib.import_module("headwater.console")
    except ImportError:
        return None
