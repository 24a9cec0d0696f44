"""Events of an auction site, once as topics and once as Parquet files, with the same rows in each micro-batch.

Bids are on 10,000 auctions by 100,000 bidders, about 10,000 in a second of event time, and no two at one time. The workload that
joins two streams has `offer` and `view` with half of the events each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

import headwater as hw
import headwater.log as hwlog
from benchmarks.spark.workbench import CORES

SEED = 7
AUCTIONS, BIDDERS, PRICE_MAX, SELLERS = 10_000, 100_000, 10_000, 500
FIRST_US = 1_767_225_600_000_000
#: Such that no two events are ten seconds apart to the microsecond, which not all engines see alike.
STEP_US = 97
FRAME_ROWS = 10_000
SCHEMA = {"auction": "int64", "bidder": "int64", "price": "int64", "at": "timestamp"}
BID, OFFER, VIEW = "bid", "offer", "view"


@dataclass(frozen=True, kw_only=True)
class Data:
    """A folder with `log`, `parquet` and the table `items`, which does not change."""

    folder: Path
    events: int
    batches: int

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def items(self) -> Path:
        return self.folder / "items"

    def parquet(self, topic: str) -> Path:
        return self.folder / "parquet" / topic

    def rows(self, topic: str) -> int:
        return self.events if topic == BID else self.events // 2

    def csv(self, events: int) -> Path:
        """The first bids as a CSV file with whole numbers alone, in a folder of its own."""
        place = self.folder / f"csv-{events}"
        if not place.exists():
            place.mkdir()
            rows = _events(BID, 0, events, STEP_US)
            micros = rows.column("at").cast(pa.int64())
            pacsv.write_csv(rows.drop_columns(["at"]).append_column("at", micros), place / "bid.csv")
        return place


def fill(folder: Path, *, events: int, batches: int) -> Data:
    """Write the table that does not change; `written` writes the events of a topic."""
    data = Data(folder=folder, events=events, batches=batches)
    data.items.mkdir(parents=True)
    numbers = np.arange(AUCTIONS)
    items = pa.table({"auction": numbers, "seller": numbers * 31 % SELLERS, "reserve": numbers * 17 % PRICE_MAX})
    pq.write_table(items, data.items / "items.parquet")
    return data


def written(data: Data, topics: Sequence[str]) -> None:
    """Write topics that are not there yet: of each micro-batch, each core has every second event."""
    with hwlog.open(data.log) as log:
        for topic in topics:
            place = data.parquet(topic)
            if place.exists():
                continue
            place.mkdir(parents=True)
            log.create(
                topic, dict(SCHEMA), partitions=CORES, time=hw.EventTime("at", delay="1 second"), durability="os"
            )
            size, step_us = data.rows(topic) // data.batches, STEP_US * (data.events // data.rows(topic))
            for batch in range(data.batches):
                rows = _events(topic, batch * size, size, step_us)
                for core in range(CORES):
                    own = rows.take(pa.array(np.arange(core, size, CORES)))
                    for part in own.to_batches(max_chunksize=FRAME_ROWS):
                        log.append(topic, part, partition=core)
                    path = place / f"{batch * CORES + core:05d}.parquet"
                    pq.write_table(own, path)
                    # Spark takes files in the order of their times.
                    os.utime(path, (1e9 + batch * CORES + core,) * 2)


def _events(topic: str, first: int, count: int, step_us: int) -> pa.Table:
    """Events by their numbers. Those of `view` happen a moment after those of `offer`."""
    random = np.random.default_rng([SEED, len(topic), first])
    at = FIRST_US + (first + np.arange(count)) * step_us + (1 if topic == VIEW else 0)
    return pa.table(
        {
            "auction": random.integers(0, AUCTIONS, count),
            "bidder": random.integers(0, BIDDERS, count),
            "price": random.integers(1, PRICE_MAX + 1, count),
            "at": pa.array(at, pa.timestamp("us", "UTC")),
        }
    )
