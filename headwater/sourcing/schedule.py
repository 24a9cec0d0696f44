"""Scheduled commands: messages of a queue, which a worker sends to their entities when they are due."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headwater.errors import ArgumentInvalid
from headwater.log import Log
from headwater.sourcing.command_rows import command_rows, request_of
from headwater.sourcing.request import CommandRequest
from headwater.units import Duration

if TYPE_CHECKING:
    from headwater.sourcing.entities import Entities

SUFFIX = ".scheduled"


# Any: a `headwater.queues.WorkQueue`. Queues are no layer below, and are opened through the log.
def open_queue(log: Log, name: str) -> Any:
    """The queue of the scheduled commands of entities. A worker that is killed uses up no attempt."""
    return log.queue(name + SUFFIX, count="failures")


# Any: a `headwater.queues.WorkQueue`.
def schedule(queue: Any, request: CommandRequest, *, at: datetime | int | None, delay: Duration | None) -> str:
    """Put a command for a time or after a delay; return its id."""
    if (at is None) == (delay is None):
        raise ArgumentInvalid(name="at", value=at, expected="a time, or a `delay` in its place")
    request.command_id = request.command_id or uuid4().hex
    [row] = command_rows([request])
    del row["at"]
    queue.put(row, id=request.command_id, delay=delay, deliver_at=at)
    return request.command_id


# Any: the user's state, command and event classes; `headwater.queues.Retry` and `headwater.queues.Worker`.
def worker(entities: Entities[Any, Any, Any], *, concurrency: int, retries: Any) -> Any:
    """The worker that sends scheduled commands."""
    types = entities.decider.command_types
    open_queue(entities.log, entities.name).close()

    @entities.log.worker(entities.name + SUFFIX, concurrency=concurrency, retries=retries)
    def send_scheduled(message: Any) -> None:
        [decision] = entities.send_many([request_of(message.body, types)])
        if decision.error is not None:
            raise decision.error

    return send_scheduled
