"""The rows of a queue's topic, as a group reads them: forward from its cursors, and at single places."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import pyarrow as pa

from headwater.log import Log
from headwater.log.errors import OffsetExpired
from headwater.log.port import Cursor
from headwater.queues.config import QueueConfig
from headwater.queues.message import Place, Stored, decode


class QueueRows:
    """Reads the topic of a queue; positions in each partition stay open between calls."""

    def __init__(self, log: Log, queue: str, config: Callable[[], QueueConfig]) -> None:
        self._log, self._queue, self._config = log, queue, config
        self._cursors: dict[int, Cursor] = {}

    def at(self, partition: int, offset: int, count: int) -> list[tuple[pa.RecordBatch, int]]:
        """Up to `count` rows from an offset on, in batches, each with the offset behind it."""
        cursor = self._cursors.get(partition)
        if cursor is None or cursor.offset != offset or cursor.deleted:
            cursor = self._log.cursor(self._queue, partition, offset)
        batches = cursor.read(rows_max=count)
        self._cursors[partition] = cursor
        return [(batch.data, batch.offset_next) for batch in batches if batch.punctuation_us is None]

    def read(self, places: Iterable[Place]) -> dict[Place, Stored]:
        """The rows at some places; those that retention has deleted are missing."""
        result: dict[Place, Stored] = {}
        runs: list[list[Place]] = []
        for place in sorted(places):
            if runs and runs[-1][0].partition == place.partition and place.offset - runs[-1][-1].offset <= 64:
                runs[-1].append(place)
            else:
                runs.append([place])
        for run in runs:
            wanted = {place.offset for place in run}
            with contextlib.suppress(OffsetExpired):
                batches = self._log.read_range(
                    self._queue, run[0].partition, start=run[0].offset, stop=run[-1].offset + 1
                )
                for batch in batches:
                    for stored in decode(batch.data, self._config(), None):
                        if stored.message.offset in wanted:
                            result[stored.message.place] = stored
        return result
