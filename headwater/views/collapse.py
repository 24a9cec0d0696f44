"""Rows of a changelog as what a store must do: of each key only the last row counts, and a tombstone takes it away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ViewRowInvalid
from headwater.views.places import GONE
from headwater.views.spec import ViewSpec

TOMBSTONE = "_tombstone"
#: Partition and offset as one number.
PLACE = "_place"


@dataclass(frozen=True, kw_only=True)
class Delta:
    """What to change: the rows of `keys` go, then `rows` come. Every key stands in `keys` once."""

    keys: pa.Table
    rows: pa.Table
    #: Where the row of each key lies in the changelog, where that is known.
    places: npt.NDArray[np.int64] | None = None

    @classmethod
    def nothing(cls, spec: ViewSpec) -> Delta:
        return cls(keys=spec.key_schema.empty_table(), rows=spec.schema.empty_table())

    def __bool__(self) -> bool:
        return bool(self.keys.num_rows)


def collapsed(batches: Sequence[pa.RecordBatch], spec: ViewSpec) -> Delta:
    """The last row of each key, from batches in the order of the changelog that have a column `_tombstone`.

    >>> spec = ViewSpec(name="v", topic="v", key=("id",), schema=pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    >>> rows = pa.record_batch({"id": [1, 1, 2], "n": [1, 2, None], "_tombstone": [False, False, True]})
    >>> delta = collapsed([rows], spec)
    >>> delta.keys.to_pylist(), delta.rows.to_pylist()
    ([{'id': 1}, {'id': 2}], [{'id': 1, 'n': 2}])
    """
    if not batches:
        return Delta.nothing(spec)
    table = pa.Table.from_batches(batches)
    for name in spec.key:
        if table.column(name).null_count:
            raise ViewRowInvalid(
                view=spec.name, topic=spec.topic, column=name, why="is null, and it is part of the key"
            )
    last = _last_of_each_key(table.select(list(spec.key)))
    if len(last) < table.num_rows:
        table = table.combine_chunks().take(pa.array(last))
    gone = table.column(TOMBSTONE)
    rows = table.select(spec.schema.names)
    if pc.any(gone).as_py():
        rows = rows.filter(pc.invert(gone))
    places = None
    if PLACE in table.column_names:
        places = np.where(np.asarray(gone), GONE, np.asarray(table.column(PLACE)))
    return Delta(keys=table.select(list(spec.key)), rows=rows, places=places)


def _last_of_each_key(keys: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The places of the rows to keep, in order."""
    columns = {f"k{i}": _comparable(column) for i, column in enumerate(keys.columns)}
    numbered = pa.table({**columns, "row": np.arange(keys.num_rows, dtype=np.int64)})
    last = numbered.group_by(list(columns)).aggregate([("row", "max")]).column("row_max")
    return np.sort(last.to_numpy())


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # A negative zero equals zero, and one not-a-number equals another, in SQL as in the log's partitioner.
    if not pa.types.is_floating(column.type):
        return column
    zero = pa.scalar(0, column.type)
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), pc.add(column, zero))
