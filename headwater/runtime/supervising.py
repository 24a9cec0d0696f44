"""A query that is kept at work: when it fails it is planned anew and started again, later each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.errors import HeadwaterError
from headwater.runtime.declared import Query
from headwater.runtime.home import Version
from headwater.runtime.running import Running
from headwater.runtime.trouble import Trouble, trouble_of
from headwater.runtime.watching import Watch

#: The first wait after a failure, and the longest.
WAIT_SECONDS = 0.5
WAIT_SECONDS_MAX = 60.0

Start = Callable[[Query, Version], Running]


def wait_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row.

    >>> [wait_seconds(failures) for failures in (1, 2, 3, 12)]
    [0.5, 1.0, 2.0, 60.0]
    """
    return float(min(WAIT_SECONDS * 2 ** (failures - 1), WAIT_SECONDS_MAX))


@dataclass(kw_only=True)
class Supervised:
    """One version of a query, and what has become of it."""

    query: Query
    version: Version
    watch: Watch
    start: Start
    wanted: bool = True
    running: Running | None = None
    failures: int = 0
    ended: bool = False
    trouble: Trouble | None = field(default=None, repr=False)
    _due: float = 0.0
    _batch: int | None = None

    @property
    def name(self) -> str:
        """The name under which Spark runs it."""
        return f"{self.query.name}-v{self.version.number}"

    def look(self) -> None:
        """See how the query does, and act: start what is due, and take note of what has ended."""
        if self.running is not None:
            self._look_at(self.running)
        if self.running is None and self.wanted and not self.ended and time.monotonic() >= self._due:
            self._start()

    def stop(self) -> None:
        """Stop between two batches, and stay stopped."""
        self.wanted = False
        if self.running is not None:
            self.running.stop()
            self.running = None
        self.watch.set("stopped")

    def restart(self) -> None:
        """Stop if it runs, and start as soon as anybody looks."""
        self.stop()
        self.wanted, self.ended, self.failures, self._due = True, False, 0, 0.0

    def _look_at(self, running: Running) -> None:
        if running.is_active:
            batch = self.watch.status().batch
            if batch != self._batch:
                self._batch, self.failures = batch, 0
            return
        error = running.error()
        self.running = None
        if error is None:
            self.ended = True
            self.watch.set("caught up")
        else:
            self._failed(error)

    def _start(self) -> None:
        self.watch.set("starting")
        try:
            self.running = self.start(self.query, self.version)
            self.watch.set("running")
        except HeadwaterError as error:
            self._failed(error)
        except Exception as error:  # the user's own function ran: whatever it raised is told, and tried again
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.trouble = trouble_of(error)
        self._due = time.monotonic() + wait_seconds(self.failures)
        self.watch.set("restarting", error=self.trouble.line, restarted=True)
