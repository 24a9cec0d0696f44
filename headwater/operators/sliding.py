"""`Sliding`: windows of one length that follow the rows: one that ends with each row, one that begins just after it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.computation import Computation
from headwater.operators.keyed import Step
from headwater.operators.windowed.own import OwnWindows
from headwater.operators.windowed.slides import SlideStep, Which, slide_state
from headwater.operators.windowed.spans import duration_us


@dataclass(frozen=True, kw_only=True)
class Sliding(OwnWindows):
    """Aggregate the rows of each key over every window of length `size` whose rows differ: Kafka Streams' sliding windows.

    A window holds both its ends. One ends with each row's time, `[t - size, t]`, and one begins a `tick` after it, where
    there are rows in it: so each set of rows that lie at most `size` apart is seen, and each window comes once. With
    `windows="trailing"` only those that end with a row are made: the past `size` as of each row. `emit`, lateness and
    late rows are those of `Tumbling`; a window is closed when the watermark is later than its end and `lateness`. State:
    one row per key and instant of the last `size` and lateness.

    `tick` is the smallest step of time: Kafka Streams' is `"1 ms"`, and times are taken down to it. `floor=True` lets no
    window begin before 1970, as there.

    >>> from headwater.operators import Sliding, agg
    >>> Sliding(size="5 minutes", on="at", by="card", compute={"spent": agg.sum("amount")}, windows="trailing").size
    '5 minutes'
    """

    size: str | float
    windows: Which = "all"
    tick: str | float = 1e-6
    floor: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        size_us, tick_us = duration_us("size", self.size), duration_us("tick", self.tick)
        if size_us % tick_us:
            raise ArgumentInvalid(name="tick", value=self.tick, expected="a length of which `size` is a multiple")
        if self.windows not in ("all", "trailing"):
            raise ArgumentInvalid(name="windows", value=self.windows, expected='"all" or "trailing"')

    def step(self, computation: Computation) -> Step:
        return SlideStep(
            on=self.on,
            computation=computation,
            size_us=duration_us("size", self.size),
            tick_us=duration_us("tick", self.tick),
            lateness_us=self.lateness_us,
            floor=self.floor,
            which=self.windows,
            emit=self.emit,
        )

    def state(self, computation: Computation) -> pa.Schema:
        return slide_state(computation)
