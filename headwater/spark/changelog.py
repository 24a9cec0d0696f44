"""Rows of a changelog (`_op` is one of `+I -U +U -D`) as rows of a topic.

A topic with a key holds a table: an insertion or an update is the new row of its key, a deletion is a tombstone. The
old row of an update (`-U`) says nothing new where the new one of the same key follows, and is left out there; where the
update has moved a row to another key, it is the tombstone of the old one.

A topic without a key cannot say which row is gone, so it keeps all rows, each with its `_op` as a header.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import RowInvalid
from headwater.log.topic import Topic

OPERATION = "_op"
OPERATIONS = pa.array(["+I", "-U", "+U", "-D"])
HEADERS_TYPE = pa.map_(pa.string(), pa.binary())


def applied(rows: pa.RecordBatch, topic: Topic) -> pa.RecordBatch:
    """The rows without `_op`, but with what it says as tombstones or headers."""
    operations = rows.column(OPERATION).cast(pa.string()).fill_null("+I")
    unknown = pc.index(pc.is_in(operations, OPERATIONS), False).as_py()
    if unknown >= 0:
        why = f"is {operations[unknown].as_py()!r}, which is none of +I, -U, +U and -D"
        raise RowInvalid(topic=topic.name, row=unknown, column=OPERATION, why=why)
    rest = rows.drop_columns([OPERATION])
    return _upserts(rest, operations, topic.key) if topic.key else _with_header(rest, operations)


def _upserts(rows: pa.RecordBatch, operations: pa.Array, key: Sequence[str]) -> pa.RecordBatch:
    gone = _are(operations, "-D")
    old = _are(operations, "-U")
    if old.any():
        replaced = old & np.append(_are(operations, "+U")[1:] & _same_key_as_next(rows, key), False)
        kept = pa.array(~replaced)
        rows, gone = rows.filter(kept), (gone | old)[~replaced]
    if "_tombstone" in rows.schema.names:
        gone = gone | np.asarray(rows.column("_tombstone").fill_null(False))
        rows = rows.drop_columns(["_tombstone"])
    return rows.append_column("_tombstone", pa.array(gone)) if gone.any() else rows


def _are(operations: pa.Array, operation: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.asarray(pc.equal(operations, operation))
    return found


def _same_key_as_next(rows: pa.RecordBatch, key: Sequence[str]) -> npt.NDArray[np.bool_]:
    same = np.ones(max(rows.num_rows - 1, 0), dtype=np.bool_)
    for name in key:
        column = rows.column(name)
        same &= np.asarray(pc.equal(column.slice(0, len(column) - 1), column.slice(1)).fill_null(False))
    return same


def _with_header(rows: pa.RecordBatch, operations: pa.Array) -> pa.RecordBatch:
    headers = rows.column("_headers").cast(HEADERS_TYPE) if "_headers" in rows.schema.names else None
    if headers is not None:
        rows = rows.drop_columns(["_headers"])
    return rows.append_column("_headers", _one_more(headers, OPERATION, operations.cast(pa.binary())))


def _one_more(headers: pa.Array | None, name: str, values: pa.Array) -> pa.Array:
    """The headers of each row, with one more behind them."""
    count = len(values)
    names = pa.array([name]).take(pa.array(np.zeros(count, dtype=np.int64)))
    if headers is None:
        return pa.MapArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32)), names, values)
    lengths = np.asarray(pc.list_value_length(headers.cast(_AS_LIST)).fill_null(0))
    entries = headers.cast(_AS_LIST).flatten()
    stops = np.cumsum(lengths + 1)
    order = np.empty(int(stops[-1]) if count else 0, dtype=np.int64)
    is_new = np.zeros(len(order), dtype=np.bool_)
    is_new[stops - 1] = True
    order[is_new] = np.arange(count) + len(entries)
    order[~is_new] = np.arange(len(entries))
    all_names = pa.concat_arrays([entries.field(0), names]).take(pa.array(order))
    all_values = pa.concat_arrays([entries.field(1), values]).take(pa.array(order))
    offsets = pa.array(np.concatenate([[0], stops]).astype(np.int32))
    return pa.MapArray.from_arrays(offsets, all_names, all_values)


_AS_LIST = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
