"""What every part of the embedded log stands on: its folder, its open topics, and whether it may be used."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headwater.clock import Clock, SystemClock
from headwater.config import Config
from headwater.errors import (
    Closed,
    CommitLogCorrupt,
    FileCorrupt,
    LogNotFound,
    ReadOnly,
)
from headwater.log.embedded.files import dump_checked, load_checked, make_folders, replace_file, storage_error
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.producers import Registry
from headwater.log.embedded.staging import Area
from headwater.log.embedded.tidy import Tidier
from headwater.log.embedded.topics import Catalogue, TopicHandle
from headwater.log.embedded.transactions import Commits
from headwater.log.offsets import OffsetTable

FORMAT = 1
open_logs: weakref.WeakSet[Core] = weakref.WeakSet()


class Core:
    """The folder of a log, opened."""

    _offsets: OffsetTable
    _tidier: Tidier

    def __init__(
        self,
        path: str | Path,
        *,
        config: Config | None = None,
        create: bool = True,
        read_only: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.path = Path(path)
        self.config = config or Config()
        self.clock = clock or SystemClock()
        self.read_only = read_only
        self.id = self._make_or_check(create)
        self._start()
        open_logs.add(self)

    def __repr__(self) -> str:
        return f"Log({str(self.path)!r})"

    def _start(self) -> None:
        self._closed = False
        self._stale = False
        self._lock = threading.Lock()
        self._registry = Registry(self.path / "producers", lock_seconds_max=self.config.lock_seconds_max)
        self._commits: Commits | None = None
        self._catalogue = Catalogue(
            self.path,
            log_id=self.id,
            clock=self.clock,
            is_committed=self._is_committed,
            read_only=self.read_only,
            archive=self.config.archive_dir or self.path / "archive",
            open_partitions_max=self.config.open_partitions_max,
            lock_seconds_max=self.config.lock_seconds_max,
        )
        self._commits = Commits(
            self.path / "transactions",
            clock=self.clock,
            partition=lambda topic, number: self._catalogue.get(topic).partition(number),
            every_partition=self._every_partition,
            registry=self._registry,
            read_only=self.read_only,
            lock_seconds_max=self.config.lock_seconds_max,
        )
        self._staging = Area(self.path / "transactions" / "staged")
        self._pool: ThreadPoolExecutor | None = None
        if not self.read_only:
            with contextlib.suppress(CommitLogCorrupt):  # whoever commits is told; rows of other topics can be read
                self._commits.settle()

    @property
    def closed(self) -> bool:
        return self._closed

    def handle(self, topic: str) -> TopicHandle:
        """The open topic, for the parts of the embedded log that work on files."""
        return self._handle(topic)

    def catalogue(self) -> Catalogue:
        return self._catalogue

    def commits(self) -> Commits:
        """The transactions, for verify and repair."""
        return self._checked_commits

    @property
    def _checked_commits(self) -> Commits:
        self._check_open()
        if self._commits is None:
            raise Closed(what="log")
        return self._commits

    def _handle(self, topic: str) -> TopicHandle:
        self._check_open()
        return self._catalogue.get(topic)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(what="log")
        if self._stale:
            self._start()

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnly(path=str(self.path))

    def _is_committed(self, number: int) -> bool:
        return self._commits is not None and self._commits.is_committed(number)

    def _every_partition(self) -> list[Partition]:
        return [
            partition for name in self._catalogue.names(internal=True) for partition in self._handle(name).partitions()
        ]

    def _make_or_check(self, create: bool) -> str:
        mark = self.path / "headwater.json"
        if not mark.exists():
            if any((self.path / "topics").glob("*/topic.json")) and not mark.exists():
                raise FileCorrupt(path=str(mark), why="it is gone, but the topics of a log are there")
            if self.read_only or not create or (self.path.exists() and not self.path.is_dir()):
                raise LogNotFound(path=str(self.path))
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.mkdir(mode=0o700, exist_ok=True)  # for its owner alone; one that is there stays as it is
                for name in ("topics", "groups", "producers", "transactions"):
                    make_folders(self.path / name)
                body = {"format": FORMAT, "id": uuid.uuid4().hex, "created_us": self.clock.now_us()}
                replace_file(mark, dump_checked(body), durable=True)
            except OSError as error:
                raise storage_error(error, self.path) from error
        body = load_checked(mark, format_known=FORMAT)
        if not isinstance(body.get("id"), str):
            raise FileCorrupt(path=str(mark), why="it does not say the id of the log")
        if not self.read_only and not os.access(self.path / "topics", os.W_OK):
            raise ReadOnly(path=str(self.path))
        return str(body["id"])

    def _after_fork(self) -> None:
        # The child shares the parent's open files, and so its locks, which would outlive the parent: let go of them,
        # and open everything anew when the child first uses this log, if it ever does.
        if not self._closed:
            self._catalogue.abandon()
            if self._commits is not None:
                self._commits.abandon()
            self._stale = True


def _forget_inherited_files() -> None:
    for log in list(open_logs):
        log._after_fork()


os.register_at_fork(after_in_child=_forget_inherited_files)
