"""`CountWindow`: windows of so many rows of a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.computation import Computation
from headwater.operators.keyed import Step
from headwater.operators.windowed.counts import WINDOW, CountStep, Ordering, count_state
from headwater.operators.windowed.own import OwnWindows
from headwater.operators.windowed.step import END, START, output_fields

#: A row that falls into more windows than this is a mistake.
WINDOWS_MAX = 10_000
ROWS_MAX = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class CountWindow(OwnWindows):
    """Aggregate every `size` rows of a key; with `every`, a window begins every so many rows, so that they overlap.

    Rows are counted in the order of event time, partition and offset: a row waits until the watermark (the latest event
    time less `late_by`) has passed it, and one behind the watermark is late. With `order="arrival"` rows are counted as
    they come, which is quicker, and depends on how they came. Results have `window_number`, from 0, and the times of
    the first and the last row. With `emit="final"` a window comes when it is full; with `"net"` or `"each"` also while
    it fills, as a changelog. State: a counter per key, for ever, and the open windows and waiting rows.

    >>> from headwater.operators import CountWindow, agg
    >>> CountWindow(size=100, on="at", by="sensor", compute={"mean": agg.mean("celsius")}).size
    100
    """

    size: int
    every: int | None = None
    order: Ordering = "time"

    taken: ClassVar[tuple[str, ...]] = (START, END, WINDOW)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("size", self.size), ("every", self.every)):
            if value is not None and (not isinstance(value, int) or not 0 < value <= ROWS_MAX):
                raise ArgumentInvalid(name=name, value=value, expected=f"a number of rows from 1 to {ROWS_MAX:,}")
        if self.every is not None and self.size // self.every > WINDOWS_MAX:
            expected = f"a period in which a row falls into at most {WINDOWS_MAX:,} windows"
            raise ArgumentInvalid(name="every", value=self.every, expected=expected)
        if self.order not in ("time", "arrival"):
            raise ArgumentInvalid(name="order", value=self.order, expected='"time" or "arrival"')
        if self.lateness:
            raise ArgumentInvalid(name="lateness", value=self.lateness, expected="none: rows wait for `late_by`")

    def step(self, computation: Computation) -> Step:
        return CountStep(
            on=self.on,
            computation=computation,
            size=self.size,
            every=self.every or self.size,
            order=self.order,
            emit=self.emit,
        )

    def state(self, computation: Computation) -> pa.Schema:
        return count_state(computation)

    def fields(self, computation: Computation) -> list[pa.Field]:
        return [pa.field(WINDOW, pa.int64()), *output_fields(computation, self.emit)]
