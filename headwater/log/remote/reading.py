"""Rows of a log that is elsewhere: bounded reads, positions, and waiting for more."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from headwater.errors import PartitionNotFound
from headwater.log.embedded.writing import micros
from headwater.log.lag import Expiry
from headwater.log.port import Offsets, Start
from headwater.log.remote.core import named
from headwater.log.remote.declaring import TOPIC_SECONDS
from headwater.log.remote.groups import RemoteWatch
from headwater.log.remote.pages import RemoteCursor, RemoteReader
from headwater.log.remote.wire import offsets_from_json, offsets_to_json, start_to_text, text_to_schema
from headwater.log.remote.writing import Writing

#: One call waits for so long at most; a longer wait asks again.
WAIT_SECONDS_MAX = 20.0


class Reading(Writing):
    """How rows come out."""

    def read(
        self,
        topic: str,
        *,
        start: Start = "earliest",
        stop: Start | None = None,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        archived: bool = False,
    ) -> RemoteReader:
        """Read what is there now; see `Log.read`."""
        found = self._connection.get(
            f"/topics/{named(topic)}/positions",
            start=start_to_text("" if start is None else start),
            stop=start_to_text(stop),
            partition=None if partitions is None else list(partitions),
            column=None if columns is None else list(columns),
            archived=archived,
        )
        starts, stops = offsets_from_json(found["start"]), offsets_from_json(found["stop"])
        return RemoteReader(
            self._connection,
            topic,
            text_to_schema(found["arrow_schema"]),
            # An address cannot say that no partition is wanted, and the server then tells of all.
            {
                number: (starts[number], stops[number])
                for number in starts
                if partitions is None or number in partitions
            },
            columns=columns,
            limit=limit,
            archived=archived,
        )

    def start_offsets(self, topic: str) -> Offsets:
        """The oldest offset that each partition still has."""
        return offsets_from_json(self._connection.get(f"/topics/{named(topic)}/offsets/start")["offsets"])

    def end_offsets(self, topic: str) -> Offsets:
        """The offset that the next row of each partition will get."""
        return offsets_from_json(self._connection.get(f"/topics/{named(topic)}/offsets/end")["offsets"])

    def offset_at(self, topic: str, time: datetime | int) -> Offsets:
        """In each partition, the first offset appended at or after a time (microseconds or a datetime)."""
        found = self._connection.get(f"/topics/{named(topic)}/offsets/at", time=micros(time))
        return offsets_from_json(found["offsets"])

    def wait(
        self, topics: str | Mapping[str, Offsets], *, after: Offsets | None = None, seconds: float | None = None
    ) -> bool:
        """Sleep until a partition has rows at or behind the given offsets. The server holds the call until then."""
        positions: Mapping[str, Offsets]
        if isinstance(topics, str):
            positions = {topics: self.end_offsets(topics) if after is None else after}
        else:
            positions = topics
        wanted = {topic: offsets_to_json(offsets) for topic, offsets in positions.items()}
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = WAIT_SECONDS_MAX if deadline is None else max(0.0, deadline - time.monotonic())
            held = min(left, WAIT_SECONDS_MAX)
            body = {"topics": wanted, "seconds": held}
            told = self._connection.ask("POST", "/wait", json=body, again=True, patience=held).json()
            if told["signs"] or (deadline is not None and left <= WAIT_SECONDS_MAX):
                return bool(told["signs"])

    def cursor(self, topic: str, partition: int, offset: int, *, columns: Sequence[str] | None = None) -> RemoteCursor:
        """A place in one partition from which to read on, again and again."""
        found = self._recent(topic, seconds=TOPIC_SECONDS)
        if not 0 <= partition < found.partitions:
            raise PartitionNotFound(topic=topic, partition=partition, partitions=found.partitions)
        return RemoteCursor(self._connection, topic, found.id, partition, offset, columns)

    def expiry(self, topic: str, partition: int, offset: int) -> Expiry:
        """When retention will delete the segment that holds an offset."""
        return Expiry(**self._connection.get(f"/topics/{named(topic)}/expiry", partition=partition, offset=offset))

    def watch(self) -> RemoteWatch:
        """What a consumer waits with."""
        return RemoteWatch(self._connection)

    def settle(self) -> None:
        """The server finishes what died in the middle."""
