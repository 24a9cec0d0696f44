"""The partitioned, append-only log: the `Log` port and its adapters."""

from __future__ import annotations

from pathlib import Path

from headwater.clock import Clock
from headwater.config import Config
from headwater.errors import ArgumentInvalid
from headwater.home import is_remote
from headwater.log.client_config import ConsumerConfig, ConsumerSettings, ProducerConfig, ProducerSettings, Rows, Start
from headwater.log.clients import (
    Consumer,
    Failure,
    GroupInfo,
    Groups,
    Limit,
    MemberInfo,
    NearExpiry,
    Producer,
    ProducerStats,
    SeekStep,
)
from headwater.log.embedded import open_folder
from headwater.log.port import (
    Appended,
    Batch,
    Description,
    EventTimes,
    Lag,
    Log,
    Offsets,
    PartitionInfo,
    Place,
    Reader,
    Stage,
    Staged,
    Transaction,
)
from headwater.log.remote import RemoteLog
from headwater.log.topic import Retention, Topic, TopicChanges, TopicConfig, TopicSettings
from headwater.optional import require


def open(
    address: str | Path = "./data",
    *,
    config: Config | None = None,
    create: bool = True,
    read_only: bool = False,
    clock: Clock | None = None,
    token: str | None = None,
    certificates: str | Path | None = None,
) -> Log:
    """Open the log at an address; create it if there is none.

    An address that begins with `http://` or `https://` is that of a server; `token` authenticates the caller, and
    `certificates` is a file with certificates to trust instead of the system's. One that begins with `kafka://` is that
    of Kafka's brokers, with credentials from the settings. Functions take a `Log` of any kind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open(folder) as log:
    ...     _ = log.create("greetings", {"text": "string"})
    ...     _ = log.append("greetings", [{"text": "hello"}])
    ...     [row["text"] for row in log.read("greetings").rows()]
    ['hello']
    """
    if str(address).startswith(("http://", "https://")):
        return RemoteLog(str(address), token=token, certificates=certificates, config=config, clock=clock)
    if str(address).startswith("kafka://"):
        require("confluent_kafka", extra="kafka")
        from headwater.log.kafka import KafkaLog

        return KafkaLog(str(address), config=config, clock=clock, read_only=read_only)
    if is_remote(address):
        raise ArgumentInvalid(name="log", value=str(address), expected="a folder, http://…, https://… or kafka://…")
    return open_folder(address, config=config, create=create, read_only=read_only, clock=clock)


__all__ = [
    "Appended",
    "Batch",
    "Consumer",
    "ConsumerConfig",
    "ConsumerSettings",
    "Description",
    "EventTimes",
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
    "ProducerConfig",
    "ProducerSettings",
    "ProducerStats",
    "Reader",
    "Retention",
    "Rows",
    "SeekStep",
    "Stage",
    "Staged",
    "Start",
    "Topic",
    "TopicChanges",
    "TopicConfig",
    "TopicSettings",
    "Transaction",
    "open",
]
