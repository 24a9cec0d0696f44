"""The same events three times: topics of one partition a core, Parquet files for Spark, CSV files for the other peers.

Some milliseconds of event time pass from one event to the next, since Flink's event time has no microseconds. A micro-batch
has the same events on Headwater and on Spark. CSV files have only the columns that a query uses, one file a core, and
their times as milliseconds: what is least work for engines that must parse them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

import headwater.log as hwlog
from benchmarks.spark.workbench import CORES
from headwater.testing import Nexmark
from headwater.testing.nexmark import AUCTIONS, BIDS, EPOCH, PEOPLE, SCHEMAS, NexmarkEvents

FRAME_ROWS = 10_000

BID = ("auction", "bidder", "price", "at")
AUCTION_TIMES = ("id", "at", "expires")
#: The columns that each query uses, by topic.
USES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "q0": {"bid": (*BID, "extra")},
    "q1": {"bid": (*BID, "extra")},
    "q2": {"bid": ("auction", "price")},
    "q3": {"auction": ("id", "seller", "category"), "person": ("id", "name", "city", "state")},
    "q4": {"auction": (*AUCTION_TIMES, "category"), "bid": ("auction", "price", "at")},
    "q5": {"bid": ("auction", "at")},
    "q6": {"auction": (*AUCTION_TIMES, "seller"), "bid": ("auction", "price", "at")},
    "q7": {"bid": BID},
    "q8": {"person": ("id", "name", "at"), "auction": ("seller", "at")},
    "q9": {"auction": tuple(SCHEMAS["auction"]), "bid": tuple(SCHEMAS["bid"])},
    "q10": {"bid": (*BID, "extra")},
    "q11": {"bid": ("bidder", "at")},
    "q12": {"bid": ("bidder", "at")},
    "q13": {"bid": BID},
    "q14": {"bid": (*BID, "extra")},
    "q15": {"bid": BID},
    "q16": {"bid": (*BID, "channel")},
    "q17": {"bid": ("auction", "price", "at")},
    "q18": {"bid": tuple(SCHEMAS["bid"])},
    "q19": {"bid": tuple(SCHEMAS["bid"])},
    "q20": {"bid": tuple(SCHEMAS["bid"]), "auction": tuple(name for name in SCHEMAS["auction"] if name != "extra")},
    "q21": {"bid": ("auction", "bidder", "price", "channel", "url")},
    "q22": {"bid": ("auction", "bidder", "price", "channel", "url")},
}


@dataclass(frozen=True, kw_only=True)
class Data:
    """A folder with `log` and `parquet`, and with CSV files as soon as they are asked for."""

    made: Nexmark
    folder: Path
    events: int
    batches: int

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def parquet(self) -> Path:
        return self.folder / "parquet"

    def batch_rows(self, topic: str) -> int:
        """How many rows of a topic a micro-batch has."""
        return self.events * {"person": PEOPLE, "auction": AUCTIONS, "bid": BIDS}[topic] // EPOCH // self.batches

    def csv(
        self, topic: str, columns: tuple[str, ...], *, events: int, files: int = CORES, header: bool = False
    ) -> Path:
        """A folder with the first events of a topic in so many CSV files."""
        place = self.folder / "csv" / f"{topic}-{'-'.join(columns)}-{events}-{files}-{header}"
        if not place.exists():
            place.mkdir(parents=True)
            options = pacsv.WriteOptions(include_header=header, quoting_style="none")
            tables = (_plain(getattr(frame, topic).select(columns)) for frame in _frames(self.made, events))
            first = next(tables)
            with contextlib.ExitStack() as stack:
                writers = [
                    stack.enter_context(pacsv.CSVWriter(str(place / f"{n}.csv"), first.schema, write_options=options))
                    for n in range(files)
                ]
                for number, table in enumerate(itertools.chain([first], tables)):
                    writers[number % files].write(table)
        return place

    def side(self, *, header: bool = False) -> Path:
        """The table of q13, which does not change, as CSV."""
        path = self.folder / f"side-{header}.csv"
        if not path.exists():
            lines = [f"{number},value-{number}\n" for number in range(10_000)]
            path.write_text("".join(["number,value\n", *lines] if header else lines), encoding="utf-8")
        return path

    def closed_parquet(self) -> Path:
        """The Parquet files, and after them an event of each topic a day later, which closes all windows of Spark.

        Its numbers are negative and met by no other event.
        """
        place = self.folder / "parquet-closed"
        if not place.exists():
            last = self.made.events(first=self.events, count=EPOCH)
            for number, (topic, rows) in enumerate(last._asdict().items(), 1):
                (place / topic).mkdir(parents=True)
                for path in (self.parquet / topic).iterdir():
                    os.link(path, place / topic / path.name)
                _write(place / topic, _a_day_later(rows.slice(0, 1), -number), self.batches * CORES)
        return place


def _a_day_later(rows: pa.Table, number: int) -> pa.Table:
    columns = {name: rows.column(name) for name in rows.column_names}
    for name, column in columns.items():
        if pa.types.is_timestamp(column.type):
            columns[name] = pc.add(column, pa.scalar(timedelta(days=1), pa.duration("us")))
        elif name in ("id", "auction", "bidder", "seller"):
            columns[name] = pa.array([number], pa.int64())
    return pa.table(columns)


def fill(folder: Path, made: Nexmark, *, events: int, batches: int) -> Data:
    """Write events as topics and as Parquet; each micro-batch has as many whole epochs for each core."""
    if events % (batches * CORES * EPOCH):
        raise ValueError(f"{events} events are not {batches} batches of whole epochs for each of {CORES} cores")
    data = Data(made=made, folder=folder, events=events, batches=batches)
    with hwlog.open(data.log) as log:
        for topic, schema in SCHEMAS.items():
            log.create(topic, dict(schema), partitions=CORES, time="at", durability="os")
            (data.parquet / topic).mkdir(parents=True)
        for batch in range(batches):
            # Whatever is written in turn to the partitions: each has rows of the whole time of the batch.
            per_batch = events // batches
            parts: list[dict[str, list[pa.Table]]] = [{topic: [] for topic in SCHEMAS} for _ in range(CORES)]
            for number, frame in enumerate(_frames(made, per_batch, first=batch * per_batch, size=_frame(per_batch))):
                core = number % CORES
                for topic, rows in frame._asdict().items():
                    log.append(topic, rows, partition=core)
                    parts[core][topic].append(rows)
            for core, tables in enumerate(parts):
                for topic, rows in tables.items():
                    _write(data.parquet / topic, pa.concat_tables(rows), batch * CORES + core)
    return data


def _write(folder: Path, rows: pa.Table, number: int) -> None:
    path = folder / f"{number:05d}.parquet"
    pq.write_table(rows, path)
    os.utime(path, (1e9 + number, 1e9 + number))  # Spark takes files in the order of their times


def _frame(events: int) -> int:
    """As many events as a frame may have, in whole epochs, so that all cores get as many frames."""
    frames = CORES * max(1, events // (CORES * FRAME_ROWS))
    while events % (frames * EPOCH):
        frames -= CORES
    return events // frames


def _frames(made: Nexmark, events: int, *, first: int = 0, size: int = FRAME_ROWS) -> Iterator[NexmarkEvents]:
    for begin in range(first, first + events, size):
        yield made.events(first=begin, count=min(size, first + events - begin))


def _plain(table: pa.Table) -> pa.Table:
    """Times as milliseconds."""
    columns = [
        pc.divide(column.cast(pa.int64()), 1_000) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)
