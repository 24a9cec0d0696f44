"""`ComparedTo`: the result of each window beside that of the same window one period, and several periods, earlier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate, is_number
from headwater.operators.analytics.comparing import ADDED, PERIODS, CompareStep, compared_fields
from headwater.operators.joining.inputs import check_appends
from headwater.operators.keyed import Contract, Policy, apply
from headwater.operators.keyed.plan import default_name
from headwater.operators.process import check_late
from headwater.operators.tumbling import Tumbling
from headwater.operators.windowed.prepared import ALL, Late, keys_of
from headwater.operators.windowed.spans import duration_us, fixed
from headwater.operators.windowed.step import END, START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class ComparedTo:
    """Aggregate per key and window of length `every`, and compare each result with those of the last `periods` periods.

    "Against the same hour last week" is `every="1 hour"`, `period="1 week"`. For each aggregate `n` of `compute` there are
    `n_before` (one period earlier), `n_difference`, `n_ratio`, and over the earlier periods `n_mean` and `n_zscore`, how
    many standard deviations it is from that mean; the column `periods` says how many of them are known. What is not known
    is null, never zero. A result comes once, when its window is closed. State: the results of the last `periods`.

    >>> from headwater.operators import ComparedTo, agg
    >>> ComparedTo(on="at", by="shop", every="1 hour", period="1 week", compute={"orders": agg.count()}).periods
    4
    """

    on: str
    by: str | tuple[str, ...] = ()
    every: str | float
    period: str | float
    compute: Mapping[str, Aggregate]
    periods: int = 4
    offset: str | float = 0.0
    late_by: str | float = 0.0
    lateness: str | float = 0.0
    late: Late = "drop"
    idle: str | float | None = None
    ahead: str | float | None = "1 day"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_late(self.late)
        fixed(size=self.every, offset=self.offset)
        if duration_us("period", self.period) % self._every_us:
            raise ArgumentInvalid(name="period", value=self.period, expected="a multiple of `every`")
        if isinstance(self.periods, bool) or not isinstance(self.periods, int) or not 1 <= self.periods <= 1000:
            raise ArgumentInvalid(name="periods", value=self.periods, expected="a whole number from 1 to 1000")
        taken = {PERIODS, *(f"{name}_{word}" for name in self.compute for word in ADDED)}
        for name in self.compute:
            if name in taken:
                raise ArgumentInvalid(name="compute", value=name, expected="names that no other result has")

    @property
    def called(self) -> str:
        return self.name or default_name(self)

    @property
    def _every_us(self) -> int:
        return duration_us("every", self.every)

    def windows(self) -> Tumbling:
        """The windows whose results are compared."""
        return Tumbling(
            size=self.every,
            offset=self.offset,
            on=self.on,
            by=self.by,
            compute=self.compute,
            late_by=self.late_by,
            lateness=self.lateness,
            late=self.late,
            idle=self.idle,
            ahead=self.ahead,
            partitions=self.partitions,
            name=f"{self.called}-windows",
        )

    def __call__(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        check_appends("rows", rows)
        results = rows.transform(self.windows())
        if not self.by:
            results = results.withColumn(ALL, F.lit(0))
        return apply(self.contract, results, partitions=self.partitions if self.by else 1)

    def contract(self, rows: pa.Schema) -> Contract:
        keys = keys_of(self.by)
        statistics = pa.schema([rows.field(name).with_nullable(True) for name in self.compute])
        for one in statistics:
            if not is_number(one.type):
                raise ArgumentInvalid(name="compute", value=f"{one.name} ({one.type})", expected="numbers to compare")
        step = CompareStep(statistics, duration_us("period", self.period), self._every_us, self.periods)
        shown = [rows.field(name) for name in (*keys, START, END) if name != ALL]
        return Contract(
            name=self.called,
            step=step,
            key=keys,
            rows=rows,
            state=step.state(),
            output=pa.schema([*shown, *compared_fields(statistics)]),
            time=END,
            # Windows come in the order of time, whatever their rows did: none of them is late.
            policy=Policy(late_by_us=0, ahead_us=None),
            late="step",
            hidden=(ALL,),
        )
