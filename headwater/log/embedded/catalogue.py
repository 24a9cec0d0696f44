"""The catalogue of topics: create, alter, list and delete them. Each topic is a folder."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import threading
import uuid
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.config import Config
from headwater.errors import Closed, NotFound, StorageError, did_you_mean
from headwater.faults import reach
from headwater.filelock import FileLock, wait_for_lock
from headwater.log.embedded.files import (
    FILES_EACH,
    files_max,
    make_folders,
    replace_file,
    storage_error,
    storage_errors,
    sync_folder,
)
from headwater.log.embedded.partition import LogContext, Partition
from headwater.log.embedded.state import DELETED, StateFile
from headwater.log.embedded.topic import Recent, TopicHandle, dump_topic, load_topic
from headwater.log.errors import FileCorrupt, ReadOnly, TopicExists
from headwater.log.topic import Topic, TopicChanges, TopicConfig, TopicSettings, parsed_settings
from headwater.log.topic_rules import INTERNAL, check_alter, check_columns, check_key_types, check_name
from headwater.schema import evolve, parse_schema


class Catalogue:
    """All topics of a log."""

    def __init__(self, context: LogContext, *, open_partitions_max: int) -> None:
        self._context = context
        self._folder = context.root / "topics"
        self._handles: weakref.WeakValueDictionary[str, TopicHandle] = weakref.WeakValueDictionary()
        open_max = min(open_partitions_max, max(1, files_max() // FILES_EACH))
        self._recent_handles: Recent[TopicHandle] = Recent(open_max)
        self._recent_partitions: Recent[Partition] = Recent(open_max)
        self._lock = threading.RLock()
        self._closed = False

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
        """Whether the topic exists; unlike `names`, the cost does not depend on the number of topics."""
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

    def declare(self, name: str, schema: Any, *, exist_ok: bool, settings: TopicSettings, config: Config) -> Topic:
        """Create a topic from the user's settings, or return the existing one if it is the same."""
        check_name("topic", name)
        if schema is None and settings.get("key") is None:
            settings["key"] = "key"
        columns = parse_schema(schema)
        wanted = Topic(
            name=name,
            id=uuid.uuid4().hex,
            schema=columns,
            schemaless=schema is None,
            created_us=self._context.clock.now_us(),
            **vars(TopicConfig.of(settings, config)),
        )
        check_columns(name, columns, key=wanted.key, time=wanted.time_column)
        if not self.has(name):
            try:
                return self.create(wanted).topic
            except TopicExists:  # another process was faster
                pass
        found = self.get(name).current()
        if not exist_ok:
            raise TopicExists(topic=name, why="created earlier")
        if not found.schema.equals(wanted.schema) or found.key != wanted.key or found.partitions != wanted.partitions:
            raise TopicExists(topic=name, why="with another schema, key or number of partitions")
        return found

    def ensure(self, topic: Topic) -> None:
        """Create a topic unless it exists."""
        if not self.has(topic.name):
            with contextlib.suppress(TopicExists):
                self.create(topic)

    def create(self, topic: Topic) -> TopicHandle:
        """Create the folder under a hidden name, then rename it: a topic exists completely or not at all."""
        check_name("topic", topic.name, internal=True)
        self._writable()
        folder = self._folder / f".new-{uuid.uuid4().hex}"
        try:
            make_folders(folder)
            # A topic survives a power cut whatever its durability: half of one could not be opened.
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
                raise TopicExists(topic=topic.name, why="created by another process just now") from error
            raise storage_error(error, self._folder / topic.name) from error
        reach("topic.published")
        return self.get(topic.name)

    def alter(self, name: str, *, schema: Any, force: bool, changes: TopicChanges) -> Topic:
        """Replace `topic.json`; every process reads it at its next call."""
        settings = parsed_settings(changes)
        parsed = None if schema is None else parse_schema(schema)
        self._writable()
        handle = self.get(name)
        with FileLock(handle.folder / "topic.lock", seconds_max=self._context.lock_seconds_max):
            handle.reload()
            old, schemas = handle.topic, dict(handle.schemas)
            new = replace(old, **settings)
            check_alter(old, new)
            if parsed is not None and evolve(name, old.schema, parsed, force=force):
                check_columns(name, parsed, key=old.key, time=old.time_column)
                check_key_types(name, old.key, old.schema, parsed)
                version = max(schemas) + 1
                schemas[version] = parsed
                new = replace(new, schema=parsed, schema_version=version)
            if new.partitions > old.partitions:
                handle.state.grow(new.partitions)
            with storage_errors(handle.folder):
                replace_file(handle.folder / "topic.json", dump_topic(new, schemas), durable=True)
            handle.state.set_counters(handle.state.counters()[0] + 1, 0)
        return handle.current()

    def delete(self, name: str) -> None:
        """Mark the topic as deleted, so that writers stop; rename its folder, so that the name is free; remove it.

        After a crash in between, the mark stays, and the next process that opens the topic finishes the deletion.
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
        """Rename a deleted topic's folder so that its name can be reused; do nothing if another process already did.

        The lock of the parent folder ensures that no new topic of that name is renamed instead.
        """
        grave = self._folder / f".deleted-{uuid.uuid4().hex}"
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            wait_for_lock(descriptor, self._folder, seconds_max=self._context.lock_seconds_max)
            if _id_of(folder) == topic_id:
                os.rename(folder, grave)
        finally:
            os.close(descriptor)
        # Durable before the first file is removed: a power cut must not restore a topic without its rows.
        sync_folder(self._folder)
        return grave

    def leftovers(self) -> list[Path]:
        """Folders of topics whose creation or deletion was not finished because the process died."""
        return sorted(self._folder.glob(".new-*")) + sorted(self._folder.glob(".deleted-*"))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for handle in list(self._handles.values()):
                handle.close()
            self._handles.clear()
            self._recent_handles.clear()
            self._recent_partitions.clear()

    def abandon(self) -> None:
        """In a forked child: close the inherited files, even if other objects still refer to them."""
        for handle in list(self._handles.values()):
            handle.abandon()

    def _open(self, name: str) -> TopicHandle:
        if self._closed:
            raise Closed(what="log")
        check_name("topic", name, internal=True)
        folder = self._folder / name
        if not (folder / "topic.json").exists():
            if _has_lost_its_description(folder):
                raise FileCorrupt(path=str(folder / "topic.json"), why="it is gone, but rows of the topic are there")
            raise NotFound(kind="topic", name=name, near=did_you_mean(name, self.names()))
        try:
            handle = TopicHandle(folder, self._context, recent=self._recent_partitions)
        except FileNotFoundError:  # it was deleted in the meantime, and perhaps created again
            if not (folder / "topic.json").exists():
                raise NotFound(kind="topic", name=name, near=did_you_mean(name, self.names())) from None
            handle = TopicHandle(folder, self._context, recent=self._recent_partitions)
        if handle.deleted:  # by a process that died, or is about to rename it
            handle.close()
            if not self._context.read_only:
                shutil.rmtree(self._bury(folder, handle.topic.id), ignore_errors=True)
            raise NotFound(kind="topic", name=name, near=did_you_mean(name, self.names()))
        return handle

    def _writable(self) -> None:
        if self._context.read_only:
            raise ReadOnly(path=str(self._context.root))


def _id_of(folder: Path) -> str | None:
    try:
        return load_topic(folder)[0].id
    except NotFound:
        return None


def _has_lost_its_description(folder: Path) -> bool:
    """Whether a folder has rows but no `topic.json`, and is not being deleted."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # so that its inode is not reused
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
