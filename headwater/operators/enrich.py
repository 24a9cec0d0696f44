"""`Enrich`: rows of a stream with what a table says of their key, now or at the row's own time.

Without `as_of`, each row gets what its key stands for when the row's batch is processed (`CurrentStep`). With `as_of`,
each row gets what its key stood for at the row's own time (`AsOfStep`). State is then one row for each version of a key
that a row in time can still ask for, and one for each row that waits for its version. A version is forgotten when a
later one holds at the horizon, which is the stream's watermark less `history`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Groups, Int64s
from headwater.engine.changelog import DELETE, OP, UPDATE_BEFORE
from headwater.engine.columns import INPUT, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import (
    EVER,
    LATE_SAMPLE_ROWS,
    NEVER,
    BatchTime,
    Late,
    SourceProgress,
    WatermarkStrategy,
    late_schema,
    with_late_by,
)
from headwater.engine.join_inputs import AT, Columns, JoinInputs, On, check_appends, check_times, pairs_of
from headwater.engine.operator import claims, event_time_of
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply, default_name
from headwater.engine.table_read import APPENDED_AT, as_table
from headwater.engine.time_index import Line
from headwater.engine.time_metadata import carried_times
from headwater.engine.window_spans import LONGEST_SECONDS
from headwater.errors import ArgumentInvalid
from headwater.schema.event_time import EventTime
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HELD = "_held"
STREAM, TABLE = 0, 1
WAITS = "_waits"
GONE = "_gone"
WAKE = "_wake_at"
#: How long after the horizon it is remembered that a key was deleted.
DELETED_US = 86_400_000_000
Mask = npt.NDArray[np.bool_]


@runtime_checkable
class ChangingTable(Protocol):
    """A table that says how it changes: `hw.Table` is one."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def time(self) -> str | None:
        """The column that says from when a row holds, if one does."""

    @property
    def versions(self) -> tuple[str, Duration] | None:
        """Of a versioned table that column, and how long it remembers deletions."""

    @property
    def changes(self) -> DataFrame:
        """Its changes as a stream, with `_op`."""

    def history(self) -> DataFrame:
        """The same as bounded rows."""


@dataclass(frozen=True, kw_only=True)
class Enrich:
    """Lookup join, and with `as_of` temporal join: add to each row of a stream the columns that a table has for its key.

    Without `as_of` that is what the table holds when the row's batch is processed: its changes up to and including that
    batch. With `as_of`, a time of the row (a column, or an `EventTime` where the column carries no settings), it is what
    held then: the newest version of the key from that time or before. The table's own event time has its own delay.
    With `allowed_lateness`, rows wait until the table's own time has passed theirs, or theirs is that far behind the
    stream's watermark, so that a table that arrives late still counts. `history` is how far behind the stream's watermark a
    late row still finds its version, without a wait; by default the allowed lateness. `how="left"` keeps rows that find nothing, with nulls;
    `"inner"` drops them. State: one row per key of the table; with `as_of`, the versions that can still be asked for.

    >>> from headwater.operators import Enrich
    >>> Enrich(None, on="country", as_of="sold_at", valid_from="since", allowed_lateness="1 hour").as_of
    'sold_at'
    """

    # None only where no row is ever enriched, as in the example above.
    table: DataFrame | ChangingTable | None = field(kw_only=False, repr=False)
    on: On
    as_of: EventTime | str | None = None
    valid_from: str | None = None
    allowed_lateness: Duration = 0
    history: Duration | None = None
    how: Literal["left", "inner"] = "left"
    late: Late = "drop"
    suffix: str | None = None
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.how not in ("left", "inner"):
            raise ArgumentInvalid(name="how", value=self.how, expected='"left" or "inner"')
        pairs_of(self.on)
        if parse_seconds(self.allowed_lateness, name="allowed_lateness") > LONGEST_SECONDS:
            raise ArgumentInvalid(
                name="allowed_lateness", value=self.allowed_lateness, expected="ten years at most: rows wait so long"
            )
        given = [name for name in ("valid_from", "allowed_lateness", "history") if getattr(self, name)]
        if self.as_of is None and given:
            expected = "none without `as_of`: what holds now is what came last, and nothing waits for it"
            raise ArgumentInvalid(name=given[0], value=getattr(self, given[0]), expected=expected)
        if self._history_us < self._allowed_lateness_us:
            expected = "at least `allowed_lateness`: a row that waits asks for its version in the end"
            raise ArgumentInvalid(name="history", value=self.history, expected=expected)

    def __call__(self, rows: DataFrame) -> DataFrame:
        operator = self.name or "Enrich"
        check_appends("rows", rows)
        changes, valid_from = self._changes(rows, operator)
        enrich = self._resolved(rows)
        at, since = enrich._times(operator, rows, changes, valid_from)
        alone = (STREAM,) if self.how == "left" else ()
        meeting = JoinInputs.of(operator, rows, changes, on=self.on, suffix=self.suffix, alone=alone, called="table")
        ops = (OP,) if OP in changes.columns else ()
        left, right = meeting.left_rows(at), meeting.right_rows(since, more=ops)
        strategy = None if self.as_of is None else enrich._strategy(changes, valid_from)
        waits = self._allowed_lateness_us / 1e6
        times = tuple(time.later(waits) for time in carried_times(rows.schema).values())
        make = partial(enrich.contract, columns=meeting.columns(places=True), strategy=strategy, output_times=times)
        return apply(make, left, right, partitions=self.partitions)

    def _resolved(self, rows: DataFrame) -> Self:
        """With the settings of the time that `as_of` names, and the side output that the app wants."""
        if self.as_of is None:
            return self
        as_of = event_time_of(rows, self.as_of, operator="Enrich")
        late: Late = "side_output" if claims("late") else self.late
        return replace(self, as_of=as_of, late=late, name=self.name or default_name(self))

    def _strategy(self, changes: DataFrame | None = None, valid_from: str | None = None) -> WatermarkStrategy:
        """The stream's event time, and the table's own where it has one; else the stream's settings hold for both."""
        own = None if changes is None or valid_from is None else carried_times(changes.schema).get(valid_from)
        other = None if own is None else WatermarkStrategy.of(own, column=AT)
        strategy = AsOfStrategy.of(self._as_of, column=AT, inputs=2)
        return replace(strategy, other=other, allowed_lateness_us=self._allowed_lateness_us)

    @property
    def _as_of(self) -> EventTime | None:
        return EventTime(self.as_of) if isinstance(self.as_of, str) else self.as_of

    def contract(
        self,
        rows: pa.Schema,
        columns: Columns,
        *,
        strategy: WatermarkStrategy | None = None,
        output_times: tuple[EventTime, ...] = (),
    ) -> Contract:
        settings = {
            "name": self.name or default_name(self),
            "key": columns.group,
            "null_keys": columns.null_keys,
            "rows": rows,
            "output": pa.schema([rows.field(name) for name in columns.shown]),
            "output_times": output_times,
        }
        if self.as_of is None:
            return Contract(
                step=CurrentStep(columns=columns, how=self.how), state=current_state(rows, columns), **settings
            )
        return Contract(
            step=AsOfStep(
                columns=columns,
                allowed_lateness_us=self._allowed_lateness_us,
                history_us=self._history_us,
                how=self.how,
            ),
            state=as_of_state(rows, columns, waiting=self._allowed_lateness_us > 0),
            side_outputs={"late": late_schema(rows)},
            event_time=strategy or self._strategy(),
            late="step",
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
            **settings,
        )

    @property
    def _allowed_lateness_us(self) -> int:
        return round(parse_seconds(self.allowed_lateness) * 1e6)

    @property
    def _history_us(self) -> int:
        """How far behind the stream's watermark versions are kept."""
        history = self.allowed_lateness if self.history is None else self.history
        return round(parse_seconds(history, name="history") * 1e6)

    def _changes(self, rows: DataFrame, operator: str) -> tuple[DataFrame, str | None]:
        """The changes of the table, and the column that says from when they hold."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        table = self.table
        if isinstance(table, DataFrame):
            changes, valid_from = table, self.valid_from or (APPENDED_AT if APPENDED_AT in table.columns else None)
        elif isinstance(table, ChangingTable):
            self._check_table(table)
            changes = table.changes if rows.isStreaming else table.history()
            valid_from = self.valid_from or (table.versions or (table.time,))[0] or APPENDED_AT
        else:
            expected = "a table of the app (`hw.Table`), or a DataFrame of its changes"
            raise ArgumentInvalid(name="table", value=table, expected=expected)
        changes = as_table(changes, tuple(pairs_of(self.on).values()), operator=operator, setting="on")
        if OP in changes.columns:
            changes = changes.where(F.coalesce(F.col(OP), F.lit("")) != UPDATE_BEFORE)
        return changes, valid_from

    def _check_table(self, table: ChangingTable) -> None:
        if self.as_of is None and table.versions is not None:
            expected = f"a time of the rows: table {table.name!r} is versioned, so what came last may not be what holds"
            raise ArgumentInvalid(name="as_of", value=None, expected=expected)
        others = tuple(pairs_of(self.on).values())
        if set(others) != set(table.key):
            expected = f"the key of table {table.name!r}, which is {', '.join(table.key) or 'none'}"
            raise ArgumentInvalid(name="on", value=self.on, expected=expected)

    def _times(
        self, operator: str, rows: DataFrame, changes: DataFrame, valid_from: str | None
    ) -> tuple[Column | None, Column | None]:
        """The time of a row, and the time from which a version holds: of a deletion that does not say, when it came."""
        from pyspark.sql import functions as F  # noqa: N812

        if self._as_of is None:
            return None, None
        if valid_from is None:
            expected = "the table's column that says from when a row holds"
            raise ArgumentInvalid(name="valid_from", value=None, expected=expected)
        column = self._as_of.column
        check_times(operator, rows, changes, column, valid_from)
        since = F.col(f"`{valid_from}`")
        if OP in changes.columns and APPENDED_AT in changes.columns:
            came = F.when(F.col(OP) == DELETE, F.col(APPENDED_AT).cast(changes.schema[valid_from].dataType))
            since = F.coalesce(since, came)
        return F.col(f"`{column}`"), since


def current_state(rows: pa.Schema, columns: Columns) -> pa.Schema:
    """One row for each key that the table holds."""
    return pa.schema([*(rows.field(name).with_nullable(True) for name in columns.right), pa.field(HELD, pa.bool_())])


@dataclass(frozen=True)
class CurrentStep:
    """One batch: the table's changes first, then the stream's rows."""

    columns: Columns
    how: Literal["left", "inner"]

    def __call__(self, state: pa.Table, rows: pa.Table, _time: BatchTime) -> StepResult:
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
        return StepResult(kept, output, changed=changed)


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


@dataclass(frozen=True, kw_only=True)
class AsOfStrategy(WatermarkStrategy):
    """Move time to where no row waits any more: the table has come so far, or the stream has passed it by the allowed lateness."""

    allowed_lateness_us: int = 0

    def watermark(self, seen: Iterable[SourceProgress], *, previous_us: int, now_us: int | None) -> int:
        found = self.watermarks(seen, previous_us={}, now_us=now_us)
        return max(previous_us, found.get("0", NEVER) - self.allowed_lateness_us, found.get("1", NEVER))


def as_of_state(rows: pa.Schema, columns: Columns, *, waiting: bool) -> pa.Schema:
    """Versions of the table, and with `waiting` the rows of the stream that wait for theirs."""
    names = columns.data if waiting else columns.right
    own = [pa.field(WAITS, pa.bool_()), pa.field(AT, pa.int64()), pa.field(GONE, pa.bool_())]
    return pa.schema([*own, *(rows.field(name).with_nullable(True) for name in names), pa.field(WAKE, pa.int64())])


class Versions(NamedTuple):
    """The versions of keys, sorted by key and by the time from which they hold."""

    table: pa.Table
    keys: Int64s
    at: Int64s
    gone: Mask


class Asking(NamedTuple):
    """Rows of the stream, by key; those that came with this batch are fresh."""

    table: pa.Table
    keys: Int64s
    at: Int64s
    fresh: Mask


@dataclass(frozen=True)
class AsOfStep:
    """One batch of rows that meet the version of their key that held at their time."""

    columns: Columns
    allowed_lateness_us: int
    history_us: int
    how: Literal["left", "inner"]

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        stream_us, table_us = (time.of_inputs_us.get(name, NEVER) for name in ("0", "1"))
        horizon = stream_us - self.history_us
        stream, changes = parted(rows)
        versions = self._versions(state, changes)
        asking = self._asking(state, stream)
        line = Line(versions.keys, versions.at)
        found = line.latest(asking.keys, asking.at)
        late = asking.fresh & is_late(line, asking, found, horizon)
        settled = (asking.at < table_us) | (asking.at <= stream_us - self.allowed_lateness_us)
        ready = ~late & (settled | (self.allowed_lateness_us == 0) | (time.batch is None))
        found = np.where((found >= 0) & ~versions.gone[found], found, -1) if len(versions.keys) else found
        leaving = asking.table if ready.all() else asking.table.filter(pa.array(ready))
        output = enriched(leaving, versions.table, found[ready], self.columns, how=self.how)
        waits = ~late & ~ready
        changed = self._changed(state, changes, asking.keys[waits & asking.fresh], time.watermark_us)
        after = self._after(versions, asking, waits, changed, horizon, time.watermark_us)
        return StepResult(after, output, _aside(asking, late, stream_us), changed=changed)

    # -- what is known ------------------------------------------------------------------------------------------------

    def _versions(self, state: pa.Table, changes: pa.Table) -> Versions:
        """What the state holds and what has come; of two versions from the same time the one that came later counts."""
        held = state
        if self.allowed_lateness_us:
            held = state.filter(pa.array(~np.asarray(state.column(WAITS)).astype(bool)))
        names = [KEY, AT, GONE, *self.columns.right]
        if not changes.num_rows:
            table = held.select(names).combine_chunks()  # sorted when it was saved
        else:
            came = changes.set_column(changes.column_names.index(AT), AT, micros(changes.column(AT)))
            came = came.append_column(GONE, pa.array(is_gone(changes))).select(names)
            table = pa.concat_tables([held.select(names).cast(came.schema), came]).combine_chunks()
            keys, at = np.asarray(table.column(KEY)), np.asarray(table.column(AT))
            order = np.lexsort([at, keys])  # stable: what came later stands later
            groups = Groups.of(keys[order], at[order])
            table = table.take(pa.array(order[groups.starts + groups.sizes() - 1]))
        keys, at, gone = (np.asarray(table.column(name).combine_chunks()) for name in (KEY, AT, GONE))
        return Versions(table, keys, at, gone.astype(bool))

    def _asking(self, state: pa.Table, stream: pa.Table) -> Asking:
        keys = np.asarray(stream.column(KEY).combine_chunks())
        at = np.asarray(micros(stream.column(AT)).combine_chunks())
        fresh = np.ones(len(keys), bool)
        if not self.allowed_lateness_us:
            return Asking(stream, keys, at, fresh)
        waiting = state.filter(pa.array(np.asarray(state.column(WAITS)).astype(bool)))
        if not waiting.num_rows:
            return Asking(stream, keys, at, fresh)
        names = [KEY, *self.columns.key, *self.columns.left]
        # Late rows are shown as they came; what has waited cannot be late, so what it no longer has is never asked for.
        table = pa.concat_tables([waiting.select(names), stream], promote_options="default").combine_chunks()
        held = [np.asarray(waiting.column(name).combine_chunks()) for name in (KEY, AT)]
        fresh = np.arange(table.num_rows) >= waiting.num_rows
        return Asking(table, np.concatenate([held[0], keys]), np.concatenate([held[1], at]), fresh)

    # -- what is kept -------------------------------------------------------------------------------------------------

    def _changed(self, state: pa.Table, changes: pa.Table, waiting: Int64s, watermark_us: int) -> Int64s:
        """The keys whose state must be written: something came, waits, leaves, or is due and must be woken again."""
        wakes = np.asarray(state.column(WAKE).fill_null(EVER + 1))
        due = np.asarray(state.column(KEY).combine_chunks())[wakes <= watermark_us]
        return np.unique(np.concatenate([due, np.asarray(changes.column(KEY).combine_chunks()), waiting]))

    def _after(
        self, versions: Versions, asking: Asking, waits: Mask, changed: Int64s, horizon: int, watermark_us: int
    ) -> pa.Table:
        """The state of the keys that changed: versions that can still be asked for, and rows that wait."""
        mine = np.isin(versions.keys, changed)
        kept = np.flatnonzero(mine & ~forgotten(versions, horizon))
        table = versions.table.take(pa.array(kept))
        table = table.append_column(WAITS, pa.array(np.zeros(len(kept), bool)))
        # Time moves by what rows wait for; a version stays beyond that.
        wakes = (
            np.minimum(next_look(versions)[kept], EVER - self.history_us) + self.history_us - self.allowed_lateness_us
        )
        if self.allowed_lateness_us:
            waiting = np.flatnonzero(waits & np.isin(asking.keys, changed))
            names = [KEY, *self.columns.left]
            rows = asking.table.select(names).take(pa.array(waiting))
            rows = rows.append_column(AT, pa.array(asking.at[waiting], pa.int64()))
            rows = rows.append_column(WAITS, pa.array(np.ones(len(waiting), bool)))
            table = pa.concat_tables([table, rows], promote_options="default")
            wakes = np.concatenate([wakes, asking.at[waiting]])
        # Who was looked at and could not go yet is looked at again when time has moved.
        wakes = np.where(wakes >= EVER, wakes, np.maximum(wakes, watermark_us + 1))
        return table.append_column(WAKE, pa.array(wakes, pa.int64(), mask=wakes >= EVER))


def is_late(line: Line, asking: Asking, found: Int64s, horizon: int) -> Mask:
    """Which rows ask for a version that is forgotten by now: a later one holds at the horizon."""
    late = np.zeros(len(asking.keys), bool)
    behind = np.flatnonzero(asking.at < horizon)
    if not len(behind):
        return late
    keys, at = asking.keys[behind], asking.at[behind]
    newest = line.latest(keys, np.full(len(behind), horizon))
    superseded = (newest >= 0) & (newest != found[behind])
    # Of a key without a version it is not known whether it was deleted, once that is forgotten.
    late[behind] = superseded | ((found[behind] < 0) & (at < horizon - DELETED_US))
    return late


def followed_at(versions: Versions) -> Int64s:
    """For each version the time from which another of its key holds."""
    following = np.full(len(versions.keys), EVER, np.int64)
    if len(following) > 1:
        same = versions.keys[1:] == versions.keys[:-1]
        following[:-1][same] = versions.at[1:][same]
    return following


def next_look(versions: Versions) -> Int64s:
    """When a version can be forgotten at the earliest."""
    return np.minimum(followed_at(versions), np.where(versions.gone, versions.at + DELETED_US, EVER))


def forgotten(versions: Versions, horizon: int) -> Mask:
    return next_look(versions) <= horizon


def _aside(asking: Asking, late: Mask, stream_us: int) -> dict[str, pa.Table]:
    if not late.any():
        return {}
    side = asking.table.filter(pa.array(late))
    side = side.drop_columns([name for name in (KEY, AT, INPUT) if name in side.column_names])
    return {"late": with_late_by(side, stream_us - asking.at[late])}
