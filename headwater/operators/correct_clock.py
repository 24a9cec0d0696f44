"""`CorrectClock`: when something really happened, by three clocks of which one is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from headwater.engine.window_operator import check_columns, time_kind
from headwater.errors import ArgumentInvalid
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Otherwise = Literal["occurred", "received", "null"]


@dataclass(frozen=True, kw_only=True)
class CorrectClock:
    """Estimate when a row really happened, where the device that wrote it has a clock that is wrong.

    `occurred` and `sent` were read from the device's clock, `received` from a clock that is trusted. What lies between
    sending and receiving is the device's error, and the time of the journey, which is taken for short:
    `occurred + (received - sent)`. Nothing happens after it was received. Where a time is missing or the error is
    larger than `shift_max`, `otherwise` says what to believe: the device, the receiver, or neither (null). All of it is
    done by Spark's own expressions.

    >>> CorrectClock(occurred="occurred_at", sent="sent_at", received="_appended_at", shift_max="1 day").to
    'at'
    """

    occurred: str
    sent: str
    received: str
    to: str = "at"
    shift_max: Duration | None = None
    otherwise: Otherwise = "occurred"

    def __post_init__(self) -> None:
        if self.otherwise not in ("occurred", "received", "null"):
            raise ArgumentInvalid(name="otherwise", value=self.otherwise, expected='"occurred", "received" or "null"')
        if self.shift_max is not None:
            parse_seconds(self.shift_max, name="shift_max")
        if not self.to:
            raise ArgumentInvalid(name="to", value=self.to, expected="the name of a column")

    def __call__(self, rows: DataFrame) -> DataFrame:
        names = {"occurred": self.occurred, "sent": self.sent, "received": self.received}
        check_columns("CorrectClock", rows, *names.values())
        kinds = {name: time_kind(name, rows, column) for name, column in names.items()}
        if len(set(kinds.values())) > 1:
            told = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
            raise ArgumentInvalid(name="received", value=told, expected="three columns of one type")
        return rows.withColumn(self.to, self.column())

    def column(self) -> Column:
        """The estimate as a column."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        occurred, sent, received = (F.col(f"`{name}`") for name in (self.occurred, self.sent, self.received))
        shift = F.try_subtract(received, sent)  # null where it is too large for any number
        known = shift.isNotNull()
        if self.shift_max is not None:
            most = Decimal(round(parse_seconds(self.shift_max, name="shift_max") * 1_000_000)) / 1_000_000
            least, largest = (F.make_dt_interval(secs=F.lit(bound)) for bound in (-most, most))
            known = known & shift.between(least, largest)
        moved = F.try_add(occurred, shift)
        # `least` skips nulls: without a time of its own a row would get the receiver's, which is for `otherwise` to say.
        corrected = F.when(known & moved.isNotNull(), F.least(moved, received))
        believed = {"occurred": occurred, "received": F.coalesce(received, occurred), "null": F.lit(None)}
        return F.coalesce(corrected, believed[self.otherwise])
