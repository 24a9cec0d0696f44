"""Keeping a page up to date: read away from the event loop, then show; quietly late when the server is busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from nicegui import run, ui

from headwater.errors import HeadwaterError

T = TypeVar("T")


async def read(work: Callable[[], T]) -> T:
    """Do work that may touch the disk, in a thread."""
    found: list[T] = []
    await run.io_bound(lambda: found.append(work()))
    if not found:  # the page was closed, or the server goes down: nobody waits for it any more
        raise asyncio.CancelledError
    return found[0]


# Any: showing gives nothing back, or something to wait for.
def every(seconds: float, look: Callable[[], T], show: Callable[[T], Any]) -> ui.timer:
    """Look and show now, and then every so many seconds. An error is told once, and the page keeps what it shows."""
    told = ""

    async def refresh() -> None:
        nonlocal told
        try:
            found = await read(look)
        except HeadwaterError as error:
            if str(error) != told:
                told = str(error)
                ui.notify(told, position="bottom-right", timeout=8000)
            return
        told = ""
        result = show(found)
        if result is not None and hasattr(result, "__await__"):
            await result

    return ui.timer(seconds, refresh)


async def attempt(work: Callable[[], T]) -> T | None:
    """Do what somebody has asked for, in a thread; where it is refused, say why, and give None."""
    try:
        return await read(work)
    except HeadwaterError as error:
        tell(str(error), good=False)
        return None


def tell(text: str, *, good: bool = True) -> None:
    """Say in a corner what has been done."""
    ui.notify(text, position="bottom-right", timeout=5000, icon="check_circle" if good else "error")
