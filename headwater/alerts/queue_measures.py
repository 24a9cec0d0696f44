"""The measures of queues: each group of each queue, with its redeliveries in the last minute."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.alerts.measurements import QueueHealth
from headwater.errors import NotFound
from headwater.home import is_remote
from headwater.units import MINUTE

if TYPE_CHECKING:
    from headwater.log import Log
    from headwater.queues import QueueStats


class QueueMeasures:
    """Reads the counts of all queues. It remembers a minute of them, because a queue counts redeliveries from its beginning."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._redelivered: dict[tuple[str, str], deque[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def read(self) -> Sequence[QueueHealth]:
        if is_remote(self._log.address):  # its server evaluates the rules
            return ()
        now_us, stats = self._log.clock.now_us(), self._stats()
        with self._lock:
            before, self._redelivered = self._redelivered, {}
            return [
                QueueHealth(
                    queue=one.queue,
                    group=one.group,
                    depth=one.depth,
                    oldest_seconds=one.oldest_seconds or 0.0,
                    redeliveries=self._in_last_minute(before.get((one.queue, one.group), deque()), one, now_us),
                    consumers=one.consumers,
                )
                for one in stats
            ]

    def _stats(self) -> list[QueueStats]:
        from headwater.queues import Queue, QueueConfig
        from headwater.queues.config import Settings

        settings, found = Settings(self._log), []
        configs = settings.all("queue")
        for name in settings.all("group"):
            queue, _, group = name.rpartition("/")
            with (
                contextlib.suppress(NotFound, KeyError),  # deleted in the meantime
                Queue(self._log, queue, group, QueueConfig(**configs[queue])) as opened,
            ):
                found.append(opened.stats())
        return found

    def _in_last_minute(self, points: deque[tuple[int, int]], stats: QueueStats, now_us: int) -> int:
        """How much the count has grown since a minute ago, or since the first reading."""
        if points and stats.redelivered < points[-1][1]:  # the index was built again, and counts from 0
            points = deque([(now_us, 0)])
        points.append((now_us, stats.redelivered))
        while points[0][0] < now_us - round(MINUTE * 1e6):
            points.popleft()
        self._redelivered[stats.queue, stats.group] = points
        return stats.redelivered - points[0][1]
