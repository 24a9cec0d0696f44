"""Run a sync until it is stopped, and report what it does."""

from __future__ import annotations

import threading

from headwater.log.port import Log
from headwater.sync.report import Reporter
from headwater.sync.sync import Sync


class SyncRunner:
    """Runs one sync in the thread that calls it."""

    def __init__(self, log: Log, name: str) -> None:
        self._log = log
        self.name = name
        self._stop = threading.Event()
        #: Rows that it has applied.
        self.rows = 0

    def catch_up(self) -> int:
        """Apply all that is there now; return the number of rows. A paused sync stays as it is."""
        with Reporter(self._log, self.name) as reporter, Sync.open(self._log, self.name) as sync:
            rows = 0 if sync.config.paused else sync.catch_up(on_step=lambda _: reporter.applied(sync))
        self.rows += rows
        return rows

    def run(self) -> None:
        """Apply changes until `request_stop`."""
        with Reporter(self._log, self.name) as reporter, Sync.open(self._log, self.name) as sync:
            before = self.rows
            try:
                sync.run(self._stop, on_step=lambda _: reporter.applied(sync))
            finally:
                self.rows = before + sync.rows

    def request_stop(self) -> None:
        """Request a stop behind the step at work."""
        self._stop.set()
