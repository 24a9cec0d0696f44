"""Two ways to aggregate a table whose rows come and go: take results back, or compute them again from what is there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.errors import ChangelogInvalid
from headwater.operators.agg.computation import ARGUMENT, Computation
from headwater.operators.agg.groups import Groups, Int64s, Order
from headwater.operators.changelog import OP, paired, signs_of
from headwater.operators.keyed import BatchTime, Stepped
from headwater.operators.keyed.engine import KEY, ranks
from headwater.operators.tables.codes import codes
from headwater.operators.tables.emitting import Emit, emitted

#: How many rows a group has, or how often the same row is there.
ROWS = "rows"
#: What first, last and collect go by.
ORDER = "_order"


@dataclass(frozen=True)
class Inverting:
    """For aggregates that can be taken back: state is one row per group, and a change costs the same in a large group."""

    operator: str
    computation: Computation
    emit: Emit

    def state(self) -> pa.Schema:
        return pa.schema([*self.computation.partials, pa.field(ROWS, pa.int64())])

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit)

    def answer(self, state: pa.Table) -> pa.Table:
        """The results of the groups as they stand."""
        return self._results(state)

    def _net(self, state: pa.Table, rows: pa.Table) -> Stepped:
        signs = signs_of(rows.column(OP))
        parts = [state.select([KEY, *self.state().names])]
        for sign in (1, -1):
            part = rows.filter(pa.array(signs == sign))
            if part.num_rows:
                parts.append(self._lifted(part, sign))
        merged = self._merged(pa.concat_tables(parts).combine_chunks())
        counts = np.asarray(merged.column(ROWS).combine_chunks())
        check_counts(self.operator, counts)
        after = merged.filter(pa.array(counts > 0))
        return Stepped(after, paired(self._results(state), self._results(after), by=[KEY]))

    def _lifted(self, rows: pa.Table, sign: int) -> pa.Table:
        keys = np.asarray(rows.column(KEY).combine_chunks())
        groups = Groups.of(keys)
        nowhere = np.zeros(groups.rows, np.int64)
        partials = self.computation.lift(rows, Order(nowhere, nowhere), groups)
        if sign < 0:
            partials = self.computation.remove(partials)
        return self._table(keys[groups.starts], partials, sign * groups.sizes())

    def _merged(self, parts: pa.Table) -> pa.Table:
        keys = np.asarray(parts.column(KEY).combine_chunks())
        order = np.argsort(keys, kind="stable")
        parts, keys = parts.take(pa.array(order)), keys[order]
        groups = Groups.of(keys)
        counts = np.asarray(parts.column(ROWS).combine_chunks())
        totals = np.add.reduceat(counts, groups.starts) if groups.count else counts
        return self._table(keys[groups.starts], self.computation.merge(parts, groups), totals)

    def _table(self, keys: Int64s, partials: pa.Table, counts: Int64s) -> pa.Table:
        columns = [pa.array(keys, pa.int64()), *partials.columns, pa.array(counts, pa.int64())]
        return pa.table(columns, names=[KEY, *partials.column_names, ROWS])

    def _results(self, state: pa.Table) -> pa.Table:
        return self.computation.finish(state).add_column(0, KEY, state.column(KEY))


@dataclass(frozen=True)
class Keeping:
    """For all other aggregates: the arguments of all rows are kept, and groups that are touched are computed again."""

    operator: str
    computation: Computation
    emit: Emit
    rows: pa.Schema

    def state(self) -> pa.Schema:
        kept = [one for one in self.rows if one.name.startswith(ARGUMENT) or one.name == ORDER]
        return pa.schema([*kept, pa.field(ROWS, pa.int64())])

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit)

    def answer(self, state: pa.Table) -> pa.Table:
        """The results of the groups as they stand."""
        return self._results(state)

    def _net(self, state: pa.Table, rows: pa.Table) -> Stepped:
        names = [KEY, *(name for name in self.state().names if name != ROWS)]
        both = pa.concat_tables([state.select(names), rows.select(names)]).combine_chunks()
        times = np.concatenate([np.asarray(state.column(ROWS).combine_chunks()), signs_of(rows.column(OP))])
        content = codes(both, names)
        counts = np.bincount(content, weights=times).astype(np.int64)
        check_counts(self.operator, counts)
        first = np.zeros(len(counts), np.int64)
        first[content[::-1]] = np.arange(len(content))[::-1]
        held = counts > 0
        after = both.take(pa.array(first[held])).append_column(ROWS, pa.array(counts[held], pa.int64()))
        return Stepped(after, paired(self._results(state), self._results(after), by=[KEY]))

    def _results(self, state: pa.Table) -> pa.Table:
        times = np.asarray(state.column(ROWS).combine_chunks())
        rows = state.take(pa.array(np.repeat(np.arange(state.num_rows), times)))
        keys = np.asarray(rows.column(KEY).combine_chunks())
        at = ranks(rows.column(ORDER)) if ORDER in rows.column_names else np.zeros(len(keys), np.int64)
        # Rows at one place of the order are told apart by what they hold, so that every run sees them alike.
        ties = [ranks(rows.column(name)) for name in rows.column_names if name.startswith(ARGUMENT)]
        order = np.lexsort([*ties, at, keys])
        groups = Groups.of(keys[order])
        places = Order(at[order], np.arange(len(order)))
        partials = self.computation.lift(rows.take(pa.array(order)), places, groups)
        results = self.computation.finish(partials)
        return results.add_column(0, KEY, pa.array(keys[order][groups.starts], pa.int64()))


def check_counts(operator: str, counts: Int64s) -> None:
    """A row that is withdrawn more often than it came was never there."""
    if (counts < 0).any():
        why = "a row is withdrawn that is not there"
        raise ChangelogInvalid(operator=operator, key=f"one of {len(counts)} groups", why=why)
