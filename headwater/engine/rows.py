"""The rows of a batch on their way to a step: checked, sorted by key and time, and numbered by key.

Sorting by the hash of the key takes little more than one pass. Rows of one key must stay in the order in which they came
before. A stable sort of hashes takes twice as long as a plain one; so the place of each row is put into the low bits of
its hash, and one plain sort does both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.columns import HASH, INPUT, KEY, POSITION, PUNCTUATION, REASON, ROWS, SLOT, TOPIC
from headwater.engine.contract import Contract
from headwater.engine.event_time import EVER, NEVER, SourceProgress, with_late_by
from headwater.engine.state_store import Hashes, key_groups

Numbers = npt.NDArray[np.int64]
#: Sorting by counting is for numbers that differ by less than this.
FEW = 2**15


# Any: numbers of whichever kind.
def in_order(keys: Sequence[npt.NDArray[Any]]) -> Numbers | None:
    """The order of rows by several keys, the least important first; `None` where they are in order already.

    >>> in_order([np.array([3, 1, 2]), np.array([0, 1, 0])]).tolist()
    [2, 0, 1]
    >>> in_order([np.array([1, 2, 2])]) is None
    True
    """
    order: Numbers | None = None
    for key in keys:
        values = key if order is None else key[order]
        if len(values) < 2 or bool((values[1:] >= values[:-1]).all()):
            continue
        if np.issubdtype(values.dtype, np.integer):
            least = values.min()
            if int(values.max()) - int(least) < FEW:
                values = (values - least).astype(np.uint16)
        step = np.argsort(values, kind="stable")
        order = step if order is None else order[step]
    return order


def by_hash(hashes: Hashes, before: Numbers | None) -> Numbers:
    """Rows by their hash; those with the same hash in the order `before`, or as they stand.

    >>> by_hash(np.array([7, 3, 7, 3], np.uint64) << np.uint64(50), np.array([3, 2, 1, 0])).tolist()
    [3, 1, 2, 0]
    """
    ordered = hashes if before is None else hashes[before]
    bits = np.uint64(max(1, len(hashes).bit_length()))
    places = np.arange(len(hashes), dtype=np.uint64)
    packed = (ordered >> bits << bits) | places
    packed.sort()
    order: Numbers = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    found = ordered[order]
    if bool((found[1:] < found[:-1]).any()):  # two hashes differ in the low bits alone
        order = np.argsort(ordered, kind="stable")
    return order if before is None else before[order]


class KeyedRows(NamedTuple):
    """The keys of a batch, in the order of their hashes, and the rows that belong to them."""

    hashes: Hashes
    keys: pa.Table
    rows: pa.Table


def rows_in(table: pa.Table) -> int:
    """How many rows these are, or stand for: some were combined before they came."""
    return int(pc.sum(table.column(ROWS)).as_py() or 0) if ROWS in table.column_names else int(table.num_rows)


def usable_rows(rows: pa.Table, contract: Contract) -> tuple[pa.Table, pa.Table]:
    """Rows with a key and a time, and those without, which say why they were rejected. Punctuations are neither."""
    if PUNCTUATION in rows.column_names:
        rows = rows.filter(pc.is_null(rows.column(PUNCTUATION)))
    missing = np.zeros(rows.num_rows, dtype=np.int8)
    for name in () if contract.null_keys else contract.key:
        missing[np.asarray(pc.is_null(rows.column(name)).combine_chunks(), dtype=bool)] = 1
    if contract.time is not None:
        without_time = np.asarray(pc.is_null(rows.column(contract.time)).combine_chunks(), dtype=bool)
        missing[without_time & (missing == 0)] = 2
    if not missing.any():
        return rows, with_reason(rows.slice(0, 0), [])
    bad = missing > 0
    reasons = [("the key is null", "the event time is null")[kind - 1] for kind in missing[bad]]
    return rows.filter(pa.array(~bad)), with_reason(rows.filter(pa.array(bad)), reasons)


def with_reason(rows: pa.Table, reasons: list[str]) -> pa.Table:
    rows = rows.drop_columns([name for name in (HASH, SLOT) if name in rows.column_names])
    return rows.append_column(REASON, pa.array(reasons, pa.string()))


def split_late(rows: pa.Table, contract: Contract, watermark_us: int) -> tuple[pa.Table, pa.Table | None]:
    """Rows in time, and rows behind the watermark with how late they are."""
    if contract.time is None or contract.late == "step" or watermark_us <= NEVER:
        return rows, None
    times = np.asarray(micros(rows.column(contract.time)))
    late = times < watermark_us
    if not late.any():
        return rows, None
    side = rows.filter(pa.array(late)).drop_columns([name for name in (HASH, SLOT) if name in rows.column_names])
    return rows.filter(pa.array(~late)), with_late_by(side, watermark_us - times[late])


def source_progress(rows: pa.Table, contract: Contract, processing_us: int | None) -> SourceProgress:
    """The latest event time of each input and source partition in this batch."""
    if contract.time is None or not rows.num_rows:
        return {}
    now_us = NEVER if processing_us is None else processing_us
    bound_us = contract.event_time.bound_us(processing_us)
    times = micros(rows.column(contract.time)).combine_chunks()
    if PUNCTUATION in rows.column_names:
        # A promise that nothing earlier than t follows is as good as a row with the time t + delay.
        promised = pc.add(micros(rows.column(PUNCTUATION)).combine_chunks(), _delays(rows, contract))
        times = pc.coalesce(promised, times)
    places = [name for name in (INPUT, TOPIC, "_partition") if name in rows.column_names]
    table = rows.select(places).append_column("time", times)
    if bound_us < EVER and (pc.max(times).as_py() or 0) > bound_us:
        table = table.filter(pc.less_equal(table.column("time"), bound_us))
    seen: SourceProgress = {}
    for row in table.group_by(places, use_threads=False).aggregate([("time", "max")]).to_pylist():
        if row["time_max"] is not None:
            words = ["" if row[name] is None else str(row[name]) for name in (TOPIC, "_partition") if name in places]
            source = "" if row.get(INPUT) is None else str(row[INPUT])
            seen.setdefault(source, {})["/".join(words)] = (row["time_max"], now_us)
    return seen


def _delays(rows: pa.Table, contract: Contract) -> pa.Scalar | pa.Array:
    """The watermark's delay; where inputs have their own, that of each row."""
    strategy = contract.event_time
    if strategy.other is None or INPUT not in rows.column_names:
        return pa.scalar(strategy.delay_us)
    delays = pa.array([strategy.delay_us, strategy.other.delay_us])
    return delays.take(rows.column(INPUT).combine_chunks())


def micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A timestamp column as microseconds."""
    if pa.types.is_integer(column.type):
        return column
    zone = column.type.tz
    return column.cast(pa.timestamp("us", tz=zone)).cast(pa.int64())


def touch(rows: pa.Table, due: pa.Table, contract: Contract) -> KeyedRows:
    """Sort the rows, number their keys, and add the keys whose timers are due."""
    rows = sorted_rows(rows, contract)
    hashes = _hashes(rows)
    groups = key_groups(rows, hashes, contract.key)
    firsts = first_rows(groups)
    # `key_groups` numbers by first sight; with rows sorted by hash that is the order of the hashes.
    keys = rows.select(list(contract.key)).take(pa.array(firsts)).cast(contract.key_schema)
    own = hashes[firsts]
    if not due.num_rows:
        return KeyedRows(own, keys, _numbered(rows, groups))
    all_hashes = np.concatenate([own, np.asarray(due.column(HASH).combine_chunks())])
    all_keys = pa.concat_tables([keys, due.select(list(contract.key)).cast(contract.key_schema)]).combine_chunks()
    order = np.argsort(all_hashes, kind="stable")
    merged = key_groups(all_keys.take(pa.array(order)), all_hashes[order], contract.key)
    number_of = np.empty(len(order), np.int64)
    number_of[order] = merged
    representatives = order[first_rows(merged)]
    return KeyedRows(
        all_hashes[representatives], all_keys.take(pa.array(representatives)), _numbered(rows, number_of[groups])
    )


def first_rows(groups: Numbers) -> Numbers:
    """Where each group is first seen, in the order of the groups' numbers.

    >>> first_rows(np.array([0, 0, 1, 2, 2])).tolist(), first_rows(np.array([0, 1, 0, 2])).tolist()
    ([0, 2, 3], [0, 1, 3])
    """
    # Groups are numbered by first sight, so a group begins where a number is larger than all before it.
    highest = np.maximum.accumulate(groups)
    found: Numbers = np.flatnonzero(np.concatenate([[True], highest[1:] > highest[:-1]])[: len(groups)])
    return found


def sorted_rows(rows: pa.Table, contract: Contract) -> pa.Table:
    """Rows by key, time, input, topic, partition and offset: ties are broken the same way on every retry."""
    if rows.num_rows < 2:
        return rows
    rows = rows.combine_chunks()
    if contract.order:
        by = [np.asarray(rows.column(name).combine_chunks()) for name in reversed(contract.order)]
        return rows.take(pa.array(by_hash(_hashes(rows), in_order(by))))
    order_by: list[npt.NDArray[np.generic]] = [
        np.asarray(pc.fill_null(rows.column(name), 0)) for name in POSITION if name in rows.column_names
    ]
    if TOPIC in rows.column_names:
        order_by.append(ranks(rows.column(TOPIC)))
    if INPUT in rows.column_names:
        order_by.append(np.asarray(rows.column(INPUT)))
    if contract.time is not None and not contract.by_place:
        order_by.append(np.asarray(micros(rows.column(contract.time))))
    order = by_hash(_hashes(rows), in_order(order_by))
    order_by.append(_hashes(rows))
    if not all(name in rows.column_names for name in POSITION):
        order = broken_ties(rows, order, order_by)
    return rows.take(pa.array(order))


def broken_ties(rows: pa.Table, order: Numbers, order_by: list[npt.NDArray[np.generic]]) -> Numbers:
    """The order with ties broken by what the rows hold, for rows that have lost their place in a topic."""
    differs = np.zeros(len(order) - 1, bool)
    for values in order_by:
        differs |= values[order[1:]] != values[order[:-1]]
    if differs.all():
        return order
    groups = np.concatenate([[0], np.cumsum(differs)])
    tied = np.flatnonzero(np.concatenate([[False], ~differs]) | np.concatenate([~differs, [False]]))
    held = rows.take(pa.array(order[tied]))
    by_content = [ranks(held.column(name)) for name in held.column_names if name not in (HASH, SLOT)]
    within = np.lexsort([*reversed(by_content), groups[tied]])
    order = order.copy()
    order[tied] = order[tied][within]
    return order


def ranks(column: pa.ChunkedArray) -> Numbers:
    """For each value its place among all values of the column; equal values share one."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        column = pa.chunked_array([pa.array([repr(value) for value in column.to_pylist()], pa.string())])
    return np.asarray(pc.rank(column, sort_keys="ascending", tiebreaker="min")).astype(np.int64)


def _hashes(rows: pa.Table) -> Hashes:
    return np.asarray(rows.column(HASH).combine_chunks()).astype(np.int64, copy=False).view(np.uint64)


def _numbered(rows: pa.Table, numbers: Numbers) -> pa.Table:
    rows = rows.drop_columns([name for name in (HASH, SLOT) if name in rows.column_names])
    rows = rows.append_column(KEY, pa.array(numbers, pa.int64()))
    if len(numbers) > 1 and (numbers[1:] < numbers[:-1]).any():  # two keys share a hash, and their rows are mixed
        rows = rows.take(pa.array(np.argsort(numbers, kind="stable")))
    return rows


def no_keys(contract: Contract) -> pa.Table:
    return pa.schema([pa.field(HASH, pa.uint64()), *contract.key_schema]).empty_table()
