"""Partial results of many ranges that overlap: of rows 0 to 3, 1 to 5, 1 to 6 and so on, all at once.

Whole numbers are added up once from the beginning, and a range is a difference of two such sums, which is exact. Floats
would lose what is small beside what is long past, so short ranges are added directly. For everything else, and for
long ranges, there are blocks of 1, 2, 4, 8 … rows, and a range is put together from at most two dozen of them.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.aggregation import LARGEST, SEPARATOR, Aggregate, Columns, Computation, Groups, Int64s
from headwater.engine.errors import NumberTooLarge
from headwater.operators.aggregates.numbers import Count, Mean, Sum
from headwater.operators.aggregates.values import Max, Min

#: Ranges that hold so many rows on average are put together from blocks.
LONG_ROWS = 64
Numbers = npt.NDArray[Any]  # Any: whole numbers or floats


class Merging(Protocol):
    """Whatever can make one partial result of several: every aggregate can."""

    def merge(self, partials: Columns, groups: Groups) -> Columns: ...


def merged_ranges(computation: Computation, rows: pa.Table, keys: Int64s, starts: Int64s, stops: Int64s) -> pa.Table:
    """The partial result of the rows from `starts[i]` up to, and without, `stops[i]`, for each i.

    `rows` are partial results sorted by key; no range is empty, and none leaves its key.
    """
    schema = computation.partials
    found: list[pa.Array] = []
    for name, aggregate in computation.compute.items():
        parts = aggregate.partial(computation.kinds[name])
        columns = {part: rows.column(f"{name}{SEPARATOR}{part}").combine_chunks() for part in parts}
        merged = _directly(aggregate, columns, starts, stops)
        if merged is None:
            merged = from_blocks(aggregate, columns, keys, starts, stops)
        found += [merged[part].cast(kind) for part, kind in parts.items()]
    return pa.table(found, schema=schema)


def _directly(aggregate: Aggregate, columns: Columns, starts: Int64s, stops: Int64s) -> Columns | None:
    """Sums and extremes of plain numbers, where that is fast and exact."""
    if not len(starts) or not all(_is_plain(column) for column in columns.values()):
        return None
    is_long = int((stops - starts).sum()) > LONG_ROWS * len(starts)
    values = {part: np.asarray(column) for part, column in columns.items()}
    if isinstance(aggregate, Min | Max) and not is_long:
        extreme = np.minimum if isinstance(aggregate, Min) else np.maximum
        return {"value": pa.array(_reduced(extreme, values["value"], starts, stops))}
    if not isinstance(aggregate, Count | Sum | Mean):
        return None
    if is_long and any(one.dtype == np.float64 for one in values.values()):
        return None
    if any(_wraps(one, starts, stops) for one in values.values()):
        raise NumberTooLarge(aggregate=aggregate.called, argument=str(aggregate.of))
    return {part: pa.array(_summed(one, starts, stops)) for part, one in values.items()}


def _is_plain(column: pa.Array) -> bool:
    return not column.null_count and (pa.types.is_int64(column.type) or pa.types.is_float64(column.type))


def _wraps(values: Numbers, starts: Int64s, stops: Int64s) -> bool:
    """Whether the sum of some range is too large for a whole number of 64 bits."""
    if values.dtype != np.int64:
        return False
    most = max(abs(int(values.min())), abs(int(values.max())))
    if most <= LARGEST // max(int((stops - starts).max()), 1):  # only then can any sum be, and is it worth a look
        return False
    rough = _reduced(np.add, values.astype(np.float64), starts, stops)
    return bool((np.abs(rough - _summed(values, starts, stops).astype(np.float64)) > 2.0**62).any())


def _summed(values: Numbers, starts: Int64s, stops: Int64s) -> Numbers:
    if values.dtype != np.int64:
        return _reduced(np.add, values, starts, stops)
    # The sums from the beginning may wrap round; their differences are right all the same.
    until = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=until[1:])
    found: Numbers = until[stops] - until[starts]
    return found


def _reduced(operation: np.ufunc, values: Numbers, starts: Int64s, stops: Int64s) -> Numbers:
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[0::2], bounds[1::2] = starts, stops
    # `reduceat` wants bounds inside of the array; every second result, between two ranges, belongs to no range.
    found: Numbers = operation.reduceat(np.append(values, values[-1:]), bounds)[::2]
    return found


def from_blocks(aggregate: Merging, columns: Columns, keys: Int64s, starts: Int64s, stops: Int64s) -> Columns:
    """Ranges put together from blocks of 1, 2, 4, 8 … rows, for whatever can be merged."""
    lengths, at = stops - starts, starts.copy()
    blocks: Columns = columns
    width = 1
    ranges: list[Int64s] = []
    pieces: list[Columns] = []
    longest = int(lengths.max(initial=0))
    while width <= longest:
        wanted = np.flatnonzero(lengths & width)
        ranges.append(wanted)
        pieces.append(_taken(blocks, at[wanted]))
        at[wanted] += width
        width *= 2
        if width <= longest:
            blocks = _doubled(aggregate, blocks, keys, width // 2)
    if not pieces:
        return _taken(columns, starts)
    numbers = np.concatenate(ranges)
    order = np.argsort(numbers, kind="stable")  # the pieces of a range stay in the order of its rows
    parts = {part: pa.concat_arrays([piece[part] for piece in pieces]).take(pa.array(order)) for part in columns}
    groups = Groups.of(numbers[order])
    return parts if groups.count == groups.rows else aggregate.merge(parts, groups)


def _doubled(aggregate: Merging, blocks: Columns, keys: Int64s, width: int) -> Columns:
    """Blocks twice as wide: each with the one that begins where it ends. A block at the end of its key stays alone."""
    rows = len(keys)
    paired = np.zeros(rows, bool)
    paired[: max(rows - width, 0)] = keys[width:] == keys[:-width] if width < rows else False
    sizes = 1 + paired.astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    taken = np.empty(int(sizes.sum()), np.int64)
    taken[starts] = np.arange(rows)
    taken[starts[paired] + 1] = np.flatnonzero(paired) + width
    return aggregate.merge(_taken(blocks, taken), Groups(starts, len(taken)))


def _taken(columns: Columns, rows: Int64s) -> dict[str, pa.Array]:
    return {part: column.take(pa.array(rows)) for part, column in columns.items()}
