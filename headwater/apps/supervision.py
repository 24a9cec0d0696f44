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

    @property
    def is_steady(self) -> bool:
        """Whether there is nothing to do for it until something happens: it works, or is not to run."""
        if self.running is None:
            return self.ended or not self.wanted
        return not self.failures and not self.running.is_coming_up

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
            self._ended()
        self.progress.set_state("stopped")

    def restart(self) -> None:
        """Stop the query if it runs, and start it at the next check."""
        self.stop()
        self.wanted, self.ended, self.failures, self._due = True, False, 0, 0.0

    def _look_at(self, running: RunningQuery) -> None:
        if running.is_active:
            self.progress.keep_beginning()
            # A query that was started again works when it has committed a batch, or has found nothing to read.
            if self.failures and (self.progress.committed_batch() != self._batch or running.is_idle):
                self.failures = 0
            self.progress.set_state(
                "restarting" if self.failures else "starting" if running.is_coming_up else "running"
            )
            return
        error = running.error()
        self._ended()
        if error is None:
            self.ended = True
            self.progress.set_state("caught up")
        else:
            self._failed(error)

    def _ended(self) -> None:
        self.running, self.progress.started_at = None, None

    def _start(self) -> None:
        self._batch = self.progress.committed_batch()
        self.progress.set_state("restarting" if self.failures else "starting")
        try:
            self.running = self.start(self.query, self.version)
            self.progress.started_at = time.time()
        except HeadwaterError as error:
            self._failed(error)
        except Exception as error:  # raised by the user's own function: recorded, and retried
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.trouble = trouble_of(error)
        self._due = time.monotonic() + wait_seconds(self.failures)
        self.progress.set_state("restarting", error=self.trouble.line, restarted=True)
