"""What an operator on tables takes: a changelog, a keyed topic whose rows replace one another, or a stream of insertions.

`Follow` makes a whole changelog of rows that replace one another: for each key the last row is kept, so that it can be
retracted. That is needed where a table is grouped by something else than its key: the old group must learn that a row
has left it, and only the row's own key knows which group that was.

A versioned table goes by a time of its rows instead of their order in the topic: `VersionedStep` ignores a row that is older than what
its key has. A deletion has a time, too, and is remembered for as long as older rows may follow it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.engine.aggregation import Groups, Int64s
from headwater.engine.changelog import DELETE, INSERT, OP, UPDATE_AFTER, nullable, signs_of
from headwater.engine.columns import EVENT_TIMER, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import EVER, NEVER, BatchTime, WatermarkStrategy
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply
from headwater.engine.table_changes import PLACE, Emit, TableUpdate, emitted, taken, told
from headwater.engine.table_read import APPENDED_AT, TOMBSTONE
from headwater.engine.time_metadata import carried_times
from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.schema.event_time import EventTime
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Where a row stands in its topic, as far as rows know it.
PLACES = ("_topic", "_partition", "_offset")
#: The time by which rows of a versioned table replace one another, and what is kept of it with each row.
VERSION = "_version"
VERSION_US = "_version_us"
#: How long a deletion of a versioned table is remembered, unless told otherwise.
DEFAULT_HISTORY: Duration = "1 day"
GONE = "_gone"
VERSION_STATE = (pa.field(VERSION_US, pa.int64()), pa.field(GONE, pa.bool_()), pa.field(EVENT_TIMER, pa.int64()))
Names = str | tuple[str, ...] | list[str]
# Any: a DataFrame, or a table of an app, which has `changes` and `key`.
TableLike = Any


def frame_of(table: TableLike) -> DataFrame:
    """The changes of a table, whichever way it is given."""
    frame: DataFrame = table.changes if hasattr(table, "changes") else table
    return frame


def key_of(table: TableLike, key: Names | None) -> tuple[str, ...] | None:
    """The primary key: as told, or as an app's table knows it."""
    known = getattr(table, "key", None) if hasattr(table, "changes") else None
    return names_of(key) if key is not None else known


def names_of(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def check_names(setting: str, names: Iterable[str], rows: DataFrame, *, operator: str) -> None:
    """Raise on columns that the rows do not have, that come twice, or that are the system's."""
    seen: set[str] = set()
    for name in names:
        if name.startswith("_"):
            raise ArgumentInvalid(name=setting, value=name, expected="columns of your own: `_` begins the system's")
        if name not in rows.columns:
            raise ColumnUnknown(topic=operator, column=name, columns=", ".join(own_columns(rows)))
        if name in seen:
            raise ArgumentInvalid(name=setting, value=name, expected="each column once")
        seen.add(name)


def own_columns(rows: DataFrame) -> list[str]:
    """The columns that are not the system's."""
    return [name for name in rows.columns if not name.startswith("_")]


def has_place(rows: DataFrame) -> bool:
    """Whether rows know where they stand in their topic."""
    return "_offset" in rows.columns


def check_key(rows: DataFrame, key: tuple[str, ...] | None, *, operator: str) -> None:
    """A table that was read from a topic says what replaces a row, not what is retracted: then a key is needed."""
    if key is None and has_place(rows) and {OP, TOMBSTONE} & set(rows.columns):
        expected = f"the primary key of the table that {operator} reads: its rows replace one another"
        raise ArgumentInvalid(name="key", value=None, expected=expected)
    if key is not None:
        if not key:
            raise ArgumentInvalid(name="key", value=key, expected="at least one column")
        check_names("key", key, rows, operator=operator)


def operation(rows: DataFrame, *, keyed: bool) -> Column:
    """What each row does to the table: rows without a word of it replace what their key has, or are added."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    plain = F.lit(UPDATE_AFTER if keyed else INSERT)
    told = F.coalesce(F.col(OP), plain) if OP in rows.columns else plain
    if TOMBSTONE in rows.columns:
        told = F.when(F.coalesce(F.col(TOMBSTONE), F.lit(False)), F.lit(DELETE)).otherwise(told)
    return told.alias(OP)


def places(rows: DataFrame) -> list[str]:
    return [name for name in PLACES if name in rows.columns]


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The time by which rows of a key replace one another, and how long after it a deletion is remembered."""

    time: EventTime
    history_us: int

    @staticmethod
    def of(
        table: TableLike, rows: DataFrame, time: str | None = None, history: Duration = DEFAULT_HISTORY
    ) -> Versions | None:
        """Those that an operator is given, or that an app's table has; None for a table whose rows replace one another as they come."""
        known = getattr(table, "versions", None)
        if time is not None:
            known = (time, history)
        if known is None:
            return None
        name, kept = known
        check_names("version", [name], rows, operator="a versioned table")
        kind = rows.schema[name].dataType.typeName()
        if kind not in ("timestamp", "timestamp_ntz"):
            raise ArgumentInvalid(name="version", value=f"{name} ({kind})", expected="a column of timestamps")
        settings = carried_times(rows.schema).get(name) or EventTime(name)
        return Versions(time=settings, history_us=round(parse_seconds(kept, name="history") * 1e6))


def version_column(rows: DataFrame, versions: Versions | None) -> list[Column]:
    """The time of each row as a column of its own; of a deletion that has none, the time of its append."""
    from pyspark.sql import functions as F  # noqa: N812

    if versions is None:
        return []
    time = F.col(f"`{versions.time.column}`")
    if {OP, APPENDED_AT} <= set(rows.columns):
        kind = rows.schema[versions.time.column].dataType
        time = F.coalesce(time, F.when(F.col(OP) == DELETE, F.col(APPENDED_AT).cast(kind)))
    return [time.alias(VERSION)]


@dataclass(frozen=True, kw_only=True)
class Follow:
    """The last row of each key, told as a changelog that retracts what it replaces. Nothing comes of a row that is equal.

    With `versions`, the row with the latest time is the last one. `time` is the event time of the changes, which operators
    behind go by. State: one row per key.
    """

    name: str
    key: tuple[str, ...]
    emit: Emit = "changes"
    versions: Versions | None = None
    time: EventTime | None = None
    partitions: int | None = None

    def __call__(self, rows: DataFrame, *, timed: DataFrame | None = None) -> DataFrame:
        return apply(self.contract, rows, timed=timed, partitions=self.partitions)

    def contract(self, rows: pa.Schema) -> Contract:
        places = [name for name in PLACE if name in rows.names]
        plain = [one for one in rows if one.name not in (*places, OP, VERSION, *self.key)]
        columns = tuple(one.name for one in plain)
        kept = places if self.emit == "every_change" else []
        names = [*self.key, OP, *columns, *kept]
        update = TableUpdate(self.name, (KEY,), (*self.key, *columns), "_offset" in rows.names)
        made = Contract(
            name=self.name,
            step=FollowStep(update, self.emit),
            key=self.key,
            rows=rows,
            state=pa.schema(plain),
            output=pa.schema([rows.field(name) for name in names]),
        )
        if self.time is not None:
            made = replace(made, **timed(self.time))
        if self.versions is None:
            return made
        return replace(
            made,
            by_place=False,
            step=VersionedStep(update, self.emit, self.versions.history_us),
            state=pa.schema([*plain, *VERSION_STATE]),
            event_time=WatermarkStrategy.of(self.versions.time, column=VERSION),
            late="step",
        )


# Any: fields of a contract.
def timed(time: EventTime, *, held_seconds: float = 0.0) -> dict[str, Any]:
    """What a contract says whose changes carry an event time: late ones count as well, since a table must stay right."""
    if time.scope == "key":  # the keys of the changes are others than those of the rows
        time = replace(time, scope="partition", key_idle_timeout=None)
    strategy = WatermarkStrategy.of(time, column=time.column)
    return {"event_time": strategy, "late": "step", "by_place": True, "output_times": (time.later(held_seconds),)}


@dataclass(frozen=True)
class FollowStep:
    """One batch of changes to all keys of a partition."""

    following: TableUpdate
    emit: Emit

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit, places=True)

    def _net(self, state: pa.Table, rows: pa.Table) -> StepResult:
        names = [KEY, *self.following.columns]
        found = self.following.replaced(state, rows)
        gone, came = taken(state, found.gone, names), taken(rows, found.came, names)
        after = pa.concat_tables([taken(state, found.stay, names), came])
        ids = np.concatenate([np.asarray(one.column(KEY).combine_chunks()) for one in (gone, came)])
        return StepResult(after, told(gone, came, ids=ids, groups=ids))


@dataclass(frozen=True)
class VersionedStep:
    """One batch of changes to all keys of a partition, of which those count that are not older than what their key has."""

    following: TableUpdate
    emit: Emit
    history_us: int

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        remembered = self._remembered(state, time.watermark_us)
        if not rows.num_rows:
            return StepResult(remembered)
        stepped = emitted(self._net, remembered, rows, emit=self.emit, places=True)
        return replace(stepped, state=self._remembered(stepped.state, time.watermark_us))

    def _remembered(self, state: pa.Table, watermark_us: int) -> pa.Table:
        """The state without deletions that are too long ago."""
        wakes = np.asarray(state.column(EVENT_TIMER).fill_null(EVER + 1))
        return state.filter(pa.array(wakes > watermark_us))

    def _net(self, state: pa.Table, rows: pa.Table) -> StepResult:
        names = [KEY, *self.following.columns]
        newest = self._newest(state, rows)
        known = np.asarray(state.column(GONE).combine_chunks()).astype(bool)
        live = state.filter(pa.array(~known))
        # Each key has one row by now, so nothing depends on the order in which they came.
        found = replace(self.following, ordered=True).replaced(live, newest)
        gone, came = taken(live, found.gone, names), taken(newest, found.came, names)
        ids = np.concatenate([np.asarray(one.column(KEY).combine_chunks()) for one in (gone, came)])
        return StepResult(self._kept(state, newest), told(gone, came, ids=ids, groups=ids))

    def _newest(self, state: pa.Table, rows: pa.Table) -> pa.Table:
        """Of each key the row with the latest time, of several the one that came last; none where the state has a later one."""
        keys = np.asarray(rows.column(KEY).combine_chunks())
        at = np.asarray(micros(rows.column(VERSION)).combine_chunks())
        order = np.lexsort([at, keys])  # stable: rows of one time stay as they came
        groups = Groups.of(keys[order])
        last = order[groups.starts + groups.sizes() - 1]
        held = np.full(int(max(keys.max(initial=-1), _keys(state).max(initial=-1))) + 1, NEVER, np.int64)
        held[_keys(state)] = np.asarray(state.column(VERSION_US).combine_chunks())
        return rows.take(pa.array(last[at[last] >= held[keys[last]]]))

    def _kept(self, state: pa.Table, newest: pa.Table) -> pa.Table:
        """The state of keys without news as it is, and the newest row of the others, also where it deletes."""
        names = [KEY, *self.following.columns]
        stays = state.filter(pa.array(~np.isin(_keys(state), _keys(newest))))
        at = np.asarray(micros(newest.column(VERSION)).combine_chunks())
        gone = signs_of(newest.column(OP)) < 0
        came = nullable(newest.select(names))
        came = came.append_column(VERSION_US, pa.array(at, pa.int64())).append_column(GONE, pa.array(gone))
        came = came.append_column(EVENT_TIMER, pa.array(at + self.history_us, pa.int64(), mask=~gone))
        return pa.concat_tables([stays.select(came.column_names).cast(came.schema), came])


def _keys(table: pa.Table) -> Int64s:
    return np.asarray(table.column(KEY).combine_chunks())
