"""Captures at work on a terminal: a bar for each table that a snapshot reads, and rows per second."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from headwater.cli.session import Session

if TYPE_CHECKING:
    from headwater.capture import Capture

#: How often the display changes at most.
SHOW_SECONDS = 0.2
#: The time over which the rate of all tables is measured.
RATE_SECONDS = 3.0


class ShowCapture(Protocol):
    """Called with a capture after each piece."""

    def __call__(self, capture: Capture, /) -> None: ...


@contextlib.contextmanager
def capture_progress(session: Session) -> Iterator[ShowCapture]:
    """Show captures on stderr while the block runs; in a pipe or with `-q` nothing is shown."""
    if not session.shows_progress:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    parts = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn()]
    parts += [MofNCompleteColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn()]
    console = Console(stderr=True, no_color=session.config.color == "never")
    with Progress(*parts, console=console, transient=True, refresh_per_second=5) as progress:
        yield CaptureBars(progress)


class CaptureBars:
    """The bars of all captures of a process: one for each snapshot at work, and one for the changes of each capture."""

    # Any: rich is imported only where it is shown.
    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._tasks: dict[tuple[str, str], Any] = {}
        self._shown: dict[str, float] = {}
        self._before: dict[str, tuple[float, int]] = {}

    def __call__(self, capture: Capture) -> None:
        name, now = capture.config.name, time.monotonic()
        if now - self._shown.get(name, 0.0) < SHOW_SECONDS:
            return
        self._shown[name] = now
        for table, one in list(capture.progress.snapshot.items()):
            if not one.complete:
                self._bar(name, table, f"{name}: snapshot of {table}", one.rows, one.rows_expected)
            elif (task := self._tasks.pop((name, table), None)) is not None:
                self._progress.remove_task(task)
        rows = sum(capture.captured.values())
        at, before = self._before.setdefault(name, (now, rows))
        rate = (rows - before) / (now - at) if now > at else 0.0
        if now - at > RATE_SECONDS:
            self._before[name] = (now, rows)
        self._bar(name, "", f"{name}: changes and rows", rows, None, note=f"{rate:,.0f} rows/s")

    def _bar(self, name: str, table: str, title: str, rows: int, expected: int | None, note: str = "") -> None:
        if (name, table) not in self._tasks:
            self._tasks[name, table] = self._progress.add_task(title, total=expected, note=note)
        self._progress.update(self._tasks[name, table], completed=rows, total=expected, note=note)
