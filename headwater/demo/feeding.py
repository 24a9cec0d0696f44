"""The world reaches the log: a thread that appends what happens, four times a second."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headwater.demo.world import World

if TYPE_CHECKING:
    from headwater.demo.world import Rows
    from headwater.log import EmbeddedLog

TICK_SECONDS = 0.25


class Feeder:
    """Appends the rows of a world, as time passes."""

    def __init__(self, log: EmbeddedLog, world: World) -> None:
        self._log = log
        self._world = world
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="demo-feeder", daemon=True)
        self.failure: Exception | None = None
        self.appended = 0

    def start(self) -> None:
        """Append what was there before, and begin."""
        self._append(self._world.begin(datetime.now(UTC)))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def close_the_day(self) -> None:
        """Let time pass for the queries that wait for it: rows that are far ahead, in every partition."""
        for topic, rows in self._world.closing(datetime.now(UTC)).items():
            for partition in range(self._log.topic(topic).partitions):
                self._log.append(topic, rows, partition=partition)
                self.appended += len(rows)

    def _feed(self) -> None:
        try:
            before = datetime.now(UTC)
            while not self._stop.wait(TICK_SECONDS):
                now = datetime.now(UTC)
                self._append(self._world.between(before, now))
                before = now
        except Exception as error:  # told by the thread that watches
            self.failure = error

    def _append(self, made: Rows) -> None:
        for topic, rows in made.items():
            self._log.append(topic, rows)
            self.appended += len(rows)
