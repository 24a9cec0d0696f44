"""How far a long command has come, on a terminal only; a pipe and `-q` see nothing of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

from headwater.cli.session import Session


class Progress(Protocol):
    """Told with each step how many bytes of the present block, and how many rows in all, are done."""

    def __call__(self, part: int, rows: int) -> None: ...
    def done(self, size: int) -> None: ...


class _Silent:
    def __call__(self, part: int, rows: int) -> None:
        pass

    def done(self, size: int) -> None:
        pass


class _Shown:
    """A line of rich's that says the share, the rows and their rate."""

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
    """A display of progress for as long as the block runs; `total` in bytes, None where nobody knows."""
    if not session.shows_progress:
        yield _Silent()
        return
    with bar_of(session) as bar:
        yield _Shown(bar, bar.add_task(title, total=total, rows=""))


def bar_of(session: Session) -> Any:
    """rich's display, on stderr, gone when it is done."""
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
