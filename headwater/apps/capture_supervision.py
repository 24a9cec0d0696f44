"""Run the captures of an app in its process, each in a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Literal

from headwater.apps.captures import AppCapture
from headwater.capture import Capture, CaptureStore
from headwater.capture.declaration import create_topics
from headwater.capture.runner import CaptureRunner
from headwater.errors import HeadwaterError
from headwater.log import Log

#: real: read the databases. declared: only create the topics of declared tables; rows come from elsewhere, such as a test.
CaptureMode = Literal["real", "declared"]

logger = logging.getLogger("headwater.captures")


class SupervisedCapture(CaptureRunner):
    """One capture of an app, at work in a thread of its own."""

    def __init__(self, log: Log, declared: AppCapture, *, app: str) -> None:
        super().__init__(log, declared.name, app=app, standby=True)
        self.declared = declared
        self._thread = threading.Thread(target=self.run, name=f"headwater-capture-{self.name}", daemon=True)

    def prepare(self) -> list[str]:
        """Define the capture and create its topics; return the names of its tables.

        A database that is away does not keep an app from its start if its tables were captured before.
        """
        store = CaptureStore(self._log)
        store.declare(self.declared.config)
        try:
            with Capture.open(self._log, self.name) as capture:
                tables = capture.tables
        except HeadwaterError as error:
            known = list(store.progress(self.name).snapshot)
            if not known:
                raise
            logger.warning("capture %s is retried: %s", self.name, error)
            return known
        self.declared.check(tables)
        return [table.name for table in tables]

    def start(self) -> None:
        """Capture in a thread until `stop`."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Stop behind the piece at work, and wait for it."""
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join()


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
    supervised = [SupervisedCapture(log, one, app=app) for one in declared]
    for each in supervised:
        tables |= {each.declared[table]: table for table in each.prepare()}
    try:
        yield supervised, tables
    finally:
        for each in supervised:
            each.request_stop()
        for each in supervised:
            each.stop()
