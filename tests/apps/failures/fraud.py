"""A user's file, with a mistake in each function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame


def ratio(amount: int) -> int:
    return amount // 0


def shout(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"x": [lookup(batch)]})


def lookup(_: pa.RecordBatch) -> int:
    return {"a": 1}["missing"]


def deliver(rows: DataFrame, _: int) -> None:
    rows.count()
    raise ValueError("the sink is\nnot configured")


# Any: whatever the engine hands over.
def step(state: Any, *_: Any) -> Any:
    return state.no_such_thing


def misspelled(rows: DataFrame) -> DataFrame:
    return rows.select("valeu")
