"""What a person sees: what happens, line by line, and below it a table that moves; elsewhere only lines."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.live import Display, short
from headwater.cli.session import Session
from headwater.cli.tables import Column

if TYPE_CHECKING:
    from demo.checks import Outcome
    from headwater.runtime.status import QueryStatus

LINE_SECONDS = 5.0
COLUMNS = (
    Column(title="OUTPUT"),
    Column(title="WHAT"),
    Column(title="ROWS", right=True),
    Column(title="RECOMPUTED", right=True),
    Column(title="EQUAL"),
    Column(title="", cut=True),
)


class Screen:
    """Shows how the demo goes."""

    def __init__(self, session: Session, apps: Mapping[str, str]) -> None:
        self._session = session
        self._apps = apps
        self._began = time.monotonic()
        self._told = self._began

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        if not self._session.shows_progress:
            yield
            return
        with Display(self._session) as self._display:
            yield

    def happened(self, text: str) -> None:
        """Tell of something; on a terminal the line stays above the table."""
        self._session.say(f"{self.seconds:5.1f} s  {text}")

    def look(self, statuses: Sequence[QueryStatus], *, appended: int) -> None:
        if self._session.shows_progress:
            title = f"{self.seconds:5.1f} s  {appended:,} rows appended; {len(statuses)} queries of three apps, on one Spark"
            self._display.show(statuses, title=title, apps=self._apps)
        elif time.monotonic() - self._told >= LINE_SECONDS:
            self._told = time.monotonic()
            self._session.say(
                "; ".join([f"{self.seconds:5.1f} s  {appended:,} rows appended", *told(statuses, self._apps)])
            )


def told(statuses: Sequence[QueryStatus], apps: Mapping[str, str]) -> list[str]:
    """How each app does that has begun.

    >>> from headwater.runtime.status import QueryStatus
    >>> told([QueryStatus(name="spend", kind="view", batch=0, rows_per_second=120.0, lag_rows=3)], {"spend": "fraud"})
    ['fraud reads 120 rows/s, lag 3']
    """
    parts = []
    for app in dict.fromkeys(apps.values()):
        own = [one for one in statuses if apps.get(one.name) == app and one.batch is not None]
        rate, lag = sum(one.rows_per_second for one in own), sum(one.lag_rows or 0 for one in own)
        parts += [f"{app} reads {short(rate)} rows/s, lag {short(lag)}"] if own else []
    return parts


def summary(session: Session, outcomes: Sequence[Outcome]) -> None:
    """The table at the end."""
    cells = [
        [one.name, one.kind, f"{one.rows:,}", one.expected, "✓" if one.is_equal else f"✗ {one.differing:,}", one.note]
        for one in outcomes
    ]
    title, *lines = session.table(COLUMNS, cells)
    session.write(title)
    for one, line in zip(outcomes, lines, strict=True):
        session.write(session.paint(line, "green" if one.is_equal else "red"))


@contextlib.contextmanager
def spark_told_apart(path: Path) -> Iterator[None]:
    """What Spark's own processes print goes to a file: when a worker is killed, they have a lot to say."""
    sys.stderr.flush()
    terminal = os.dup(2)
    before = sys.stderr
    bridge = logging.getLogger("py4j")  # the way from the JVM to Python and back
    with open(path, "w", buffering=1) as file, os.fdopen(os.dup(terminal), "w", buffering=1) as stream:
        os.dup2(file.fileno(), 2)
        sys.stderr = stream
        handler = logging.StreamHandler(file)
        bridge.addHandler(handler)
        try:
            yield
        finally:
            bridge.removeHandler(handler)
            sys.stderr = before
            os.dup2(terminal, 2)
            os.close(terminal)
