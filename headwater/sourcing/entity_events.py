"""The events of the entities of one kind, for readers that do not have their decider."""

from __future__ import annotations

import threading

import pyarrow as pa

from headwater.errors import NotFound, did_you_mean
from headwater.log import Log
from headwater.schema import partition_of
from headwater.sourcing.errors import HistoryBroken
from headwater.sourcing.event_rows import SCHEMA, SUFFIX, EventRow
from headwater.sourcing.partition_events import PartitionEvents, index_folder


def kinds_of_entities(log: Log) -> list[str]:
    """The names of all kinds of entities in a log: its topics of events."""
    found = log.topics(f"*{SUFFIX}")
    return [topic.removesuffix(SUFFIX) for topic in found if set(SCHEMA.names) <= set(log.schema(topic).names)]


class EntityEvents:
    """The events of the entities of one kind, read through the same indexes that `Entities` has.

    Personal fields stay encrypted.
    """

    def __init__(self, log: Log, name: str) -> None:
        kinds = kinds_of_entities(log)
        if name not in kinds:
            raise NotFound(kind="kind of entities", name=name, near=did_you_mean(name, kinds))
        self._log, self.name, self.topic = log, name, name + SUFFIX
        about = log.topic(self.topic)
        self.topic_id, self._partitions = about.id, about.partitions
        self._folder = index_folder(log, self.topic)
        self._opened: dict[int, PartitionEvents] = {}
        self._opening = threading.Lock()

    def ids(self, *, prefix: str = "", after: str = "", limit: int = 100) -> list[tuple[str, int]]:
        """Entities and their versions, in the order of their ids."""
        self._check_partitions()
        pages = [
            self._partition(number).entities(after=after, prefix=prefix, limit=limit)
            for number in range(self._partitions)
        ]
        return sorted(each for page in pages for each in page)[:limit]

    def history(self, id: str, *, after: int = 0, limit: int | None = None) -> list[EventRow]:
        """The events of an entity behind a version, in order."""
        return self.partition_with(id).history(id, after=after, limit=limit)

    def partition_with(self, id: str) -> PartitionEvents:
        """The partition of an entity, which must have events."""
        self._check_partitions()
        number = int(partition_of([pa.array([id], pa.string())], self._partitions)[0])
        partition = self._partition(number)
        if not partition.version(id):
            raise NotFound(kind="entity", name=id)
        return partition

    def _check_partitions(self) -> None:
        count = self._log.partitions_of(self.topic)
        if count != self._partitions:
            why = f"the topic had {self._partitions} partitions, and now has {count}"
            raise HistoryBroken(topic=self.topic, entity="", offset=0, why=why)

    def _partition(self, number: int) -> PartitionEvents:
        with self._opening:
            if number not in self._opened:
                self._opened[number] = PartitionEvents(
                    self._log, self.topic, number, folder=self._folder, partitions=self._partitions
                )
            return self._opened[number]

    def close(self) -> None:
        """Close the index files."""
        for partition in self._opened.values():
            partition.close()
        self._opened.clear()
