"""The screens: pages with their place in the navigation. Modules whose names end in `page` declare them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

PATH = "/console"
Group = Literal["", "Data", "Processing", "Attention"]
GROUPS: tuple[Group, ...] = ("", "Data", "Processing", "Attention")


def path_to(*parts: object) -> str:
    """The address of a page of the console.

    >>> path_to("topics", "a/b", "browse")
    '/console/topics/a%2Fb/browse'
    """
    return "/".join((PATH, *(quote(str(part), safe="") for part in parts)))


@dataclass(frozen=True, kw_only=True)
class Screen:
    """One page. Without a `title` it is not in the navigation, as pages of a single thing are not."""

    path: str
    # Any: a page takes what its path and query name, and may be asynchronous.
    build: Callable[..., Any]
    title: str | None = None
    group: Group = ""
    icon: str = "circle"
    key: str = ""
    """The key that opens the page after `g`."""
    order: int = 100
    under: str = ""
    """For pages of a single thing: the path of the screen that lists them."""


_screens: dict[str, Screen] = {}


# Any: see `Screen.build`.
def screen(path: str, **place: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a page of a function. Its parameters are those of the path and of the query string."""

    def declare(build: Callable[..., Any]) -> Callable[..., Any]:
        _screens[path] = Screen(path=path, build=build, **place)
        return build

    return declare


def screens() -> list[Screen]:
    """All screens, in the order of the navigation."""
    _load()
    return sorted(_screens.values(), key=lambda screen: (GROUPS.index(screen.group), screen.order, screen.title or ""))


@functools.cache
def _load() -> None:
    """Import every module that declares screens: a new module needs no other change to be in the navigation."""
    from headwater import console

    for module in pkgutil.walk_packages(console.__path__, f"{console.__name__}."):
        if module.name.endswith("page"):
            importlib.import_module(module.name)
