"""`Enrich`: rows of a stream with what a table says of their key, now or at the row's own time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import pyarrow as pa

from headwater.errors import ArgumentInvalid, TableCompacted
from headwater.operators.changelog import DELETE, OP, UPDATE_BEFORE
from headwater.operators.joining.as_of import AsOfStep, Settling, as_of_state
from headwater.operators.joining.current import CurrentStep, current_state
from headwater.operators.joining.inputs import AT, Columns, Meeting, On, check_appends, check_times, pairs_of
from headwater.operators.keyed import Contract, apply
from headwater.operators.keyed.plan import default_name
from headwater.operators.process import policy
from headwater.operators.windowed.operator import late_schema
from headwater.operators.windowed.prepared import LATE_SAMPLE_ROWS, Late
from headwater.operators.windowed.spans import LONGEST_SECONDS
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

APPENDED_AT = "_appended_at"


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
    def compact(self) -> bool: ...
    @property
    def dated(self) -> DataFrame:
        """Its changes as a stream, with `_op` and `_appended_at`."""

    def history(self) -> DataFrame:
        """The same as bounded rows."""


@dataclass(frozen=True, kw_only=True)
class Enrich:
    """Add to each row of a stream the columns that a table has for its key.

    Without `as_of` that is what the table holds when the row's batch is processed: its changes up to and including that
    batch. With `as_of`, a time of the row, it is what held then: the newest version of the key from that time or before.
    With `grace`, rows wait until the table's own time has passed theirs, or theirs is `grace` behind the stream's
    watermark, so that a table that arrives late still counts. `how="left"` keeps rows that find nothing, with nulls;
    `"inner"` drops them. State: one row per key of the table; with `as_of`, the versions that can still be asked for.

    >>> from headwater.operators import Enrich
    >>> Enrich(None, on="country", as_of="sold_at", valid_from="since", grace="1 hour").as_of
    'sold_at'
    """

    # None only where no row is ever enriched, as in the example above.
    table: DataFrame | ChangingTable | None = field(kw_only=False, repr=False)
    on: On
    as_of: str | None = None
    valid_from: str | None = None
    grace: str | float = 0.0
    how: Literal["left", "inner"] = "left"
    late_by: str | float = 0.0
    late: Late = "drop"
    suffix: str | None = None
    idle: str | float | None = None
    ahead: str | float | None = "1 day"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.how not in ("left", "inner"):
            raise ArgumentInvalid(name="how", value=self.how, expected='"left" or "inner"')
        pairs_of(self.on)
        if parse_seconds(self.grace, name="grace") > LONGEST_SECONDS:
            raise ArgumentInvalid(name="grace", value=self.grace, expected="ten years at most: rows wait so long")
        if self.as_of is None and (self.valid_from is not None or self._grace_us):
            name = "grace" if self.valid_from is None else "valid_from"
            expected = "none without `as_of`: what holds now is what came last, and nothing waits for it"
            raise ArgumentInvalid(name=name, value=getattr(self, name), expected=expected)

    def __call__(self, rows: DataFrame) -> DataFrame:
        operator = self.name or "Enrich"
        check_appends("rows", rows)
        changes, valid_from = self._changes(rows, operator)
        at, since = self._times(operator, rows, changes, valid_from)
        meeting = Meeting.of(operator, rows, changes, on=self.on, suffix=self.suffix, called="table")
        ops = (OP,) if OP in changes.columns else ()
        left, right = meeting.left_rows(at), meeting.right_rows(since, more=ops)
        make = partial(self.contract, columns=meeting.columns(places=True))
        return apply(make, left, right, partitions=self.partitions)

    def contract(self, rows: pa.Schema, columns: Columns) -> Contract:
        settings = {
            "name": self.name or default_name(self),
            "key": columns.key,
            "rows": rows,
            "output": pa.schema([rows.field(name) for name in columns.shown]),
        }
        if self.as_of is None:
            return Contract(
                step=CurrentStep(columns=columns, how=self.how), state=current_state(rows, columns), **settings
            )
        told = policy(late_by=self.late_by, idle=self.idle, ahead=self.ahead)
        return Contract(
            step=AsOfStep(columns=columns, grace_us=self._grace_us, how=self.how),
            state=as_of_state(rows, columns, waiting=self._grace_us > 0),
            sides={"late": late_schema(rows)},
            time=AT,
            policy=Settling(
                late_by_us=told.late_by_us, idle_us=told.idle_us, ahead_us=told.ahead_us, grace_us=self._grace_us
            ),
            late="step",
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
            **settings,
        )

    @property
    def _grace_us(self) -> int:
        return round(parse_seconds(self.grace) * 1e6)

    def _changes(self, rows: DataFrame, operator: str) -> tuple[DataFrame, str | None]:
        """The changes of the table, and the column that says from when they hold."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        table = self.table
        if isinstance(table, DataFrame):
            changes, valid_from = table, self.valid_from or (APPENDED_AT if APPENDED_AT in table.columns else None)
        elif isinstance(table, ChangingTable):
            self._check_table(table, operator)
            changes = table.dated if rows.isStreaming else table.history()
            valid_from = self.valid_from or table.time or APPENDED_AT
        else:
            expected = "a table of the app (`hw.Table`), or a DataFrame of its changes"
            raise ArgumentInvalid(name="table", value=table, expected=expected)
        if OP in changes.columns:
            changes = changes.where(F.coalesce(F.col(OP), F.lit("")) != UPDATE_BEFORE)
        return changes, valid_from

    def _check_table(self, table: ChangingTable, operator: str) -> None:
        if self.as_of is not None and table.compact:
            raise TableCompacted(operator=operator, table=table.name)
        others = tuple(pairs_of(self.on).values())
        if set(others) != set(table.key):
            expected = f"the key of table {table.name!r}, which is {', '.join(table.key) or 'none'}"
            raise ArgumentInvalid(name="on", value=self.on, expected=expected)

    def _times(
        self, operator: str, rows: DataFrame, changes: DataFrame, valid_from: str | None
    ) -> tuple[Column | None, Column | None]:
        """The time of a row, and the time from which a version holds: of a deletion that does not say, when it came."""
        from pyspark.sql import functions as F  # noqa: N812

        if self.as_of is None:
            return None, None
        if valid_from is None:
            expected = "the table's column that says from when a row holds"
            raise ArgumentInvalid(name="valid_from", value=None, expected=expected)
        check_times(operator, rows, changes, self.as_of, valid_from)
        since = F.col(f"`{valid_from}`")
        if OP in changes.columns and APPENDED_AT in changes.columns:
            came = F.when(F.col(OP) == DELETE, F.col(APPENDED_AT).cast(changes.schema[valid_from].dataType))
            since = F.coalesce(since, came)
        return F.col(f"`{self.as_of}`"), since
