"""Pages that stay current: they load in a thread, away from the event loop, then show; again every few seconds."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

from nicegui import context as page_context
from nicegui import core, ui

from headwater.errors import HeadwaterError

T = TypeVar("T")
Content = TypeVar("Content")
#: What a page loads waits for the disk, or for another process.
LOADS = ThreadPoolExecutor(32, thread_name_prefix="headwater-page")
#: Statements may take long; they have threads of their own, so that they delay no page.
STATEMENTS = ThreadPoolExecutor(8, thread_name_prefix="headwater-statement")
#: A page is sent when its parts have loaded once, or after this time; the rest follows.
FIRST_LOAD_SECONDS_MAX = 0.5
_first_loads: ContextVar[list[Callable[[], Awaitable[None]]] | None] = ContextVar("first loads", default=None)


class LivePage(ABC, Generic[Content]):
    """A page, or a part of one, that shows what it loads again and again."""

    @abstractmethod
    def load(self) -> Content:
        """Read what the page shows, in a thread: this may touch the disk, and sets no element."""

    @abstractmethod
    def show(self, content: Content) -> None:
        """Set the elements of the page, in the event loop."""

    def start(self, *, seconds: float = 2.0) -> None:
        """Load and show now, and then every so many seconds."""
        every(seconds, self.load, self.show)

    async def refresh(self) -> None:
        """Load and show now, because the user has changed something."""
        content = await attempt(self.load)
        if content is not None:
            self.show(content)


def every(seconds: float, load: Callable[[], T], show: Callable[[T], None]) -> None:
    """Load and show now, and then every so many seconds. An error is shown once, and the page keeps its content."""
    problem, is_loading = "", False

    async def refresh() -> None:
        nonlocal problem, is_loading
        if is_loading:  # the first load is not over, and its content is about as new
            return
        is_loading = True
        try:
            show(await read(load))
            problem = ""
        except HeadwaterError as error:
            if str(error) != problem:
                problem = str(error)
                ui.notify(problem, position="bottom-right", timeout=8000)
        finally:
            is_loading = False

    first_loads, slot = _first_loads.get(), page_context.slot

    async def first_refresh() -> None:
        with slot:  # the task that runs this has no place in the page
            await refresh()

    if first_loads is not None:
        first_loads.append(first_refresh)
    ui.timer(seconds, refresh, immediate=first_loads is None)


@asynccontextmanager
async def loaded_first() -> AsyncIterator[None]:
    """Build a page inside of this: its parts load once before the page is sent."""
    loads: list[Callable[[], Awaitable[None]]] = []
    token = _first_loads.set(loads)
    try:
        yield
    finally:
        _first_loads.reset(token)
    if loads:
        tasks = [asyncio.ensure_future(load()) for load in loads]
        for task in tasks:
            task.add_done_callback(_report_failure)
        await asyncio.wait(tasks, timeout=FIRST_LOAD_SECONDS_MAX)


def _report_failure(task: asyncio.Future[None]) -> None:
    """Report an error of a first load as NiceGUI reports those of its timers."""
    if not task.cancelled() and (error := task.exception()) is not None:
        core.app.handle_exception(error)  # type: ignore[arg-type]  # it takes whatever was raised


async def read(work: Callable[[], T], *, pool: Executor = LOADS) -> T:
    """Do work that may touch the disk, in a thread."""
    if core.app.is_stopping:  # no page waits for it any more
        raise asyncio.CancelledError
    return await asyncio.get_running_loop().run_in_executor(pool, work)


async def attempt(work: Callable[[], T]) -> T | None:
    """Do in a thread what the user has asked for; if it fails, show the error and return None."""
    try:
        return await read(work)
    except HeadwaterError as error:
        notify(str(error), good=False)
        return None


async def perform(work: Callable[[], object]) -> bool:
    """Like `attempt`, for work without a result: return whether it succeeded."""
    return await attempt(lambda: (work(),)) is not None


def notify(text: str, *, good: bool = True) -> None:
    """Show in a corner what was done, or what went wrong."""
    ui.notify(text, position="bottom-right", timeout=5000, icon="check_circle" if good else "error")
