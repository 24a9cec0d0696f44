"""Throughput and memory of reads, with small and large topics."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.harness import MIB, Bar, Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate, run_child
from benchmarks.log.rows import BATCH_ROWS, ROW_BYTES, SCHEMA, batch, batches

LARGE_ROWS = 50_000
TOUCHED = "CRC32C of every byte, then all values of the three columns, eight bytes at a time"


def fill(log: hwlog.Log, topic: str, size: int, *, sources: Sequence[pa.RecordBatch] | None = None) -> int:
    """Make a topic of about `size` bytes of rows, and return how many rows it has."""
    sources = sources or batches()
    log.create(topic, SCHEMA, durability="os")
    rows = 0
    while rows * ROW_BYTES < size:
        for source in sources:
            if rows * ROW_BYTES < size:
                log.append(topic, source)
                rows += source.num_rows
    return rows


def touch(data: pa.RecordBatch) -> int:
    """Read every byte of a batch's values, eight at a time: the two numbers and the text of each row."""
    total = 0
    for column in data.columns:
        total ^= int(np.bitwise_xor.reduce(np.frombuffer(column.buffers()[-1], dtype=np.uint64)))
    return total


def scan(log: hwlog.Log, topic: str) -> int:
    """Read a whole topic, and return how many rows it has."""
    rows = 0
    for data in log.read(topic, columns=list(SCHEMA)):
        touch(data)
        rows += data.num_rows
    return rows


def read_scan(bench: Bench) -> list[Result]:
    """A whole topic from the page cache, sums checked and every column's bytes read, beside copies of as many bytes.

    Once as it was appended a thousand rows at a time (a frame is 100 KB), once fifty thousand (5 MB).
    """
    size = bench.size(1_500_000_000, 30_000_000)
    with bench.scratch("read.scan") as folder, hwlog.open(folder / "ours") as log:
        fill(log, "small", size)
        fill(log, "large", size, sources=[batch(LARGE_ROWS, seed) for seed in range(bench.size(8, 1))])
        copier = _Copier(bench.size(256 * MIB, 80 * MIB))
        files = sorted((folder / "ours" / "topics" / "small").rglob("*.log"))
        samples = bench.interleave(
            "read.scan",
            {
                "small": lambda: _scanned(log, "small"),
                "large": lambda: _scanned(log, "large"),
                "memcpy": lambda: copier.copy_memory(size),
                "memcpy of mapped files": lambda: copier.copy_files(files),
            },
            rounds=bench.size(7, 1),
        )
    bars = [Bar(figure="ratio", least=0.5)]
    return [
        Result(
            name=name,
            value=median_rate(samples[subject]) / 1e9,
            unit="GB/s",
            peer=peer,
            peer_value=median_rate(samples[peer]) / 1e9,
            more={"touched": TOUCHED, "per_cpu_second": median_cpu_rate(samples[subject]) / 1e9},
            bars=bars,
        )
        for name, subject, peer in (
            ("read.scan", "small", "memcpy"),
            ("read.scan.mapped", "small", "memcpy of mapped files"),
            ("read.scan.large", "large", "memcpy"),
            ("read.scan.large.mapped", "large", "memcpy of mapped files"),
        )
    ]


def read_backlog(bench: Bench) -> list[Result]:
    """Append and read at the tail of a topic that is empty behind, and of one that has 5 GB behind."""
    count = bench.size(1_000, 50)
    appends: dict[str, list[Sample]] = {}
    with bench.scratch("read.backlog") as folder, hwlog.open(folder / "ours") as log:
        bench.say("read.backlog: filling")
        log.create("empty", SCHEMA, durability="os")
        fill(log, "full", bench.size(5_000_000_000, 50_000_000))
        appends = bench.interleave(
            "read.backlog append",
            {"full": lambda: _append_tail(log, "full", count), "empty": lambda: _append_tail(log, "empty", count)},
            rounds=bench.size(7, 1),
            warm_bytes=2 * count * BATCH_ROWS * ROW_BYTES,
        )
        reads = bench.interleave(
            "read.backlog read",
            {"full": lambda: _read_tail(log, "full", count), "empty": lambda: _read_tail(log, "empty", count)},
            rounds=bench.size(7, 1),
        )
    return [
        Result(
            name=f"read.backlog.{act}",
            value=median_rate(samples["full"]),
            unit="rows/s",
            peer="no backlog",
            peer_value=median_rate(samples["empty"]),
            more={"rates": _rates(samples["full"]), "peer_rates": _rates(samples["empty"])},
            bars=[Bar(figure="ratio", least=0.8)],
        )
        for act, samples in (("append", appends), ("read", reads))
    ]


def reader_memory(bench: Bench) -> list[Result]:
    """The peak memory of a new process that reads 5 GB."""
    size = bench.size(5_000_000_000, 50_000_000)
    with bench.scratch("reader.memory") as folder:
        with hwlog.open(folder / "ours") as log:
            bench.say("reader.memory: filling")
            rows = fill(log, "rows", size)
        found = run_child("benchmarks.log.children", "scan", folder / "ours", "rows")
        if found["rows"] != rows:
            raise RuntimeError(f"{rows} rows were written, {found['rows']} read")
    return [
        Result(
            name="reader.memory",
            value=found["peak_mb"],
            unit="MB",
            more={
                "before_mb": found["before_mb"],
                "read_gb": size / 1e9,
                "gb_per_second": size / found["seconds"] / 1e9,
            },
            bars=[Bar(figure="value", most=300)],
        )
    ]


def _scanned(log: hwlog.Log, topic: str) -> Sample:
    with Stopwatch() as watch:
        rows = scan(log, topic)
    return watch.sample(rows * ROW_BYTES)


def _append_tail(log: hwlog.Log, topic: str, count: int) -> Sample:
    with Stopwatch() as watch:
        for number in range(count):
            log.append(topic, batches()[number % len(batches())])
    return watch.sample(count * BATCH_ROWS)


def _read_tail(log: hwlog.Log, topic: str, count: int) -> Sample:
    rows = 0
    start = log.end_offsets(topic)[0] - count * BATCH_ROWS
    with Stopwatch() as watch:
        for data in log.read(topic, start=start, columns=list(SCHEMA)):
            touch(data)
            rows += data.num_rows
    return watch.sample(rows)


def _rates(samples: list[Sample]) -> list[int]:
    return [round(sample.rate) for sample in samples]


class _Copier:
    """Copies to memory that was touched before, from memory of the same kind or from mapped files."""

    def __init__(self, size: int) -> None:
        self._source = np.ones(size, dtype=np.uint8)
        self._target = np.zeros(size, dtype=np.uint8)

    def copy_memory(self, size: int) -> Sample:
        times = -(-size // len(self._source))
        with Stopwatch() as watch:
            for _ in range(times):
                np.copyto(self._target, self._source)
        return watch.sample(times * len(self._source))

    def copy_files(self, files: list[Path]) -> Sample:
        total = 0
        with Stopwatch() as watch:
            for path in files:
                with _mapped(path) as data:
                    np.copyto(self._target[: len(data)], data)
                    total += len(data)
        return watch.sample(total)


@contextmanager
def _mapped(path: Path) -> Iterator[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    data = np.memmap(path, dtype=np.uint8, mode="r", shape=(os.path.getsize(path),))
    yield np.asarray(data)
    del data
