"""Keeping a page up to date: read away from the event loop, then show; quietly late when the server is busy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from nicegui import context as page_context
from nicegui import core, ui

from headwater.console.threads import LOOKS
from headwater.errors import HeadwaterError

T = TypeVar("T")
#: So long a page waits for its first looks before it is sent; what takes longer comes when it is there.
FIRST_LOOKS_SECONDS_MAX = 0.5
_first_looks: ContextVar[list[Callable[[], Awaitable[None]]] | None] = ContextVar("first looks", default=None)


@asynccontextmanager
async def arriving_filled() -> AsyncIterator[None]:
    """Build a page inside of this: what its parts look at is looked at once before the page is sent."""
    looks: list[Callable[[], Awaitable[None]]] = []
    token = _first_looks.set(looks)
    try:
        yield
    finally:
        _first_looks.reset(token)
    if looks:
        tasks = [asyncio.ensure_future(look()) for look in looks]
        for task in tasks:
            task.add_done_callback(_tell_of_failure)
        await asyncio.wait(tasks, timeout=FIRST_LOOKS_SECONDS_MAX)


def _tell_of_failure(task: asyncio.Future[None]) -> None:
    """What goes wrong in a first look is told as what goes wrong in the others, which NiceGUI's timers make."""
    if not task.cancelled() and (error := task.exception()) is not None:
        core.app.handle_exception(error)  # type: ignore[arg-type]  # it takes whatever was raised


async def read(work: Callable[[], T], *, pool: Executor = LOOKS) -> T:
    """Do work that may touch the disk, in a thread."""
    if core.app.is_stopping:  # no page waits for it any more
        raise asyncio.CancelledError
    return await asyncio.get_running_loop().run_in_executor(pool, work)


# Any: showing gives nothing back, or something to wait for.
def every(seconds: float, look: Callable[[], T], show: Callable[[T], Any]) -> ui.timer:
    """Look and show now, and then every so many seconds. An error is told once, and the page keeps what it shows."""
    told, is_looking = "", False

    async def refresh() -> None:
        nonlocal told, is_looking
        if is_looking:  # the first look still lasts, and what it finds is about as new
            return
        is_looking = True
        try:
            found = await read(look)
            told = ""
            result = show(found)
            if result is not None and hasattr(result, "__await__"):
                await result
        except HeadwaterError as error:
            if str(error) != told:
                told = str(error)
                ui.notify(told, position="bottom-right", timeout=8000)
        finally:
            is_looking = False

    looks = _first_looks.get()
    if looks is None:
        return ui.timer(seconds, refresh)
    looks.append(_in_this_place(refresh))
    return ui.timer(seconds, refresh, immediate=False)


def _in_this_place(work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Work that adds to the page where it was asked for, whichever task it runs in."""
    place = page_context.slot

    async def there() -> None:
        with place:
            await work()

    return there


async def attempt(work: Callable[[], T]) -> T | None:
    """Do in a thread what the user has asked for; if it fails, show the error and return None."""
    try:
        return await read(work)
    except HeadwaterError as error:
        tell(str(error), good=False)
        return None


def tell(text: str, *, good: bool = True) -> None:
    """Say in a corner what has been done."""
    ui.notify(text, position="bottom-right", timeout=5000, icon="check_circle" if good else "error")
