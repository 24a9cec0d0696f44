"""A broker with a log on it, and the rows that are measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.kafka_broker import Kafka, kafka_brokers
from benchmarks.spark.workbench import CORES
from headwater.config import Config

#: The rows of the scans of messages, and of the sinks.
SCHEMA = {"id": "int64", "user": "string", "amount": "float64", "at": "timestamp"}
COLUMNS = "id bigint, user string, amount double, at timestamp"
USERS = 10_000
EVENT_US = 20
#: Rows of one append.
APPEND_ROWS = 10_000
BATCHES = 5
NAMESPACE = "bench"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A broker, and the address of the log on it."""

    kafka: Kafka
    address: str

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap

    def kafka_topic(self, topic: str) -> str:
        """The name that Kafka's own clients use."""
        return f"{NAMESPACE}.{topic}"

    @contextmanager
    def log(self, values: str) -> Iterator[hwlog.Log]:
        """The log, whose new topics have values of a format."""
        with hwlog.open(self.address, config=Config(kafka_values=values)) as log:
            yield log

    def span(self, topic: str) -> int:
        """The distance of the offsets of a topic from its beginning to its end; for frames, that is no number of rows."""
        with hwlog.open(self.address) as log:
            return sum(log.end_offsets(topic).values())

    def count(self, topic: str) -> int:
        """How many rows a topic has."""
        with hwlog.open(self.address) as log:
            return sum(part.num_rows for part in log.read(topic, columns=["_offset"]))


@contextmanager
def broker(folder: Path) -> Iterator[Place]:
    """A broker with its data in a folder, until the end of the block."""
    with kafka_brokers(folder / "brokers") as kafka:
        yield Place(kafka=kafka, address=f"{kafka.address}/{NAMESPACE}")


def events(first: int, count: int) -> pa.RecordBatch:
    """Rows in the order of their times, all different."""
    random = np.random.default_rng(first)
    numbers = np.arange(first, first + count, dtype=np.int64)
    users = pa.array([f"user {number}" for number in range(USERS)])
    return pa.record_batch(
        {
            "id": pa.array(numbers),
            "user": users.take(pa.array(random.integers(0, USERS, count))),
            "amount": pa.array(np.round(random.random(count) * 100, 2)),
            "at": pa.array(1_700_000_000_000_000 + numbers * EVENT_US, pa.timestamp("us", "UTC")),
        }
    )


def fill(log: hwlog.Log, topic: str, rows: int) -> None:
    """A topic with events, one partition for each core."""
    log.create(topic, SCHEMA, partitions=CORES, time="at")
    for number, first in enumerate(range(0, rows, APPEND_ROWS)):
        log.append(topic, events(first, min(APPEND_ROWS, rows - first)), partition=number % CORES)
