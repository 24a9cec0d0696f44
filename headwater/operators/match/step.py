"""`Match` as a step of the engine: rows up to the watermark are searched, and what is undecided is kept.

Rows before `reached_us` are complete and searched; later ones wait. A search that wants a row which is not there yet is
open: the key keeps its rows from the open start on, and is woken when the time of the search is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.errors import SkipImpossible
from headwater.operators.keyed import EVER, BatchTime, Stepped
from headwater.operators.keyed.engine import micros
from headwater.operators.match import codes
from headwater.operators.match.arrays import columns_of, masks_of
from headwater.operators.match.codes import Bools, Found, Int64s, Rows
from headwater.operators.match.keeping import Kept, joined, state_of
from headwater.operators.match.measuring import Outputs, leaves_of
from headwater.operators.match.program import Program
from headwater.operators.windowed.late import put_aside

REASONS = {codes.TOO_MANY_STEPS: "steps", codes.TOO_MANY_ROWS: "rows"}


@dataclass(frozen=True, kw_only=True)
class MatchStep:
    """Search the rows of all keys of a partition."""

    program: Program
    on: str
    by: tuple[str, ...]
    #: All columns that are kept: of the key, the time, the place, and what the rule looks at.
    columns: tuple[str, ...]
    #: The columns of the rows that come out with ALL ROWS PER MATCH.
    shown: tuple[str, ...]
    state: pa.Schema
    #: Whether Spark computes the measures of what they are made of.
    raw: bool = False
    timed_out: bool = False

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:
        times = np.asarray(micros(rows.column(self.on)).combine_chunks())
        rows, sides = put_aside(rows, times < time.reached_before_us, time.reached_before_us - times)
        kept = joined(state, rows, columns=self.columns, on=self.on)
        final = time.final or time.reached_us >= EVER
        complete = np.ones(len(kept.keys), bool) if final else kept.times < time.reached_us
        searched, begin, found = self.search(kept, complete, time.reached_us, final)
        self._check(found)
        unmatched = self._unmatched(kept, complete, found)
        output = self._output(searched, begin, found, unmatched)
        sides |= self._sides(searched, begin, found)
        return Stepped(self._kept(kept, complete, found, final), output, sides)

    @property
    def looked_at(self) -> tuple[str, ...]:
        """The columns that the search and what comes out of it need: not those that only tell where a row stands."""
        plan = self.program.plan
        return tuple(dict.fromkeys([*self.by, self.on, *self.shown, *plan.columns, *plan.mask_columns]))

    # -- the search ---------------------------------------------------------------------------------------------------

    def search(self, kept: Kept, complete: Bools, reached_us: int, final: bool) -> tuple[pa.Table, Int64s, Found]:
        """The rows that are complete, where those of each key begin, and what is found among them."""
        from headwater.operators.match.kernel import search

        rows = kept.part(np.flatnonzero(complete), self.looked_at)
        keys = kept.keys[complete]
        begin = np.searchsorted(keys, np.arange(kept.count + 1))
        past = np.bincount(kept.keys[kept.past], minlength=kept.count)
        made = self.program
        columns = columns_of(made.whole_columns, made.real_columns, made.named, rows)
        table = Rows(
            times=kept.times[complete],
            masks=masks_of(made.plan, rows),
            whole=columns.whole,
            whole_null=columns.whole_null,
            real=columns.real,
            real_null=columns.real_null,
            begin=begin[:-1],
            end=begin[1:],
            start=begin[:-1] + past,
            first=np.where(kept.whole, begin[:-1], -1),
            matches=kept.matches,
            reached_us=min(reached_us, EVER),
            final=final,
        )
        return rows, begin, search(made.code_for(columns.texts), made.limits, table)

    def _check(self, found: Found) -> None:
        at = np.flatnonzero(found.kinds == codes.CANNOT_SKIP)
        if len(at):
            variable = self.program.rule.after.variable or ""
            members = self.program.members(variable)
            taken = found.variables[found.begin[at[0]] : found.begin[at[0] + 1]]
            none = "no row of the match is mapped to it"
            why = "it is the row at which the match began" if members[taken].any() else none
            raise SkipImpossible(variable=variable, why=why)

    def _unmatched(self, kept: Kept, complete: Bools, found: Found) -> Int64s:
        """The rows, among the complete ones, of which it is now certain that no match has them."""
        if self.program.rule.rows != "all_with_unmatched":
            return np.empty(0, np.int64)
        taken = kept.taken[complete]
        sizes = np.diff(found.begin)
        matched = found.kinds == codes.MATCH
        taken[found.rows[np.repeat(matched, sizes)]] = True
        taken[found.starts[matched & (sizes == 0)]] = True
        kept.taken[complete] = taken
        keys = kept.keys[complete]
        decided = np.arange(len(keys)) < found.start[keys]
        unmatched: Int64s = np.flatnonzero(decided & ~kept.past[complete] & ~taken)
        return unmatched

    # -- out ----------------------------------------------------------------------------------------------------------

    def _output(self, rows: pa.Table, begin: Int64s, found: Found, unmatched: Int64s) -> pa.Table:
        which = np.flatnonzero(found.kinds == codes.MATCH)
        if self.program.rule.rows == "one":
            outputs = Outputs(self.program, rows, found, begin, which, np.diff(found.begin)[which])
            return self._table(outputs, found.starts[which], self.by)
        match, upto, at = all_rows(found, which, omit_empty=self.program.rule.rows == "all_omit_empty")
        outputs = Outputs(self.program, rows, found, begin, match, upto)
        table = self._table(outputs, at, self.shown)
        if not len(unmatched):
            return table
        more = rows.select(list(self.shown)).take(pa.array(unmatched))
        return pa.concat_tables([table, more], promote_options="default")

    def _table(self, outputs: Outputs, at: Int64s, shown: tuple[str, ...]) -> pa.Table:
        own = outputs.rows.select(list(shown)).take(pa.array(at))
        return pa.table({**{name: own.column(name) for name in shown}, **self._measured(outputs)})

    def _measured(self, outputs: Outputs) -> Mapping[str, pa.Array]:
        if not self.raw:
            return outputs.measures()
        return {name: outputs.leaf(tree) for tree, name in leaves_of(self.program.plan).items()}

    def _sides(self, rows: pa.Table, begin: Int64s, found: Found) -> dict[str, pa.Table]:
        sides = {}
        over = np.flatnonzero(found.kinds == codes.TIMED_OUT)
        if self.timed_out and len(over):
            outputs = Outputs(self.program, rows, found, begin, over, np.diff(found.begin)[over])
            by = rows.select(list(self.by)).take(pa.array(found.starts[over]))
            sides["timed_out"] = pa.table({**{name: by.column(name) for name in self.by}, **outputs.measures()})
        dropped = np.flatnonzero(np.isin(found.kinds, list(REASONS)))
        if len(dropped):
            at = found.starts[dropped]
            by = rows.select(list(self.by)).take(pa.array(at))
            started = rows.column(self.on).take(pa.array(at))
            reasons = pa.array([REASONS[int(kind)] for kind in found.kinds[dropped]], pa.string())
            own = {name: by.column(name) for name in self.by}
            sides["dropped"] = pa.table({**own, "started_at": started, "reason": reasons})
        return sides

    # -- kept ---------------------------------------------------------------------------------------------------------

    def _kept(self, kept: Kept, complete: Bools, found: Found, final: bool) -> pa.Table:
        if final:
            empty = np.zeros(len(kept.keys), bool)
            return state_of(kept, empty, empty, found.wake_us, counts=False, schema=self.state)
        keys = kept.keys
        # Among all rows of a key the complete ones come first, so their numbers within the key are the same.
        number = np.arange(len(keys)) - np.searchsorted(keys, np.arange(kept.count))[keys]
        searched = np.searchsorted(keys[complete], np.arange(kept.count))
        start = (found.start - searched)[keys]
        past = number < start
        keep = number >= start - self.program.looks_back
        kept.matches[:] = found.matches
        kept.whole[keys[~keep]] = False
        wake = found.wake_us.copy()
        waiting = np.flatnonzero(~complete)
        first = waiting[np.unique(keys[waiting], return_index=True)[1]]
        of = keys[first]
        wake[of] = np.where(wake[of] < 0, kept.times[first] + 1, np.minimum(wake[of], kept.times[first] + 1))
        return state_of(kept, keep, past, wake, counts=self.program.counts, schema=self.state)


def all_rows(found: Found, which: Int64s, *, omit_empty: bool) -> tuple[Int64s, Int64s, Int64s]:
    """For each row of all matches that is shown: its match, its number in it, and which row it is."""
    sizes = np.diff(found.begin)[which]
    shown = np.maximum(sizes, 0 if omit_empty else 1)
    match = np.repeat(which, shown)
    ends = np.cumsum(shown)
    upto = np.arange(len(match)) - np.repeat(ends - shown, shown) + 1
    empty = np.repeat(sizes == 0, shown)
    upto[empty] = 0
    places = found.begin[match] + np.maximum(upto - 1, 0)
    at = np.where(
        empty, found.starts[match], found.rows[np.minimum(places, len(found.rows) - 1)] if len(found.rows) else 0
    )
    excluded = np.zeros(len(match), bool)
    if len(found.rows):
        excluded = ~empty & found.excluded[np.minimum(places, len(found.rows) - 1)]
    return match[~excluded], upto[~excluded], at[~excluded]


def state_schema(
    rows: pa.Schema, columns: tuple[str, ...], by: tuple[str, ...], marks: tuple[pa.Field, ...]
) -> pa.Schema:
    """What a key keeps: columns of its rows, without its own, and marks."""
    return pa.schema([*(rows.field(name).with_nullable(True) for name in columns if name not in by), *marks])


def dropped_schema(rows: pa.Schema, by: tuple[str, ...], on: str) -> pa.Schema:
    """What is told of a start that was given up: its key, its time and why."""
    started, reason = pa.field("started_at", rows.field(on).type), pa.field("reason", pa.string())
    return pa.schema([*(rows.field(name) for name in by), started, reason])
