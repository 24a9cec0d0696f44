"""Gateways at work on a terminal: a line for each with its counters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from headwater.cli.session import Session

if TYPE_CHECKING:
    from headwater.gateways import GatewayStatus


@contextlib.contextmanager
def gateway_progress(session: Session) -> Iterator[Callable[[Sequence[GatewayStatus]], None]]:
    """Show gateways on stderr while the block runs; in a pipe or with `-q` nothing is shown."""
    if not session.shows_progress:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True, no_color=session.config.color == "never")
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as progress:
        tasks = {}

        def show(statuses: Sequence[GatewayStatus]) -> None:
            for one in statuses:
                if one.name not in tasks:
                    tasks[one.name] = progress.add_task(one.name, total=None)
                progress.update(tasks[one.name], description=f"{one.name}: {counts_of(one)}")

        yield show


def counts_of(status: GatewayStatus) -> str:
    """The counters of a gateway in words: what it took, and what went wrong if anything did.

    >>> from headwater.gateways import GatewayStatus
    >>> counters = {"received": 1200, "appended": 1100, "rejected": 100, "duplicates": 0, "lost": 0, "bytes": 5}
    >>> counts_of(GatewayStatus(name="a", kind="statsd", address="", state="running", counters=counters))
    '1,200 received, 1,100 appended, 100 rejected'
    """
    always = ("received", "appended")
    counters = {name: count for name, count in status.counters.items() if name != "bytes" and (count or name in always)}
    counts = ", ".join(f"{count:,} {name}" for name, count in counters.items())
    return f"{counts}; {status.error}" if status.state == "failed" else counts
