"""`Session`: rows of a key that follow one another closely, until there is a gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.computation import Computation
from headwater.operators.keyed import Step
from headwater.operators.windowed.own import OwnWindows
from headwater.operators.windowed.prepared import check_time
from headwater.operators.windowed.sessions import SessionStep, session_state
from headwater.operators.windowed.spans import duration_us
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Session(OwnWindows):
    """Aggregate the rows of each key per session: rows at most `gap` apart, however long that goes on.

    `window_start` is the first row's time, `window_end` the last row's plus `gap`. With `emit="final"` a session comes
    once, when the watermark has passed its end by `lateness`. With `"net"` or `"each"` sessions are live: a row that
    extends one, or makes one of two, withdraws the old ones and puts the new one in their place (`_op`). A row is late
    when no open session takes it and its own would be closed already. State: one row per key and open session.

    Rows exactly `gap` apart are in one session, as in Kafka Streams, Flink and Spark; with `inclusive=False` in two, as
    in Beam. Without `compute`, rows get the column `window`, for Spark's own `groupBy`.

    >>> from headwater.operators import Session, agg
    >>> Session(gap="30 minutes", on="at", by="user", compute={"pages": agg.count()}, emit="net").gap
    '30 minutes'
    """

    gap: str | float
    inclusive: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if duration_us("gap", self.gap) == 1 and not self.inclusive:
            raise ArgumentInvalid(name="gap", value=self.gap, expected="more than a microsecond")

    def __call__(self, rows: DataFrame) -> DataFrame:
        if self.compute is not None:
            return super().__call__(rows)
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        check_time(self.name or "Session", rows, self.on)
        late_by = f"{round(parse_seconds(self.late_by) * 1e6)} microseconds"
        # Spark makes one session of rows exactly its gap apart.
        window = F.session_window(self.on, f"{self._reach_us - 1} microseconds")
        return rows.withWatermark(self.on, late_by).withColumn("window", window)

    @property
    def _reach_us(self) -> int:
        """How far from a session a row has its own."""
        return duration_us("gap", self.gap) + (1 if self.inclusive else 0)

    def step(self, computation: Computation) -> Step:
        return SessionStep(
            on=self.on,
            computation=computation,
            gap_us=duration_us("gap", self.gap),
            reach_us=self._reach_us,
            lateness_us=self.lateness_us,
            emit=self.emit,
        )

    def state(self, computation: Computation) -> pa.Schema:
        return session_state(computation)
