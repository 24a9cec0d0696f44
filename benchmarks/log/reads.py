"""How fast rows come out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, Sample, Stopwatch, median_rate
from benchmarks.log.rows import BATCH_ROWS, ROW_BYTES, SCHEMA, batches

COPY_BYTES = 256 * 1024 * 1024


def fill(log: hwlog.EmbeddedLog, topic: str, size: int) -> int:
    """Make a topic of about `size` bytes of rows, and return how many rows it has."""
    log.create(topic, SCHEMA, durability="os")
    count = size // (BATCH_ROWS * ROW_BYTES)
    for number in range(count):
        log.append(topic, batches()[number % len(batches())])
    return count * BATCH_ROWS


def touch(data: pa.RecordBatch) -> float:
    """Read every byte of a batch's rows: sum both numbers, and add up the text eight bytes at a time."""
    text = np.frombuffer(data.column("payload").buffers()[2], dtype=np.uint8)
    words = text[: len(text) // 8 * 8].view(np.uint64)
    return float(np.asarray(data.column("id")).sum() + np.asarray(data.column("value")).sum() + words.sum())


def read_scan(bench: Bench) -> list[Result]:
    """A whole topic from the page cache, sums checked and every row's bytes read, beside a copy of as much memory."""
    size = bench.size(1_500_000_000, 30_000_000)
    with bench.scratch("read.scan") as folder, hwlog.open(folder / "ours") as log:
        fill(log, "rows", size)
        copier = _Copier(min(size, COPY_BYTES))
        samples = bench.interleave(
            "read.scan",
            {"ours": lambda: _scan(log), "memcpy": lambda: copier.copy(size)},
            rounds=bench.size(7, 1),
        )
    return [
        Result(
            name="read.scan",
            value=median_rate(samples["ours"]) / 1e9,
            unit="GB/s",
            peer="memcpy",
            peer_value=median_rate(samples["memcpy"]) / 1e9,
            more={"touched": "sums of the two numeric columns, and of the text's bytes in words of 8"},
            bars=[Bar(figure="ratio", least=0.5)],
        )
    ]


def _scan(log: hwlog.EmbeddedLog) -> Sample:
    rows = 0
    with Stopwatch() as watch:
        for data in log.read("rows", columns=list(SCHEMA)):
            touch(data)
            rows += data.num_rows
    return watch.sample(rows * ROW_BYTES)


class _Copier:
    """Copies memory to memory; both ends were touched before."""

    def __init__(self, size: int) -> None:
        self._source = np.ones(size, dtype=np.uint8)
        self._target = np.zeros(size, dtype=np.uint8)

    def copy(self, size: int) -> Sample:
        with Stopwatch() as watch:
            for _ in range(-(-size // len(self._source))):
                np.copyto(self._target, self._source)
        return watch.sample(-(-size // len(self._source)) * len(self._source))
