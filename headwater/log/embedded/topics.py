"""The catalogue of topics: one folder each, with `topic.json` (what it is) and `state` (where its tails are)."""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import os
import re
import shutil
import stat
import tempfile
import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from headwater.clock import Clock
from headwater.errors import (
    FileCorrupt,
    FolderUnsafe,
    NameInvalid,
    PartitionNotFound,
    ReadOnly,
    StorageError,
    TopicExists,
    TopicNotFound,
)
from headwater.log.embedded.faults import reach
from headwater.log.embedded.files import (
    FILES_EACH,
    dump_checked,
    files_max,
    load_checked,
    make_folders,
    replace_file,
    storage_error,
    storage_errors,
    sync_folder,
)
from headwater.log.embedded.locks import SECONDS_MAX, FileLock, wait_for_lock
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.state import DELETED, StateFile, Tail
from headwater.log.port import Retention, Topic
from headwater.schema import schema_from_json, schema_to_json

FORMAT = 1
INTERNAL = "__"
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
#: A topic kept in memory begins this much further on whenever a reboot has taken its rows: no offset is used twice.
OFFSETS_PER_BOOT = 2**40


def check_name(kind: str, name: str, *, internal: bool = False) -> None:
    """Refuse names that could leave the folder, hide in it, or be mistaken for ours."""
    if not isinstance(name, str) or not name:
        raise NameInvalid(kind=kind, name=str(name), why="it is empty")
    if internal and name.startswith(INTERNAL):
        name = name[len(INTERNAL) :]
    if not _NAME.fullmatch(name):
        raise NameInvalid(kind=kind, name=name, why="it has characters, a beginning or a length that are not allowed")


class Recent(Generic[T]):
    """Keeps what was used last, so that its files stay open; whatever drops out closes when nobody uses it."""

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
        with contextlib.suppress(KeyError):  # another thread may just have dropped it
            self._kept.move_to_end(number)
            while len(self._kept) > self._count_max:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        self._newest = None
        self._kept.clear()


class TopicHandle:
    """A topic that is open in this process."""

    def __init__(
        self,
        folder: Path,
        *,
        recent: Recent[Partition],
        archive: Path,
        clock: Clock,
        is_committed: Callable[[int], bool],
        root: Path,
        log_id: str,
        read_only: bool,
        lock_seconds_max: float,
    ) -> None:
        self._lock_seconds_max = lock_seconds_max
        self.folder = folder
        self._clock = clock
        self._is_committed = is_committed
        self._root = root
        self._log_id = log_id
        self._read_only = read_only
        self._lock = threading.Lock()
        self._recent = recent
        self._archive = archive
        self._partitions: weakref.WeakValueDictionary[int, Partition] = weakref.WeakValueDictionary()
        self.topic, self.schemas = load_topic(folder)
        self.storage = self._storage()
        self._check_partitions()
        self.state = self._open_state()
        self._changes = self.state.counters()[0]
        self.turn = 0

    def current(self) -> Topic:
        """The topic as it is declared now, also where another process has changed it."""
        if self.state.counters()[0] != self._changes:
            self.reload()
        return self.topic

    def reload(self) -> None:
        with self._lock:
            self._changes = self.state.counters()[0]
            self.topic, self.schemas = load_topic(self.folder)
            self.state.grow(self.topic.partitions)

    @property
    def deleted(self) -> bool:
        return self.state.counters()[1] == DELETED

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

    def last_offset_of(self, number: int, key: tuple[Any, ...], tail: Tail) -> int:
        """The offset of the last row of a key, -1 where it has none. The caller holds the partition's append lock."""
        from headwater.log.embedded.keys import KeyOffsets  # keys reads through topics, so it stands above

        partition = self.partition(number)
        partition.sync_to(tail.offset)  # rows that were written but not yet synced count too
        if partition.keys is None:
            partition.keys = KeyOffsets(self, partition)
        last = partition.keys.last(key)
        return -1 if last is None else last

    def archive(self, number: int) -> Path:
        """Where segments of a partition go when retention takes them from a topic that is archived."""
        return self._archive / self.topic.name / str(number)

    def close(self) -> None:
        with self._lock:
            for partition in list(self._partitions.values()):
                partition.close()
            self._partitions.clear()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's files."""
        for partition in list(self._partitions.values()):
            partition.abandon()

    def _open_partition(self, number: int) -> Partition:
        if not 0 <= number < self.topic.partitions:
            raise PartitionNotFound(topic=self.topic.name, partition=number, partitions=self.topic.partitions)
        return Partition(
            self.current,
            number,
            self.storage / str(number),
            self.state,
            clock=self._clock,
            is_committed=self._is_committed,
            quarantine=self._root / "quarantine",
            read_only=self._read_only,
            floor=self._floor,
            lock_seconds_max=self._lock_seconds_max,
        )

    def _check_partitions(self) -> None:
        """Raise where there are more partitions than `topic.json` says: it is older than the topic."""
        try:
            numbers = [int(name) for name in os.listdir(self.storage) if name.isdigit()]
        except FileNotFoundError:
            return  # deleted just now
        if numbers and max(numbers) >= self.topic.partitions:
            why = f"it says that the topic has {self.topic.partitions} partitions, but there are {max(numbers) + 1}"
            raise FileCorrupt(path=str(self.folder / "topic.json"), why=why)

    def _storage(self) -> Path:
        self._floor = 0
        if self.topic.durability != "memory":
            return self.folder
        memory = Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(tempfile.gettempdir())
        storage = memory / f"headwater-{self._log_id[:12]}-{self.topic.id[:12]}"
        lock = FileLock(self.folder / "topic.lock", seconds_max=self._lock_seconds_max)
        with lock:
            floor = self.folder / "floor"
            began = _read_floor(floor)
            if not (storage / "state").exists():
                began += OFFSETS_PER_BOOT
                replace_file(floor, str(began).encode(), durable=True)
                storage.mkdir(mode=os.stat(self.folder).st_mode & 0o777, exist_ok=True)
                check_memory_folder(storage, self.folder)  # before anything is written there
                StateFile.make(storage / "state", partitions=self.topic.partitions)
            self._floor = began
        check_memory_folder(storage, self.folder)
        lock.close()
        return storage

    def _open_state(self) -> StateFile:
        path = self.storage / "state"
        try:
            return StateFile(path, partitions=self.topic.partitions, read_only=self._read_only)
        except FileNotFoundError:
            # Lost or too short: an empty one sends the first reader or writer of each partition to the segments.
            StateFile.make(path, partitions=self.topic.partitions)
            return StateFile(path, partitions=self.topic.partitions, read_only=False)


def check_memory_folder(storage: Path, topic: Path) -> None:
    """Refuse a folder in the memory that all users share which another user has made, or may write to.

    It must be no link, belong to this user or to the owner of the topic, and allow nothing that the topic's folder on
    disk does not.
    """
    found, allowed = os.lstat(storage), os.stat(topic)
    if not stat.S_ISDIR(found.st_mode):
        raise FolderUnsafe(path=str(storage), why="it is no folder")
    if found.st_uid not in (os.geteuid(), allowed.st_uid):
        raise FolderUnsafe(path=str(storage), why=f"it belongs to the user with the number {found.st_uid}")
    if found.st_mode & ~allowed.st_mode & 0o077:
        raise FolderUnsafe(
            path=str(storage),
            why=f"its permissions are {found.st_mode & 0o777:o}, those of the topic {allowed.st_mode & 0o777:o}",
        )


class Catalogue:
    """All topics of a log."""

    def __init__(
        self,
        root: Path,
        *,
        log_id: str,
        clock: Clock,
        is_committed: Callable[[int], bool],
        read_only: bool,
        archive: Path,
        open_partitions_max: int,
        lock_seconds_max: float = SECONDS_MAX,
    ) -> None:
        self._lock_seconds_max = lock_seconds_max
        self._root = root
        self._folder = root / "topics"
        self._log_id = log_id
        self._clock = clock
        self._is_committed = is_committed
        self._read_only = read_only
        self._archive = archive
        self._handles: weakref.WeakValueDictionary[str, TopicHandle] = weakref.WeakValueDictionary()
        open_max = min(open_partitions_max, max(1, files_max() // FILES_EACH))
        self._recent_handles: Recent[TopicHandle] = Recent(open_max)
        self._recent_partitions: Recent[Partition] = Recent(open_max)
        self._lock = threading.RLock()

    def get(self, name: str) -> TopicHandle:
        handle = self._handles.get(name)
        if handle is None or handle.deleted:
            with self._lock:
                handle = self._handles.get(name)
                if handle is not None and handle.deleted:
                    del self._handles[name]
                    handle = None
                if handle is None:
                    handle = self._handles[name] = self._open(name)
        self._recent_handles.keep(handle)
        return handle

    def has(self, name: str) -> bool:
        """Whether there is such a topic; unlike `names` it costs the same however many there are."""
        return (self._folder / name).exists()

    def names(self, pattern: str = "*", *, internal: bool = False) -> list[str]:
        try:
            found = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(
            name
            for name in found
            if not name.startswith(".")
            and fnmatch.fnmatchcase(name, pattern)
            and (internal or not name.startswith(INTERNAL))
        )

    def create(self, topic: Topic) -> TopicHandle:
        """Make the topic under a hidden name, then rename: it is there whole, or not at all."""
        check_name("topic", topic.name, internal=True)
        self._writable()
        folder = self._folder / f".new-{uuid.uuid4().hex}"
        try:
            make_folders(folder)
            # Whatever its rows are promised, a topic itself survives a power cut: half of one could not be opened.
            replace_file(folder / "topic.json", dump_topic(topic, {1: topic.schema}), durable=True)
            if topic.durability != "memory":
                StateFile.make(folder / "state", partitions=topic.partitions)
            reach("topic.made")
            os.rename(folder, self._folder / topic.name)
            with storage_errors(self._folder):
                sync_folder(self._folder)
        except (OSError, StorageError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, StorageError):
                raise
            if (self._folder / topic.name).exists():
                raise TopicExists(topic=topic.name, why="made by somebody else just now") from error
            raise storage_error(error, self._folder / topic.name) from error
        reach("topic.published")
        return self.get(topic.name)

    def alter(
        self, name: str, change: Callable[[Topic, dict[int, pa.Schema]], tuple[Topic, dict[int, pa.Schema]]]
    ) -> Topic:
        """Replace `topic.json` by what `change` makes of it; every process sees it at its next call."""
        self._writable()
        handle = self.get(name)
        lock = FileLock(handle.folder / "topic.lock", seconds_max=self._lock_seconds_max)
        try:
            with lock:
                handle.reload()
                topic, schemas = change(handle.topic, dict(handle.schemas))
                if topic.partitions > handle.topic.partitions:
                    handle.state.grow(topic.partitions)
                with storage_errors(handle.folder):
                    replace_file(handle.folder / "topic.json", dump_topic(topic, schemas), durable=True)
                handle.state.set_counters(handle.state.counters()[0] + 1, 0)
        finally:
            lock.close()
        return handle.current()

    def delete(self, name: str) -> None:
        """Mark first, so that writers elsewhere stop; then rename, so that the name is free; then remove.

        Killed in between, the mark stands, and whoever opens the topic next finishes what was begun.
        """
        self._writable()
        handle = self.get(name)
        partitions = [partition for partition in handle.partitions() if partition.folder.is_dir()]
        with contextlib.ExitStack() as locks:
            for partition in partitions:
                locks.enter_context(partition.append_lock)
            handle.state.set_counters(handle.state.counters()[0] + 1, DELETED)
            reach("topic.marked")
            grave = self._bury(handle.folder, handle.topic.id)
        with self._lock:
            self._handles.pop(name, None)
        reach("topic.buried")
        if handle.storage != handle.folder:
            shutil.rmtree(handle.storage, ignore_errors=True)
        handle.close()
        shutil.rmtree(grave, ignore_errors=True)

    def _bury(self, folder: Path, topic_id: str) -> Path:
        """Take a deleted topic's name away, unless somebody was quicker; a topic made anew under that name stays.

        A name becomes free only here, one at a time: so what was looked at is what is renamed.
        """
        grave = self._folder / f".deleted-{uuid.uuid4().hex}"
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            wait_for_lock(descriptor, self._folder, seconds_max=self._lock_seconds_max)
            if _id_of(folder) == topic_id:
                os.rename(folder, grave)
        finally:
            os.close(descriptor)
        # Durable before the first file goes: a power cut must not bring back a topic without its rows.
        sync_folder(self._folder)
        return grave

    def leftovers(self) -> list[Path]:
        """Folders of topics that were half made or half deleted when a process died."""
        return sorted(self._folder.glob(".new-*")) + sorted(self._folder.glob(".deleted-*"))

    def nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.names(), n=1)
        return f" Did you mean {near[0]!r}?" if near else ""

    def close(self) -> None:
        with self._lock:
            for handle in list(self._handles.values()):
                handle.close()
            self._handles.clear()
            self._recent_handles.clear()
            self._recent_partitions.clear()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's files, whoever still refers to them."""
        for handle in list(self._handles.values()):
            handle.abandon()

    def _open(self, name: str) -> TopicHandle:
        check_name("topic", name, internal=True)
        folder = self._folder / name
        if not (folder / "topic.json").exists():
            if _has_lost_its_description(folder):
                raise FileCorrupt(path=str(folder / "topic.json"), why="it is gone, but rows of the topic are there")
            raise TopicNotFound(topic=name, near=self.nearest(name))
        try:
            handle = self._handle_of(folder)
        except FileNotFoundError:  # it was deleted while we looked, and perhaps made anew
            if not (folder / "topic.json").exists():
                raise TopicNotFound(topic=name, near=self.nearest(name)) from None
            handle = self._handle_of(folder)
        if handle.deleted:  # marked by a process that died, or that is about to rename it
            handle.close()
            if not self._read_only:
                shutil.rmtree(self._bury(folder, handle.topic.id), ignore_errors=True)
            raise TopicNotFound(topic=name, near=self.nearest(name))
        return handle

    def _handle_of(self, folder: Path) -> TopicHandle:
        return TopicHandle(
            folder,
            recent=self._recent_partitions,
            archive=self._archive,
            clock=self._clock,
            is_committed=self._is_committed,
            root=self._root,
            log_id=self._log_id,
            read_only=self._read_only,
            lock_seconds_max=self._lock_seconds_max,
        )

    def _writable(self) -> None:
        if self._read_only:
            raise ReadOnly(path=str(self._root))


def _id_of(folder: Path) -> str | None:
    try:
        return load_topic(folder)[0].id
    except TopicNotFound:
        return None


def load_topic(folder: Path) -> tuple[Topic, dict[int, pa.Schema]]:
    """What `topic.json` says."""
    path = folder / "topic.json"
    try:
        return _topic_of(load_checked(path, format_known=FORMAT))
    except FileNotFoundError:
        raise TopicNotFound(topic=folder.name) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileCorrupt(path=str(path), why=f"it does not describe a topic ({error!r})") from error


def _has_lost_its_description(folder: Path) -> bool:
    """Whether there are rows of a topic without its `topic.json`, and nobody is just deleting it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # so that its inode is not used again
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        if not any(folder.glob("*/*.log")) or (folder / "topic.json").exists():
            return False
        # A deletion renames the folder before it removes anything.
        return "topic.json" not in os.listdir(descriptor) and os.path.samestat(os.fstat(descriptor), os.stat(folder))
    except FileNotFoundError:
        return False
    finally:
        os.close(descriptor)


def _read_floor(path: Path) -> int:
    """The first offset to be used by a topic kept in memory; so far none."""
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return -OFFSETS_PER_BOOT
    except ValueError as error:
        raise FileCorrupt(path=str(path), why="it is not a number") from error


def _topic_of(body: dict[str, Any]) -> tuple[Topic, dict[int, pa.Schema]]:
    schemas = {int(version): schema_from_json(columns) for version, columns in body["schemas"].items()}
    latest = max(schemas)
    topic = Topic(
        name=body["name"],
        id=body["id"],
        schema=schemas[latest],
        schema_version=latest,
        schemaless=body["schemaless"],
        partitions=body["partitions"],
        key=tuple(body["key"]),
        time=body["time"],
        retention=Retention(**body["retention"]),
        compact=body["compact"],
        tombstone_seconds_max=body["tombstone_seconds_max"],
        durability=body["durability"],
        codec=body["codec"],
        segment_bytes_max=body["segment_bytes_max"],
        segment_seconds_max=body["segment_seconds_max"],
        archive=body["archive"],
        created_us=body["created_us"],
    )
    return topic, schemas


def dump_topic(topic: Topic, schemas: dict[int, pa.Schema]) -> bytes:
    body = {
        "format": FORMAT,
        "name": topic.name,
        "id": topic.id,
        "schemaless": topic.schemaless,
        "partitions": topic.partitions,
        "key": list(topic.key),
        "time": topic.time,
        "retention": {"seconds_max": topic.retention.seconds_max, "bytes_max": topic.retention.bytes_max},
        "compact": topic.compact,
        "tombstone_seconds_max": topic.tombstone_seconds_max,
        "durability": topic.durability,
        "codec": topic.codec,
        "segment_bytes_max": topic.segment_bytes_max,
        "segment_seconds_max": topic.segment_seconds_max,
        "archive": topic.archive,
        "created_us": topic.created_us,
        "schemas": {str(version): schema_to_json(schema) for version, schema in schemas.items()},
    }
    return dump_checked(body)


def with_schema(topic: Topic, schemas: dict[int, pa.Schema], schema: pa.Schema) -> tuple[Topic, dict[int, pa.Schema]]:
    """The topic under its next schema version."""
    version = max(schemas) + 1
    return replace(topic, schema=schema, schema_version=version), {**schemas, version: schema}
