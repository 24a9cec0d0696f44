"""Read a topic from some offsets on, without a group: what is there now, and then what comes.

Batches of different partitions come in the order in which they were appended.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import Batch, EmbeddedLog, Offsets

LOOK_SECONDS_MAX = 1.0
"""How long a wait may take before it is seen that nobody reads our output any more."""


class Follower:
    """Where a reader stands in each partition."""

    def __init__(
        self, log: EmbeddedLog, topic: str, offsets: Offsets, *, columns: Sequence[str], all_partitions: bool = True
    ) -> None:
        self._log = log
        self._topic = topic
        self._columns = list(dict.fromkeys([*columns, "_appended_at"]))
        self._all = all_partitions
        self.offsets = dict(offsets)

    def available(self) -> Iterator[pa.RecordBatch]:
        """What is there now and was not given yet."""
        ends = self._log.end_offsets(self._topic)
        if self._all:  # partitions that were added since are read from their beginning
            self.offsets = {number: self.offsets.get(number, 0) for number in ends}
        streams = [self._batches(number, ends) for number in self.offsets]
        for batch in heapq.merge(*streams, key=_appended_at):
            self.offsets[batch.partition] = batch.offset_next
            yield batch.data
        self.offsets.update({number: ends[number] for number in self.offsets})

    def wait(self) -> None:
        """Sleep until there is more, or for a moment."""
        self._log.wait(self._topic, after=self.offsets, seconds=LOOK_SECONDS_MAX)

    def _batches(self, number: int, ends: Offsets) -> Iterator[Batch]:
        start = self.offsets[number]
        if start >= ends[number]:
            return
        reader = self._log.read(
            self._topic, start={number: start}, stop=ends, partitions=[number], columns=self._columns
        )
        for batch in reader.batches():
            if batch.data.num_rows:
                yield batch


def _appended_at(batch: Batch) -> tuple[int, int]:
    return batch.data.column("_appended_at")[0].value, batch.partition
