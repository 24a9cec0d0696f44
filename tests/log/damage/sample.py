"""The log that the damage suite damages: small, with every kind of file that a log can have."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from headwater.clock import ManualClock
from headwater.config import Config
from headwater.filelock import FileLock
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log
from headwater.log.port import Staged

#: Bytes of a segment that holds about five rows.
SEGMENT = 1_500
SCHEMA = {"id": "int64"}
#: How many rows lie before the older copy is taken, and how many in all.
OLDER, ROWS = 14, 24

Rows = dict[int, dict[int, int]]
"""By partition: the value at each offset."""


@dataclass
class Sample:
    """A log that is closed, an older copy of it, and what was acknowledged."""

    folder: Path
    older: Path
    rows: dict[str, Rows] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    prepared: str = ""
    staged: list[Staged] = field(default_factory=list)


def open_sample(folder: Path, *, read_only: bool = False) -> EmbeddedLog:
    return open_log(folder, clock=ManualClock(), config=Config(maintenance="manual"), read_only=read_only)


def rows_of(log: EmbeddedLog, topic: str) -> Rows:
    """All rows that can be read."""
    rows: Rows = {}
    for row in log.read(topic, columns=["_partition", "_offset", "id"]).rows():
        rows.setdefault(row["_partition"], {})[row["_offset"]] = row["id"]
    return rows


def build(folder: Path) -> Sample:
    sample = Sample(folder / "log", folder / "older")
    clock = ManualClock()
    with open_log(sample.folder, clock=clock, config=Config(maintenance="manual")) as log:
        log.create("plain", SCHEMA, segment_bytes_max=SEGMENT)
        log.create("loose", SCHEMA, segment_bytes_max=SEGMENT, durability="os")
        log.create("joined", SCHEMA, segment_bytes_max=SEGMENT)
        log.create("table", SCHEMA, key="id", compact=True, segment_bytes_max=SEGMENT)
        log.create("expired", SCHEMA, segment_bytes_max=SEGMENT, retention="100 seconds")
        log.create("parts", SCHEMA, partitions=2)
        log.open_producer("p")
        _fill(log, clock, 0, OLDER - 4)
        log.maintain("joined")
        log.maintain("table", seal=True)
        log.maintain("expired")
        with FileLock(sample.folder / "transactions/lock"):  # so that the next ones go to a second commit log
            _fill(log, clock, OLDER - 4, OLDER)
        shutil.copytree(sample.folder, sample.older)
        _fill(log, clock, OLDER, ROWS)
        log.maintain("joined", seal=True)
        log.maintain("table")
        log.maintain("expired")
        for number in range(3):
            log.append("joined", [{"id": ROWS + number}])
        pending = log.transaction()
        pending.append("parts", [{"id": 1_000}], partition=0)
        sample.prepared = pending.prepare()
        with log.stage("copy", sequence=0, attempt="a") as stage:
            stage.append("parts", [{"id": 2_000 + number} for number in range(4)])
            sample.staged = [stage.finish()]
        sample.rows = {topic: rows_of(log, topic) for topic in log.topics()}
        sample.committed = log.committed("g", "plain")
    return sample


def _fill(log: EmbeddedLog, clock: ManualClock, first: int, last: int) -> None:
    for number in range(first, last):
        for topic in ("plain", "loose", "expired"):
            log.append(topic, [{"id": number}])
        log.append("joined", [{"id": number}], producer="p", sequence=number)
        log.append("table", [{"id": number % 7}])
        with log.transaction("q", sequence=number) as transaction:
            for partition in range(2):
                transaction.append("parts", [{"id": number}], partition=partition)
            transaction.append("plain", [{"id": 100 + number}])
        log.commit_offsets("g", "plain", {0: number})
        clock.advance(seconds=10)
