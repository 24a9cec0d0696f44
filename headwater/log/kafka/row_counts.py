"""How many rows lie between two offsets of a topic of frames: the difference of their offsets does not say it.

Brokers do not know it either, so the frames are read, once in a process: what was counted is kept, and only new frames
are read afterwards.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from itertools import accumulate

from headwater.log.frame import read_header
from headwater.log.kafka.cluster import Cluster
from headwater.log.kafka.row_offsets import ROWS_MAX


class RowCounts:
    """The numbers of rows of the frames of one partition, as far as they were read."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._lock = threading.Lock()
        self._start = self._stop = 0
        self._offsets: list[int] = []
        #: How many rows lie before each of these messages, and behind the last.
        self._before: list[int] = [0]

    def between(self, start: int, stop: int) -> int:
        """The rows with offsets from `start` up to `stop`."""
        with self._lock:
            self._read(start // ROWS_MAX, -(-stop // ROWS_MAX))
            return self._rows_before(stop) - self._rows_before(start)

    def _rows_before(self, offset: int) -> int:
        message, row = divmod(offset, ROWS_MAX)
        place = bisect_left(self._offsets, message)
        if place < len(self._offsets) and self._offsets[place] == message:
            return self._before[place] + min(row, self._before[place + 1] - self._before[place])
        return self._before[place]

    def _read(self, start: int, stop: int) -> None:
        if not self._start <= start <= self._stop:
            self._start = self._stop = start
            self._offsets, self._before = [], [0]
        if stop <= self._stop:
            return
        counts: list[int] = []
        for messages in self._cluster.messages(self._topic, self._partition, self._stop, stop, count_max=1_000):
            for message in messages:
                header = read_header(message.value or b"", 0)
                self._offsets.append(message.offset)
                counts.append(0 if header is None else header.rows)
        self._before += list(accumulate(counts, initial=self._before[-1]))[1:]
        self._stop = stop
