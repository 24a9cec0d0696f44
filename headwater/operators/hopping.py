"""`Hopping`: windows of one length that begin every period, so that they overlap, or leave gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.engine.window_operator import WindowOperator
from headwater.engine.window_spans import Spans, fixed
from headwater.errors import ArgumentInvalid
from headwater.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import Column

#: A row that falls into more windows than this is a mistake in a unit.
WINDOWS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class Hopping(WindowOperator):
    """Aggregate the rows of each key per window of length `size`, of which one begins every `every`.

    A row falls into all windows that hold its time. Rows are aggregated once per slice that no window divides, and
    windows are put together from slices: a row costs the same however many windows overlap. Where `every` is longer
    than `size`, rows in the gaps belong to no window. Results, lateness and `emit` are those of `Tumbling`.

    >>> from headwater.operators import Hopping, agg
    >>> Hopping(size="1 hour", every="5 minutes", by="url", compute={"views": agg.count()}).every
    '5 minutes'
    """

    size: Duration
    every: Duration
    offset: Duration = 0

    def spans(self) -> Spans:
        spans = fixed(size=self.size, period=self.every, offset=self.offset)
        if spans.size_us // spans.period_us > WINDOWS_MAX:
            expected = f"a period in which a row falls into at most {WINDOWS_MAX:,} windows"
            raise ArgumentInvalid(name="every", value=self.every, expected=expected)
        return spans

    def column(self) -> Column:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        spans = fixed(size=self.size, period=self.every, offset=self.offset)
        if spans.period_us > spans.size_us:
            raise ArgumentInvalid(name="compute", value=None, expected="aggregates: Spark's windows leave no gaps")
        size, every, start = (f"{value} microseconds" for value in (spans.size_us, spans.period_us, spans.offset_us))
        return F.window(self.event_time.column, size, every, start)
