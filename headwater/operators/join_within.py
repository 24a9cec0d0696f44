"""`JoinWithin`: rows of two streams that belong together and happen close to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import ArgumentInvalid, JoinUnbounded
from headwater.operators.joining.inputs import AT, Columns, Meeting, On, check_appends, check_times, pairs_of
from headwater.operators.joining.within import ALONE, How, WithinStep, state_schema
from headwater.operators.keyed import Contract, apply
from headwater.operators.keyed.plan import default_name
from headwater.operators.process import policy
from headwater.operators.windowed.operator import late_schema
from headwater.operators.windowed.prepared import LATE_SAMPLE_ROWS, Late
from headwater.operators.windowed.spans import LONGEST_SECONDS
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class JoinWithin:
    """Put rows of two streams together that have the same key and happen within a time of each other.

    A row meets each row of `other` whose time lies in [its own − `before`, its own + `after`], ends included; `within`
    sets both. Pairs leave as soon as their second half is there. What an outer join leaves alone, and all that an anti
    join gives, leaves once: when the watermark (the slower input's latest time less `late_by`) has passed its time, the
    bound and `grace`, so that nothing could still meet it. Rows behind the watermark by more than `grace` are late.
    State: the rows of both inputs that can still be met.

    >>> from headwater.operators import JoinWithin
    >>> JoinWithin(None, on="ad", time="shown_at", other_time="clicked_at", after="1 hour", how="left").after
    '1 hour'
    """

    # None only where no row is ever joined, as in the example above.
    other: DataFrame | None = field(kw_only=False, repr=False)
    on: On
    time: str
    other_time: str | None = None
    within: str | float | None = None
    before: str | float | None = None
    after: str | float | None = None
    how: How = "inner"
    grace: str | float = 0.0
    late_by: str | float = 0.0
    late: Late = "drop"
    suffix: str | None = None
    idle: str | float | None = None
    ahead: str | float | None = "1 day"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.how not in ALONE:
            raise ArgumentInvalid(name="how", value=self.how, expected=f"one of {', '.join(ALONE)}")
        if self.within is None and self.before is None and self.after is None:
            raise JoinUnbounded(operator=self.name or "JoinWithin", bounds='`within="1 hour"`, or `before` and `after`')
        pairs_of(self.on)
        self.bounds_us()

    def __call__(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        operator = self.name or "JoinWithin"
        other, other_time = self.checked_other(), self.other_time or self.time
        check_appends("rows", rows)
        check_appends("other", other)
        check_times(operator, rows, other, self.time, other_time)
        meeting = Meeting.of(operator, rows, other, on=self.on, suffix=self.suffix, key_only=self.how == "anti")
        left, right = meeting.left_rows(F.col(f"`{self.time}`")), meeting.right_rows(F.col(f"`{other_time}`"))
        make = partial(self.contract, columns=meeting.columns())
        return apply(make, left, right, partitions=self.partitions)

    def checked_other(self) -> DataFrame:
        if self.other is None:
            raise ArgumentInvalid(name="other", value=None, expected="a DataFrame")
        return self.other

    def bounds_us(self) -> tuple[int, int, int]:
        """How long before and after a row of the left input one of the right may happen, and the grace."""
        both = 0.0 if self.within is None else self.within
        given = {
            "before": both if self.before is None else self.before,
            "after": both if self.after is None else self.after,
            "grace": self.grace,
        }
        found = []
        for name, value in given.items():
            seconds = parse_seconds(value, name=name)
            if seconds > LONGEST_SECONDS:
                raise ArgumentInvalid(name=name, value=value, expected="ten years at most: all rows of it are kept")
            found.append(round(seconds * 1e6))
        before, after, grace = found
        return before, after, grace

    def contract(self, rows: pa.Schema, columns: Columns) -> Contract:
        before, after, grace = self.bounds_us()
        return Contract(
            name=self.name or default_name(self),
            step=WithinStep(columns=columns, before_us=before, after_us=after, grace_us=grace, how=self.how),
            key=columns.key,
            rows=rows,
            state=state_schema(rows, columns),
            output=pa.schema([rows.field(name) for name in columns.shown]),
            sides={"late": late_schema(rows)},
            time=AT,
            policy=policy(late_by=self.late_by, idle=self.idle, ahead=self.ahead, inputs=2),
            late="step",
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )
