"""Aggregates and sketches over plain values: whole, and in pieces that are merged in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.engine.aggregation import ARGUMENT, Computation, Groups, Order
from headwater.operators.aggregates import Aggregate

COLUMN = "value"


def whole(aggregate: Aggregate, values: pa.Array, numbers: np.ndarray | None = None) -> list[Any]:
    """The result of each group; without numbers all values are one."""
    numbers = np.zeros(len(values), np.int64) if numbers is None else numbers
    order = np.argsort(numbers, kind="stable")
    computation, partials = _lifted(aggregate, values, numbers[order], order)
    found: list[Any] = computation.finish(partials).column(COLUMN).to_pylist()
    return found


def in_pieces(aggregate: Aggregate, values: pa.Array, pieces: np.ndarray, *, by_two: bool = False) -> Any:
    """One result of all values, of which each piece was lifted by itself; merged at once, or one after the other."""
    order = np.argsort(pieces, kind="stable")
    computation, partials = _lifted(aggregate, values, pieces[order], order)
    if by_two:
        merged = partials.slice(0, 1)
        for row in range(1, partials.num_rows):
            both = pa.concat_tables([merged, partials.slice(row, 1)]).combine_chunks()
            merged = computation.merge(both, Groups.of(np.zeros(2, np.int64)))
    else:
        merged = computation.merge(partials, Groups.of(np.zeros(partials.num_rows, np.int64)))
    return computation.finish(merged).column(COLUMN)[0].as_py()


def merged(aggregate: Aggregate, sketches: Sequence[bytes | None], numbers: np.ndarray) -> list[Any]:
    """The result of an aggregate over a column of sketches."""
    return whole(aggregate, pa.array(sketches, pa.binary()), numbers)


def _lifted(
    aggregate: Aggregate, values: pa.Array, sorted_numbers: np.ndarray, order: np.ndarray
) -> tuple[Computation, pa.Table]:
    rows = pa.table({f"{ARGUMENT}{COLUMN}": values.take(pa.array(order))})
    computation = Computation.over({COLUMN: aggregate}, rows.schema)
    # Each value has its own place and time, whichever piece it is in.
    placed = Order(order.astype(np.int64) * 1_000_000, order.astype(np.int64))
    return computation, computation.lift(rows, placed, Groups.of(sorted_numbers))
