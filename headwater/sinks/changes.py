"""What the rows of a batch change: which rows are to be there afterwards, and which keys are to be gone.

A table has one row for each key, so that only the last word on a key counts. Rows that bring their place in a topic
(`_partition`, `_offset`) are put in that order first; others count as they come, which is the order of their partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ColumnMisfit
from headwater.schema import ASSIGNED_COLUMNS
from headwater.spark.changelog import OPERATION, OPERATIONS

TOMBSTONE = "_tombstone"
OWN = frozenset({*ASSIGNED_COLUMNS, "_headers", OPERATION, TOMBSTONE})

Positions = npt.NDArray[np.int64]


class Refusal(NamedTuple):
    """A row that cannot be taken: where it stood in the batch, and why."""

    position: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is to be there, what is to be gone, and where in the batch each of it stood."""

    rows: pa.Table
    positions: Positions
    gone: pa.Table
    gone_positions: Positions


def table_of(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    """The rows of a batch together; None where not even their columns are known."""
    found = list(batches)
    return pa.Table.from_batches(found) if found else None


def check_key(sink: str, columns: pa.Schema, key: Sequence[str]) -> None:
    """Refuse columns among which the key is not, or is of a kind that cannot be compared."""
    for name in key:
        if name not in columns.names:
            raise ColumnMisfit(
                target=sink, column=name, why=f"is its key, but not among the columns {', '.join(columns.names)}"
            )
        if pa.types.is_nested(columns.field(name).type):
            raise ColumnMisfit(
                target=sink, column=name, why=f"is its key, and a {columns.field(name).type} cannot be one"
            )


def without_own(columns: pa.Schema, *, keep: Sequence[str] = ()) -> pa.Schema:
    """The columns that are the user's."""
    return pa.schema([column for column in columns if column.name not in OWN or column.name in keep])


def appended(rows: pa.Table) -> tuple[Changes, list[Refusal]]:
    """All rows, in order: for sinks without a key. `_op`, where there is one, stays as a column."""
    rows, order = _in_order(rows)
    refused = _bad_operations(rows, order)
    rows, order = _without(rows, order, refused)
    keep = [name for name in rows.column_names if name not in OWN or name == OPERATION]
    nothing = np.zeros(0, dtype=np.int64)
    return Changes(
        rows=rows.select(keep), positions=order, gone=rows.select([]).slice(0, 0), gone_positions=nothing
    ), refused


def collapsed(rows: pa.Table, key: Sequence[str]) -> tuple[Changes, list[Refusal]]:
    """The last word on each key, and the rows that have no key or an unknown operation.

    >>> rows = pa.table({"id": [1, 2, 1, 2], "n": [1, 2, 3, None], "_op": ["+I", "+I", "+U", "-D"]})
    >>> changes, _ = collapsed(rows, ["id"])
    >>> changes.rows.to_pylist(), changes.gone.to_pylist()
    ([{'id': 1, 'n': 3}], [{'id': 2}])
    """
    rows, order = _in_order(rows)
    refused = [*_bad_operations(rows, order), *_null_keys(rows, order, key)]
    rows, order = _without(rows, order, refused)
    last = _last_of_each(rows, key)
    rows, order = rows.take(last), order[np.asarray(last)]
    gone = _are_gone(rows)
    mine = [name for name in rows.column_names if name not in OWN]
    return (
        Changes(
            rows=rows.select(mine).filter(pa.array(~gone)),
            positions=order[~gone],
            gone=rows.select(list(key)).filter(pa.array(gone)),
            gone_positions=order[gone],
        ),
        sorted(refused),
    )


def _in_order(rows: pa.Table) -> tuple[pa.Table, Positions]:
    if not {"_partition", "_offset"} <= set(rows.column_names):
        return rows, np.arange(rows.num_rows, dtype=np.int64)
    partitions = np.asarray(rows.column("_partition").fill_null(-1))
    offsets = np.asarray(rows.column("_offset").fill_null(-1))
    # Stable, for the two rows of an update share their place.
    order = np.lexsort((offsets, partitions)).astype(np.int64)
    return rows.take(pa.array(order)), order


def _bad_operations(rows: pa.Table, order: Positions) -> list[Refusal]:
    if OPERATION not in rows.column_names:
        return []
    operations = rows.column(OPERATION).cast(pa.string()).fill_null("+I")
    bad = np.flatnonzero(~np.asarray(pc.is_in(operations, OPERATIONS)))
    why = "`_op` is {!r}, which is none of +I, -U, +U and -D"
    return [Refusal(int(order[at]), why.format(operations[int(at)].as_py())) for at in bad]


def _null_keys(rows: pa.Table, order: Positions, key: Sequence[str]) -> list[Refusal]:
    found = []
    for name in key:
        nulls = np.flatnonzero(np.asarray(rows.column(name).is_null()))
        found += [Refusal(int(order[at]), f"the key {name!r} is null") for at in nulls]
    return found


def _without(rows: pa.Table, order: Positions, refused: Sequence[Refusal]) -> tuple[pa.Table, Positions]:
    if not refused:
        return rows, order
    kept = ~np.isin(order, [refusal.position for refusal in refused])
    return rows.filter(pa.array(kept)), order[kept]


def _last_of_each(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """The position of the last row of each key, in order."""
    numbered = rows.select(list(key)).append_column("_row", pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    last = numbered.group_by(list(key)).aggregate([("_row", "max")]).column("_row_max")
    return last.combine_chunks().sort() if rows.num_rows else pa.array([], pa.int64())


def _are_gone(rows: pa.Table) -> npt.NDArray[np.bool_]:
    gone = np.zeros(rows.num_rows, dtype=np.bool_)
    if OPERATION in rows.column_names:
        # The old row of an update is the last word on its key only where the update has moved to another key.
        gone |= np.asarray(pc.is_in(rows.column(OPERATION).cast(pa.string()), pa.array(["-D", "-U"])))
    if TOMBSTONE in rows.column_names:
        gone |= np.asarray(rows.column(TOMBSTONE).fill_null(False))
    return gone
