"""The partitioned, append-only log: the `Log` port and its adapters."""

from __future__ import annotations

from pathlib import Path

from headwater.clock import Clock
from headwater.config import Config
from headwater.log.assignment import Place
from headwater.log.consumer import Consumer
from headwater.log.embedded import EmbeddedLog
from headwater.log.groups import GroupInfo, Groups, MemberInfo, SeekStep
from headwater.log.lag import NearExpiry
from headwater.log.limits import Limit
from headwater.log.port import (
    Appended,
    Batch,
    Description,
    Lag,
    Log,
    Offsets,
    PartitionInfo,
    Reader,
    Retention,
    Rows,
    Start,
    Topic,
    Transaction,
)
from headwater.log.producer import Failure, Producer, ProducerStats


def open(
    address: str | Path = "./data",
    *,
    config: Config | None = None,
    create: bool = True,
    read_only: bool = False,
    clock: Clock | None = None,
) -> EmbeddedLog:
    """Open the log at an address, and make it where there is none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open(folder) as log:
    ...     _ = log.create("greetings", {"text": "string"})
    ...     _ = log.append("greetings", [{"text": "hello"}])
    ...     [row["text"] for row in log.read("greetings").rows()]
    ['hello']
    """
    return EmbeddedLog(address, config=config, create=create, read_only=read_only, clock=clock)


__all__ = [
    "Appended",
    "Batch",
    "Consumer",
    "Description",
    "EmbeddedLog",
    "Failure",
    "GroupInfo",
    "Groups",
    "Lag",
    "Limit",
    "Log",
    "MemberInfo",
    "NearExpiry",
    "Offsets",
    "PartitionInfo",
    "Place",
    "Producer",
    "ProducerStats",
    "Reader",
    "Retention",
    "Rows",
    "SeekStep",
    "Start",
    "Topic",
    "Transaction",
    "open",
]
