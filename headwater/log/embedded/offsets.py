"""Committed offsets of consumer groups: rows of an internal, compacted topic, so that transactions can include them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import NotFound
from headwater.log.embedded.faults import reach
from headwater.log.port import OFFSETS_TOPIC, Offsets, Topic
from headwater.log.topic_rules import check_name

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog

OFFSETS_SCHEMA = pa.schema(
    [
        pa.field("group", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("metadata", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)


class OffsetTable:
    """The table that the topic represents, in memory; each query reads the new rows first."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._table: dict[tuple[str, str], Offsets] = {}
        self._next = 0
        self._created_us = -1

    def make(self) -> None:
        """Create the topic unless it exists."""
        if self._current() is not None:
            return
        self._log.create_internal(
            Topic(
                name=OFFSETS_TOPIC,
                id="0ff5e75" + "0" * 25,
                schema=OFFSETS_SCHEMA,
                key=("group", "topic", "partition"),
                compact=True,
                tombstone_seconds_max=3_600.0,
                segment_bytes_max=8 * 1024 * 1024,
                created_us=self._log.clock.now_us(),
            )
        )

    def rows(self, group: str, topic: str, offsets: Offsets, metadata: str) -> list[dict[str, Any]]:
        """The rows that commit offsets of a group."""
        check_name("group", group)
        at = datetime.fromtimestamp(self._log.clock.now_us() / 1e6, tz=UTC)
        return [
            {"group": group, "topic": topic, "partition": partition, "offset": offset, "metadata": metadata, "at": at}
            for partition, offset in offsets.items()
        ]

    def commit(self, rows: Sequence[dict[str, Any]]) -> None:
        self.make()
        if rows:
            self._log.append(OFFSETS_TOPIC, rows)
            reach("offsets.appended")

    def committed(self, group: str, topic: str) -> Offsets:
        with self._lock:
            self._catch_up()
            return dict(self._table.get((group, topic), {}))

    def groups(self) -> dict[str, set[str]]:
        with self._lock:
            self._catch_up()
            found: dict[str, set[str]] = {}
            for (group, topic), offsets in self._table.items():
                if offsets:
                    found.setdefault(group, set()).add(topic)
            return found

    def forget(self, group: str, topic: str | None) -> None:
        topics = self.groups().get(group, set()) if topic is None else {topic}
        rows = [
            {"group": group, "topic": name, "partition": partition, "_tombstone": True}
            for name in sorted(topics)
            for partition in self.committed(group, name)
        ]
        self.commit(rows)

    def forget_topic(self, topic: str) -> None:
        """Delete the offsets of every group in a deleted topic: a later topic of its name has other rows."""
        for group, topics in self.groups().items():
            if topic in topics:
                self.forget(group, topic)

    def _current(self) -> Topic | None:
        try:
            return self._log.topic(OFFSETS_TOPIC)
        except NotFound:
            return None

    def _catch_up(self) -> None:
        topic = self._current()
        created_us = -1 if topic is None else topic.created_us
        if created_us != self._created_us:  # the table is of a deleted topic
            self._table.clear()
            self._next, self._created_us = 0, created_us
        if topic is None:
            return
        start = self._log.start_offsets(OFFSETS_TOPIC)[0]
        columns = ["group", "topic", "partition", "offset", "_tombstone"]
        for batch in self._log.read(OFFSETS_TOPIC, start=max(self._next, start), columns=columns).batches():
            for row in batch.rows():
                offsets = self._table.setdefault((row["group"], row["topic"]), {})
                if row["_tombstone"]:
                    offsets.pop(row["partition"], None)
                else:
                    offsets[row["partition"]] = row["offset"]
            self._next = batch.offset_next
