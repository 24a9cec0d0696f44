"""The rows that are measured: 100 bytes each, in three columns, all different."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

SCHEMA = {"id": "int64", "value": "float64", "payload": "string"}
PAYLOAD_BYTES = 80
#: Two numbers of 8 bytes, 80 bytes of text and the 4 bytes that say where the text ends.
ROW_BYTES = 100
BATCH_ROWS = 1_000
BATCHES = 64


def batch(rows: int, seed: int) -> pa.RecordBatch:
    random = np.random.default_rng(seed)
    text = random.integers(ord("a"), ord("z") + 1, rows * PAYLOAD_BYTES, dtype=np.uint8)
    ends = np.arange(0, rows * PAYLOAD_BYTES + 1, PAYLOAD_BYTES, dtype=np.int32)
    payload = pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    numbers = pa.array(np.arange(seed * rows, (seed + 1) * rows, dtype=np.int64))
    return pa.record_batch({"id": numbers, "value": pa.array(random.random(rows)), "payload": payload})


@cache
def batches() -> list[pa.RecordBatch]:
    """64 different batches of 1,000 rows: together larger than a core's cache, so that none is hot when it comes."""
    return [batch(BATCH_ROWS, seed) for seed in range(BATCHES)]


@cache
def blobs() -> list[bytes]:
    """The same batches as the bytes that a peer is given."""
    return [one.serialize().to_pybytes() for one in batches()]


@cache
def dicts() -> list[list[dict[str, Any]]]:
    """The first 16 batches as Python rows."""
    return [one.to_pylist() for one in batches()[:16]]
