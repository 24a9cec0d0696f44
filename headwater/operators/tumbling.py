"""`Tumbling`: windows of one length, one after the other; each row falls into exactly one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.engine.window_operator import WindowOperator
from headwater.engine.window_spans import Spans, calendar, fixed, is_calendar
from headwater.errors import ArgumentInvalid
from headwater.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, kw_only=True)
class Tumbling(WindowOperator):
    """Aggregate the rows of each key per window of fixed length, or per day, month or year of a time zone.

    A window holds its start and not its end. With `emit="final"` its result comes once, when the watermark (the latest
    event time less its delay) has passed its end by `allowed_lateness`; with `"changes"` each batch says what it changes,
    as a changelog with `_op`, and with `"every_change"` every row does. A row whose window is closed is late: counted, and
    a sample kept (`late="drop"`), or kept whole (`late="side_output"`). State: one row per key and open window. The event
    time is that of the rows, as their topic declares it, unless `time` says otherwise.

    Without `compute`, rows get a column `window` for Spark's own `groupBy`.

    >>> from headwater.operators import Tumbling, agg
    >>> Tumbling(size="1 minute", by="card", compute={"total": agg.sum("amount")}).size
    '1 minute'
    >>> Tumbling(size="1 month", zone="Europe/Berlin", compute={"sales": agg.count()}).zone
    'Europe/Berlin'
    """

    size: Duration
    zone: str | None = None
    offset: Duration = 0

    def spans(self) -> Spans:
        if self.zone is not None or is_calendar(self.size):
            if self.offset:
                raise ArgumentInvalid(name="offset", value=self.offset, expected="none beside a calendar's windows")
            return calendar(size=str(self.size), zone=self.zone or "UTC")
        return fixed(size=self.size, offset=self.offset)

    def column(self) -> Column:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        if self.zone is not None or is_calendar(self.size):
            raise ArgumentInvalid(name="compute", value=None, expected="aggregates: Spark has no windows of a calendar")
        spans = fixed(size=self.size, offset=self.offset)
        size, start = (f"{value} microseconds" for value in (spans.size_us, spans.offset_us))
        return F.window(self.event_time.column, size, startTime=start)
