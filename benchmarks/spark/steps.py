"""The jobs of keyed operators that are measured, as steps over whole columns and, for Spark, key by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.engine.event_time import BatchTime
from headwater.operators import Process

WINDOW_US = 10_000_000
Numbers = npt.NDArray[np.int64]


def windows() -> Process:
    """Sum and count of each user's amounts in windows of ten seconds."""
    return Process(
        step=add_to_windows,
        by="user",
        time="at",
        state={"window": "int64", "total": "int64", "count": "int64", "_wake_at": "int64"},
        output={"user": "int64", "window": "int64", "total": "int64", "count": "int64"},
        name="windows",
    )


def add_to_windows(state: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table]:
    """Add rows to the windows of their keys; windows that the watermark has passed are output."""
    at = _numbers(rows.column("at").cast(pa.int64()))
    keys = np.concatenate([_numbers(state.column("_key")), _numbers(rows.column("_key"))])
    starts = np.concatenate([_numbers(state.column("window")), at // WINDOW_US * WINDOW_US])
    totals = np.concatenate([_numbers(state.column("total")), _numbers(rows.column("amount"))])
    counts = np.concatenate([_numbers(state.column("count")), np.ones(rows.num_rows, np.int64)])
    order = np.lexsort((starts, keys))
    keys, starts = keys[order], starts[order]
    edges = np.flatnonzero(np.concatenate([[True], (keys[1:] != keys[:-1]) | (starts[1:] != starts[:-1])])[: len(keys)])
    summed = pa.table(
        {
            "_key": keys[edges],
            "window": starts[edges],
            "total": np.add.reduceat(totals[order], edges) if len(edges) else totals,
            "count": np.add.reduceat(counts[order], edges) if len(edges) else counts,
            "_wake_at": starts[edges] + WINDOW_US,
        }
    )
    over = starts[edges] + WINDOW_US <= time.watermark_us
    return summed.filter(pa.array(~over)), summed.filter(pa.array(over))


def counts() -> Process:
    """How many rows each user has had."""
    return Process(
        step=count_rows,
        by="user",
        state={"count": "int64"},
        output={"user": "int64", "count": "int64"},
        name="counts",
    )


def count_rows(state: pa.Table, rows: pa.Table, _time: BatchTime) -> tuple[pa.Table, pa.Table]:
    numbers = _numbers(rows.column("_key"))
    found = np.bincount(numbers)
    known = _numbers(state.column("_key"))
    found[known] += _numbers(state.column("count"))
    keys = np.flatnonzero(found)
    table = pa.table({"_key": keys, "count": found[keys]})
    return table, table


class CountRows(StatefulProcessor):
    """The same by `transformWithStateInPandas`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "count bigint")

    # Any: Spark's key is a tuple of whatever the columns hold; rows come as pandas here, as Row elsewhere.
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002, N802, N803
        known = self._count.get()
        count = (known[0] if known is not None else 0) + sum(len(part) for part in rows)
        self._count.update((count,))
        yield pd.DataFrame({"user": [key[0]], "count": [count]})

    def close(self) -> None:
        pass


def _numbers(column: pa.ChunkedArray) -> Numbers:
    found: Numbers = np.asarray(column.combine_chunks())
    return found
