"""`Match`: patterns in the order of events, as SQL's MATCH_RECOGNIZE says them or as the builder builds them.

Rows before the watermark (`local_watermark_us`) are complete and searched; later ones wait. A search that needs a row which is
not there yet is open: the key keeps its rows from the open start on, and a timer wakes the key when the time of the
search is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import numpy as np
import pyarrow as pa

from headwater.engine.columns import ALL, PLACES
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import (
    EVER,
    LATE_SAMPLE_ROWS,
    BatchTime,
    Late,
    check_late,
    late_schema,
    split_late_rows,
)
from headwater.engine.finder import Finder, note_finder
from headwater.engine.operator import EventTimeOperator, claims
from headwater.engine.reader_protocol import DirectRead, direct_read, read_with
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply, partitions_of
from headwater.engine.window_operator import check_columns, check_time, keys_of
from headwater.errors import ArgumentInvalid
from headwater.operators.errors import SkipImpossible
from headwater.operators.match.kernel import codes
from headwater.operators.match.kernel.codes import Bools, Int64s, Rows, SearchResult
from headwater.operators.match.language import check, parse, render
from headwater.operators.match.language.rule import MatchRowtime, Rule, map_leaves, rowtime
from headwater.operators.match.plan.evaluation import row_text, spark_text
from headwater.operators.match.plan.program import STEPS_MAX, Program, program
from headwater.operators.match.plan.rule_plan import BITS, Plan, planned
from headwater.operators.match.run.columns import MaskPack, columns_of, mask_pack, masks_of
from headwater.operators.match.run.kept_rows import MARKS, KeptRows, joined, state_of
from headwater.operators.match.run.measures import Outputs, leaf_kinds, leaves_of, measure_kinds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headwater.operators.match.run.match_rules import MatchRules

PARTIALS_MAX = 10_000
REASONS = {codes.TOO_MANY_STEPS: "steps", codes.TOO_MANY_ROWS: "rows"}


@runtime_checkable
class HasRule(Protocol):
    """What can say its rule: a pattern of the builder."""

    def rule(self) -> Rule: ...


@dataclass(frozen=True, kw_only=True)
class Match(EventTimeOperator):
    """Find a pattern among the rows of each key, in the order of event time.

    `pattern` is the text of a MATCH_RECOGNIZE, or a pattern of the builder. Rows are matched up to the watermark; a match
    comes out as soon as no row that may still come could change or suppress it. `by` stands in for
    PARTITION BY where the pattern has none, and the event time of the rows for ORDER BY. With
    `timed_out="side_output"`, partial matches that ran out of their WITHIN go to the side output `timed_out`; no further
    event is needed for that. State: of each key the rows since the first start that is undecided. A start whose search
    wants more than `partials_max` rows, or takes more than `steps_max` steps, is dropped, counted, and a row of the side
    output `dropped`.

    >>> Match("PATTERN (small{2,} big) DEFINE small AS amount < 5, big AS amount > 500", by="card").by
    'card'
    """

    pattern: str | Rule | HasRule = field(kw_only=False)
    by: str | tuple[str, ...] | None = None
    late: Late = "drop"
    partials_max: int = PARTIALS_MAX
    steps_max: int = STEPS_MAX
    timed_out: Late = "drop"
    flink: bool = False

    def __post_init__(self) -> None:
        check_settings(self)
        self.rule()

    def resolved(self, rows: DataFrame) -> Self:
        """With the event time of the rows, or of the column that ORDER BY names."""
        time = self.time if self.time is not None else read(self.pattern).order_by
        timed_out: Late = "side_output" if claims("timed_out") else self.timed_out
        written = replace(self, time=time, timed_out=timed_out, name=self.called)
        return super(Match, written).resolved(rows)

    def rule(self, schema: pa.Schema | None = None) -> Rule:
        """The pattern as a rule, with the key and the time that hold; with a schema, checked against it."""
        time = None if self.time is None else self.event_time.column
        made = with_time_and_key(read(self.pattern, schema), time=time, by=self.by, flink=self.flink)
        return made if schema is None else check(made, schema)

    def __call__(self, rows: DataFrame) -> DataFrame:
        return self.resolved(rows)._found(rows)

    def _found(self, rows: DataFrame) -> DataFrame:
        rule, plan = self._planned(rows)
        note_finder(self.finder(rule))
        make = partial(self.contract, plan=plan, raw=True)
        read = self._read(rows, plan)
        if read is None:
            return finished(apply(make, self._prepared(rows, plan), partitions=self._count(rule)), plan)
        direct, masked = read
        packed = read_with(rows, masked, direct.options)
        return finished(apply(make, packed, packed=masked.packs, timed=rows, partitions=masked.partitions), plan)

    def finder(self, rule: Rule) -> Finder:
        """Describe the pattern, for the console and notebooks that show its matches."""
        text = self.pattern if isinstance(self.pattern, str) else render(rule)
        return Finder(kind="pattern", operator=self.called, time=rule.order_by, by=tuple(rule.by), text=text)

    def side_output(self, name: str, rows: DataFrame) -> DataFrame:
        """The rows of a side output of bounded input. In a stream they lie in the state folder, computed once."""
        operator = self.resolved(rows)
        rule, plan = operator._planned(rows)
        make = partial(operator.contract, plan=plan, raw=True)
        return apply(make, operator._prepared(rows, plan), partitions=self._count(rule), side=name)

    def contract(self, rows: pa.Schema, *, plan: Plan, raw: bool = False) -> Contract:
        """How the engine runs it; `rows` has the columns that the plan makes."""
        rule = plan.rule
        keys, time = keys_of(rule.by), str(rule.order_by)
        made = program(plan, rows).bounded(rows_max=self.partials_max, steps_max=self.steps_max)
        places = (name for name in PLACES if name in rows.names)
        needed = (*keys, time, *rule.then_by, *places, *plan.columns, *plan.mask_columns)
        own = [one.name for one in rows if not one.name.startswith("_")]
        columns = tuple(dict.fromkeys(needed if rule.rows == "one" else (*needed, *own)))
        by = () if keys == (ALL,) else keys
        shown = by if rule.rows == "one" else tuple(own)
        state = state_schema(rows, columns, keys, MARKS)
        step = MatchStep(
            program=made,
            time_column=time,
            by=by,
            columns=columns,
            shown=shown,
            state=state,
            raw=raw,
            timed_out=self.timed_out == "side_output",
        )
        return Contract(
            name=self.called,
            step=step,
            key=keys,
            rows=rows,
            state=state,
            output=pa.schema([*(rows.field(name) for name in shown), *_measured(made, rows, raw)]),
            side_outputs=self._sides(made, rows, by, time),
            event_time=self.strategy(),
            # Rows leave with their match, which may last as long as WITHIN says; without a bound none could tell how long.
            output_times=(self.event_time.later(rule.within_us / 1e6),) if time in shown and rule.within_us else (),
            late="step",
            prompt=True,
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
            hidden=tuple(name for name in rows.names if name in (ALL, *plan.mask_columns, *plan.derived)),
        )

    def _sides(self, made: Program, rows: pa.Schema, by: tuple[str, ...], time: str) -> Mapping[str, pa.Schema]:
        sides = {"late": late_schema(rows), "dropped": dropped_schema(rows, by, time)}
        if self.timed_out == "side_output":
            sides["timed_out"] = pa.schema([*(rows.field(name) for name in by), *measure_kinds(made, rows)])
        return sides

    def _planned(self, rows: DataFrame) -> tuple[Rule, Plan]:
        from pyspark.sql.pandas.types import to_arrow_schema

        rule = self.rule()
        called = self.name or "Match"
        check_time(called, rows, str(rule.order_by))
        check_columns(called, rows, *rule.by, *rule.then_by)
        return rule, planned(self.rule(to_arrow_schema(rows.schema, timezone="UTC")))

    def _read(self, rows: DataFrame, plan: Plan) -> tuple[DirectRead, MaskPack] | None:
        """What the reader of a topic computes and packs; None where that is Spark's to do."""
        from pyspark.sql.pandas.types import to_arrow_schema

        direct = direct_read(rows) if plan.rule.by else None
        if direct is None:
            return None
        found = mask_pack(
            direct,
            plan,
            name=self.called,
            rows=to_arrow_schema(rows.schema, timezone="UTC"),
            kept=self._carried(rows, plan),
            keys=keys_of(plan.rule.by),
            partitions=partitions_of(rows, self._count(plan.rule)),
        )
        return None if found is None else (direct, found)

    def _carried(self, rows: DataFrame, plan: Plan) -> list[str]:
        """The columns of the rows that go to the search."""
        if self.late == "side_output" or plan.rule.rows != "one":
            return list(rows.columns)
        needed = [*keys_of(plan.rule.by), str(plan.rule.order_by), *plan.rule.then_by, *PLACES, *plan.columns]
        return list(dict.fromkeys(name for name in needed if name in rows.columns))

    def _prepared(self, rows: DataFrame, plan: Plan) -> DataFrame:
        """The rows with what is computed of each by itself, and only the columns that are needed."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        keys = keys_of(plan.rule.by)
        kept = self._carried(rows, plan)
        more = {name: F.expr(row_text(tree)) for name, tree in plan.derived.items()}
        more |= {name: _mask(plan, word) for word, name in enumerate(plan.mask_columns)}
        more |= {ALL: F.lit(0)} if ALL in keys else {}
        return rows.select(*(F.col(f"`{name}`") for name in kept), *(one.alias(name) for name, one in more.items()))

    def _count(self, rule: Rule) -> int | None:
        return self.partitions if rule.by else 1


def check_settings(given: Match | MatchRules) -> None:
    """Raise on settings that one pattern and many have in common."""
    check_late(given.late)
    if given.timed_out not in ("drop", "side_output"):
        raise ArgumentInvalid(name="timed_out", value=given.timed_out, expected='"drop" or "side_output"')
    for name, value in (("partials_max", given.partials_max), ("steps_max", given.steps_max)):
        if value < 1:
            raise ArgumentInvalid(name=name, value=value, expected="at least 1")


def read(pattern: str | Rule | HasRule, schema: pa.Schema | None = None) -> Rule:
    """The rule of a text, of a pattern of the builder, or as it is. What in a text does not fit a schema is shown there."""
    if isinstance(pattern, Rule):
        return pattern
    if isinstance(pattern, str):
        return parse(pattern, schema)
    if isinstance(pattern, HasRule):
        return pattern.rule()
    raise ArgumentInvalid(name="pattern", value=pattern, expected="the text of a MATCH_RECOGNIZE, or a pattern")


def with_time_and_key(rule: Rule, *, time: str | None, by: str | tuple[str, ...] | None, flink: bool = False) -> Rule:
    """The rule with its key and time; what it says itself may only be said again."""
    wanted = None if by is None else ((by,) if isinstance(by, str) else tuple(by))
    if wanted is not None and rule.by and tuple(rule.by) != wanted:
        raise ArgumentInvalid(name="by", value=by, expected=f"what PARTITION BY says: {', '.join(rule.by)}")
    if time is not None and rule.order_by is not None and time != rule.order_by:
        raise ArgumentInvalid(name="time", value=time, expected=f"what ORDER BY says: {rule.order_by}")
    ordered = rule.order_by or time
    made = replace(rule, by=tuple(rule.by) or wanted or (), order_by=ordered)
    if ordered is not None:
        at = rowtime(ordered)
        measures = (
            replace(one, tree=map_leaves(one.tree, lambda leaf: at if leaf == MatchRowtime() else leaf))
            for one in rule.measures
        )
        made = replace(made, measures=tuple(measures))
    if flink:
        # To Flink a match may last less than WITHIN, and not exactly as long.
        within = None if made.within_us is None else made.within_us - 1
        between = None if made.between_us is None else made.between_us - 1
        made = replace(made, within_us=within, between_us=between)
    return made


def finished(rows: DataFrame, plan: Plan) -> DataFrame:
    """The measures, made by Spark of what the search found for them."""
    from pyspark.sql import functions as F  # noqa: N812

    names = leaves_of(plan)
    own = [F.col(f"`{name}`") for name in rows.columns if name not in names.values()]
    measures = [F.expr(spark_text(one.tree, lambda leaf: names[leaf])).alias(one.name) for one in plan.rule.measures]
    return rows.select(*own, *measures)


def _mask(plan: Plan, word: int) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    mask = F.lit(0).cast("long")
    for bit, tree in enumerate(plan.masks[word * BITS : (word + 1) * BITS]):
        held = F.when(F.expr(row_text(tree)), F.lit(1 << bit).cast("long")).otherwise(F.lit(0).cast("long"))
        mask = mask.bitwiseOR(held)
    return mask


def _measured(made: Program, rows: pa.Schema, raw: bool) -> list[pa.Field]:
    return leaf_kinds(made, rows) if raw else measure_kinds(made, rows)


@dataclass(frozen=True, kw_only=True)
class MatchStep:
    """Search the rows of all keys of a partition."""

    program: Program
    time_column: str
    by: tuple[str, ...]
    #: All columns that are kept: of the key, the time, the place, and what the rule looks at.
    columns: tuple[str, ...]
    #: The columns of the rows that come out with ALL ROWS PER MATCH.
    shown: tuple[str, ...]
    state: pa.Schema
    #: Whether Spark computes the measures of what they are made of.
    raw: bool = False
    timed_out: bool = False

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        times = np.asarray(micros(rows.column(self.time_column)).combine_chunks())
        rows, sides = split_late_rows(
            rows, times < time.local_watermark_before_us, time.local_watermark_before_us - times
        )
        then_by = self.program.rule.then_by
        kept = joined(state, rows, columns=self.columns, time=self.time_column, then_by=then_by)
        final = time.final or time.local_watermark_us >= EVER
        complete = np.ones(len(kept.keys), bool) if final else kept.times < time.local_watermark_us
        searched, begin, found = self.search(kept, complete, time.local_watermark_us, final)
        self._check(found)
        unmatched = self._unmatched(kept, complete, found)
        kept.reached_us[:] = min(time.local_watermark_us, EVER)
        output = self._output(searched, begin, found, unmatched)
        sides |= self._sides(searched, begin, found)
        return StepResult(self._kept(kept, complete, found, final), output, sides)

    @property
    def looked_at(self) -> tuple[str, ...]:
        """The columns that the search and what comes out of it need: not those that only tell where a row stands."""
        plan = self.program.plan
        return tuple(dict.fromkeys([*self.by, self.time_column, *self.shown, *plan.columns, *plan.mask_columns]))

    # -- the search ---------------------------------------------------------------------------------------------------

    def search(
        self, kept: KeptRows, complete: Bools, reached_us: int, final: bool
    ) -> tuple[pa.Table, Int64s, SearchResult]:
        """The rows that are complete, where those of each key begin, and what is found among them."""
        from headwater.operators.match.kernel.search import search

        rows = kept.part(np.flatnonzero(complete), self.looked_at)
        keys = kept.keys[complete]
        begin = np.searchsorted(keys, np.arange(kept.count + 1))
        searched = np.bincount(keys[kept.times[complete] < kept.reached_us[keys]], minlength=kept.count)
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
            start=self._first_open(kept, complete, begin),
            first=np.where(kept.whole, begin[:-1], -1),
            matches=kept.matches,
            decided=kept.decided[complete],
            known=begin[:-1] + searched,
            known_us=kept.reached_us,
            reached_us=min(reached_us, EVER),
            final=final,
        )
        return rows, begin, search(made.code_for(columns.texts), made.limits, table)

    def _first_open(self, kept: KeptRows, complete: Bools, begin: Int64s) -> Int64s:
        """The first row of each key at which a search is still to be decided."""
        undecided = np.append(np.flatnonzero(~kept.decided[complete]), begin[-1])
        found: Int64s = np.minimum(undecided[np.searchsorted(undecided, begin[:-1])], begin[1:])
        return found

    def _check(self, found: SearchResult) -> None:
        at = np.flatnonzero(found.kinds == codes.CANNOT_SKIP)
        if len(at):
            variable = self.program.rule.after.variable or ""
            members = self.program.members(variable)
            taken = found.variables[found.begin[at[0]] : found.begin[at[0] + 1]]
            none = "no row of the match is mapped to it"
            why = "it is the row at which the match began" if members[taken].any() else none
            raise SkipImpossible(variable=variable, why=why)

    def _unmatched(self, kept: KeptRows, complete: Bools, found: SearchResult) -> Int64s:
        """The rows, among the complete ones, of which it is now certain that no match has them."""
        if self.program.rule.rows != "all_with_unmatched":
            return np.empty(0, np.int64)
        taken = kept.taken[complete]
        sizes = np.diff(found.begin)
        matched = found.kinds == codes.MATCH
        taken[found.rows[np.repeat(matched, sizes)]] = True
        taken[found.starts[matched & (sizes == 0)]] = True
        kept.taken[complete] = taken
        keys, at = kept.keys[complete], np.arange(int(complete.sum()))
        begin = np.searchsorted(keys, np.arange(kept.count + 1))
        told = at < self._first_open(kept, complete, begin)[keys]
        unmatched: Int64s = np.flatnonzero((at < found.start[keys]) & ~told & ~taken)
        return unmatched

    # -- out ----------------------------------------------------------------------------------------------------------

    def _output(self, rows: pa.Table, begin: Int64s, found: SearchResult, unmatched: Int64s) -> pa.Table:
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

    def _sides(self, rows: pa.Table, begin: Int64s, found: SearchResult) -> dict[str, pa.Table]:
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
            started = rows.column(self.time_column).take(pa.array(at))
            reasons = pa.array([REASONS[int(kind)] for kind in found.kinds[dropped]], pa.string())
            own = {name: by.column(name) for name in self.by}
            sides["dropped"] = pa.table({**own, "started_at": started, "reason": reasons})
        return sides

    # -- kept ---------------------------------------------------------------------------------------------------------

    def _kept(self, kept: KeptRows, complete: Bools, found: SearchResult, final: bool) -> pa.Table:
        if final:
            empty = np.zeros(len(kept.keys), bool)
            return state_of(kept, empty, empty, found.wake_us, counts=False, schema=self.state)
        keys = kept.keys
        # Among all rows of a key the complete ones come first, so their numbers within the key are the same.
        number = np.arange(len(keys)) - np.searchsorted(keys, np.arange(kept.count))[keys]
        searched = np.searchsorted(keys[complete], np.arange(kept.count))
        start = (found.start - searched)[keys]
        decided = np.zeros(len(keys), bool)
        decided[complete] = found.decided
        keep = number >= start - self.program.looks_back
        kept.matches[:] = found.matches
        kept.whole[keys[~keep]] = False
        wake = found.wake_us.copy()
        waiting = np.flatnonzero(~complete)
        first = waiting[np.unique(keys[waiting], return_index=True)[1]]
        of = keys[first]
        wake[of] = np.where(wake[of] < 0, kept.times[first] + 1, np.minimum(wake[of], kept.times[first] + 1))
        return state_of(kept, keep, decided, wake, counts=self.program.counts, schema=self.state)


def all_rows(found: SearchResult, which: Int64s, *, omit_empty: bool) -> tuple[Int64s, Int64s, Int64s]:
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
