"""Errors of queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headwater.errors import Conflict, LogError, StorageError


@dataclass(eq=False, kw_only=True)
class QueueExists(Conflict):
    """A queue of this name exists with other settings."""

    queue: str
    why: str
    problem = "Queue {queue!r} exists already, {why}."
    remedy = "Open it without these settings, change them with `queue.alter(…)`, or choose another name."


@dataclass(eq=False, kw_only=True)
class LeaseLost(Conflict):
    """A message is no longer leased to the caller: its lease ran out, or it was acknowledged or returned before."""

    queue: str
    group: str
    receipts: str
    problem = "Group {group!r} of queue {queue!r} has no such lease any more: {receipts}."
    remedy = "Discard the result: another worker processes these messages. Take with a longer `lease`, or `extend` it."


@dataclass(eq=False, kw_only=True)
class QueueFull(LogError):
    """A queue is at its maximum length."""

    queue: str
    length_max: int
    #: How soon to try again.
    seconds: float = 1.0
    http_status: ClassVar[int] = 503
    problem = "Queue {queue!r} holds its maximum of {length_max} messages; nothing of this call was put. Try again in {seconds:.1f} s."
    remedy = "Add workers, raise `length_max`, or choose `overflow='drop_oldest'` if messages may be lost."


@dataclass(eq=False, kw_only=True)
class IndexDamaged(StorageError):
    """The index file of a queue is damaged. It has been built again from the journal; leases are lost."""

    path: str
    why: str
    problem = "The index {path} was damaged: {why}. It has been built again from the queue's journal."
    remedy = "Call again. Messages that workers held are delivered once more; check the disk."
