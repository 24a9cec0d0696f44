"""The engine: runs an operator's step over all keys of one partition at once, with their state.

A batch goes through these steps: rows that cannot be used are put aside; the watermark follows from what earlier
batches saw; late rows leave by their side; the rest is sorted by key, time, partition and offset; the state of the
keys touched, by rows or by due timers, is looked up; the step runs; what changed is saved as the batch's version.
Everything is computed from the input and version n-1, so a repeated attempt gives the same result.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import HeadwaterError, StepFailed, StepInvalid
from headwater.faults import reach
from headwater.operators.keyed.answering import ANSWERS, Question, answers_of
from headwater.operators.keyed.contract import Contract, Stepped
from headwater.operators.keyed.files import Folder
from headwater.operators.keyed.merging import key_groups
from headwater.operators.keyed.ordering import by_hash, in_order
from headwater.operators.keyed.runs import EVENT_TIMER, HASH, LIVE, PROCESSING_TIMER, TIMERS, Hashes
from headwater.operators.keyed.store import Manifest, StateStore, latest_of_inputs
from headwater.operators.keyed.watermark import EVER, NEVER, BatchTime, Seen, fading, merge, merge_learnt

KEY = "_key"
INPUT = "_input"
PUNCTUATION = "_punctuation"
TOPIC = "_topic"
#: Where a row stands in its topic, the last first: the order in which ties are settled.
POSITION = ("_offset", "_partition")
SLOT = "_slot"
LATE_BY = "_late_by_us"
REASON = "_reason"
#: How many rows a partial result stands for, where they were combined before they came.
ROWS = "_rows"
Numbers = npt.NDArray[np.int64]
#: What is counted for a batch alone; everything else is counted from the beginning.
FRESH = ("rows", "keys", "output")
_PACKAGE = str(Path(__file__).parents[2]) + os.sep


class Touched(NamedTuple):
    """The keys of a batch, in the order of their hashes, and the rows that belong to them."""

    hashes: Hashes
    keys: pa.Table
    rows: pa.Table


class PartitionEngine:
    """One partition of one operator in one query."""

    def __init__(self, contract: Contract, folder: Folder, *, slot: int) -> None:
        self._contract = contract
        self._folder = folder
        self._slot = slot
        self._store = self._store_of(slot)

    def run(
        self, rows: pa.Table, *, batch: int, processing_us: int | None, broadcast: Mapping[str, pa.Table]
    ) -> pa.Table:
        """One batch: the output of the step, after its state is safe."""
        contract = self._contract
        before = self._store.load(batch)
        if processing_us is not None and before.processing_us is not None:
            processing_us = max(processing_us, before.processing_us)  # a clock may be set back, time is not
        all_before = self._all_before(batch, before)
        watermark_us = self._watermark(all_before, processing_us)
        of_inputs_us = self._of_inputs(all_before, processing_us)
        usable, rejected = usable_rows(rows, contract)
        heard_of = before.seen if before.batch >= 0 else contract.policy.awaited(processing_us)
        seen = merge([heard_of, seen_in(rows, contract, processing_us)])
        reached_us = max(before.reached_us, self._reached(all_before, seen, watermark_us, processing_us))
        time = BatchTime(
            watermark_us=watermark_us,
            watermark_before_us=before.watermark_us,
            reached_us=reached_us,
            reached_before_us=before.reached_us,
            processing_us=processing_us,
            processing_before_us=before.processing_us,
            batch=batch,
            broadcast=broadcast,
            learnt=merge_learnt(one.learnt for one in all_before),
            of_inputs_us=of_inputs_us,
        )
        on_time, late = split_late(usable, contract, watermark_us)
        timed_us = reached_us if contract.prompt else watermark_us
        due = self._store.due(before, event_us=timed_us, processing_us=processing_us)
        touched = touch(on_time, due, contract)
        reach("engine.before_lookup")
        state = self._store.look_up(before, touched.hashes, touched.keys)
        stepped = run_step(contract, state, touched, time)
        sides = {**stepped.sides, "rejected": rejected}
        if late is not None:
            sides["late"] = late
        self._write_sides(batch, sides)
        changed = changes(contract, touched, state, stepped)
        after = Manifest(
            batch=batch,
            partitions=contract.partitions,
            seen=seen,
            watermark_us=watermark_us,
            reached_us=reached_us,
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
            of_inputs_us=of_inputs_us,
        )
        reach("engine.before_save")
        self._store.save(before, after, changed)
        reach("engine.saved")
        return finished_output(contract, touched, stepped.output)

    def answer(self, questions: Sequence[Question], *, batch: int) -> None:
        """Answer from the state that a batch has left, into the side `answers`. Nothing is changed by it."""
        manifest = self._store.manifest(batch)
        asked = [one for one in questions if one.operator in (None, self._contract.name)]
        if asked:
            look = partial(self._store.everything, manifest)
            self._write_sides(batch, {ANSWERS: answers_of(self._contract, look, asked)})

    def _all_before(self, batch: int, own: Manifest) -> list[Manifest]:
        """What every partition of the operator had noted by the batch before."""
        if self._contract.time is None:
            return [own]
        slots = range(self._contract.partitions)
        return [own if slot == self._slot else self._store_of(slot).load(batch) for slot in slots]

    def _watermark(self, noted: list[Manifest], processing_us: int | None) -> int:
        if self._contract.time is None:
            return NEVER
        previous_us = max(manifest.watermark_us for manifest in noted)
        seen = [manifest.seen for manifest in noted]
        return self._contract.policy.watermark(seen, previous_us=previous_us, now_us=processing_us)

    def _reached(self, noted: list[Manifest], seen: Seen, watermark_us: int, processing_us: int | None) -> int:
        """The watermark with the rows of this batch, as far as they came to this partition.

        Other partitions may have seen more by now, never less; but a source partition that only they have heard of is
        none that this one could wait for. In the first batch that may be all of them.
        """
        if self._contract.time is None or not any(manifest.seen for manifest in noted):
            return watermark_us
        everything = [*(manifest.seen for manifest in noted), seen]
        return self._contract.policy.watermark(everything, previous_us=watermark_us, now_us=processing_us)

    def _of_inputs(self, noted: list[Manifest], processing_us: int | None) -> dict[str, int]:
        seen = [manifest.seen for manifest in noted]
        return self._contract.policy.of_inputs(seen, previous_us=latest_of_inputs(noted), now_us=processing_us)

    def _store_of(self, slot: int) -> StateStore:
        contract = self._contract
        return StateStore(
            self._folder.within(str(slot)),
            operator=contract.name,
            key=contract.key_schema,
            state=contract.state,
            partitions=contract.partitions,
        )

    def _write_sides(self, batch: int, sides: Mapping[str, pa.Table]) -> None:
        for name, table in sides.items():
            kept = table.slice(0, self._contract.late_rows_max) if name == "late" else table
            kept = kept.drop_columns([hidden for hidden in self._contract.hidden if hidden in kept.column_names])
            if kept.num_rows:
                self._folder.within("sides").within(name).write(f"{batch:012d}-{self._slot:05d}", kept)
                reach("side.written")


def rows_in(table: pa.Table) -> int:
    """How many rows these are, or stand for: some were combined before they came."""
    return int(pc.sum(table.column(ROWS)).as_py() or 0) if ROWS in table.column_names else int(table.num_rows)


def run_bounded(
    contract: Contract, rows: pa.Table, broadcast: Mapping[str, pa.Table]
) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The same operator over rows that are all there: one step with the rows, and where there are timers one more in
    which all time has passed."""
    usable, rejected = usable_rows(rows, contract)
    touched = touch(usable, no_keys(contract), contract)
    nothing = pa.schema([*contract.key_schema, *contract.state, pa.field(KEY, pa.int64())]).empty_table()
    steps = [run_step(contract, nothing, touched, BatchTime(reached_us=EVER, broadcast=broadcast))]
    if any(timer in contract.state.names for timer in TIMERS):
        kept = with_keys(contract, touched, steps[0].state)
        last = Touched(touched.hashes, touched.keys, touched.rows.slice(0, 0))
        time = BatchTime(
            watermark_us=EVER,
            reached_us=EVER,
            reached_before_us=EVER,
            processing_us=EVER,
            final=True,
            broadcast=broadcast,
        )
        steps.append(run_step(contract, kept, last, time))
    outputs = [finished_output(contract, touched, one.output) for one in steps]
    sides: dict[str, list[pa.Table]] = {"rejected": [rejected]}
    for one in steps:
        for name, table in one.sides.items():
            sides.setdefault(name, []).append(table)
    return pa.concat_tables(outputs), {name: pa.concat_tables(tables) for name, tables in sides.items()}


# -- rows in ----------------------------------------------------------------------------------------------------------


def usable_rows(rows: pa.Table, contract: Contract) -> tuple[pa.Table, pa.Table]:
    """Rows with a key and a time, and those without, which say why they were rejected. Punctuations are neither."""
    if PUNCTUATION in rows.column_names:
        rows = rows.filter(pc.is_null(rows.column(PUNCTUATION)))
    missing = np.zeros(rows.num_rows, dtype=np.int8)
    for name in contract.key:
        missing[np.asarray(pc.is_null(rows.column(name)).combine_chunks(), dtype=bool)] = 1
    if contract.time is not None:
        without_time = np.asarray(pc.is_null(rows.column(contract.time)).combine_chunks(), dtype=bool)
        missing[without_time & (missing == 0)] = 2
    if not missing.any():
        return rows, with_reason(rows.slice(0, 0), [])
    bad = missing > 0
    reasons = [("the key is null", "the event time is null")[kind - 1] for kind in missing[bad]]
    return rows.filter(pa.array(~bad)), with_reason(rows.filter(pa.array(bad)), reasons)


def with_reason(rows: pa.Table, reasons: list[str]) -> pa.Table:
    rows = rows.drop_columns([name for name in (HASH, SLOT) if name in rows.column_names])
    return rows.append_column(REASON, pa.array(reasons, pa.string()))


def split_late(rows: pa.Table, contract: Contract, watermark_us: int) -> tuple[pa.Table, pa.Table | None]:
    """Rows in time, and rows behind the watermark with how late they are."""
    if contract.time is None or contract.late == "step" or watermark_us <= NEVER:
        return rows, None
    times = np.asarray(micros(rows.column(contract.time)))
    late = times < watermark_us
    if not late.any():
        return rows, None
    side = rows.filter(pa.array(late)).drop_columns([name for name in (HASH, SLOT) if name in rows.column_names])
    return rows.filter(pa.array(~late)), side.append_column(LATE_BY, pa.array(watermark_us - times[late]))


def seen_in(rows: pa.Table, contract: Contract, processing_us: int | None) -> Seen:
    """The latest event time of each input and source partition in this batch."""
    if contract.time is None or not rows.num_rows:
        return {}
    now_us = NEVER if processing_us is None else processing_us
    bound_us = contract.policy.bound_us(processing_us)
    times = micros(rows.column(contract.time)).combine_chunks()
    if PUNCTUATION in rows.column_names:
        # A promise that nothing earlier than t follows is as good as a row that late_by after t would be.
        promised = pc.add(micros(rows.column(PUNCTUATION)).combine_chunks(), contract.policy.late_by_us)
        times = pc.coalesce(promised, times)
    places = [name for name in (INPUT, TOPIC, "_partition") if name in rows.column_names]
    table = rows.select(places).append_column("time", times)
    if bound_us < EVER and (pc.max(times).as_py() or 0) > bound_us:
        table = table.filter(pc.less_equal(table.column("time"), bound_us))
    seen: Seen = {}
    for row in table.group_by(places, use_threads=False).aggregate([("time", "max")]).to_pylist():
        if row["time_max"] is not None:
            words = ["" if row[name] is None else str(row[name]) for name in (TOPIC, "_partition") if name in places]
            source = "" if row.get(INPUT) is None else str(row[INPUT])
            seen.setdefault(source, {})["/".join(words)] = (row["time_max"], now_us)
    return seen


def micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A timestamp column as microseconds."""
    if pa.types.is_integer(column.type):
        return column
    zone = column.type.tz
    return column.cast(pa.timestamp("us", tz=zone)).cast(pa.int64())


def touch(rows: pa.Table, due: pa.Table, contract: Contract) -> Touched:
    """Sort the rows, number their keys, and add the keys whose timers are due."""
    rows = sorted_rows(rows, contract)
    hashes = _hashes(rows)
    groups = key_groups(rows, hashes, contract.key)
    firsts = first_rows(groups)
    # `key_groups` numbers by first sight; with rows sorted by hash that is the order of the hashes.
    keys = rows.select(list(contract.key)).take(pa.array(firsts)).cast(contract.key_schema)
    own = hashes[firsts]
    if not due.num_rows:
        return Touched(own, keys, _numbered(rows, groups))
    all_hashes = np.concatenate([own, np.asarray(due.column(HASH).combine_chunks())])
    all_keys = pa.concat_tables([keys, due.select(list(contract.key)).cast(contract.key_schema)]).combine_chunks()
    order = np.argsort(all_hashes, kind="stable")
    merged = key_groups(all_keys.take(pa.array(order)), all_hashes[order], contract.key)
    number_of = np.empty(len(order), np.int64)
    number_of[order] = merged
    representatives = order[first_rows(merged)]
    return Touched(
        all_hashes[representatives], all_keys.take(pa.array(representatives)), _numbered(rows, number_of[groups])
    )


def first_rows(groups: Numbers) -> Numbers:
    """Where each group is first seen, in the order of the groups' numbers.

    >>> first_rows(np.array([0, 0, 1, 2, 2])).tolist(), first_rows(np.array([0, 1, 0, 2])).tolist()
    ([0, 2, 3], [0, 1, 3])
    """
    # Groups are numbered by first sight, so a group begins where a number is larger than all before it.
    highest = np.maximum.accumulate(groups)
    found: Numbers = np.flatnonzero(np.concatenate([[True], highest[1:] > highest[:-1]])[: len(groups)])
    return found


def sorted_rows(rows: pa.Table, contract: Contract) -> pa.Table:
    """Rows by key, time, input, topic, partition and offset: ties are settled the same way on every retry."""
    if rows.num_rows < 2:
        return rows
    rows = rows.combine_chunks()
    if contract.order:
        by = [np.asarray(rows.column(name).combine_chunks()) for name in reversed(contract.order)]
        return rows.take(pa.array(by_hash(_hashes(rows), in_order(by))))
    order_by: list[npt.NDArray[np.generic]] = [
        np.asarray(pc.fill_null(rows.column(name), 0)) for name in POSITION if name in rows.column_names
    ]
    if TOPIC in rows.column_names:
        order_by.append(ranks(rows.column(TOPIC)))
    if INPUT in rows.column_names:
        order_by.append(np.asarray(rows.column(INPUT)))
    if contract.time is not None:
        order_by.append(np.asarray(micros(rows.column(contract.time))))
    order = by_hash(_hashes(rows), in_order(order_by))
    order_by.append(_hashes(rows))
    if not all(name in rows.column_names for name in POSITION):
        order = settled(rows, order, order_by)
    return rows.take(pa.array(order))


def settled(rows: pa.Table, order: Numbers, order_by: list[npt.NDArray[np.generic]]) -> Numbers:
    """The order with ties settled by what the rows hold, for rows that have lost their place in a topic."""
    differs = np.zeros(len(order) - 1, bool)
    for values in order_by:
        differs |= values[order[1:]] != values[order[:-1]]
    if differs.all():
        return order
    groups = np.concatenate([[0], np.cumsum(differs)])
    tied = np.flatnonzero(np.concatenate([[False], ~differs]) | np.concatenate([~differs, [False]]))
    held = rows.take(pa.array(order[tied]))
    by_content = [ranks(held.column(name)) for name in held.column_names if name not in (HASH, SLOT)]
    within = np.lexsort([*reversed(by_content), groups[tied]])
    order = order.copy()
    order[tied] = order[tied][within]
    return order


def ranks(column: pa.ChunkedArray) -> Numbers:
    """For each value its place among all values of the column; equal values share one."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        column = pa.chunked_array([pa.array([repr(value) for value in column.to_pylist()], pa.string())])
    return np.asarray(pc.rank(column, sort_keys="ascending", tiebreaker="min")).astype(np.int64)


def _hashes(rows: pa.Table) -> Hashes:
    return np.asarray(rows.column(HASH).combine_chunks()).astype(np.int64, copy=False).view(np.uint64)


def _numbered(rows: pa.Table, numbers: Numbers) -> pa.Table:
    rows = rows.drop_columns([name for name in (HASH, SLOT) if name in rows.column_names])
    rows = rows.append_column(KEY, pa.array(numbers, pa.int64()))
    if len(numbers) > 1 and (numbers[1:] < numbers[:-1]).any():  # two keys share a hash, and their rows are mixed
        rows = rows.take(pa.array(np.argsort(numbers, kind="stable")))
    return rows


def no_keys(contract: Contract) -> pa.Table:
    return pa.schema([pa.field(HASH, pa.uint64()), *contract.key_schema]).empty_table()


# -- the step ---------------------------------------------------------------------------------------------------------


def run_step(contract: Contract, state: pa.Table, touched: Touched, time: BatchTime) -> Stepped:
    """Call the step; an error says which operator, batch, keys and offsets it met."""
    if not len(touched.hashes) and not time.final:
        return Stepped(state.slice(0, 0), None)
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
    stepped = found if isinstance(found, Stepped) else Stepped(*found)
    return replace(stepped, state=_checked_state(contract, stepped.state, touched))


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


def _checked_state(contract: Contract, state: pa.Table, touched: Touched) -> pa.Table:
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


def with_keys(contract: Contract, touched: Touched, state: pa.Table) -> pa.Table:
    """State with its key columns, as the step is given it."""
    keys = touched.keys.take(state.column(KEY))
    columns = [*keys.columns, *(state.column(field.name) for field in contract.state), state.column(KEY)]
    return pa.table(columns, schema=pa.schema([*contract.key_schema, *contract.state, pa.field(KEY, pa.int64())]))


def changes(contract: Contract, touched: Touched, before: pa.Table, stepped: Stepped) -> pa.Table | None:
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


def finished_output(contract: Contract, touched: Touched, output: pa.Table | None) -> pa.Table:
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
