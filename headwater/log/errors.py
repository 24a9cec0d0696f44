"""Errors of the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headwater.errors import Conflict, LogError, NotFound, StorageError, UsageError


@dataclass(eq=False, kw_only=True)
class NameInvalid(UsageError):
    """A name is not valid for a topic, group or producer."""

    kind: str
    name: str
    why: str
    problem = "{name!r} cannot name a {kind}: {why}."
    remedy = "Use 1 to 200 characters of A-Z, a-z, 0-9, '.', '_' and '-', beginning with one of A-Z, a-z or 0-9."


@dataclass(eq=False, kw_only=True)
class TopicExists(Conflict):
    """A topic of this name exists already."""

    topic: str
    why: str
    problem = "Topic {topic!r} exists already, {why}."
    remedy = "Use it as it is, alter it, or choose another name."


@dataclass(eq=False, kw_only=True)
class OffsetConflict(Conflict):
    """A conditional append found newer rows in its partition."""

    topic: str
    partition: int
    expected: int
    actual: int
    problem = "Partition {topic}/{partition} ends at offset {actual}, not at {expected}: rows were appended in between."
    remedy = "Read from {expected}, decide again, and append with `expected_offset={actual}`. Nothing was appended."


@dataclass(eq=False, kw_only=True)
class KeyConflict(Conflict):
    """A conditional append found newer rows of its key."""

    topic: str
    partition: int
    key: str
    expected: int
    actual: int
    problem = "Key {key} in {topic}/{partition} was last written at offset {actual}, after {expected}."
    remedy = "Read the key again, decide again, and append with the newer offset. Nothing was appended."


@dataclass(eq=False, kw_only=True)
class ProducerFenced(Conflict):
    """A newer producer of the same name has fenced this one."""

    producer: str
    epoch: int
    current: int
    problem = "Producer {producer!r} with epoch {epoch} has been replaced by epoch {current}."
    remedy = "Stop this process: the newer producer is running. Nothing of this call was appended."


@dataclass(eq=False, kw_only=True)
class MemberFenced(Conflict):
    """A rebalance has assigned this member's partitions to other members."""

    group: str
    member: str
    why: str
    problem = "Member {member!r} of group {group!r} no longer owns what it commits: {why}."
    remedy = "Poll again to get a new assignment; rows since the last commit will be read again by their new owner."


@dataclass(eq=False, kw_only=True)
class TransactionFinished(Conflict):
    """The transaction has been committed or rolled back already."""

    transaction: str
    outcome: str
    problem = "Transaction {transaction!r} is {outcome}."
    remedy = "Begin a new transaction for further rows."


@dataclass(eq=False, kw_only=True)
class GroupActive(Conflict):
    """The offsets of a group cannot be changed or deleted while it has live members."""

    group: str
    members: int
    problem = "Group {group!r} has {members} live members."
    remedy = "Stop them first, or use the consumer's own `seek`."


@dataclass(eq=False, kw_only=True)
class OffsetExpired(LogError):
    """A reader asked for rows that retention has deleted."""

    partition: str
    asked: int
    oldest: int
    http_status: ClassVar[int] = 410
    problem = "Partition {partition} now begins at offset {oldest}, but a reader asked for {asked}."
    remedy = "Restart the reader from 'earliest', read with `archived=True`, or raise the topic's retention."


@dataclass(eq=False, kw_only=True)
class OffsetAhead(LogError):
    """A reader asked for an offset behind the end of the partition."""

    partition: str
    asked: int
    end: int
    http_status: ClassVar[int] = 416
    problem = "Partition {partition} ends at offset {end}, but a reader asked for {asked}."
    remedy = "Restart the reader from 'latest' or 'earliest'; the topic may have been deleted and created again."


@dataclass(eq=False, kw_only=True)
class ProducerOverloaded(LogError):
    """A producer was at its limit for longer than `wait_seconds_max`."""

    topic: str
    limit: str
    waited: float
    http_status: ClassVar[int] = 503
    problem = "The producer of {topic!r} waited {waited:.1f} s at its limit ({limit})."
    remedy = "Add consumers, raise the limit, or choose `overload='drop'` if rows may be lost."


@dataclass(eq=False, kw_only=True)
class ServerUnreachable(LogError):
    """The server of a log does not answer, or its answer is not valid."""

    address: str
    why: str
    problem = "The log at {address} cannot be reached: {why}."
    remedy = "Start it with `headwater serve`, or correct the address; whether the last change was made is not known."


@dataclass(eq=False, kw_only=True)
class BrokerUnreachable(LogError):
    """No broker answers."""

    address: str
    why: str
    http_status: ClassVar[int] = 503
    problem = "The brokers of {address} cannot be reached: {why}."
    remedy = (
        "Start them, or correct the address; a listener with TLS or SASL needs the settings `kafka_tls` or `kafka_user`."
        " Whether the last change was made is not known."
    )


#: What a log that is elsewhere raises while it is away: it may be back later.
UNREACHABLE = (ServerUnreachable, BrokerUnreachable)


@dataclass(eq=False, kw_only=True)
class FrameCorrupt(StorageError):
    """A frame with acknowledged rows is damaged."""

    path: str
    position: int
    offset: int
    why: str
    problem = "The frame at byte {position} of {path} (offset {offset}) is damaged: {why}."
    remedy = (
        "Run `headwater log verify`; restore the segment from a copy, or `headwater log repair` sets the bytes aside."
    )


@dataclass(eq=False, kw_only=True)
class SegmentMissing(StorageError):
    """A segment with acknowledged rows is missing."""

    partition: str
    offset: int
    problem = "Partition {partition} has lost the segment that held offset {offset}."
    remedy = "Restore the file from a copy, or run `headwater log repair` to continue without these rows."


@dataclass(eq=False, kw_only=True)
class FileCorrupt(StorageError):
    """A file that describes the log or a topic is damaged or missing. It holds no rows."""

    path: str
    why: str
    problem = "The file {path} cannot be used: {why}."
    remedy = "Restore it from a copy; no row was changed. docs/reference/log-format.md specifies its content."


@dataclass(eq=False, kw_only=True)
class BackupDamaged(StorageError):
    """A file of a backup is not the one that was written."""

    path: str
    why: str
    problem = "The file {path} of the backup is damaged: {why}."
    remedy = "Restore from another backup. The log that was copied is not affected."


@dataclass(eq=False, kw_only=True)
class CommitLogCorrupt(StorageError):
    """The log of committed transactions is damaged."""

    path: str
    position: int
    why: str
    problem = (
        "The commit log {path} is damaged at byte {position}: {why}. Which transactions were committed is not known."
    )
    remedy = (
        "Restore the file from a copy, or run `headwater log repair`, which sets it aside and rebuilds it from"
        " `commits.copy` and the partitions. Until then no transaction can commit; committed rows can be read."
    )


@dataclass(eq=False, kw_only=True)
class FormatUnknown(StorageError):
    """A file was written by a release with another format."""

    path: str
    found: str
    known: str
    problem = "{path} has format {found}; this release reads {known}."
    remedy = "Use a release of Headwater that knows format {found}. Nothing was changed."


@dataclass(eq=False, kw_only=True)
class DiskFull(StorageError):
    """The disk is full."""

    path: str
    http_status: ClassVar[int] = 507
    problem = "The disk that holds {path} is full; nothing of this call was appended."
    remedy = "Free some space or lower the retention; the log stays readable, and appends work again by themselves."


@dataclass(eq=False, kw_only=True)
class ReadOnly(StorageError):
    """The folder is not writable."""

    path: str
    exit_code: ClassVar[int] = 4
    problem = "{path} cannot be written by this user."
    remedy = "Open it with `read_only=True` to read, or change the folder's permissions."


@dataclass(eq=False, kw_only=True)
class FolderUnsafe(StorageError):
    """Another user could read or change the rows of a topic in memory."""

    path: str
    why: str
    exit_code: ClassVar[int] = 4
    problem = "{path} is not safe for the rows of a topic in memory: {why}."
    remedy = "Remove the folder, as its owner or an administrator, and open the topic again, which creates it."


@dataclass(eq=False, kw_only=True)
class SyncFailed(StorageError):
    """A sync to disk has failed."""

    path: str
    why: str
    problem = "The disk did not confirm the bytes of {path}: {why}."
    remedy = "Check the disk; rows of this call are not acknowledged and may or may not be there after a repair."


@dataclass(eq=False, kw_only=True)
class RowTooLarge(StorageError):
    """A single row is larger than a frame can be."""

    topic: str
    size: int
    size_max: int
    http_status: ClassVar[int] = 413
    problem = "A row for topic {topic!r} takes {size} bytes; a frame holds at most {size_max}."
    remedy = "Store the body elsewhere and append its address. Nothing of this call was appended."


def partition_not_found(*, topic: str, partition: int, partitions: int) -> NotFound:
    """The error for a partition that a topic does not have."""
    near = f" Topic {topic!r} has {partitions} partitions, numbered from 0."
    return NotFound(kind="partition", name=f"{topic}/{partition}", near=near)
