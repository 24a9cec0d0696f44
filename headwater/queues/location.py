"""Queues and exchanges of a log, wherever it is: in a folder, or behind a server."""

from __future__ import annotations

from typing import Any, Unpack

from headwater.log import Log
from headwater.log.remote.log import RemoteLog
from headwater.queues import queue as local
from headwater.queues.config import QueueSettings
from headwater.queues.exchange import Exchange
from headwater.queues.remote import RemoteExchange, open_remote_queue
from headwater.queues.work_queue import WorkQueue


def open_queue(
    log: Log,
    name: str,
    *,
    group: str = "default",
    schema: Any = None,
    create: bool = True,
    **settings: Unpack[QueueSettings],
) -> WorkQueue:
    """Open a queue as one of its groups; create both if they do not exist."""
    if isinstance(log, RemoteLog):
        return open_remote_queue(log, name, group=group, schema=schema, create=create, settings=settings)
    return local.open_queue(log, name, group=group, schema=schema, create=create, **settings)


def open_exchange(log: Log, name: str) -> Exchange | RemoteExchange:
    """An exchange, which routes messages to queues."""
    return RemoteExchange(log.connection, name) if isinstance(log, RemoteLog) else Exchange(log, name)


def queues(log: Log) -> list[str]:
    """The names of the queues of a log."""
    if isinstance(log, RemoteLog):
        return [str(each["name"]) for each in log.connection.get("/queues")]
    return local.queues(log)


def delete_queue(log: Log, name: str) -> None:
    """Delete a queue with its messages and its journal. Its dead letters stay."""
    if isinstance(log, RemoteLog):
        log.connection.delete(f"/queues/{name}")
    else:
        local.delete_queue(log, name)
