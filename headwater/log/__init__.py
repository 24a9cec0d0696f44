"""The partitioned, append-only log: the `Log` port and its adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

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
from headwater.log.remote import RemoteLog


def open(
    address: str | Path = "./data",
    *,
    config: Config | None = None,
    create: bool = True,
    read_only: bool = False,
    clock: Clock | None = None,
    token: str | None = None,
    certificates: str | Path | None = None,
) -> EmbeddedLog:
    """Open the log at an address, and make it where there is none.

    An address that begins with `http://` or `https://` is a server's; a `token` says who asks, and `certificates` is a
    file with those to trust besides the system's. What it gives then is a `RemoteLog`, with the same methods.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open(folder) as log:
    ...     _ = log.create("greetings", {"text": "string"})
    ...     _ = log.append("greetings", [{"text": "hello"}])
    ...     [row["text"] for row in log.read("greetings").rows()]
    ['hello']
    """
    if str(address).startswith(("http://", "https://")):
        # Any: what programs do with a log works on both, and the embedded one's type is the wider.
        remote: Any = RemoteLog(str(address), token=token, certificates=certificates, config=config, clock=clock)
        return cast("EmbeddedLog", remote)
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
    "RemoteLog",
    "Retention",
    "Rows",
    "SeekStep",
    "Start",
    "Topic",
    "Transaction",
    "open",
]
