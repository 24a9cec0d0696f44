"""Progress of long commands, on a terminal only: nothing is shown in a pipe or with `-q`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from headwater.cli.session import Session


class Progress(Protocol):
    """Called after each step with what is done so far, and a note beside it."""

    def __call__(self, done: int, total: int | None = None, note: str = "", /) -> None: ...


@contextlib.contextmanager
def progress_bar(
    session: Session, title: str, *, total: int | None = None, in_bytes: bool = True
) -> Iterator[Progress]:
    """Show a progress bar on stderr while the block runs; `total` is None while it is unknown."""
    if not session.shows_progress:
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bar

    amount = DownloadColumn(binary_units=True) if in_bytes else MofNCompleteColumn()
    parts = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), amount]
    parts += [TextColumn("{task.fields[note]}"), TimeElapsedColumn()]
    console = Console(stderr=True, no_color=session.config.color == "never")
    with Bar(*parts, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, total=total, note="": bar.update(task, completed=done, total=total, note=note)
