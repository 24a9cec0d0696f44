"""The step of `Enrich` without `as_of`: each row gets what its key stands for when the row's batch is processed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.agg.groups import Int64s
from headwater.operators.changelog import DELETE, OP
from headwater.operators.joining.inputs import Columns
from headwater.operators.keyed.contract import Stepped
from headwater.operators.keyed.engine import INPUT, KEY
from headwater.operators.keyed.watermark import BatchTime

HELD = "_held"
STREAM, TABLE = 0, 1


def current_state(rows: pa.Schema, columns: Columns) -> pa.Schema:
    """One row for each key that the table holds."""
    return pa.schema([*(rows.field(name).with_nullable(True) for name in columns.right), pa.field(HELD, pa.bool_())])


@dataclass(frozen=True)
class CurrentStep:
    """One batch: the table's changes first, then the stream's rows."""

    columns: Columns
    how: Literal["left", "inner"]

    def __call__(self, state: pa.Table, rows: pa.Table, _time: BatchTime) -> Stepped:
        stream, changes = parted(rows)
        last = last_of_keys(changes)
        gone = is_gone(last)
        names = [KEY, *self.columns.right]
        known = pa.concat_tables([state.select(names), last.select(names)]).combine_chunks()
        keys = np.asarray(known.column(KEY))
        asked = np.asarray(stream.column(KEY).combine_chunks())
        place = np.full(int(max(keys.max(initial=-1), asked.max(initial=-1))) + 1, -1, np.int64)
        place[keys] = np.arange(len(keys))  # the table's newest rows come after those of the state, and win
        changed = keys[state.num_rows :]
        place[changed[gone]] = -1
        output = enriched(stream, known, place[asked], self.columns, how=self.how)
        kept = last.filter(pa.array(~gone)).select(names)
        kept = kept.append_column(HELD, pa.array(np.ones(kept.num_rows, bool)))
        return Stepped(kept, output, changed=changed)


def parted(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows of the stream, and those of the table."""
    of_table = np.asarray(rows.column(INPUT).combine_chunks()) == TABLE
    if not of_table.any():
        return rows, rows.slice(0, 0)
    return rows.filter(pa.array(~of_table)), rows.filter(pa.array(of_table))


def last_of_keys(rows: pa.Table) -> pa.Table:
    """Of rows sorted by key, the last of each."""
    keys = np.asarray(rows.column(KEY).combine_chunks())
    if len(keys) < 2 or (keys[1:] != keys[:-1]).all():
        return rows
    return rows.filter(pa.array(np.append(keys[1:] != keys[:-1], True)))


def is_gone(changes: pa.Table) -> npt.NDArray[np.bool_]:
    """Which changes of a table delete; rows that say nothing of it do not."""
    if OP not in changes.column_names:
        return np.zeros(changes.num_rows, bool)
    return np.asarray(pc.fill_null(pc.equal(changes.column(OP), DELETE), fill_value=False)).astype(bool)


def enriched(stream: pa.Table, known: pa.Table, found: Int64s, columns: Columns, *, how: str) -> pa.Table:
    """Rows of the stream with what was found for each in the table; -1 is nothing."""
    missing = found < 0
    if how == "inner" and missing.any():
        stream, found, missing = stream.filter(pa.array(~missing)), found[~missing], missing[~missing]
    places = pa.array(found, pa.int64(), mask=missing) if missing.any() else pa.array(found, pa.int64())
    left = {name: stream.column(name) for name in columns.shown if name not in columns.right}
    return pa.table({**left, **{name: known.column(name).take(places) for name in columns.right}})
