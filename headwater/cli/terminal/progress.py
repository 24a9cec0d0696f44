"""Progress of long commands, on a terminal only: nothing is shown in a pipe or with `-q`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

from headwater.cli.session import Session


class Progress(Protocol):
    """Called after each step with the bytes done of the current block and the rows done in all."""

    def __call__(self, part: int, rows: int) -> None: ...
    def done(self, size: int) -> None: ...


class _Silent:
    def __call__(self, part: int, rows: int) -> None:
        pass

    def done(self, size: int) -> None:
        pass


class _Shown:
    """A progress bar with the share, the rows and the time."""

    def __init__(self, bar: Any, task: Any) -> None:  # Any: rich is imported only where it is shown
        self._bar = bar
        self._task = task
        self._base = 0

    def __call__(self, part: int, rows: int) -> None:
        self._bar.update(self._task, completed=self._base + part, rows=f"{rows:,} rows")

    def done(self, size: int) -> None:
        self._base += size
        self._bar.update(self._task, completed=self._base)


@contextlib.contextmanager
def progress_of(session: Session, title: str, total: int | None) -> Iterator[Progress]:
    """Show progress while the block runs; `total` is in bytes, None if it is unknown."""
    if not session.shows_progress:
        yield _Silent()
        return
    with bar_of(session) as bar:
        yield _Shown(bar, bar.add_task(title, total=total, rows=""))


def bar_of(session: Session) -> Any:
    """A progress bar on stderr that disappears at its end."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, no_color=session.config.color == "never")
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        DownloadColumn(binary_units=True),
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
