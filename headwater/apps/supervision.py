"""Supervise a query: when it fails, plan it again and restart it with exponential back-off."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.apps.declaration import Query
from headwater.apps.execution import RunningQuery
from headwater.apps.failure import Trouble, trouble_of
from headwater.apps.home import Version
from headwater.apps.query_progress import QueryProgress
from headwater.errors import HeadwaterError

#: The first pause after a failure, and the longest.
WAIT_SECONDS = 0.5
WAIT_SECONDS_MAX = 60.0

Start = Callable[[Query, Version], RunningQuery]


def wait_seconds(failures: int) -> float:
    """Return the pause after so many failures in a row.

    >>> [wait_seconds(failures) for failures in (1, 2, 3, 12)]
    [0.5, 1.0, 2.0, 60.0]
    """
    return float(min(WAIT_SECONDS * 2 ** (failures - 1), WAIT_SECONDS_MAX))


@dataclass(kw_only=True)
class SupervisedQuery:
    """One version of a query, its running query if there is one, and its last failure."""

    query: Query
    version: Version
    progress: QueryProgress
    start: Start
    wanted: bool = True
    running: RunningQuery | None = None
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
        """Check the query: start it if that is due, and record its end or failure."""
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
        self.progress.set_state("stopped")

    def restart(self) -> None:
        """Stop the query if it runs, and start it at the next check."""
        self.stop()
        self.wanted, self.ended, self.failures, self._due = True, False, 0, 0.0

    def _look_at(self, running: RunningQuery) -> None:
        if running.is_active:
            batch = self.progress.status().batch
            if batch != self._batch:
                self._batch, self.failures = batch, 0
            return
        error = running.error()
        self.running = None
        if error is None:
            self.ended = True
            self.progress.set_state("caught up")
        else:
            self._failed(error)

    def _start(self) -> None:
        self.progress.set_state("starting")
        try:
            self.running = self.start(self.query, self.version)
            self.progress.set_state("running")
        except HeadwaterError as error:
            self._failed(error)
        except Exception as error:  # raised by the user's own function: recorded, and retried
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.trouble = trouble_of(error)
        self._due = time.monotonic() + wait_seconds(self.failures)
        self.progress.set_state("restarting", error=self.trouble.line, restarted=True)
