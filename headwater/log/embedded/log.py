"""The embedded log: a folder that many processes read and write, without a server.

`EmbeddedLog` implements the port with its parts: the catalogue of topics, the writer, the reader and the transactions.
A forked child opens them again, since it must not use its parent's files.
"""

from __future__ import annotations

import contextlib
import os
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import pyarrow as pa

from headwater.clock import Clock, SystemClock
from headwater.config import Config
from headwater.errors import ArgumentInvalid, Closed, NotFound, NotPossible
from headwater.home import home_of
from headwater.log.clients import ClientSet, Consumer, Producer
from headwater.log.embedded import maintenance
from headwater.log.embedded.catalogue import Catalogue
from headwater.log.embedded.commits import Commits
from headwater.log.embedded.cursor import EmbeddedCursor
from headwater.log.embedded.files import dump_checked, load_checked, make_folders, replace_file, storage_error
from headwater.log.embedded.groups import EmbeddedGroups
from headwater.log.embedded.membership import GroupFolder, Membership
from headwater.log.embedded.offsets import OffsetTable
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.producers import Registry
from headwater.log.embedded.reader import TopicRead, TopicReader
from headwater.log.embedded.stage import Stage, Staged
from headwater.log.embedded.topic import TopicHandle
from headwater.log.embedded.transactions import EmbeddedTransaction, Transactions
from headwater.log.embedded.watch import LogWatch
from headwater.log.embedded.writer import Writer
from headwater.log.errors import CommitLogCorrupt, FileCorrupt, ReadOnly
from headwater.log.port import (
    Appended,
    ConsumerSettings,
    Description,
    Expiry,
    Log,
    Offsets,
    ProducerSettings,
    Rows,
    Start,
    Topic,
    TopicChanges,
    TopicSettings,
)
from headwater.log.topic_rules import INTERNAL, check_name

FORMAT = 1
open_logs: weakref.WeakSet[EmbeddedLog] = weakref.WeakSet()


class EmbeddedLog:
    """A log in a folder. Open it with `headwater.open("./data")`."""

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
        self._closed = False
        self._open_parts()
        open_logs.add(self)

    def __repr__(self) -> str:
        return f"Log({str(self.path)!r})"

    @property
    def address(self) -> str:
        return str(self.path)

    @property
    def home(self) -> Path:
        """The folder for files that belong to this log but are not rows of it."""
        return home_of(self.path)

    def _open_parts(self) -> None:
        config, clock = self.config, self.clock
        self._stale = False
        registry = Registry(self.path / "producers", lock_seconds_max=config.lock_seconds_max)
        # The two depend on each other: the recovery of a partition asks which transactions were committed.
        commits: Commits | None = None
        self._catalogue = Catalogue(
            self.path,
            log_id=self.id,
            clock=clock,
            is_committed=lambda number: commits is not None and commits.is_committed(number),
            read_only=self.read_only,
            archive=config.archive_dir or self.path / "archive",
            open_partitions_max=config.open_partitions_max,
            lock_seconds_max=config.lock_seconds_max,
        )
        commits = Commits(
            self.path / "transactions",
            clock=clock,
            partition=lambda topic, number: self._catalogue.get(topic).partition(number),
            every_partition=self._every_partition,
            registry=registry,
            read_only=self.read_only,
            lock_seconds_max=config.lock_seconds_max,
        )
        self._commits = commits
        self._maintenance = maintenance.MaintenanceThread(self)
        self._writer = Writer(self._catalogue, registry, self._maintenance, config=config, clock=clock)
        self._reader = TopicReader(commits, read_only=self.read_only, check_open=self._check_open)
        self._offsets = OffsetTable(self)
        self._transactions = Transactions(
            self._catalogue, commits, self._writer, self._offsets, folder=self.path / "transactions" / "staged"
        )
        self._clients = ClientSet()
        if not self.read_only:
            with contextlib.suppress(CommitLogCorrupt):  # a commit raises it; rows can be read
                commits.resolve()

    # -- topics -------------------------------------------------------------------------------------------------------

    def create(
        self, topic: str, schema: Any = None, *, exist_ok: bool = False, **settings: Unpack[TopicSettings]
    ) -> Topic:
        """Create a topic. Without a schema its rows are `key` and `value`, both bytes."""
        self._check_open()
        return self._catalogue.declare(topic, schema, exist_ok=exist_ok, settings=settings, config=self.config)

    def alter(self, topic: str, *, schema: Any = None, force: bool = False, **changes: Unpack[TopicChanges]) -> Topic:
        """Change a topic while it is in use; other processes use the new settings at their next call."""
        self._check_open()
        return self._catalogue.alter(topic, schema=schema, force=force, changes=changes)

    def delete(self, topic: str) -> None:
        """Delete a topic and all its rows. Readers keep the segments that they have mapped.

        Internal topics, whose names begin with two underscores, cannot be deleted.
        """
        self._check_open()
        if topic.startswith(INTERNAL):
            raise NotPossible(
                why=f"Topic {topic!r} is internal, and cannot be deleted",
                instead=f"Set its retention to keep less: `headwater topic alter {topic} --retention '7 days'`",
            )
        self._catalogue.delete(topic)
        self._offsets.forget_topic(topic)

    def topics(self, pattern: str = "*", *, internal: bool = False) -> list[str]:
        """The names of all topics that match a pattern such as `orders.*`."""
        self._check_open()
        return self._catalogue.names(pattern, internal=internal)

    def topic(self, name: str) -> Topic:
        return self.handle(name).current()

    def schema(self, topic: str, version: int | None = None) -> pa.Schema:
        return self.handle(topic).schema(version)

    def describe(self, topic: str) -> Description:
        """The topic, and the offsets and size of each partition."""
        return self.handle(topic).describe()

    def partitions_of(self, topic: str) -> int:
        """The number of partitions of a topic; consumers call it at every poll."""
        return self.handle(topic).current().partitions

    def create_internal(self, topic: Topic) -> None:
        """Create an internal topic, whose name begins with two underscores, unless it exists."""
        self._check_open()
        self._catalogue.ensure(topic)

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        rows: Rows,
        *,
        partition: int | None = None,
        headers: Any = None,
        expected_offset: int | None = None,
        expected_key_offset: int | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        sent_at_us: int | None = None,
        durable: bool = True,
    ) -> Appended:
        """Append rows; on return they are as durable as the topic promises, and visible.

        The rows of one partition are appended atomically; for several partitions use a `transaction`. With
        `durable=False` the call does not wait for the disk: rows of an `fsync` topic become visible with the next
        append that waits, or by `flush`.
        """
        return self._writer.append(
            self.handle(topic),
            rows,
            partition=partition,
            headers=headers,
            expected_offset=expected_offset,
            expected_key_offset=expected_key_offset,
            identity=None if producer is None else (producer, sequence, epoch),
            sent_at_us=sent_at_us,
            durable=durable,
        )

    def flush(self, topic: str) -> None:
        """Wait until every row written so far is as durable as the topic promises."""
        self._writer.flush(self.handle(topic))

    def punctuate(
        self, topic: str, time: datetime | int, *, producer: str | None = None, partition: int | None = None
    ) -> None:
        """Append a punctuation: no row earlier than `time` follows from this producer. Readers get it in order."""
        self._writer.punctuate(self.handle(topic), time, producer=producer, partition=partition)

    def open_producer(self, name: str, *, holder: str | None = None) -> int:
        """Start a new epoch of an idempotent producer: older epochs are fenced.

        A `holder` (the id of one run of a program) that calls again gets its own epoch, so that its processes share
        one; it is fenced once another holder has called.
        """
        self._check_writable()
        return self._writer.open_producer(name, holder=holder)

    def last_sequence(self, topic: str, producer: str) -> int:
        """The highest sequence that the producer has appended to the topic, -1 for none."""
        return self._writer.last_sequence(self.handle(topic), producer)

    # -- transactions -------------------------------------------------------------------------------------------------

    def transaction(
        self, producer: str | None = None, *, epoch: int | None = None, sequence: int | None = None
    ) -> EmbeddedTransaction:
        """Append to many topics atomically: `with log.transaction() as t: t.append(...)`.

        With a producer and a sequence it is idempotent: a transaction that was committed before changes nothing. With
        an older epoch it is fenced.
        """
        self._check_writable()
        return self._transactions.begin(producer, epoch=epoch, sequence=sequence)

    def prepared(self) -> list[str]:
        """The ids of transactions that are durable but neither committed nor rolled back."""
        return self.commits().prepared()

    def commit(self, transaction: str) -> dict[str, Appended]:
        """Commit a prepared transaction by its id; idempotent."""
        self._check_open()
        return self._transactions.commit(transaction)

    def rollback(self, transaction: str) -> None:
        """Discard a prepared transaction."""
        self._check_open()
        self._transactions.rollback(transaction)

    def committed_sequence(self, producer: str) -> int:
        """The sequence of the last transaction that `producer` committed, -1 for none."""
        return self.commits().last_sequence(producer)

    def transaction_metadata(self, producer: str) -> dict[str, Any] | None:
        """The metadata of the last transaction that `producer` committed, None for none."""
        return self.commits().last_metadata(producer)

    def stage(self, name: str, *, sequence: int, attempt: str) -> Stage:
        """Open a file of rows that become visible by `commit_staged`, in this or another process."""
        self._check_writable()
        return self._transactions.stage(name, sequence=sequence, attempt=attempt)

    def commit_staged(
        self,
        staged: Iterable[Staged],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Appended]:
        """Append all rows of staged files in one transaction, and remove the files.

        With a producer and a sequence it is idempotent, and removes the files that other attempts have staged under the
        producer's name up to that sequence. `metadata` is stored with the transaction, even if it has no rows.
        """
        self._check_writable()
        return self._transactions.commit_staged(
            list(staged), producer=producer, sequence=sequence, epoch=epoch, metadata=metadata
        )

    def discard_staged(self, staged: Iterable[Staged]) -> None:
        """Remove staged files. Committed rows stay."""
        self._check_writable()
        self._transactions.staging.discard(staged)

    def discard_attempts(self, name: str, *, sequence: int, attempt: str) -> None:
        """Remove all files staged for a sequence by attempts whose names begin with `attempt`."""
        self._check_writable()
        self._transactions.staging.clear_attempts(name, sequence=sequence, attempt=attempt)

    def resolve_transactions(self) -> None:
        """Finish the commit of a process that died during it, if there is one."""
        commits = self.commits()
        if commits.pending():
            commits.resolve()

    # -- reading ------------------------------------------------------------------------------------------------------

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
    ) -> TopicRead:
        """Read the rows from `start` up to `stop` or the current end."""
        return self._reader.read(
            self.handle(topic),
            start=start,
            stop=stop,
            partitions=partitions,
            columns=columns,
            limit=limit,
            archived=archived,
        )

    def start_offsets(self, topic: str) -> Offsets:
        """The oldest offset of each partition."""
        return {partition.number: partition.start() for partition in self.handle(topic).partitions()}

    def end_offsets(self, topic: str) -> Offsets:
        """The offset of the next row of each partition; no transaction is counted in part."""
        return self._reader.end_offsets(self.handle(topic))

    def offset_at(self, topic: str, time: datetime | int) -> Offsets:
        """In each partition, the first offset appended at or after a time (microseconds or a datetime)."""
        return self._reader.offset_at(self.handle(topic), time)

    def wait(
        self, topics: str | Mapping[str, Offsets], *, after: Offsets | None = None, seconds: float | None = None
    ) -> bool:
        """Wait until a partition has rows at or behind the given offsets; return False on timeout."""
        if isinstance(topics, str):
            topics = {topics: self.end_offsets(topics) if after is None else after}
        return self._reader.wait([(self.handle(name), offsets) for name, offsets in topics.items()], seconds=seconds)

    def cursor(
        self, topic: str, partition: int, offset: int, *, columns: Sequence[str] | None = None
    ) -> EmbeddedCursor:
        """A position in one partition that advances with each read."""
        handle = self.handle(topic)
        names = None if columns is None else tuple(columns)
        return EmbeddedCursor(handle, handle.partition(partition), offset, columns=names)

    def expiry(self, topic: str, partition: int, offset: int) -> Expiry:
        """When retention will delete the segment that holds an offset."""
        handle = self.handle(topic)
        return maintenance.expiry_of(handle, handle.partition(partition), offset, clock=self.clock)

    def watch(self) -> LogWatch:
        """A watch on the files of this log."""
        return LogWatch(self.path, lambda topic: self.handle(topic).state.path)

    # -- clients and groups -------------------------------------------------------------------------------------------

    def producer(self, topic: str | None = None, **settings: Unpack[ProducerSettings]) -> Producer:
        """A producer that sends rows in batches in the background; with a name it is idempotent."""
        self._check_writable()
        return self._clients.producer(self, topic, settings)

    def consumer(
        self, topics: str | Sequence[str], group: str | None = None, **settings: Unpack[ConsumerSettings]
    ) -> Consumer:
        """A consumer of topics, by name or by pattern; members of a group share the partitions."""
        self._check_open()
        return self._clients.consumer(self, topics, group, settings)

    def membership(
        self,
        group: str,
        *,
        member: str | None,
        topics: tuple[str, ...],
        partitions: Callable[[bool], dict[str, int]],
        start: Start,  # noqa: ARG002  # only the remote log needs it
        session_seconds_max: float,
        heartbeat_seconds: float,
    ) -> Membership:
        """The membership of a consumer in its group, not joined yet."""
        return Membership(
            GroupFolder(self.path, group),
            clock=self.clock,
            member=member,
            topics=topics,
            partitions=partitions,
            session_seconds_max=session_seconds_max,
            heartbeat_seconds=heartbeat_seconds,
        )

    @property
    def groups(self) -> EmbeddedGroups:
        """The consumer groups of this log: their members and lag."""
        self._check_open()
        return EmbeddedGroups(self)

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        """Commit the offsets of a group."""
        check_name("group", group)
        self.handle(topic)
        self._offsets.commit(self._offsets.rows(group, topic, offsets, metadata))

    def committed(self, group: str, topic: str) -> Offsets:
        """The committed offsets of a group."""
        return self._offsets.committed(group, topic)

    def committed_groups(self) -> dict[str, set[str]]:
        """All groups with committed offsets, and their topics."""
        return self._offsets.groups()

    def forget_offsets(self, group: str, topic: str | None = None) -> None:
        """Delete the committed offsets of a group."""
        self._offsets.forget(group, topic)

    # -- maintenance, and the end -------------------------------------------------------------------------------------

    def maintain(
        self, topic: str | None = None, *, compact: bool = True, seal: bool = False
    ) -> maintenance.MaintenanceReport:
        """Apply retention, coalescing and compaction now; otherwise a background thread does it after appends.

        With `seal` the active segment is sealed first, so that its rows are included.
        """
        self._check_writable()
        names = self.topics(internal=True) if topic is None else [topic]
        report = maintenance.MaintenanceReport()
        for name in names:
            for partition in self.handle(name).partitions():
                report += maintenance.maintain_partition(
                    self.handle(name), partition, clock=self.clock, compact=compact, seal=seal, wait=True
                )
        return report

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close all files and end background work. Rows that were appended are safe without it."""
        if self._closed:
            return
        self._clients.close()
        self._maintenance.close()
        self._closed = True
        self._writer.close()
        self._catalogue.close()
        self._commits.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A log is pickled as its address.
        return (_reopen, (str(self.path), self.config, self.read_only))

    # -- for modules that work on files -------------------------------------------------------------------------------

    def handle(self, topic: str) -> TopicHandle:
        """The open topic."""
        self._check_open()
        return self._catalogue.get(topic)

    def catalogue(self) -> Catalogue:
        return self._catalogue

    def commits(self) -> Commits:
        """The commits of transactions."""
        self._check_open()
        return self._commits

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(what="log")
        if self._stale:
            self._open_parts()

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnly(path=str(self.path))

    def _every_partition(self) -> list[Partition]:
        names = self._catalogue.names(internal=True)
        return [partition for name in names for partition in self.handle(name).partitions()]

    def _make_or_check(self, create: bool) -> str:
        mark = self.path / "headwater.json"
        if not mark.exists():
            if any((self.path / "topics").glob("*/topic.json")) and not mark.exists():
                raise FileCorrupt(path=str(mark), why="it is gone, but the topics of a log are there")
            if self.read_only or not create or (self.path.exists() and not self.path.is_dir()):
                raise NotFound(kind="log", name=str(self.path))
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.mkdir(mode=0o700, exist_ok=True)  # for its owner alone; an existing folder is not changed
                for name in ("topics", "groups", "producers", "transactions"):
                    make_folders(self.path / name)
                body = {"format": FORMAT, "id": uuid.uuid4().hex, "created_us": self.clock.now_us()}
                replace_file(mark, dump_checked(body), durable=True)
            except OSError as error:
                raise storage_error(error, self.path) from error
        body = load_checked(mark, format_known=FORMAT)
        if not isinstance(body.get("id"), str):
            raise FileCorrupt(path=str(mark), why="it has no id of the log")
        if not self.read_only and not os.access(self.path / "topics", os.W_OK):
            raise ReadOnly(path=str(self.path))
        return str(body["id"])

    def _after_fork(self) -> None:
        # The child shares the parent's open files and so its locks, which would outlive the parent. It closes them, and
        # opens everything again at its first use of this log.
        if not self._closed:
            self._catalogue.abandon()
            self._commits.abandon()
            self._stale = True


def _reopen(path: str, config: Config, read_only: bool) -> EmbeddedLog:
    return EmbeddedLog(path, config=config, read_only=read_only)


def _forget_inherited_files() -> None:
    for log in list(open_logs):
        log._after_fork()


os.register_at_fork(after_in_child=_forget_inherited_files)


def open_folder(
    path: str | Path,
    *,
    config: Config | None = None,
    create: bool = True,
    read_only: bool = False,
    clock: Clock | None = None,
) -> EmbeddedLog:
    """Open the log in a folder; create it if there is none."""
    return EmbeddedLog(path, config=config, create=create, read_only=read_only, clock=clock)


def local_log(log: Log) -> EmbeddedLog:
    """The log, if its files are on this machine; raise for a remote log."""
    if not isinstance(log, EmbeddedLog):
        raise ArgumentInvalid(name="log", value=log.address, expected="the folder of a log")
    return log
