"""The step of `JoinWithin`: rows of both inputs are kept until no row that is in time could still meet them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.agg.groups import Int64s
from headwater.operators.joining.inputs import AT, Columns
from headwater.operators.joining.line import Line, Pairs, in_order
from headwater.operators.keyed.contract import Stepped
from headwater.operators.keyed.engine import INPUT, KEY, LATE_BY, micros
from headwater.operators.keyed.watermark import NEVER, BatchTime

SIDE = "_side"
MATCHED = "_matched"
WAKE = "_wake_at"
LEFT, RIGHT = 0, 1
How = Literal["inner", "left", "right", "outer", "anti"]
#: Whose rows leave alone when they have met none.
ALONE: dict[str, tuple[int, ...]] = {
    "inner": (),
    "left": (LEFT,),
    "right": (RIGHT,),
    "outer": (LEFT, RIGHT),
    "anti": (LEFT,),
}


def state_schema(rows: pa.Schema, columns: Columns) -> pa.Schema:
    """One row for each row that is kept: of which input, when it happened, whether it has met another."""
    own = [pa.field(SIDE, pa.int8()), pa.field(AT, pa.int64()), pa.field(MATCHED, pa.bool_())]
    data = [rows.field(name).with_nullable(True) for name in columns.data]
    return pa.schema([*own, *data, pa.field(WAKE, pa.int64())])


class Kept(NamedTuple):
    """The rows of a step, those of the state first, what is known of each, and their order by key and time."""

    table: pa.Table
    keys: Int64s
    side: npt.NDArray[np.int8]
    at: Int64s
    fresh: npt.NDArray[np.bool_]
    order: Int64s


@dataclass(frozen=True)
class WithinStep:
    """One batch of a join within bounds, over all keys of a partition."""

    columns: Columns
    before_us: int
    after_us: int
    grace_us: int
    how: How

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:
        rows, late = split_late(rows, time.watermark_us, self.grace_us)
        kept = self._kept(state, rows)
        pairs = self._pairs(kept)
        matched = np.asarray(kept.table.column(MATCHED)).astype(bool)
        matched[pairs.left] = True
        matched[pairs.right] = True
        # A row is closed when every row that could meet it would be late.
        closes = kept.at + np.where(kept.side == LEFT, self.after_us, self.before_us) + self.grace_us
        closed = closes < time.watermark_us
        alone = np.flatnonzero(closed & ~matched & np.isin(kept.side, ALONE[self.how]))
        open_rows = kept.order[~closed[kept.order]]  # so that the next step finds them in their order
        after = kept.table.take(pa.array(open_rows)).drop_columns([MATCHED])
        after = after.append_column(MATCHED, pa.array(matched[open_rows]))
        after = after.append_column(WAKE, pa.array(closes[open_rows] + 1, pa.int64()))
        return Stepped(after, self._output(kept, pairs, alone), {} if late is None else {"late": late})

    def _kept(self, state: pa.Table, rows: pa.Table) -> Kept:
        entered = {
            KEY: rows.column(KEY),
            SIDE: rows.column(INPUT).cast(pa.int8()),
            AT: micros(rows.column(AT)),
            MATCHED: pa.array(np.zeros(rows.num_rows, bool)),
        }
        fresh = pa.table({**entered, **{name: rows.column(name) for name in self.columns.data}})
        table = pa.concat_tables([state.select(fresh.column_names).cast(fresh.schema), fresh]).combine_chunks()
        keys, side, at = (np.asarray(table.column(name)) for name in (KEY, SIDE, AT))
        return Kept(table, keys, side, at, np.arange(table.num_rows) >= state.num_rows, in_order(keys, at))

    def _pairs(self, kept: Kept) -> Pairs:
        """All rows that meet for the first time: of each pair at least one has come with this batch."""
        left, right = kept.side == LEFT, kept.side == RIGHT
        with_new_left = self._between(kept, left & kept.fresh, right)
        with_new_right = self._between(kept, left & ~kept.fresh, right & kept.fresh)
        found = (np.concatenate(one) for one in zip(with_new_left, with_new_right, strict=True))
        return Pairs(*found)

    def _between(self, kept: Kept, left: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]) -> Pairs:
        mine, others = (kept.order[chosen[kept.order]] for chosen in (left, right))
        if not len(mine) or not len(others):
            return Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
        line = Line(kept.keys[others], kept.at[others])
        at = kept.at[mine]
        found = line.between(kept.keys[mine], at - self.before_us, at + self.after_us)
        return Pairs(mine[found.left], others[found.right])

    def _output(self, kept: Kept, pairs: Pairs, alone: Int64s) -> pa.Table:
        """Pairs, and rows that stay alone, with nulls in the other half."""
        if self.how == "anti":
            pairs = Pairs(pairs.left[:0], pairs.right[:0])
        met = len(pairs.left)
        halves = {
            LEFT: (self.columns.left, np.concatenate([pairs.left, np.where(kept.side[alone] == LEFT, alone, -1)])),
            RIGHT: (self.columns.right, np.concatenate([pairs.right, np.where(kept.side[alone] == RIGHT, alone, -1)])),
        }
        keys = np.concatenate([kept.keys[pairs.left], kept.keys[alone]])
        output = {KEY: pa.array(keys, pa.int64())}
        for names, where in halves.values():
            places = pa.array(where, pa.int64(), mask=where < 0) if len(where) > met else pa.array(where, pa.int64())
            output |= {name: kept.table.column(name).take(places) for name in names}
        return pa.table(output)


def split_late(rows: pa.Table, watermark_us: int, grace_us: int) -> tuple[pa.Table, pa.Table | None]:
    """Rows in time, and rows further behind the watermark than the grace allows."""
    if watermark_us <= NEVER:
        return rows, None
    times = np.asarray(micros(rows.column(AT)).combine_chunks())
    late = times < watermark_us - grace_us
    if not late.any():
        return rows, None
    side = rows.filter(pa.array(late)).drop_columns([KEY, AT])
    side = side.append_column(LATE_BY, pa.array(watermark_us - times[late], pa.int64()))
    return rows.filter(pa.array(~late)), side
