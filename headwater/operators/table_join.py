"""`TableJoin`: two tables that change, joined; the result is a table that changes with them.

All rows of both tables that share a value of the joined columns are one group. A batch says only what it changes: a row
that changed meets all rows of the other side, a row that did not meets those that did. So a group costs what it holds
once per batch in which it is touched, and pairs only where something moved.

A row that changes its foreign key leaves one group and enters another, in different partitions. Its retraction and its
new row are brought together again by its key, so that a reader who applies the changes meets them in their order.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Int64s
from headwater.engine.changelog import OP, signs_of
from headwater.engine.columns import INPUT, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import BatchTime
from headwater.engine.rows import ranks
from headwater.engine.spark_plan import apply, default_name, partitions_of
from headwater.engine.state_store import ranges
from headwater.engine.table_changes import PLACE, Emit, TableUpdate, check_emit, codes, emitted, taken, told
from headwater.engine.table_input import (
    DEFAULT_HISTORY,
    Follow,
    Names,
    TableLike,
    Versions,
    check_key,
    check_names,
    frame_of,
    has_place,
    key_of,
    operation,
    own_columns,
    places,
    version_column,
)
from headwater.engine.table_read import as_table
from headwater.errors import ArgumentInvalid
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

HOWS = ("inner", "left", "right", "outer")
SIDES = ("left", "right")
#: What their keys are called among the settings.
SETTINGS = ("key", "other_key")
On = str | tuple[str, str] | list[str | tuple[str, str]]
#: What the columns of either side are called on their way, so that both may use one name.
PREFIXES = ("l_", "r_")
#: What the rows are joined on, as the engine's key.
ON = "_on_"
SPREAD = "_spread"
How = Literal["inner", "left", "right", "outer"]
SIDE = "side"
ALONE = -1


@dataclass(frozen=True)
class TableJoin:
    """Join two tables that change, and say how the result changes.

    `on` is a column that both have, a pair of columns (of the left and of the right), or a list of those. `key` and
    `other_key` are the primary keys; left out, a table's key is the columns it is joined on. Where a table is joined on
    something else (a foreign key: many orders of one customer), its last rows are kept by key as well, so that a row that
    moves to another partner leaves the old one. Both inputs are changelogs (`_op`) or keyed topics, in which a row
    replaces the one before it and a tombstone deletes it.

    `version` and `other_version` are timestamp columns by which the rows of a key replace one another, where they may come out of
    order: a row that is older than what its key has is ignored. A deletion is remembered for `history` of that time.

    The joined columns appear once, under the left's names; `suffix` goes to names of the right that the left has, too.
    State: both tables. A batch costs as much as the groups it touches hold.

    >>> TableJoin(None, on=("customer", "id"), key="order", how="left").how
    'left'
    """

    other: TableLike = field(repr=False)
    _: KW_ONLY
    on: On
    how: How = "inner"
    key: Names | None = None
    other_key: Names | None = None
    suffix: str | None = None
    version: str | None = None
    other_version: str | None = None
    history: Duration = DEFAULT_HISTORY
    emit: Emit = "changes"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_emit(self.emit)
        parse_seconds(self.history, name="history")
        if self.how not in HOWS:
            raise ArgumentInvalid(name="how", value=self.how, expected='"inner", "left", "right" or "outer"')
        self.joined()

    def joined(self) -> list[tuple[str, str]]:
        """The pairs of columns that must be equal."""
        each = [self.on] if isinstance(self.on, str | tuple) else list(self.on)
        pairs = [(one, one) if isinstance(one, str) else one for one in each]
        if not pairs or any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
            expected = 'a column, a pair ("customer_id", "id"), or a list of those'
            raise ArgumentInvalid(name="on", value=self.on, expected=expected)
        return pairs

    def __call__(self, rows: TableLike) -> DataFrame:
        plan, tables = self.plan(rows)
        frames = [self._side(number, one, plan) for number, one in enumerate(tables)]
        result = apply(plan.contract, *frames, partitions=self.partitions)
        if plan.is_settled:
            return result
        count = partitions_of(result, self.partitions)
        return plan.regrouped(result, partitions=count)

    def plan(self, rows: TableLike) -> tuple[JoinPlan, list[DataFrame]]:
        """How the join runs, once it is clear that it can, and the changes of both tables."""
        tables = (rows, self.other)
        frames, made = [], []
        for number, keys in enumerate((self.key, self.other_key)):
            on = tuple(pair[number] for pair in self.joined())
            told_key = key_of(tables[number], keys)
            key = on if told_key is None else told_key
            called = f"{self.name or 'TableJoin'} ({SIDES[number]})"
            check_names("on", on, frame_of(tables[number]), operator=called)
            check_key(frame_of(tables[number]), key, operator=called)
            frame = as_table(frame_of(tables[number]), key, operator=called, setting=SETTINGS[number])
            time = (self.version, self.other_version)[number]
            versions = Versions.of(tables[number], frame, time, self.history)
            made.append(Joined(tuple(own_columns(frame)), key, on, has_place(frame), versions))
            frames.append(frame)
        self._check_types(*frames)
        mark = zlib.crc32(",".join([*made[0].columns, "|", *made[1].columns]).encode())
        name = self.name or f"{default_name(self)}-{mark:08x}"
        plan = JoinPlan(name, made[0], made[1], self.how, self.suffix, self.emit)
        plan.check()
        return plan, frames

    def _check_types(self, left: DataFrame, right: DataFrame) -> None:
        for mine, theirs in self.joined():
            kinds = [frame.schema[name].dataType for frame, name in ((left, mine), (right, theirs))]
            if kinds[0] != kinds[1]:
                pair = f"{mine} ({kinds[0].simpleString()}) and {theirs} ({kinds[1].simpleString()})"
                raise ArgumentInvalid(name="on", value=pair, expected="columns of one type: cast one of them")

    def _side(self, number: int, rows: DataFrame, plan: JoinPlan) -> DataFrame:
        """The rows of one side under the names they travel by, with what they are joined on as the engine's key."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        prefix, table = PREFIXES[number], (plan.left, plan.right)[number]
        own = [F.col(f"`{name}`").alias(prefix + name) for name in table.columns]
        made = rows.select(*own, operation(rows, keyed=True), *places(rows), *version_column(rows, table.versions))
        if table.is_followed:
            follow = Follow(
                name=f"{plan.name}-{SIDES[number]}",
                key=tuple(prefix + name for name in table.key),
                emit=self.emit,
                versions=table.versions,
                partitions=self.partitions,
            )
            made = follow(made)
        groups = [
            _filled(F.col(f"`{prefix}{name}`"), rows.schema[name].dataType).alias(f"{ON}{place}")
            for place, name in enumerate(table.on)
        ]
        columns = [[F.col(f"`{prefix}{name}`") for name in names] for names in (table.on, table.key)]
        return made.select("*", *groups, _spread(number, *columns).alias(SPREAD))


def _filled(column: Column, kind: DataType) -> Column:
    """The column with something in place of null: such rows meet no other, and `_spread` keeps them apart."""
    from pyspark.sql import functions as F  # noqa: N812

    plain = {"string": "", "boolean": False, "binary": b"", "date": "1970-01-01"}
    name = kind.typeName()
    nothing = plain.get(name, "1970-01-01 00:00:00" if name.startswith("timestamp") else 0)
    return F.coalesce(column, F.lit(nothing).cast(kind))


def _spread(number: int, on: list[Column], key: list[Column]) -> Column:
    """Zero for rows that may meet; for others a number of their own, so that they do not pile up in one group. Null for
    rows without a key, which the engine rejects."""
    from pyspark.sql import functions as F  # noqa: N812

    apart = F.pmod(F.xxhash64(*key), F.lit(2**40)) + 1
    meets, has_key = F.lit(True), F.lit(True)
    for column in on:
        meets = meets & column.isNotNull()
    for column in key:
        has_key = has_key & column.isNotNull()
    alone = apart if number == 0 else -apart
    return F.when(has_key, F.when(meets, F.lit(0)).otherwise(alone)).cast("long")


@dataclass(frozen=True)
class Joined:
    """One of the tables of a join: its columns, its key, what it is joined on, whether its rows have places, and its versions."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    on: tuple[str, ...]
    has_place: bool = True
    versions: Versions | None = None

    @property
    def is_followed(self) -> bool:
        """Whether its last rows are kept by their key, so that each change says what it retracts."""
        return not self.is_settled or self.versions is not None

    @property
    def is_settled(self) -> bool:
        """Whether a row stays in its group for as long as it has its key."""
        return set(self.on) <= set(self.key)

    @property
    def is_unique(self) -> bool:
        """Whether a group has one row at most."""
        return set(self.key) <= set(self.on)


@dataclass(frozen=True)
class JoinPlan:
    """Everything about a join that follows from its settings and the columns of its tables."""

    name: str
    left: Joined
    right: Joined
    how: How = "inner"
    suffix: str | None = None
    emit: Emit = "changes"

    @property
    def is_settled(self) -> bool:
        return self.left.is_settled and self.right.is_settled

    def right_name(self, column: str) -> str:
        """What a column of the right is called in the result."""
        if column in self.right.on:
            return self.left.on[self.right.on.index(column)]
        return column + (self.suffix or "") if column in self.left.columns else column

    def output(self) -> list[tuple[str, tuple[str, ...]]]:
        """The columns of the result, and where each comes from: the first of those that is there."""
        partner = dict(zip(self.left.on, self.right.on, strict=True)) if self.how in ("right", "outer") else {}
        mine = [
            (name, (PREFIXES[0] + name, *([PREFIXES[1] + partner[name]] if name in partner else [])))
            for name in self.left.columns
        ]
        theirs = [
            (self.right_name(name), (PREFIXES[1] + name,)) for name in self.right.columns if name not in self.right.on
        ]
        return [*mine, *theirs]

    def check(self) -> None:
        """Raise on a name that two columns of the result would have."""
        names = [name for name, _ in self.output()]
        for name in names:
            if names.count(name) > 1:
                expected = 'one that tells columns of one name apart, such as "_right", or rename them first'
                raise ArgumentInvalid(name="suffix", value=self.suffix, expected=f"{expected}: both have {name!r}")

    def contract(self, rows: pa.Schema) -> Contract:
        sides = [self._side(number, one) for number, one in enumerate((self.left, self.right))]
        stored = [rows.field(name) for side in sides for name in side.columns]
        kept = [
            rows.field(name)
            for name in PLACE
            if name in rows.names and not self.is_settled and self.emit == "every_change"
        ]
        output = self.output()
        return Contract(
            name=self.name,
            step=JoinStep(sides[0], sides[1], self.how, self.emit, tuple(output), places=bool(kept)),
            key=(*(f"{ON}{place}" for place in range(len(self.left.on))), SPREAD),
            rows=rows,
            state=pa.schema([*stored, pa.field(SIDE, pa.int8())]),
            output=pa.schema(
                [pa.field(OP, pa.string()), *(pa.field(name, rows.field(of[0]).type) for name, of in output), *kept]
            ),
        )

    def _side(self, number: int, table: Joined) -> Side:
        key = () if table.is_unique else tuple(PREFIXES[number] + name for name in table.key)
        columns = tuple(PREFIXES[number] + name for name in table.columns)
        ordered = table.has_place and not table.is_followed
        return Side(number, TableUpdate(self.name, (KEY, *key), columns, ordered), table.is_unique)

    # -- rows that change groups --------------------------------------------------------------------------------------

    def keys(self) -> tuple[list[str], list[str]]:
        """The columns of the result by which a row is known, and those that count where the first are null."""
        mine, theirs = list(self.left.key), [self.right_name(name) for name in self.right.key]
        if self.left.is_unique and not self.right.is_unique:
            return theirs, mine
        return (mine, theirs) if self.right.is_unique else ([*mine, *theirs], [])

    def regrouped(self, rows: DataFrame, *, partitions: int) -> DataFrame:
        """The changes of each row of the result in one partition, in their order."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know
        from pyspark.sql.types import StructType

        known, otherwise = self.keys()
        first = [F.col(f"`{name}`") for name in (known if otherwise else self.left.key)]
        by = [*first, *(F.when(first[0].isNull(), F.col(f"`{name}`")) for name in otherwise)]
        kept = [one for one in rows.schema if one.name not in PLACE]
        return rows.repartition(partitions, *by).mapInArrow(self._reorder, StructType(kept))

    def _reorder(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        if found:
            yield from self.reordered(pa.Table.from_batches(found)).to_batches()

    def reordered(self, rows: pa.Table) -> pa.Table:
        """Changes of which each row's retraction stands before what takes its place."""
        places = [name for name in PLACE if name in rows.column_names]
        signs = signs_of(rows.column(OP))
        order = np.lexsort([signs > 0])
        rows, gone = rows.take(pa.array(order)), int((signs < 0).sum())
        groups = np.zeros(rows.num_rows, np.int64)
        if places:
            order_by = [ranks(rows.column(name)) for name in places]
            groups = np.unique(np.stack(order_by, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
        identity, names = self._identity(rows)
        ids = codes(identity.append_column("place", pa.array(groups)), [*names, "place"])
        plain = rows.drop_columns([OP, *places])
        return told(plain.slice(0, gone), plain.slice(gone), ids=ids, groups=groups).select(
            [name for name in rows.column_names if name not in places]
        )

    def _identity(self, rows: pa.Table) -> tuple[pa.Table, list[str]]:
        known, otherwise = self.keys()
        named = {f"k{place}": rows.column(name) for place, name in enumerate(known)}
        missing = pc.is_null(rows.column(known[0]))
        for place, name in enumerate(otherwise):
            column = rows.column(name)
            named[f"o{place}"] = pc.if_else(missing, column, pa.scalar(None, column.type))
        return pa.table(named), list(named)


class Held(NamedTuple):
    """The rows of one side, sorted by group, and which of them are not the same before and after the batch."""

    rows: pa.Table
    keys: Int64s
    moved: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Side:
    """One of the two tables: its columns as they travel, and its key within a group, empty where a group has one row."""

    number: int
    following: TableUpdate
    unique: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return self.following.columns

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(name for name in self.following.key if name != KEY)

    def moved(self, state: pa.Table, rows: pa.Table) -> tuple[Held, Held]:
        """The side before and after the batch."""
        names = [KEY, *self.columns]
        old = state.filter(pc.equal(state.column(SIDE), self.number)).select(names).combine_chunks()
        changes = rows.filter(pc.equal(rows.column(INPUT), self.number))
        found = self.following.replaced(old, changes)
        gone = np.zeros(old.num_rows, bool)
        gone[found.gone] = True
        after = pa.concat_tables([taken(old, found.stay, names), taken(changes, found.came, names)]).combine_chunks()
        came = np.arange(after.num_rows) >= len(found.stay)
        keys = np.asarray(after.column(KEY))
        order = np.argsort(keys, kind="stable")
        return (
            Held(old, np.asarray(old.column(KEY)), gone),
            Held(after.take(pa.array(order)), keys[order], came[order]),
        )


class JoinPairs(NamedTuple):
    """Which row of the left meets which row of the right; `ALONE` where a row stands alone."""

    left: Int64s
    right: Int64s


@dataclass(frozen=True)
class JoinStep:
    """One batch of a join over all groups of a partition."""

    left: Side
    right: Side
    how: How
    emit: Emit
    #: The columns of the result: its name, and the columns of either side that it comes from, the first that has one.
    output: tuple[tuple[str, tuple[str, ...]], ...]
    places: bool

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit, places=self.places)

    def _net(self, state: pa.Table, rows: pa.Table) -> StepResult:
        left_before, left_after = self.left.moved(state, rows)
        right_before, right_after = self.right.moved(state, rows)
        stirred = [
            np.concatenate([before.keys[before.moved], after.keys[after.moved]])
            for before, after in ((left_before, left_after), (right_before, right_after))
        ]
        gone, gone_ids = self._joined(left_before, right_before, stirred)
        came, came_ids = self._joined(left_after, right_after, stirred)
        ids = codes(pa.concat_tables([gone_ids, came_ids]), gone_ids.column_names)
        groups = np.concatenate([np.asarray(one.column(KEY).combine_chunks()) for one in (gone_ids, came_ids)])
        return StepResult(self._kept(left_after, right_after), told(gone, came, ids=ids, groups=groups))

    def _kept(self, left: Held, right: Held) -> pa.Table:
        sides = [
            held.rows.append_column(SIDE, pa.array(np.full(held.rows.num_rows, number, np.int8)))
            for number, held in enumerate((left, right))
        ]
        return pa.concat_tables(sides, promote_options="default")

    def _joined(self, left: Held, right: Held, stirred: list[Int64s]) -> tuple[pa.Table, pa.Table]:
        """The joined rows that have to do with rows that moved, and what tells them apart."""
        pairs = self._pairs(left, right, stirred)
        sides = {
            name: _take(held.rows.column(name), chosen)
            for side, held, chosen in ((self.left, left, pairs.left), (self.right, right, pairs.right))
            for name in side.columns
        }
        keys = _take_numbers(left.keys, right.keys, pairs)
        columns = [_first([sides[name] for name in names]) for _, names in self.output]
        rows = pa.table([pa.array(keys, pa.int64()), *columns], names=[KEY, *(name for name, _ in self.output)])
        return rows, self._identities(keys, sides)

    def _pairs(self, left: Held, right: Held, stirred: list[Int64s]) -> JoinPairs:
        moved, still = np.flatnonzero(left.moved), np.flatnonzero(~left.moved)
        moved_right = np.flatnonzero(right.moved)
        first = _meetings(left.keys[moved], right.keys)
        second = _meetings(left.keys[still], right.keys[moved_right])
        lefts = [moved[first.left], still[second.left]]
        rights = [first.right, moved_right[second.right]]
        if self.how in ("left", "outer"):
            alone = _alone(left, right.keys, stirred[1])
            lefts, rights = [*lefts, alone], [*rights, np.full(len(alone), ALONE)]
        if self.how in ("right", "outer"):
            alone = _alone(right, left.keys, stirred[0])
            lefts, rights = [*lefts, np.full(len(alone), ALONE)], [*rights, alone]
        return JoinPairs(np.concatenate(lefts), np.concatenate(rights))

    def _identities(self, keys: Int64s, sides: dict[str, pa.Array]) -> pa.Table:
        """What makes a joined row the same row before and after: the keys of both sides, as far as a group has many."""
        named = {KEY: pa.array(keys, pa.int64())}
        for side in (self.left, self.right):
            if not side.unique:
                named |= {name: sides[name] for name in side.key}
        return pa.table(named)


def _meetings(left: Int64s, right: Int64s) -> JoinPairs:
    """All pairs of rows with one group; both sides are sorted by it.

    >>> [one.tolist() for one in _meetings(np.array([1, 1, 2]), np.array([1, 2, 2, 3]))]
    [[0, 1, 2, 2], [0, 0, 1, 2]]
    """
    first = np.searchsorted(right, left, side="left")
    counts = np.searchsorted(right, left, side="right") - first
    return JoinPairs(np.repeat(np.arange(len(left)), counts), ranges(first, counts))


def _alone(held: Held, others: Int64s, stirred: Int64s) -> Int64s:
    """The rows that meet no other, of those that moved or whose group's other side did."""
    concerned = held.moved | np.isin(held.keys, stirred)
    found: Int64s = np.flatnonzero(concerned & ~np.isin(held.keys, others))
    return found


def _take(column: pa.ChunkedArray, rows: Int64s) -> pa.Array:
    taken_rows = column.take(pa.array(rows, pa.int64(), mask=rows == ALONE))
    return taken_rows.combine_chunks() if isinstance(taken_rows, pa.ChunkedArray) else taken_rows


def _take_numbers(left: Int64s, right: Int64s, pairs: JoinPairs) -> Int64s:
    """The group of each pair, from whichever side is there."""
    found = np.zeros(len(pairs.left), np.int64)
    has_left, has_right = pairs.left != ALONE, pairs.right != ALONE
    found[has_right] = right[pairs.right[has_right]]
    found[has_left] = left[pairs.left[has_left]]
    return found


def _first(columns: list[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pc.coalesce(*columns)
