"""Bytewax in its own virtual environment: `python -m benchmarks.nexmark.bytewax_child 2`.

A worker a core, each with a file of its own, which Arrow parses. Queries without state process whole chunks of rows.
Queries that join, that aggregate the results of others or that keep the first of an order are left out: Bytewax has
them as Python over single rows alone. It must not import anything of Headwater's.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow.csv as pacsv
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.run import cli_main

from benchmarks.nexmark.child import Changes, Request, serve
from benchmarks.nexmark.flink_child import TEXTS

# Any: rows are tuples, in the order of the columns of the request.
Row = tuple[Any, ...]
Chunk = list[Row]
CHUNK_BYTES = 1 << 20
NO_KEY: tuple[str, ...] = ()
GAP = timedelta(seconds=10)
DAY_MS = 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBER = re.compile(r"(&|^)channel_id=([^&]*)")
KNOWN = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


class File(StatefulSourcePartition[Chunk, None]):  # type: ignore[misc]  # its base is not known here
    """A CSV file as chunks of rows."""

    def __init__(self, path: Path, columns: list[str]) -> None:
        kinds = {column: "string" if column in TEXTS else "int64" for column in columns}
        self._reader = pacsv.open_csv(
            path,
            read_options=pacsv.ReadOptions(column_names=columns, block_size=CHUNK_BYTES),
            convert_options=pacsv.ConvertOptions(column_types=kinds),
        )

    def next_batch(self) -> Iterable[Chunk]:
        batch = self._reader.read_next_batch()  # raises StopIteration at the end, as Bytewax wants it
        return [list(zip(*(column.to_pylist() for column in batch.columns), strict=True))]

    def snapshot(self) -> None:
        return None


class Files(FixedPartitionedSource[Chunk, None]):  # type: ignore[misc]
    """The CSV files of a topic."""

    def __init__(self, folder: str, columns: list[str]) -> None:
        self._folder = Path(folder)
        self._columns = columns

    def list_parts(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir())

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> File:  # noqa: ARG002 - as Bytewax calls it
        return File(self._folder / for_part, self._columns)


class Sink(DynamicSink[Any]):  # type: ignore[misc]
    """Takes chunks, and keeps them where they are collected."""

    def __init__(self, kept: list[Any] | None) -> None:
        self._kept = kept

    def build(self, step_id: str, worker_index: int, worker_count: int) -> SinkPart:  # noqa: ARG002
        return SinkPart(self._kept)


class SinkPart(StatelessSinkPartition[Any]):  # type: ignore[misc]
    """What a worker writes."""

    _lock = threading.Lock()

    def __init__(self, kept: list[Any] | None) -> None:
        self._kept = kept

    def write_batch(self, items: list[Any]) -> None:
        if self._kept is not None:
            with self._lock:
                self._kept += items


# -- queries without state: from a chunk to a chunk ------------------------------------------------------------------------


def q0(rows: Chunk) -> Chunk:
    return rows


def q1(rows: Chunk) -> Chunk:
    return [(auction, bidder, price * 0.908, at, extra) for auction, bidder, price, at, extra in rows]


def q2(rows: Chunk) -> Chunk:
    return [row for row in rows if row[0] % 123 == 0]


SIDE = [f"value-{number}" for number in range(10_000)]


def q13(rows: Chunk) -> Chunk:
    return [(*row, SIDE[row[0] % 10_000]) for row in rows]


def q14(rows: Chunk) -> Chunk:
    found = []
    for auction, bidder, cents, at, extra in rows:
        price = cents * 0.908
        if 1_000_000 < price < 50_000_000:
            hour = at // 3_600_000 % 24
            day = "day" if 8 <= hour <= 18 else "night" if hour <= 6 or hour >= 20 else "other"
            found.append((auction, bidder, price, day, at, extra, extra.count("c")))
    return found


def q21(rows: Chunk) -> Chunk:
    found = []
    for auction, bidder, price, channel, url in rows:
        number = KNOWN.get(channel.lower())
        if number is None:
            met = NUMBER.search(url)
            number = met.group(2) if met else None
        if number:
            found.append((auction, bidder, price, channel, number))
    return found


def q22(rows: Chunk) -> Chunk:
    return [(*row[:4], *row[4].split("/")[3:6]) for row in rows]


# -- queries with state ----------------------------------------------------------------------------------------------------


# Any: streams of Bytewax's, which are not known here.
def q11(rows: Any) -> Any:
    bids = op.flat_map("rows", rows, lambda chunk: chunk)
    clock = win.EventClock(
        ts_getter=lambda bid: EPOCH + timedelta(milliseconds=bid[1]), wait_for_system_duration=timedelta(0)
    )
    counts = win.count_window("sessions", bids, clock, win.SessionWindower(gap=GAP), lambda bid: str(bid[0]))
    return op.map("shown", counts.down, lambda one: [(int(one[0]), one[1][1])])


def q17(rows: Any) -> Any:
    def keyed(chunk: Chunk) -> list[tuple[str, Row]]:
        return [(f"{auction}-{at // DAY_MS * DAY_MS}", (price,)) for auction, price, at in chunk]

    def added(state: list[int] | None, bid: Row) -> tuple[list[int], list[int]]:
        price = bid[0]
        sums = state or [0, 0, 0, 0, price, price, 0]
        sums[0] += 1
        sums[1 if price < 10_000 else 2 if price < 1_000_000 else 3] += 1
        sums[4], sums[5], sums[6] = min(sums[4], price), max(sums[5], price), sums[6] + price
        return sums, [*sums]

    def shown(one: tuple[str, list[int]]) -> Chunk:
        auction, window = one[0].split("-")
        return [(int(auction), int(window), *one[1][:6], one[1][6] / one[1][0], one[1][6])]

    return op.map("shown", op.stateful_map("sums", op.flat_map("keyed", rows, keyed), added), shown)


def q18(rows: Any) -> Any:
    def keyed(chunk: Chunk) -> list[tuple[str, Row]]:
        return [(f"{row[0]}-{row[1]}", row) for row in chunk]

    def newer(state: Row | None, bid: Row) -> tuple[Row, Row]:
        kept = bid if state is None or bid[5] >= state[5] else state
        return kept, kept

    return op.map("shown", op.stateful_map("last", op.flat_map("keyed", rows, keyed), newer), lambda one: [one[1]])


PLAIN: Mapping[str, tuple[Callable[[Chunk], Chunk], tuple[str, ...]]] = {
    "q0": (q0, ("auction", "bidder", "price", "at", "extra")),
    "q1": (q1, ("auction", "bidder", "price", "at", "extra")),
    "q2": (q2, ("auction", "price")),
    "q13": (q13, ("auction", "bidder", "price", "at", "value")),
    "q14": (q14, ("auction", "bidder", "price", "time_of_day", "at", "extra", "letters_c")),
    "q21": (q21, ("auction", "bidder", "price", "channel", "channel_id")),
    "q22": (q22, ("auction", "bidder", "price", "channel", "dir1", "dir2", "dir3")),
}
SUMS = ("auction", "window_start", "bids", "bids_low", "bids_middle", "bids_high", "least", "most", "mean", "sum")
#: The columns of a result, and those by which it replaces the one before.
KEYED: Mapping[str, tuple[Callable[[Any], Any], tuple[str, ...], tuple[str, ...]]] = {
    "q11": (q11, ("bidder", "bids"), ()),
    "q17": (q17, SUMS, ("auction", "window_start")),
    "q18": (q18, ("auction", "bidder", "price", "channel", "url", "at", "extra"), ("bidder", "auction")),
}


def run(request: Request, workers: int) -> Mapping[str, Any]:
    """Run a query over files; returns how long that took."""
    name = request["query"]
    if name not in PLAIN and name not in KEYED:
        return {"unsupported": "it has only Python over single rows for it"}
    kept: list[Any] | None = [] if request.get("collect") else None
    began = time.perf_counter()
    flow = Dataflow("nexmark")
    rows = op.input("files", flow, Files(request["csv"]["bid"], request["columns"]["bid"]))
    if name in PLAIN:
        names, key = PLAIN[name][1], NO_KEY
        found = op.map("query", rows, PLAIN[name][0])
    else:
        names, key = KEYED[name][1], KEYED[name][2]
        found = KEYED[name][0](rows)
    op.output("sink", found, Sink(kept))
    cli_main(flow, workers_per_process=workers)
    seconds = time.perf_counter() - began
    if kept is not None:
        changes = Changes(request["collect"])
        for chunk in kept:
            for row in chunk:
                changes.add("+I", dict(zip(names, row, strict=True)))
        changes.close()
    return {"seconds": seconds, "key": list(key)}


if __name__ == "__main__":
    serve(lambda request: run(request, int(sys.argv[1])))
