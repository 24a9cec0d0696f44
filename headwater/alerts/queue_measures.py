"""The measures of queues: each group of each queue, with its redeliveries in the last minute."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.alerts.last_minute import LastMinute
from headwater.alerts.measurements import QueueHealth
from headwater.errors import NotFound
from headwater.home import is_remote

if TYPE_CHECKING:
    from headwater.log import Log
    from headwater.queues import QueueStats


class QueueMeasures:
    """Reads the counts of all queues. It remembers a minute of them, because a queue counts redeliveries from its beginning."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._redelivered = LastMinute()
        self._lock = threading.Lock()

    def read(self) -> Sequence[QueueHealth]:
        if is_remote(self._log.address):  # its server evaluates the rules
            return ()
        now_us, stats = self._log.clock.now_us(), self._stats()
        with self._lock:
            counts = {f"{one.queue}/{one.group}": one.redelivered for one in stats}
            redelivered = self._redelivered.growth(counts, now_us=now_us)
            return [
                QueueHealth(
                    queue=one.queue,
                    group=one.group,
                    depth=one.depth,
                    oldest_seconds=one.oldest_seconds or 0.0,
                    redeliveries=redelivered[f"{one.queue}/{one.group}"],
                    consumers=one.consumers,
                )
                for one in stats
            ]

    def _stats(self) -> list[QueueStats]:
        from headwater.queues import Queue, QueueConfig
        from headwater.queues.config import Settings

        found = []
        configs, groups = Settings(self._log).together("queue", "group")
        for name in groups:
            queue, _, group = name.rpartition("/")
            with (
                contextlib.suppress(NotFound),  # deleted in the meantime
                Queue(self._log, queue, group, QueueConfig(**configs[queue])) as opened,
            ):
                found.append(opened.stats())
        return found
