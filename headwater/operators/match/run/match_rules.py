"""`MatchRules`: many patterns, which are rows of a table and change while the stream runs.

Rows are kept once for all rules of a key, and the progress of each rule beside them. A state row is either a kept row of
the key (`_rule` is null), with its number among all rows that the key has had, or the progress of a rule in the key: the
number of its next start, and how many matches it has had. A rule without progress begins at the first row that it has
not been shown. A changed rule has another version, and so no progress.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.columns import KEY, PLACES
from headwater.engine.contract import Broadcast, Contract, StepResult
from headwater.engine.event_time import (
    EVER,
    LATE_SAMPLE_ROWS,
    NEVER,
    BatchTime,
    Late,
    late_schema,
    split_late_rows,
)
from headwater.engine.finder import Finder, note_finder
from headwater.engine.operator import EventTimeOperator, claims
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply
from headwater.engine.window_operator import check_columns, check_time
from headwater.errors import ArgumentInvalid
from headwater.operators.match.kernel import codes
from headwater.operators.match.kernel.codes import Bools, Int64s, Rows, SearchResult
from headwater.operators.match.language import check
from headwater.operators.match.language.rule import Rule
from headwater.operators.match.plan.evaluation import over_rows
from headwater.operators.match.plan.program import STEPS_MAX
from headwater.operators.match.run.columns import Columns, columns_of, masks_over
from headwater.operators.match.run.kept_rows import merged
from headwater.operators.match.run.match import (
    PARTIALS_MAX,
    REASONS,
    check_settings,
    read,
    state_schema,
    with_time_and_key,
)
from headwater.operators.match.run.measures import Outputs
from headwater.operators.match.run.rule_set import InvalidRule, RuleReader, RuleSet, RunningRule, rule_set, stored_rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


RULES = "rules"
SEEN, NUMBER = "_seen", "_number"
RULE, VERSION, START, FOUND, WHOLE, WAKE = "_rule", "_version", "_start", "_found", "_whole", "_wake_at"
MARKS = (
    pa.field(SEEN, pa.bool_()),
    pa.field(NUMBER, pa.int64()),
    pa.field(RULE, pa.string()),
    pa.field(VERSION, pa.int64()),
    pa.field(START, pa.int64()),
    pa.field(FOUND, pa.int64()),
    pa.field(WHOLE, pa.bool_()),
    pa.field(WAKE, pa.int64()),
)


@runtime_checkable
class TableOfRules(Protocol):
    """A keyed topic as a table: `hw.Table` is one."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class MatchRules(EventTimeOperator):
    """Find many patterns at once among the rows of each key: those of a table, as it is when a batch begins.

    `rules` is a table of the app, or a topic (`Broadcast(log=…, topic=…)`), with the columns `id`, `text` (of a
    MATCH_RECOGNIZE) and `enabled`. A row replaces the rule of its id; a tombstone, or `enabled` false, removes it. That
    takes effect with the next batch. A rule that has changed begins afresh, all others keep what they have begun. A rule
    that cannot be understood goes to the side output `refused`, and the others are not affected.

    Each match is a row: `rule`, `version` (the offset of the rule in its topic), `match` (its number for the rule and
    key), the key, `started_at`, `ended_at` and `measures`, as JSON. State: the rows of a key since the first start that
    is undecided for any rule, and one row for each rule that has begun there or has had a match.

    >>> from headwater.engine.contract import Broadcast
    >>> MatchRules(rules=Broadcast(log="log", topic="rules"), by="card").by
    'card'
    """

    rules: Broadcast | TableOfRules = field(repr=False)
    by: str | tuple[str, ...]
    late: Late = "drop"
    partials_max: int = PARTIALS_MAX
    steps_max: int = STEPS_MAX
    timed_out: Late = "drop"

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.keys:
            raise ArgumentInvalid(name="by", value=self.by, expected="the columns of the key")
        rules: object = self.rules
        if not isinstance(rules, (Broadcast, TableOfRules)):
            expected = "a table of the app, or `Broadcast(log=…, topic=…)`"
            raise ArgumentInvalid(name="rules", value=rules, expected=expected)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.by,) if isinstance(self.by, str) else tuple(self.by)

    def resolved(self, rows: DataFrame) -> Self:
        timed_out: Late = "side_output" if claims("timed_out") else self.timed_out
        operator = super(MatchRules, replace(self, timed_out=timed_out, name=self.called)).resolved(rows)
        check_time(self.name or "MatchRules", rows, operator.event_time.column)
        check_columns(self.name or "MatchRules", rows, *self.keys)
        return operator

    def __call__(self, rows: DataFrame) -> DataFrame:
        operator = self.resolved(rows)
        time, topic = operator.event_time.column, self._table().topic
        note_finder(Finder(kind="rules", operator=operator.called, time=time, by=self.keys, rules=topic))
        return apply(operator.contract, rows, partitions=self.partitions)

    def side_output(self, name: str, rows: DataFrame) -> DataFrame:
        """The rows of a side output of bounded input. In a stream they lie in the state folder, computed once."""
        return apply(self.resolved(rows).contract, rows, partitions=self.partitions, side=name)

    def contract(self, rows: pa.Schema) -> Contract:
        own = [one.name for one in rows if not one.name.startswith("_")]
        columns = (*own, *(name for name in PLACES if name in rows.names))
        schema = pa.schema([rows.field(name) for name in own])
        state = state_schema(rows, columns, self.keys, MARKS)
        named = [pa.field("rule", pa.string()), pa.field("version", pa.int64()), *map(rows.field, self.keys)]
        time = self.event_time.column
        started = pa.field("started_at", rows.field(time).type)
        ended = pa.field("ended_at", rows.field(time).type)
        match = pa.schema([*named, pa.field("match", pa.int64()), started, ended, pa.field("measures", pa.string())])
        texts = [pa.field(name, pa.string()) for name in ("text", "error")]
        return Contract(
            name=self.called,
            step=RulesStep(
                time_column=time,
                by=self.keys,
                columns=columns,
                schema=schema,
                state=state,
                read=partial(rule_of, schema=schema, time=time, by=self.keys),
                partials_max=self.partials_max,
                steps_max=self.steps_max,
                timed_out=self.timed_out == "side_output",
            ),
            key=self.keys,
            rows=rows,
            state=state,
            output=match,
            side_outputs={
                "late": late_schema(rows),
                "dropped": pa.schema([*named, started, pa.field("reason", pa.string())]),
                "refused": pa.schema([*named[:2], *texts]),
                **({"timed_out": match} if self.timed_out == "side_output" else {}),
            },
            event_time=self.strategy(),
            late="step",
            prompt=True,
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
            broadcast={RULES: self._table()},
        )

    def _table(self) -> Broadcast:
        if isinstance(self.rules, Broadcast):
            return self.rules
        return Broadcast(log=self.rules.log, topic=self.rules.name)


def rule_of(text: str, *, schema: pa.Schema, time: str, by: tuple[str, ...]) -> Rule:
    """The rule of a text, checked against the rows."""
    rule = check(with_time_and_key(read(text, schema), time=time, by=by), schema)
    if rule.then_by:
        expected = "the event time alone: all rules search the same rows, in the same order"
        raise ArgumentInvalid(name="ORDER BY", value=", ".join([time, *rule.then_by]), expected=expected)
    return rule


@dataclass
class Shared:
    """The rows of all keys, which all rules search."""

    rows: pa.Table
    keys: Int64s
    times: Int64s
    seen: Bools
    count: int
    #: The number that the first row here has in its key.
    first_number: Int64s
    complete: Bools
    begin: Int64s = field(init=False)
    searched: pa.Table = field(init=False)

    def __post_init__(self) -> None:
        self.searched = self.rows if self.complete.all() else self.rows.filter(pa.array(self.complete))
        self.begin = np.searchsorted(self.keys[self.complete], np.arange(self.count + 1))


@dataclass
class Progress:
    """How far a rule has come, in the keys where that is not at the end."""

    keys: Int64s
    start: Int64s
    found: Int64s
    whole: Bools


NO_PROGRESS = Progress(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool))


@dataclass(frozen=True, kw_only=True)
class RulesStep:
    """Search the rows of all keys of a partition for all rules."""

    time_column: str
    by: tuple[str, ...]
    columns: tuple[str, ...]
    schema: pa.Schema
    state: pa.Schema
    read: Callable[[str], Rule]
    partials_max: int
    steps_max: int
    timed_out: bool

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        times = np.asarray(micros(rows.column(self.time_column)).combine_chunks())
        rows, sides = split_late_rows(
            rows, times < time.local_watermark_before_us, time.local_watermark_before_us - times
        )
        stored = stored_rules(time.broadcast[RULES])
        reader = RuleReader(self.schema, self.time_column, self.by, self.read)
        rules = rule_set(stored, reader, limits=(self.partials_max, self.steps_max))
        final = time.final or time.local_watermark_us >= EVER
        shared = self._shared(state, rows, time.local_watermark_us, final)
        run = _Run(self, rules, shared, progress_in(state), time.local_watermark_us, final)
        run.all_rules()
        sides |= run.sides()
        told = [one for one in rules.invalid if _is_new(one, time)]
        if told:
            sides["refused"] = _invalid_table(told)
        return StepResult(run.state(), run.output(), sides)

    def _shared(self, state: pa.Table, rows: pa.Table, reached_us: int, final: bool) -> Shared:
        numbers = [np.asarray(one.column(KEY).combine_chunks()) for one in (state, rows)]
        count = int(max(one.max(initial=-1) for one in numbers)) + 1
        old = state.filter(pc.is_valid(state.column(NUMBER)))
        names = [*self.columns, KEY]
        both = pa.concat_tables([old.select(names), rows.select(names).cast(old.select(names).schema)])
        keys = np.asarray(both.column(KEY).combine_chunks())
        times = np.asarray(micros(both.column(self.time_column)).combine_chunks()).astype(np.int64)
        order = merged(both, keys, times, old.num_rows)
        seen = np.concatenate([np.asarray(old.column(SEEN)).astype(bool), np.zeros(rows.num_rows, bool)])[order]
        first = np.zeros(count, np.int64)
        # Kept rows are in the order of their numbers: written backwards, the first of a key stays.
        first[np.asarray(old.column(KEY))[::-1]] = np.asarray(old.column(NUMBER))[::-1]
        ahead = state.filter(pc.is_null(state.column(NUMBER)))
        bare = np.setdiff1d(np.asarray(ahead.column(KEY)), np.asarray(old.column(KEY)))
        if len(bare):  # a key that kept no row: its rules stand at the end of what it had
            of = np.asarray(ahead.column(KEY))
            own = np.isin(of, bare)
            np.maximum.at(first, of[own], np.asarray(ahead.column(START))[own])
        complete = np.ones(len(keys), bool) if final else times[order] < reached_us
        return Shared(both.take(pa.array(order)), keys[order], times[order], seen, count, first, complete)


def progress_in(state: pa.Table) -> dict[tuple[str, int], Progress]:
    """The progress of each version of a rule."""
    ahead = state.filter(pc.is_valid(state.column(RULE)))
    if not ahead.num_rows:
        return {}
    rules, versions = ahead.column(RULE).combine_chunks().dictionary_encode(), np.asarray(ahead.column(VERSION))
    numbers = np.asarray(rules.indices)
    order = np.lexsort((np.asarray(ahead.column(KEY)), versions, numbers))
    changes = np.flatnonzero((np.diff(numbers[order]) != 0) | (np.diff(versions[order]) != 0)) + 1
    keys, start, count = (np.asarray(ahead.column(name)) for name in (KEY, START, FOUND))
    whole, names = np.asarray(ahead.column(WHOLE)).astype(bool), rules.dictionary.to_pylist()
    found = {}
    for at in np.split(order, changes):
        known = (str(names[numbers[at[0]]]), int(versions[at[0]]))
        found[known] = Progress(keys[at], start[at], count[at], whole[at])
    return found


@dataclass
class _Run:
    """One batch of all rules over the rows of a partition."""

    step: RulesStep
    rules: RuleSet
    shared: Shared
    progress: dict[tuple[str, int], Progress]
    reached_us: int
    final: bool
    outputs: list[pa.Table] = field(default_factory=list)
    over: list[pa.Table] = field(default_factory=list)
    dropped: list[pa.Table] = field(default_factory=list)
    after: list[tuple[RunningRule, Progress]] = field(default_factory=list)

    def __post_init__(self) -> None:
        shared = self.shared
        ends = shared.begin[1:] - shared.begin[:-1]
        #: The first row, by its place in the key here, that must be kept for any rule.
        self.needed = ends - self.rules.looks_back
        self.wake = np.full(shared.count, -1, np.int64)
        self.searched_keys = shared.keys[shared.complete]
        seen = np.bincount(shared.keys[shared.seen & shared.complete], minlength=shared.count)
        self.fresh = shared.begin[:-1] + seen
        self.undecided = np.zeros(len(self.searched_keys), bool)

    def all_rules(self) -> None:
        rows = self.shared.searched
        for name, tree in self.rules.derived.items():
            rows = rows.append_column(name, over_rows(tree, rows))
        self.shared.searched = rows
        masks = masks_over(self.rules.masks, rows)
        columns = columns_of(self.rules.whole_columns, self.rules.real_columns, self.rules.texts, rows)
        times = self.shared.times[self.shared.complete]
        for one in self.rules.running:
            before = self.progress.get((one.id, one.version), NO_PROGRESS)
            keys = self._searched(one, before, masks)
            if len(keys):
                self._rule(one, before, keys, masks, columns, times)

    def _searched(self, one: RunningRule, before: Progress, masks: Int64s) -> Int64s:
        """The keys in which a rule has begun, or in which a match of it can begin."""
        first = one.program.code.first
        if one.program.counts or not len(first):
            return np.arange(self.shared.count)
        wanted = np.zeros(self.shared.count, bool)
        wanted[before.keys] = True
        for word, bits in first:
            wanted[self.searched_keys[np.flatnonzero(masks[word] & bits)]] = True
        return np.flatnonzero(wanted)

    def _rule(
        self, one: RunningRule, before: Progress, keys: Int64s, masks: Int64s, columns: Columns, times: Int64s
    ) -> None:
        from headwater.operators.match.kernel.search import search

        shared = self.shared
        start, matches, whole = self.fresh[keys], np.zeros(len(keys), np.int64), np.ones(len(keys), bool)
        at = np.searchsorted(keys, before.keys)
        start[at] = shared.begin[before.keys] + before.start - shared.first_number[before.keys]
        matches[at], whole[at] = before.found, before.whole
        table = Rows(
            times=times,
            masks=masks,
            whole=columns.whole,
            whole_null=columns.whole_null,
            real=columns.real,
            real_null=columns.real_null,
            begin=shared.begin[keys],
            end=shared.begin[keys + 1],
            start=start,
            # To a rule that is new, the first row that it sees is the first of the key.
            first=np.where(whole, start, -1),
            matches=matches,
            # Matches have numbers, so that starts are decided one after the other.
            decided=self.undecided,
            known=start,
            known_us=np.zeros(len(keys), np.int64),
            reached_us=min(self.reached_us, EVER),
            final=self.final,
        )
        found = search(one.program.code_for(columns.texts), one.program.limits, table)
        self._tell(one, found._replace(keys=keys[found.keys]))
        if not self.final:
            self._keep(one, keys, found, whole & (found.start == start))

    # -- kept ---------------------------------------------------------------------------------------------------------

    def _keep(self, one: RunningRule, keys: Int64s, found: SearchResult, whole: Bools) -> None:
        shared = self.shared
        begin = shared.begin[keys]
        is_open = found.start < shared.begin[keys + 1]
        opened = keys[is_open]
        needed = (found.start - begin)[is_open] - one.program.looks_back
        self.needed[opened] = np.minimum(self.needed[opened], needed)
        waking = found.wake_us >= 0
        of, wake = keys[waking & is_open], found.wake_us[waking & is_open]
        self.wake[of] = np.where(self.wake[of] < 0, wake, np.minimum(self.wake[of], wake))
        held = np.flatnonzero(is_open | (found.matches > 0) | (one.program.counts & (found.start > begin)))
        number = shared.first_number[keys[held]] + found.start[held] - begin[held]
        self.after.append((one, Progress(keys[held], number, found.matches[held], whole[held])))

    def state(self) -> pa.Table:
        """The rows that any rule may still look at, and the progress of all rules."""
        shared, schema = self.shared, pa.schema([*self.step.state, pa.field(KEY, pa.int64())])
        if self.final:
            return schema.empty_table()
        place = np.arange(len(shared.keys)) - np.searchsorted(shared.keys, np.arange(shared.count))[shared.keys]
        kept = np.flatnonzero(place >= self.needed[shared.keys])
        keys = shared.keys[kept]
        waiting = np.flatnonzero(~shared.complete)
        first = waiting[np.unique(shared.keys[waiting], return_index=True)[1]]
        of, due = shared.keys[first], shared.times[first] + 1
        self.wake[of] = np.where(self.wake[of] < 0, due, np.minimum(self.wake[of], due))
        leading = np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)]
        wake = self.wake[keys]
        rows = shared.rows.take(pa.array(kept))
        columns = {
            **{one.name: rows.column(one.name) for one in self.step.state if one.name in rows.column_names},
            SEEN: pa.array(shared.complete[kept]),
            NUMBER: pa.array(shared.first_number[keys] + place[kept]),
            WAKE: pa.array(wake, mask=~(leading & (wake >= 0))),
            KEY: pa.array(keys),
        }
        tables = [pa.table(columns), *([progress_table(self.after)] if self.after else [])]
        joined = pa.concat_tables([schema.empty_table(), *tables], promote_options="default").select(schema.names)
        order = np.argsort(np.asarray(joined.column(KEY)), kind="stable")
        return joined.take(pa.array(order))

    # -- told ---------------------------------------------------------------------------------------------------------

    def _tell(self, one: RunningRule, found: SearchResult) -> None:
        if not len(found.kinds):
            return
        sizes = np.diff(found.begin)
        for kinds, told in (((codes.MATCH, codes.CANNOT_SKIP), self.outputs), ((codes.TIMED_OUT,), self.over)):
            which = np.flatnonzero(np.isin(found.kinds, kinds))
            if len(which) and (told is not self.over or self.step.timed_out):
                outputs = Outputs(one.program, self.shared.searched, found, self.shared.begin, which, sizes[which])
                told.append(self._matches(one, outputs))
        which = np.flatnonzero(np.isin(found.kinds, list(REASONS)))
        if len(which):
            reasons = [REASONS[int(kind)] for kind in found.kinds[which]]
            started = self._started(found.starts[which])
            self.dropped.append(pa.table({**self._named(one, found.starts[which]), **started, "reason": reasons}))

    def _matches(self, one: RunningRule, outputs: Outputs) -> pa.Table:
        found, which = outputs.found, outputs.match
        started = found.starts[which]
        ended = np.where(outputs.upto > 0, found.begin[which] + outputs.upto - 1, 0)
        last = np.where(outputs.upto > 0, found.rows[ended] if len(found.rows) else 0, started)
        numbers = found.numbers[which]
        return pa.table(
            {
                **self._named(one, started),
                "match": pa.array(numbers, mask=numbers == 0),
                **self._started(started),
                "ended_at": self.shared.searched.column(self.step.time_column).take(pa.array(last)),
                "measures": pa.array(as_json(outputs.measures(), len(which)), pa.string()),
            }
        )

    def _named(self, one: RunningRule, at: Int64s) -> dict[str, pa.Array]:
        by = self.shared.searched.select(list(self.step.by)).take(pa.array(at))
        return {
            "rule": pa.array([one.id] * len(at), pa.string()),
            "version": pa.array(np.full(len(at), one.version, np.int64)),
            **{name: by.column(name) for name in self.step.by},
        }

    def _started(self, at: Int64s) -> dict[str, pa.Array]:
        return {"started_at": self.shared.searched.column(self.step.time_column).take(pa.array(at))}

    def output(self) -> pa.Table | None:
        return pa.concat_tables(self.outputs) if self.outputs else None

    def sides(self) -> dict[str, pa.Table]:
        told = {"timed_out": self.over, "dropped": self.dropped}
        return {name: pa.concat_tables(tables) for name, tables in told.items() if tables}


def progress_table(after: list[tuple[RunningRule, Progress]]) -> pa.Table:
    """How far rules have come, as rows of the state."""
    sizes = [len(progress.keys) for _, progress in after]
    which = np.repeat(np.arange(len(after)), sizes)
    parts = [progress for _, progress in after]
    return pa.table(
        {
            RULE: pa.array([one.id for one, _ in after], pa.string()).take(pa.array(which)),
            VERSION: pa.array(np.array([one.version for one, _ in after], np.int64)[which]),
            START: pa.array(np.concatenate([one.start for one in parts])),
            FOUND: pa.array(np.concatenate([one.found for one in parts])),
            WHOLE: pa.array(np.concatenate([one.whole for one in parts])),
            KEY: pa.array(np.concatenate([one.keys for one in parts])),
        }
    )


def as_json(measures: dict[str, pa.Array], count: int) -> list[str]:
    """The measures of each match as the text of an object. JSON has no NaN and nothing infinite: they are null."""
    columns = {name: _finite(values).to_pylist() for name, values in measures.items()}
    return [json.dumps({name: values[at] for name, values in columns.items()}, default=str) for at in range(count)]


def _finite(values: pa.Array) -> pa.Array:
    if pa.types.is_list(values.type):
        return pa.ListArray.from_arrays(values.offsets, _finite(values.values), mask=values.is_null())
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))


def _is_new(one: InvalidRule, time: BatchTime) -> bool:
    """Whether a rule came since the batch before: so that it is reported in one batch, also if that is replayed."""
    if time.processing_us is None or time.final:
        return not time.final
    before = NEVER if time.processing_before_us is None else time.processing_before_us
    return before < one.since_us <= time.processing_us


def _invalid_table(invalid: list[InvalidRule]) -> pa.Table:
    return pa.table(
        {
            "rule": pa.array([one.id for one in invalid], pa.string()),
            "version": pa.array([one.version for one in invalid], pa.int64()),
            "text": pa.array([one.text for one in invalid], pa.string()),
            "error": pa.array([one.error for one in invalid], pa.string()),
        }
    )
