"""Events of many users in the order of time, and the three patterns that are looked for among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.spark.workbench import CORES

SCHEMA = {"user": "int64", "kind": "string", "amount": "int64", "at": "timestamp"}
#: 50,000 events in a second of event time, in frames that the two partitions take in turn.
EVENT_US = 20
FRAME_ROWS = 10_000
KINDS = ("a", "b", "c", "d", "e")
#: A frame of one partition may be read before the one of the other that is older.
LATE_BY = 1

PATTERNS = {
    "abc": """
        MEASURES A.at AS began, C.at AS ended, C.amount AS amount
        PATTERN (A B C) WITHIN INTERVAL '10' SECOND
        DEFINE A AS kind = 'a', B AS kind = 'b', C AS kind = 'c'
    """,
    "small_big": """
        MEASURES FIRST(small.at) AS began, COUNT(small.*) AS tries, big.amount AS amount
        PATTERN (small{2,} big) WITHIN INTERVAL '10' SECOND
        DEFINE small AS amount < 200, big AS amount > 800
    """,
    "rising": """
        MEASURES FIRST(up.at) AS began, LAST(up.amount) AS amount, COUNT(up.*) AS length
        PATTERN (low up{3,}) WITHIN INTERVAL '10' SECOND
        DEFINE up AS amount > PREV(amount)
    """,
}


def frames(rows: int, users: int, every_us: int = EVENT_US) -> Iterator[pa.RecordBatch]:
    """The events: the same ones each time."""
    random = np.random.default_rng(1)
    for start in range(0, rows, FRAME_ROWS):
        count = min(FRAME_ROWS, rows - start)
        columns = {
            "user": pa.array(random.integers(0, users, count)),
            "kind": pa.array(np.array(KINDS)[random.integers(0, len(KINDS), count)]),
            "amount": pa.array(random.integers(0, 1_000, count)),
            "at": pa.array((np.arange(count) + start) * every_us, pa.timestamp("us", "UTC")),
        }
        yield pa.record_batch(columns)


def fill(log: Path, topic: str, *, rows: int, users: int, every_us: int = EVENT_US) -> None:
    """Write the events to a topic."""
    with hwlog.open(log) as opened:
        opened.create(topic, SCHEMA, partitions=CORES, time="at", durability="os")
        for number, frame in enumerate(frames(rows, users, every_us)):
            opened.append(topic, frame, partition=number % CORES)
