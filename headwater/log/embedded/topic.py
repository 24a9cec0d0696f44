"""A topic that is open in this process: its folder with `topic.json` (schema and settings) and `state` (the tails)."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from headwater.errors import ArgumentInvalid, NotFound, UsageError
from headwater.filelock import FileLock
from headwater.log.decoder import Projection
from headwater.log.embedded.files import dump_checked, load_checked, replace_file
from headwater.log.embedded.memory_folder import check_memory_folder, link_to_topic, memory_folder, remove_orphans_once
from headwater.log.embedded.partition import LogContext, Partition
from headwater.log.embedded.state import DELETED, StateFile
from headwater.log.errors import FileCorrupt, partition_not_found
from headwater.log.port import Description, PartitionInfo
from headwater.log.topic import Topic
from headwater.schema import schema_from_json, schema_to_json

FORMAT = 1
T = TypeVar("T")
#: After a reboot, which loses its rows, a topic in memory begins so many offsets later: no offset is used twice.
OFFSETS_PER_BOOT = 2**40
PROJECTIONS_MAX = 16


class Recent(Generic[T]):
    """Keeps references to the most recently used objects, so that their files stay open."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._kept: OrderedDict[int, T] = OrderedDict()
        self._newest: T | None = None

    def keep(self, thing: T) -> None:
        if thing is self._newest:
            return
        self._newest = thing
        number = id(thing)
        self._kept[number] = thing
        with contextlib.suppress(KeyError):  # another thread may have removed it
            self._kept.move_to_end(number)
            while len(self._kept) > self._count_max:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        self._newest = None
        self._kept.clear()


class TopicHandle:
    """A topic that is open in this process."""

    def __init__(self, folder: Path, context: LogContext, *, recent: Recent[Partition]) -> None:
        self.folder = folder
        self._context = context
        self._lock = threading.Lock()
        self._recent = recent
        self._partitions: weakref.WeakValueDictionary[int, Partition] = weakref.WeakValueDictionary()
        self.topic, self.schemas = load_topic(folder)
        self.storage = self._storage()
        self._check_partitions()
        self.state = self._open_state()
        self._changes = self.state.counters()[0]
        self._turn = 0
        self._projections: dict[tuple[str, ...] | None, tuple[Topic, Projection]] = {}

    def next_turn(self) -> int:
        """The next number for rows without a key: they take turns among the partitions."""
        self._turn += 1
        return self._turn

    def current(self) -> Topic:
        """The topic as it is now; reloaded if another process has altered it."""
        if self.state.counters()[0] != self._changes:
            self.reload()
        return self.topic

    def reload(self) -> None:
        with self._lock:
            changes = self.state.counters()[0]
            self.topic, self.schemas = load_topic(self.folder)
            self.state.grow(self.topic.partitions)
            # Last: a thread that reads the counter must find the topic that belongs to it.
            self._changes = changes

    @property
    def deleted(self) -> bool:
        return self.state.counters()[1] == DELETED

    def schema(self, version: int | None) -> pa.Schema:
        """The schema of a version; by default the newest."""
        current = self.current()
        if version is None:
            return current.schema
        if version not in self.schemas:
            raise ArgumentInvalid(name="version", value=version, expected=f"1 to {current.schema_version}")
        return self.schemas[version]

    def describe(self) -> Description:
        """The topic, and the offsets and size of each partition."""
        return Description(topic=self.current(), partitions=[_info(partition) for partition in self.partitions()])

    def schema_of(self, version: int) -> pa.Schema:
        if version not in self.schemas:
            self.reload()
        if version not in self.schemas:
            why = f"rows were written with schema version {version}, which it does not have"
            raise FileCorrupt(path=str(self.folder / "topic.json"), why=why)
        return self.schemas[version]

    def partition(self, number: int) -> Partition:
        partition = self._partitions.get(number)
        if partition is None:
            with self._lock:
                partition = self._partitions.get(number)
                if partition is None:
                    partition = self._partitions[number] = self._open_partition(number)
        self._recent.keep(partition)
        return partition

    def partitions(self) -> list[Partition]:
        return [self.partition(number) for number in range(self.current().partitions)]

    def projection(self, columns: Sequence[str] | None) -> Projection:
        """The projection to some columns. It is kept for the next read: making it takes as long as reading a row."""
        topic, names = self.current(), None if columns is None else tuple(columns)
        made_for, projection = self._projections.get(names, (None, None))
        if projection is None or made_for is not topic:
            projection = Projection.of(topic, columns)
            if len(self._projections) >= PROJECTIONS_MAX:
                self._projections.clear()
            self._projections[names] = (topic, projection)
        return projection

    def archive(self, number: int) -> Path:
        """The folder to which retention moves the segments of a partition, if the topic is archived."""
        return self._context.archive / self.topic.name / str(number)

    def close(self) -> None:
        with self._lock:
            for partition in list(self._partitions.values()):
                partition.close()
            self._partitions.clear()

    def abandon(self) -> None:
        """In a forked child: close the inherited files."""
        for partition in list(self._partitions.values()):
            partition.abandon()

    def _open_partition(self, number: int) -> Partition:
        if not 0 <= number < self.topic.partitions:
            raise partition_not_found(topic=self.topic.name, partition=number, partitions=self.topic.partitions)
        folder = self.storage / str(number)
        return Partition(self.current, number, folder, self.state, self._context, floor=self._floor)

    def _check_partitions(self) -> None:
        """Raise if there are more partitions than in `topic.json`: it is an older copy."""
        try:
            numbers = [int(name) for name in os.listdir(self.storage) if name.isdigit()]
        except FileNotFoundError:
            return  # it was deleted
        if numbers and max(numbers) >= self.topic.partitions:
            why = f"in it the topic has {self.topic.partitions} partitions, but there are {max(numbers) + 1}"
            raise FileCorrupt(path=str(self.folder / "topic.json"), why=why)

    def _storage(self) -> Path:
        self._floor = 0
        if self.topic.durability != "memory":
            return self.folder
        storage = memory_folder(self._context.log_id, self.topic.id)
        with FileLock(self.folder / "topic.lock", seconds_max=self._context.lock_seconds_max):
            floor = self.folder / "floor"
            began = _read_floor(floor)
            if not (storage / "state").exists():
                began += OFFSETS_PER_BOOT
                replace_file(floor, str(began).encode(), durable=True)
                storage.mkdir(mode=os.stat(self.folder).st_mode & 0o777, exist_ok=True)
                check_memory_folder(storage, self.folder)  # before anything is written there
                StateFile.make(storage / "state", partitions=self.topic.partitions)
                remove_orphans_once()
            self._floor = began
        check_memory_folder(storage, self.folder)
        link_to_topic(storage, self.folder)
        return storage

    def _open_state(self) -> StateFile:
        path = self.storage / "state"
        try:
            return StateFile(path, partitions=self.topic.partitions, read_only=self._context.read_only)
        except FileNotFoundError:
            # It is lost: with an empty one, the first reader or writer of each partition recovers from the segments.
            StateFile.make(path, partitions=self.topic.partitions)
            return StateFile(path, partitions=self.topic.partitions, read_only=False)


def _info(partition: Partition) -> PartitionInfo:
    visible, start = partition.visible(), partition.start()
    sizes = []
    for segment in partition.segments():
        with contextlib.suppress(FileNotFoundError):  # removed or rewritten in the meantime
            sizes.append(segment.path.stat().st_size)
    return PartitionInfo(
        partition=partition.number,
        offset_start=start,
        offset_next=visible.offset,
        rows=visible.offset - start,
        bytes=sum(sizes),
        segments=len(sizes),
        appended_at_us=visible.appended_at_us or None,
    )


def load_topic(folder: Path) -> tuple[Topic, dict[int, pa.Schema]]:
    """Read `topic.json`: the topic and all versions of its schema."""
    path = folder / "topic.json"
    try:
        return _topic_of(load_checked(path, format_known=FORMAT))
    except FileNotFoundError:
        raise NotFound(kind="topic", name=folder.name) from None
    except (ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
        raise FileCorrupt(path=str(path), why=f"it does not describe a topic ({error!r})") from error


def _read_floor(path: Path) -> int:
    """The first offset of a topic in memory since the last boot."""
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return -OFFSETS_PER_BOOT
    except ValueError as error:
        raise FileCorrupt(path=str(path), why="it is not a number") from error


def _topic_of(body: dict[str, Any]) -> tuple[Topic, dict[int, pa.Schema]]:
    schemas = {int(version): schema_from_json(columns) for version, columns in body["schemas"].items()}
    latest = max(schemas)
    topic = Topic.from_json(body | {"schema": body["schemas"][str(latest)], "schema_version": latest})
    return topic, schemas | {latest: topic.schema}


def dump_topic(topic: Topic, schemas: dict[int, pa.Schema]) -> bytes:
    body = {
        "format": FORMAT,
        "name": topic.name,
        "id": topic.id,
        "schemaless": topic.schemaless,
        **topic.settings_to_json(),
        "created_us": topic.created_us,
        "schemas": {str(version): schema_to_json(schema) for version, schema in schemas.items()},
    }
    return dump_checked(body)
