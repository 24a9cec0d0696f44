"""Run a capture until it is stopped: report what it does, and restart it with exponential back-off when it fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from headwater.capture.capture import Capture
from headwater.capture.port import Piece
from headwater.capture.report import Reporter
from headwater.errors import Conflict
from headwater.log.errors import ProducerFenced
from headwater.log.port import Log

#: The first pause after a failure, and the longest.
WAIT_SECONDS = 0.5
WAIT_SECONDS_MAX = 60.0
#: How often a capture that another process has taken over looks whether that process has stopped.
STANDBY_SECONDS = 1.0

logger = logging.getLogger("headwater.captures")


class CaptureRunner:
    """Runs one capture in the thread that calls it.

    With `standby`, it survives everything: if another process takes the capture over, it goes on when that process stops. Otherwise a
    conflict that no second attempt can resolve is raised: another process runs the capture, or the database was replaced.
    """

    def __init__(
        self,
        log: Log,
        name: str,
        *,
        app: str = "",
        standby: bool = False,
        on_piece: Callable[[Capture], None] = lambda _: None,
        on_failure: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._log = log
        self.name = name
        self._app = app
        self._standby = standby
        self._on_piece = on_piece
        self._on_failure = on_failure
        self._stop = threading.Event()
        #: How often it has failed since a piece was last captured, and the last error in one line.
        self.failures = 0
        self.error = ""
        self._danger = ""

    def catch_up(self) -> int:
        """Capture all that is there now; return the number of rows. A paused capture stays as it is."""
        with Reporter(self._log, self.name, app=self._app) as reporter, Capture.open(self._log, self.name) as capture:
            if capture.config.paused:
                return 0
            return capture.catch_up(on_piece=lambda _: self._captured(capture, reporter))

    def run(self) -> None:
        """Capture until `request_stop`."""
        with Reporter(self._log, self.name, app=self._app) as reporter:
            while not self._stop.is_set():
                try:
                    self._run(reporter)
                except ProducerFenced:
                    if not self._standby:
                        raise
                    self._wait_for_turn(reporter)
                except Exception as error:  # also a driver's own: recorded, and retried
                    if isinstance(error, Conflict) and not self._standby:
                        raise
                    self.failures += 1
                    self._failed(" ".join(str(error).split()))
                    reporter.fail(error)
                    self._stop.wait(back_off(self.failures))

    def request_stop(self) -> None:
        """Request a stop behind the piece at work."""
        self._stop.set()

    def _run(self, reporter: Reporter) -> None:
        with Capture.open(self._log, self.name) as capture:

            def captured(_: Piece) -> None:
                self.failures, self.error = 0, ""
                self._captured(capture, reporter)

            # Also while it is paused, for that is when a database may delete what is not captured.
            capture.run(self._stop, on_piece=captured, on_pause=lambda: self._captured(capture, reporter))

    def _captured(self, capture: Capture, reporter: Reporter) -> None:
        reporter.captured(capture)
        if reporter.danger and not self._danger:
            logger.error("capture %s is at risk: %s", self.name, reporter.danger)
            self._on_failure(f"at risk: {reporter.danger}")
        self._danger = reporter.danger
        self._on_piece(capture)

    def _failed(self, error: str) -> None:
        if error != self.error:
            logger.warning("capture %s: %s", self.name, error)
            self._on_failure(error)
        self.error = error

    def _wait_for_turn(self, reporter: Reporter) -> None:
        """Wait until the process that has taken the capture over stops: two that take turns would only fence each other."""
        reporter.yield_turn()
        self._failed("another process has taken the capture over; it goes on here when that process stops")
        self._stop.wait(STANDBY_SECONDS)  # the other process gets the lock
        while not self._stop.is_set() and not reporter.is_alone:
            self._stop.wait(STANDBY_SECONDS)


def back_off(failures: int) -> float:
    """The pause after so many failures in a row, in seconds.

    >>> [back_off(failures) for failures in (1, 2, 3, 12)]
    [0.5, 1.0, 2.0, 60.0]
    """
    return float(min(WAIT_SECONDS * 2 ** min(failures - 1, 10), WAIT_SECONDS_MAX))
