"""The embedded log: a folder that many processes read and write, without a server.

`EmbeddedLog` implements the port with its parts: the catalogue of topics, the writer, the reader and the transactions.
A forked child opens them again, since it must not use its parent's files.
"""

from __future__ import annotations

import contextlib
import os
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa

from headwater.clock import Clock, SystemClock
from headwater.config import Config
from headwater.errors import ArgumentInvalid, Closed, NotFound, NotPossible
from headwater.home import home_of
from headwater.log.client_config import ConsumerSettings, ProducerSettings, Rows, Start
from headwater.log.clients import ClientSet, Consumer, Producer
from headwater.log.embedded import maintenance
from headwater.log.embedded.catalogue import Catalogue
from headwater.log.embedded.commits import Commits
from headwater.log.embedded.files import dump_checked, load_checked, make_folders, replace_file, storage_error
from headwater.log.embedded.groups import EmbeddedGroups, OffsetTable
from headwater.log.embedded.membership import GroupFolder, Membership
from headwater.log.embedded.partition import LogContext
from headwater.log.embedded.producers import Registry
from headwater.log.embedded.ranges import event_times, punctuations_at, read_range, tails
from headwater.log.embedded.reader import EmbeddedCursor, EmbeddedRowWatch, TopicRead, TopicReader
from headwater.log.embedded.rewrite import Change
from headwater.log.embedded.stage import EmbeddedStage
from headwater.log.embedded.topic import TopicHandle
from headwater.log.embedded.transactions import EmbeddedTransaction, Transactions
from headwater.log.embedded.watch import LogWatch
from headwater.log.embedded.writer import Writer
from headwater.log.errors import CommitLogCorrupt, FileCorrupt, NameInvalid, ReadOnly
from headwater.log.port import Appended, Batch, Description, EventTimes, Expiry, Log, Offsets, Staged
from headwater.log.topic import Topic, TopicChanges, TopicSettings
from headwater.log.topic_rules import INTERNAL, check_name

FORMAT = 1
open_logs: weakref.WeakSet[EmbeddedLog] = weakref.WeakSet()


class EmbeddedLog(Log):
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
        self.address = str(self.path.absolute())  # other processes, such as Spark's, have other working folders
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
    def home(self) -> Path:
        return home_of(self.path)

    def _open_parts(self) -> None:
        config, clock = self.config, self.clock
        self._stale = False
        registry = Registry(self.path / "producers", lock_seconds_max=config.lock_seconds_max)
        # Catalogue and commits depend on each other: the recovery of a partition asks which transactions were committed.
        commits: Commits | None = None
        context = LogContext(
            root=self.path,
            log_id=self.id,
            archive=config.archive_dir or self.path / "archive",
            clock=clock,
            read_only=self.read_only,
            lock_seconds_max=config.lock_seconds_max,
            is_committed=lambda number: commits is not None and commits.is_committed(number),
        )
        self._catalogue = Catalogue(context, open_partitions_max=config.open_partitions_max)
        self._commits = commits = Commits(context, self._catalogue, registry)
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
        self._check_open()
        return self._catalogue.declare(topic, schema, exist_ok=exist_ok, settings=settings, config=self.config)

    def alter(self, topic: str, *, schema: Any = None, force: bool = False, **changes: Unpack[TopicChanges]) -> Topic:
        self._check_open()
        return self._catalogue.alter(topic, schema=schema, force=force, changes=changes)

    def delete(self, topic: str) -> None:
        self._check_open()
        if topic.startswith(INTERNAL):
            raise NotPossible(
                why=f"Topic {topic!r} is internal, and cannot be deleted",
                instead=f"Set its retention to keep less: `headwater topic alter {topic} --retention '7 days'`",
            )
        self._catalogue.delete(topic)
        self._offsets.forget_topic(topic)

    def topics(self, pattern: str = "*", *, internal: bool = False) -> list[str]:
        self._check_open()
        return self._catalogue.names(pattern, internal=internal)

    def topic(self, name: str) -> Topic:
        return self.handle(name).current()

    def schema(self, topic: str, version: int | None = None) -> pa.Schema:
        return self.handle(topic).schema(version)

    def describe(self, topic: str) -> Description:
        return self.handle(topic).describe()

    def partitions_of(self, topic: str) -> int:
        return self.handle(topic).current().partitions

    def create_internal(self, topic: Topic) -> None:
        self._check_open()
        if not topic.name.startswith(INTERNAL):
            raise NameInvalid(kind="topic", name=topic.name, why="an internal topic's name begins with two underscores")
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
        self._writer.flush(self.handle(topic))

    def punctuate(
        self, topic: str, time: datetime | int, *, producer: str | None = None, partition: int | None = None
    ) -> None:
        self._writer.punctuate(self.handle(topic), time, producer=producer, partition=partition)

    def open_producer(self, name: str, *, holder: str | None = None) -> int:
        self._check_writable()
        return self._writer.open_producer(name, holder=holder)

    def last_sequence(self, topic: str, producer: str) -> int:
        return self._writer.last_sequence(self.handle(topic), producer)

    # -- transactions -------------------------------------------------------------------------------------------------

    def transaction(
        self, producer: str | None = None, *, epoch: int | None = None, sequence: int | None = None
    ) -> EmbeddedTransaction:
        self._check_writable()
        return self._transactions.begin(producer, epoch=epoch, sequence=sequence)

    def prepared(self) -> list[str]:
        return self.commits().prepared()

    def commit(self, transaction: str) -> dict[str, Appended]:
        self._check_open()
        return self._transactions.commit(transaction)

    def rollback(self, transaction: str) -> None:
        self._check_open()
        self._transactions.rollback(transaction)

    def committed_sequence(self, producer: str) -> int:
        return self.commits().last_sequence(producer)

    def transaction_metadata(self, producer: str) -> dict[str, Any] | None:
        return self.commits().last_metadata(producer)

    def stage(self, name: str, *, sequence: int, attempt: str) -> EmbeddedStage:
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
        self._check_writable()
        return self._transactions.commit_staged(
            list(staged), producer=producer, sequence=sequence, epoch=epoch, metadata=metadata
        )

    def discard_attempts(self, name: str, *, sequence: int, attempt: str) -> None:
        self._check_writable()
        self._transactions.staging.clear_attempts(name, sequence=sequence, attempt=attempt)

    def maintenance_failures(self) -> dict[tuple[str, int], str]:
        """Why background maintenance failed the last time it ran, by topic and partition."""
        self._check_open()
        return {
            (name, partition.number): failure
            for name in self.topics(internal=True)
            for partition in self.handle(name).partitions()
            if (failure := maintenance.failure_of(partition)) is not None
        }

    def resolve_transactions(self) -> None:
        commits = self.commits()
        if commits.pending():
            commits.resolve()

    def recover(self, topic: str, *, appends: bool = True) -> None:
        if appends or self.commits().pending():
            for partition in self.handle(topic).partitions():
                partition.recover()

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
        return self._reader.read(
            self.handle(topic),
            start=start,
            stop=stop,
            partitions=partitions,
            columns=columns,
            limit=limit,
            archived=archived,
        )

    def read_range(
        self,
        topic: str,
        partition: int,
        *,
        start: int,
        stop: int,
        columns: Sequence[str] | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        punctuations: tuple[int, int | None] | None = None,
    ) -> Iterator[Batch]:
        return read_range(
            self.handle(topic),
            partition,
            start=start,
            stop=stop,
            columns=columns,
            since_us=since_us,
            until_us=until_us,
            punctuations=punctuations,
        )

    def punctuations_at(self, topic: str, partition: int, offset: int) -> list[int]:
        return [header.time_min_us for header in punctuations_at(self.handle(topic), partition, offset)]

    def event_times(
        self, topic: str, partition: int, *, start: int, stop: int, until_us: int | None = None
    ) -> EventTimes:
        return event_times(self.handle(topic), partition, start=start, stop=stop, until_us=until_us)

    def tails(self, topic: str) -> dict[int, tuple[int, int]]:
        return tails(self.handle(topic))

    def start_offsets(self, topic: str) -> Offsets:
        return {partition.number: partition.start() for partition in self.handle(topic).partitions()}

    def end_offsets(self, topic: str) -> Offsets:
        return self._reader.end_offsets(self.handle(topic))

    def offset_at(self, topic: str, time: datetime | int) -> Offsets:
        return self._reader.offset_at(self.handle(topic), time)

    def wait(
        self, topics: str | Mapping[str, Offsets], *, after: Offsets | None = None, seconds: float | None = None
    ) -> bool:
        if isinstance(topics, str):
            topics = {topics: self.end_offsets(topics) if after is None else after}
        return self._reader.wait([(self.handle(name), offsets) for name, offsets in topics.items()], seconds=seconds)

    def row_watch(self, topics: Mapping[str, Offsets]) -> EmbeddedRowWatch:
        return self._reader.row_watch([(self.handle(name), offsets) for name, offsets in topics.items()])

    def cursor(
        self, topic: str, partition: int, offset: int, *, columns: Sequence[str] | None = None
    ) -> EmbeddedCursor:
        handle = self.handle(topic)
        names = None if columns is None else tuple(columns)
        return EmbeddedCursor(handle, handle.partition(partition), offset, columns=names)

    def expiry(self, topic: str, partition: int, offset: int) -> Expiry:
        handle = self.handle(topic)
        return maintenance.expiry_of(handle, handle.partition(partition), offset, clock=self.clock)

    def watch(self) -> LogWatch:
        return LogWatch(self.path, lambda topic: self.handle(topic).state.path)

    # -- clients and groups -------------------------------------------------------------------------------------------

    def producer(self, topic: str | None = None, **settings: Unpack[ProducerSettings]) -> Producer:
        self._check_writable()
        return self._clients.producer(self, topic, settings)

    def consumer(
        self, topics: str | Sequence[str], group: str | None = None, **settings: Unpack[ConsumerSettings]
    ) -> Consumer:
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
        self._check_open()
        return EmbeddedGroups(self)

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        check_name("group", group)
        self.handle(topic)
        self._offsets.commit(self._offsets.rows(group, topic, offsets, metadata))

    def committed(self, group: str, topic: str) -> Offsets:
        return self._offsets.committed(group, topic)

    def committed_groups(self) -> dict[str, set[str]]:
        return self._offsets.groups()

    def forget_offsets(self, group: str, topic: str | None = None) -> None:
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
                maintenance.maintain_partition(
                    self.handle(name), partition, report, clock=self.clock, compact=compact, seal=seal, wait=True
                )
        return report

    def change_rows(self, topic: str, change: Change) -> int:
        """Replace values in rows that were appended, also in archived ones; return the number of changed frames.

        Rows keep their offsets. For values that must not stay: a reader that has passed a row does not see the change.
        """
        handle = self.handle(topic)
        self._check_writable()
        return sum(
            maintenance.change_rows(handle, partition, change, clock=self.clock) for partition in handle.partitions()
        )

    def delete_before(self, topic: str, offsets: Offsets, *, seal: bool = False) -> Offsets:
        handle = self.handle(topic)
        self._check_writable()
        report = maintenance.MaintenanceReport()
        for number, offset in offsets.items():
            partition = handle.partition(number)
            maintenance.maintain_partition(
                handle, partition, report, clock=self.clock, compact=False, seal=seal, wait=True, before=offset
            )
        return self.start_offsets(topic)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        if self._closed:
            return
        self._clients.close()
        self._maintenance.close()
        self._closed = True
        self._writer.close()
        self._catalogue.close()
        self._commits.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A log is pickled as its address.
        return (_reopen, (self.address, self.config, self.read_only))

    # -- for modules that work on files -------------------------------------------------------------------------------

    def handle(self, topic: str) -> TopicHandle:
        """The open topic."""
        self._check_open()
        return self._catalogue.get(topic)

    def append_payload(
        self,
        topic: str,
        partition: int,
        payload: bytes,
        *,
        rows: int,
        times: tuple[int, int],
        schema_version: int,
        expected_offset: int,
    ) -> int:
        """Append rows that are encoded already, if the partition ends at an offset; return the offset behind them.

        `times` are the first and last event time. The rows are durable after `sync_to`.
        """
        return self._writer.append_payload(
            self.handle(topic),
            partition,
            payload,
            rows=rows,
            times=times,
            schema_version=schema_version,
            expected_offset=expected_offset,
        )

    def sync_to(self, topic: str, partition: int, offset: int) -> None:
        """Wait until the rows of a partition before an offset are as durable as the topic promises."""
        self.handle(topic).partition(partition).sync_to(offset)

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
