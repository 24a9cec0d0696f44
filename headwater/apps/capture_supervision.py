"""Run the captures of an app in its process: each in a thread, restarted with exponential back-off when it fails."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headwater.apps.captures import AppCapture
from headwater.apps.supervision import wait_seconds
from headwater.capture import Capture, CaptureStore, Piece
from headwater.capture.declaration import create_topics
from headwater.capture.report import Reporter
from headwater.errors import HeadwaterError
from headwater.log import Log
from headwater.log.errors import ProducerFenced

#: real: read the databases. declared: only create the topics of declared tables; rows come from elsewhere, such as a test.
CaptureMode = Literal["real", "declared"]
#: How often a capture that another process has taken over looks whether that process has stopped.
STANDBY_SECONDS = 1.0

logger = logging.getLogger("headwater.captures")


@dataclass(kw_only=True)
class SupervisedCapture:
    """One capture of an app, at work in a thread of its own."""

    log: Log
    declared: AppCapture
    app: str
    failures: int = 0
    error: str = ""
    """The last error in one line; empty after a piece was captured again."""
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.declared.name

    def prepare(self) -> list[str]:
        """Define the capture and create its topics; return the names of its tables.

        A database that is away does not keep an app from its start if its tables were captured before.
        """
        store = CaptureStore(self.log)
        store.declare(self.declared.config)
        try:
            with Capture.open(self.log, self.name) as capture:
                tables = capture.tables
        except HeadwaterError as error:
            known = list(store.progress(self.name).snapshot)
            if not known:
                raise
            logger.warning("capture %s is retried: %s", self.name, error)
            return known
        self.declared.check(tables)
        return [table.name for table in tables]

    def catch_up(self) -> int:
        """Capture all that is there now, in this thread; return the number of rows. A paused capture stays as it is."""
        with Reporter(self.log, self.name, app=self.app) as reporter, Capture.open(self.log, self.name) as capture:
            if capture.config.paused:
                return 0
            return capture.catch_up(on_piece=lambda _: reporter.captured(capture))

    def start(self) -> None:
        """Capture in a thread until `stop`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._supervise, name=f"headwater-capture-{self.name}", daemon=True)
            self._thread.start()

    def request_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        """Stop behind the piece at work, and wait for it."""
        self.request_stop()
        if self._thread is not None:
            self._thread.join()

    def _supervise(self) -> None:
        with Reporter(self.log, self.name, app=self.app) as reporter:
            while not self._stop.is_set():
                try:
                    self._run(reporter)
                except ProducerFenced:
                    self._wait_for_turn(reporter)
                except Exception as error:  # also a driver's own: recorded, and retried
                    self.failures += 1
                    self.error = " ".join(str(error).split())
                    logger.warning("capture %s failed, and is restarted: %s", self.name, self.error)
                    reporter.fail(error)
                    self._stop.wait(wait_seconds(self.failures))

    def _run(self, reporter: Reporter) -> None:
        with Capture.open(self.log, self.name) as capture:

            def captured(_: Piece) -> None:
                self.failures, self.error = 0, ""
                reporter.captured(capture)

            capture.run(self._stop, on_piece=captured)

    def _wait_for_turn(self, reporter: Reporter) -> None:
        """Wait until the process that has taken the capture over stops: two that take turns would only fence each other."""
        reporter.yield_turn()
        self.error = "another process has taken the capture over; it goes on here when that process stops"
        logger.warning("capture %s: %s", self.name, self.error)
        self._stop.wait(STANDBY_SECONDS)  # the other process gets the lock
        while not self._stop.is_set() and not reporter.is_alone:
            self._stop.wait(STANDBY_SECONDS)


@contextlib.contextmanager
def prepared_captures(
    declared: Sequence[AppCapture], log: Log, *, app: str, mode: CaptureMode
) -> Iterator[tuple[list[SupervisedCapture], dict[str, str]]]:
    """The captures of an app, ready to run, and their tables by topic; they are stopped at the end.

    In the mode `declared`, no database is read, and the topics are made of the columns that the app declares.
    """
    tables: dict[str, str] = {}
    if mode == "declared":
        for one in declared:
            create_topics(log, one.config, list(one.declared.values()))
            tables |= {one[table]: table for table in one.declared}
        yield [], tables
        return
    supervised = [SupervisedCapture(log=log, declared=one, app=app) for one in declared]
    for each in supervised:
        tables |= {each.declared[table]: table for table in each.prepare()}
    try:
        yield supervised, tables
    finally:
        for each in supervised:
            each.request_stop()
        for each in supervised:
            each.stop()
