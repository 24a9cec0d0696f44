"""The engine: runs an operator's step over all keys of one partition at once, with their state.

A batch goes through these steps: rows that cannot be used leave by the side output `rejected`; rows behind the watermark
before the batch leave by the side output `late`; the rest is sorted by key, time, partition and offset; the state of the
keys touched, by rows or by due timers, is looked up; the step runs with the rows, and once more without them for the keys
whose timers are due at the watermark after the batch; what changed is saved as the batch's version. Everything is computed
from the input, from what the sources recorded with the batch and from version n-1, so a repeated attempt gives the same.

Where no source has recorded the event times of a batch, the rows of earlier batches decide: the watermark after a batch is
then the one before it.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.columns import EVENT_TIMER, HASH, KEY, LIVE, PROCESSING_TIMER, TIMERS
from headwater.engine.contract import Contract, StepResult
from headwater.engine.errors import StepFailed, StepInvalid
from headwater.engine.event_time import (
    EVER,
    NEVER,
    BatchTime,
    SourceProgress,
    WatermarkStrategy,
    fading,
    merge_learnt,
    merge_progress,
)
from headwater.engine.questions import ANSWERS, Question, answers_of
from headwater.engine.rows import (
    KeyedRows,
    Numbers,
    micros,
    no_keys,
    rows_in,
    source_progress,
    split_late,
    touch,
    usable_rows,
)
from headwater.engine.state_folder import SUFFIX, Folder
from headwater.engine.state_store import Manifest, StateStore, latest_of_inputs
from headwater.errors import HeadwaterError
from headwater.faults import reach

#: Side outputs stay on the disk for so many batches, and are looked through once in so many.
SIDE_BATCHES_KEPT = 1_000
SIDE_BATCHES_CLEANED = 100
#: What is counted for a batch alone; everything else is counted from the beginning.
FRESH = ("rows", "keys", "output")
_PACKAGE = str(Path(__file__).parents[1]) + os.sep


class PartitionEngine:
    """One partition of one operator in one query."""

    def __init__(self, contract: Contract, folder: Folder, *, slot: int) -> None:
        self._contract = contract
        self._folder = folder
        self._slot = slot
        self._store = StateStore(
            folder,
            slot=slot,
            operator=contract.name,
            key=contract.key_schema,
            state=contract.state,
            partitions=contract.partitions,
        )

    def run(
        self,
        rows: pa.Table,
        *,
        batch: int,
        processing_us: int | None,
        broadcast: Mapping[str, pa.Table],
        recorded: SourceProgress | None = None,
        final: bool = False,
        first_of_run: bool = False,
    ) -> pa.Table:
        """One batch: the output of the step, after its state is safe.

        `recorded` is what the sources recorded with the batch; None where the rows decide. After a `final` batch nothing
        follows. The first batch of a run of the query may be one that the run before has begun.
        """
        contract = self._contract
        noted = self._store.load_all(batch)
        before = self._store.part_of(noted, batch)
        if processing_us is not None and before.processing_us is not None:
            processing_us = max(processing_us, before.processing_us)  # a clock may be set back, time is not
        # Without event time, what a partition computes depends on nothing that the others have noted.
        all_before = [before] if contract.time is None else noted
        is_recorded = recorded is not None and (before.is_recorded or any(recorded.values()))
        usable, rejected = usable_rows(rows, contract)
        known = before.progress if before.is_recorded == is_recorded else {}
        if before.batch < 0:
            known = contract.event_time.awaited(processing_us)
        if is_recorded and recorded is not None:
            progress = merge_progress([known, recorded])
            moments = self._recorded_moments(before, progress, processing_us, has_rows=usable.num_rows > 0)
        else:
            progress = merge_progress([known, source_progress(rows, contract, processing_us)])
            moments = [self._moment_of_rows(before, all_before, progress, processing_us)]
        if final and contract.time is not None:
            moments = [moments[0], at_the_end(moments[0])]
        learnt = merge_learnt(one.learnt for one in all_before)
        moments = [
            replace(
                one,
                processing_us=processing_us,
                processing_before_us=before.processing_us,
                batch=batch,
                broadcast=broadcast,
                learnt=learnt,
            )
            for one in moments
        ]
        first, last = moments[0], moments[-1]
        on_time, late = split_late(usable, contract, first.watermark_before_us if is_recorded else first.watermark_us)
        timed_us = last.local_watermark_us if contract.prompt else last.watermark_us
        due = self._store.due(before, event_us=timed_us, processing_us=processing_us)
        touched = touch(on_time, due, contract)
        reach("engine.before_lookup")
        state = self._store.look_up(before, touched.hashes, touched.keys)
        stepped = run_step(contract, state, touched, first)
        if len(moments) > 1:
            stepped = run_due(contract, touched, stepped, last)
        sides = {**stepped.side_outputs, "rejected": rejected}
        if late is not None:
            sides["late"] = late
        self._write_sides(batch, sides)
        if batch % SIDE_BATCHES_CLEANED == 0:
            self._clean_sides(batch)
        if first_of_run:
            self._discard_sides(batch, [name for name, table in sides.items() if table.num_rows])
        changed = changes(contract, touched, state, stepped)
        after = Manifest(
            batch=batch,
            partitions=contract.partitions,
            progress=progress,
            watermark_us=last.watermark_us,
            local_watermark_us=last.local_watermark_us,
            processing_us=processing_us,
            timers_checked=self._store.checked(before, event_us=timed_us, processing_us=processing_us),
            counts={
                "rows": rows.num_rows,
                "keys": len(touched.hashes),
                "output": 0 if stepped.output is None else stepped.output.num_rows,
                **{name: count for name, count in before.counts.items() if name not in FRESH},
                **{name: before.counts.get(name, 0) + rows_in(table) for name, table in sides.items()},
                "evicted": before.counts.get("evicted", 0) + keys_gone(changed),
            },
            learnt=fading(merge_learnt([before.learnt, stepped.learnt])),
            of_inputs_us=dict(last.of_inputs_us),
            is_recorded=is_recorded,
            output_us=output_watermarks(contract, last.watermark_us) if is_recorded else {},
        )
        reach("engine.before_save")
        self._store.save(before, after, changed)
        reach("engine.saved")
        return finished_output(contract, touched, stepped.output)

    def answer(self, questions: Sequence[Question], *, batch: int) -> None:
        """Answer from the state that a batch has left, into the side output `answers`. Nothing is changed by it."""
        manifest = self._store.manifest(batch)
        asked = [one for one in questions if one.operator in (None, self._contract.name)]
        if asked:
            look = partial(self._store.everything, manifest)
            self._write_sides(batch, {ANSWERS: answers_of(self._contract, look, asked)})

    def _recorded_moments(
        self, before: Manifest, progress: SourceProgress, processing_us: int | None, *, has_rows: bool
    ) -> list[BatchTime]:
        """The watermark before the batch, at which its rows come, and the one after it; one moment where that is enough."""
        strategy = self._contract.event_time
        before_us = before.watermark_us
        after_us = min(EVER, strategy.watermark([progress], previous_us=before_us, now_us=processing_us))
        of_inputs_us = strategy.watermarks([progress], previous_us=before.of_inputs_us, now_us=processing_us)
        after = BatchTime(
            watermark_us=after_us,
            watermark_before_us=before_us,
            local_watermark_us=after_us,
            local_watermark_before_us=before_us,
            final=after_us >= EVER,
            of_inputs_us=of_inputs_us,
        )
        is_still = after_us == before_us and of_inputs_us == before.of_inputs_us
        if is_still or not has_rows or (self._contract.prompt and not after.final):
            return [after]
        first = replace(
            after,
            watermark_us=before_us,
            local_watermark_us=before_us,
            final=False,
            of_inputs_us=before.of_inputs_us,
        )
        return [first, after]

    def _moment_of_rows(
        self, before: Manifest, noted: list[Manifest], progress: SourceProgress, processing_us: int | None
    ) -> BatchTime:
        """The watermark as the rows of earlier batches have moved it."""
        watermark_us = self._watermark(noted, processing_us)
        local_watermark_us = self._local_watermark(noted, progress, watermark_us, processing_us)
        return BatchTime(
            watermark_us=watermark_us,
            watermark_before_us=before.watermark_us,
            local_watermark_us=max(before.local_watermark_us, local_watermark_us),
            local_watermark_before_us=before.local_watermark_us,
            of_inputs_us=self._of_inputs(noted, processing_us),
        )

    def _watermark(self, noted: list[Manifest], processing_us: int | None) -> int:
        if self._contract.time is None:
            return NEVER
        previous_us = max(manifest.watermark_us for manifest in noted)
        progress = [manifest.progress for manifest in noted]
        return self._contract.event_time.watermark(progress, previous_us=previous_us, now_us=processing_us)

    def _local_watermark(
        self, noted: list[Manifest], progress: SourceProgress, watermark_us: int, processing_us: int | None
    ) -> int:
        """The watermark with the rows of this batch, as far as they came to this partition.

        Other partitions may have seen more by now, never less; but a source partition that only they have read is
        none that this one could wait for. In the first batch that may be all of them.
        """
        if self._contract.time is None or not any(manifest.progress for manifest in noted):
            return watermark_us
        everything = [*(manifest.progress for manifest in noted), progress]
        return self._contract.event_time.watermark(everything, previous_us=watermark_us, now_us=processing_us)

    def _of_inputs(self, noted: list[Manifest], processing_us: int | None) -> dict[str, int]:
        progress = [manifest.progress for manifest in noted]
        return self._contract.event_time.watermarks(progress, previous_us=latest_of_inputs(noted), now_us=processing_us)

    def _write_sides(self, batch: int, sides: Mapping[str, pa.Table]) -> None:
        for name, table in sides.items():
            kept = table.slice(0, self._contract.late_rows_max) if name == "late" else table
            kept = kept.drop_columns([hidden for hidden in self._contract.hidden if hidden in kept.column_names])
            if kept.num_rows:
                self._folder.within("sides").within(name).write(f"{batch:012d}-{self._slot:05d}", kept)
                reach("side.written")

    def _clean_sides(self, batch: int) -> None:
        """Remove what this partition has put into side outputs long ago: a query that runs for ever has late rows for ever."""
        sides = self._folder.within("sides")
        for side in sides.folders():
            for name in sides.within(side).names():
                number, _, place = name.removesuffix(SUFFIX).partition("-")
                if int(number) <= batch - SIDE_BATCHES_KEPT and int(place) % self._contract.partitions == self._slot:
                    sides.within(side).remove(name)

    def _discard_sides(self, batch: int, written: Sequence[str]) -> None:
        """Remove what an earlier run of the query, whose state was cut otherwise, has put into the side outputs of a batch.

        Cut in the same way, a batch that is done again writes the same files. Files of other partitions of this run stay.
        """
        sides, count = self._folder.within("sides"), self._contract.partitions
        for side in sides.folders():
            for name in sides.within(side).names():
                number, _, place = name.removesuffix(SUFFIX).partition("-")
                is_own = int(number) == batch and int(place) % count == self._slot
                if is_own and (int(place) >= count or side not in (*written, ANSWERS)):
                    sides.within(side).remove(name)


def run_bounded(
    contract: Contract, rows: pa.Table, broadcast: Mapping[str, pa.Table]
) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The same operator over rows that are all there: one step with the rows, and where there are timers one more in
    which all time has passed."""
    usable, rejected = usable_rows(rows, contract)
    touched = touch(usable, no_keys(contract), contract)
    nothing = pa.schema([*contract.key_schema, *contract.state, pa.field(KEY, pa.int64())]).empty_table()
    steps = [run_step(contract, nothing, touched, BatchTime(local_watermark_us=EVER, broadcast=broadcast))]
    if any(timer in contract.state.names for timer in TIMERS):
        kept = with_keys(contract, touched, steps[0].state)
        last = KeyedRows(touched.hashes, touched.keys, touched.rows.slice(0, 0))
        time = BatchTime(
            watermark_us=EVER,
            local_watermark_us=EVER,
            local_watermark_before_us=EVER,
            processing_us=EVER,
            final=True,
            broadcast=broadcast,
        )
        steps.append(run_step(contract, kept, last, time))
    outputs = [finished_output(contract, touched, one.output) for one in steps]
    sides: dict[str, list[pa.Table]] = {"rejected": [rejected]}
    for one in steps:
        for name, table in one.side_outputs.items():
            sides.setdefault(name, []).append(table)
    return pa.concat_tables(outputs), {name: pa.concat_tables(tables) for name, tables in sides.items()}


# -- the step ---------------------------------------------------------------------------------------------------------


def run_step(contract: Contract, state: pa.Table, touched: KeyedRows, time: BatchTime) -> StepResult:
    """Call the step; an error says which operator, batch, keys and offsets it met."""
    if not len(touched.hashes) and not time.final:
        return StepResult(state.slice(0, 0), None)
    try:
        found = contract.step(state, touched.rows, time)
    except HeadwaterError:
        raise
    except Exception as error:
        raise StepFailed(
            operator=contract.name,
            batch="(bounded)" if time.batch is None else str(time.batch),
            keys=str(touched.keys.slice(0, 3).to_pylist()),
            offsets=_offset_range(touched.rows),
            error=f"{type(error).__name__}: {error}{_place(error)}",
        ) from error
    stepped = found if isinstance(found, StepResult) else StepResult(*found)
    return replace(stepped, state=_checked_state(contract, stepped.state, touched))


def run_due(contract: Contract, touched: KeyedRows, first: StepResult, time: BatchTime) -> StepResult:
    """Call the step again, without rows, for the keys whose timers in event time are due by now."""
    if EVENT_TIMER not in contract.state.names or not first.state.num_rows:
        return first
    keys = np.asarray(first.state.column(KEY).combine_chunks())
    due = np.zeros(len(touched.hashes), bool)
    wakes = np.asarray(pc.fill_null(micros(first.state.column(EVENT_TIMER)), EVER + 1).combine_chunks())
    due[keys[wakes <= time.watermark_us]] = True
    if not due.any():
        return first
    state = with_keys(contract, touched, first.state.filter(pa.array(due[keys])))
    second = run_step(contract, state, KeyedRows(touched.hashes, touched.keys, touched.rows.slice(0, 0)), time)
    rest = first.state.filter(pa.array(~due[keys]))
    both = pa.concat_tables([rest, second.state.cast(rest.schema)]).combine_chunks()
    changed = first.changed
    if changed is not None:
        changed = np.union1d(changed, np.flatnonzero(due) if second.changed is None else second.changed)
    outputs = [finished_output(contract, touched, one.output) for one in (first, second)]
    sides = dict(first.side_outputs)
    for name, table in second.side_outputs.items():
        sides[name] = pa.concat_tables([sides[name], table]) if name in sides else table
    return StepResult(
        both.take(pa.array(np.argsort(np.asarray(both.column(KEY)), kind="stable"))) if rest.num_rows else both,
        pa.concat_tables(outputs),
        sides,
        merge_learnt([first.learnt, second.learnt]),
        changed,
    )


def at_the_end(time: BatchTime) -> BatchTime:
    """The moment after a batch behind which nothing follows."""
    return replace(
        time,
        watermark_us=EVER,
        watermark_before_us=time.watermark_us,
        local_watermark_us=EVER,
        local_watermark_before_us=time.local_watermark_us,
        final=True,
        of_inputs_us=dict.fromkeys(time.of_inputs_us, EVER),
    )


def output_watermarks(contract: Contract, watermark_us: int) -> dict[str, int]:
    """For columns of the output the time before which no later result comes."""
    if watermark_us <= NEVER:
        return {}
    if watermark_us >= EVER:
        return dict.fromkeys([*(time.column for time in contract.output_times), *contract.output_floors], EVER)
    delay_us = contract.event_time.delay_us
    behind = {time.column: max(0, WatermarkStrategy.of(time).delay_us - delay_us) for time in contract.output_times}
    found = {column: watermark_us - behind_us for column, behind_us in behind.items()}
    return found | {column: floor(watermark_us) for column, floor in contract.output_floors.items()}


def _place(error: Exception) -> str:
    """Where in the user's code a step failed: Spark shows people the message alone, and forgets what caused it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not one.filename.startswith(_PACKAGE) and "site-packages" not in one.filename]
    return f' (File "{own[-1].filename}", line {own[-1].lineno}, in {own[-1].name})' if own else ""


def _offset_range(rows: pa.Table) -> str:
    if "_offset" not in rows.column_names or not rows.num_rows:
        return "no offsets"
    bounds = pc.min_max(rows.column("_offset")).as_py()
    return f"offsets {bounds['min']} to {bounds['max']}"


def _checked_state(contract: Contract, state: pa.Table, touched: KeyedRows) -> pa.Table:
    wanted = pa.schema([*contract.state, pa.field(KEY, pa.int64())])
    try:
        state = state.select(wanted.names).cast(wanted)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise StepInvalid(operator=contract.name, what="a state", why=str(error)) from error
    numbers = np.asarray(state.column(KEY).combine_chunks())
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(touched.hashes)):
        raise StepInvalid(operator=contract.name, what="a state", why="`_key` names a key that was not given")
    if len(numbers) > 1 and (numbers[1:] < numbers[:-1]).any():
        state = state.take(pa.array(np.argsort(numbers, kind="stable")))
    return state


def with_keys(contract: Contract, touched: KeyedRows, state: pa.Table) -> pa.Table:
    """State with its key columns, as the step is given it."""
    keys = touched.keys.take(state.column(KEY))
    columns = [*keys.columns, *(state.column(field.name) for field in contract.state), state.column(KEY)]
    return pa.table(columns, schema=pa.schema([*contract.key_schema, *contract.state, pa.field(KEY, pa.int64())]))


def changes(contract: Contract, touched: KeyedRows, before: pa.Table, stepped: StepResult) -> pa.Table | None:
    """What to save: the new rows of every key that has state, and a mark for every key that no longer has."""
    if not len(touched.hashes) or (stepped.changed is not None and not len(stepped.changed)):
        return None
    after = stepped.state
    if stepped.changed is not None:
        before, after = (
            one.filter(pa.array(np.isin(np.asarray(one.column(KEY)), stepped.changed))) for one in (before, after)
        )
    kept = np.asarray(after.column(KEY).combine_chunks())
    left = np.zeros(len(touched.hashes), dtype=bool)
    left[np.asarray(before.column(KEY).combine_chunks())] = True
    left[kept] = False
    gone = np.flatnonzero(left)
    keys = touched.keys.take(pa.array(np.concatenate([kept, gone])))
    numbers = np.concatenate([kept, gone])
    empty = pa.table({field.name: pa.nulls(len(gone), field.type) for field in contract.state})
    state = pa.concat_tables([after.select([field.name for field in contract.state]), empty.cast(contract.state)])
    live = np.concatenate([np.ones(len(kept), bool), np.zeros(len(gone), bool)])
    table = pa.table(
        [pa.array(touched.hashes[numbers]), pa.array(live), *keys.columns, *state.columns],
        names=[HASH, LIVE, *contract.key, *contract.state.names],
    )
    # Keys are numbered in the order of their hashes; only the dead ones stand apart.
    return table.take(pa.array(np.argsort(numbers, kind="stable"))) if len(gone) else table


def keys_gone(changed: pa.Table | None) -> int:
    """How many keys no longer have state: their windows were closed, or they had their time."""
    return 0 if changed is None else int(changed.num_rows - (pc.sum(changed.column(LIVE)).as_py() or 0))


def finished_output(contract: Contract, touched: KeyedRows, output: pa.Table | None) -> pa.Table:
    """The output under its declared schema; `_key` is replaced by the key's columns where they are missing."""
    if output is None:
        return contract.output.empty_table()
    if KEY in output.column_names:
        missing = [name for name in contract.key if name not in output.column_names and name in contract.output.names]
        if missing:
            keys = touched.keys.take(output.column(KEY).combine_chunks())
            for name in missing:
                output = output.append_column(name, keys.column(name))
    try:
        return output.select(contract.output.names).cast(contract.output)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise StepInvalid(operator=contract.name, what="an output", why=str(error)) from error


def due_keys(state: pa.Table, time: BatchTime) -> Numbers:
    """The numbers of the keys whose timers are due: what a step with timers asks first."""
    found = []
    for timer, now in ((EVENT_TIMER, time.watermark_us), (PROCESSING_TIMER, time.processing_us)):
        if timer in state.column_names and now is not None:
            keys = np.asarray(state.column(KEY))
            at = np.asarray(pc.fill_null(micros(state.column(timer)), EVER + 1))
            found.append(keys[at <= (time.watermark_of(keys) if timer == EVENT_TIMER else now)])
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
