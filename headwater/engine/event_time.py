"""Event time: the watermark, what is late, and how late rows leave.

The watermark is the time before which no more rows are expected, as a pure function of what earlier batches saw. Each
partition of the operator records, per input and source partition, the latest event time it has seen and when. The
watermark of batch n is computed from what all partitions recorded up to batch n-1, so every task of batch n and every
retry of it gets the same value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.aggregation import ARGUMENT, Int64s
from headwater.engine.columns import KEY, LATE_BY
from headwater.errors import ArgumentInvalid
from headwater.schema.event_time import EventTime, Scope

Combine = Literal["min", "max"]

NEVER = -(2**62)
EVER = 2**62
#: Counts of more rows than this are halved.
LEARNT_ROWS_MAX = 1_000_000

SourceProgress = dict[str, dict[str, tuple[int, int]]]
"""Input → source partition → (latest event time, processing time when it was seen), in microseconds."""


@dataclass(frozen=True, kw_only=True)
class WatermarkStrategy:
    """How the watermark of an operator follows its rows: `EventTime` in the engine's units, for all of its inputs.

    `time` is the column of event time; None where an operator has none. `combine` says which of several inputs is
    followed. `inputs` is how many inputs must have had rows (or have been idle from the beginning) before there is a
    watermark; 0 waits for none. `other` has the settings of the second input, where it has its own.
    """

    time: str | None = None
    delay_us: int = 0
    idle_us: int | None = None
    future_us: int | None = 24 * 3600 * 1_000_000
    combine: Combine = "min"
    scope: Scope = "partition"
    key_idle_us: int | None = None
    inputs: int = 0
    other: WatermarkStrategy | None = None

    def __post_init__(self) -> None:
        if self.combine not in ("min", "max"):
            raise ArgumentInvalid(name="combine", value=self.combine, expected='"min" or "max"')

    @classmethod
    def of(
        cls, time: EventTime | None, *, column: str | None = None, follow: Follow = "slowest", inputs: int = 0
    ) -> Self:
        """Make the strategy of an event time; `column` is the engine's own name of its column, where it has one."""
        if follow not in COMBINES:
            raise ArgumentInvalid(name="follow", value=follow, expected='"slowest" or "fastest"')
        if time is None:
            return cls(combine=COMBINES[follow])
        return cls(
            time=column or time.column,
            delay_us=_micros(time.seconds("delay")) or 0,
            idle_us=_micros(time.seconds("idle_timeout")),
            future_us=_micros(time.seconds("future_max")),
            scope=time.scope,
            key_idle_us=_micros(time.seconds("key_idle_timeout")),
            combine=COMBINES[follow],
            inputs=inputs,
        )

    def of_input(self, name: str) -> WatermarkStrategy:
        """The settings of one input, by the text of its number."""
        return self.other if self.other is not None and name == "1" else self

    def watermark(self, progress: Iterable[SourceProgress], *, previous_us: int, now_us: int | None) -> int:
        """The watermark that follows from what all partitions saw; it never goes back."""
        merged = merge_progress(progress)
        inputs = [self._input_watermark(name, places, now_us) for name, places in merged.items() if places]
        known = [value for value in inputs if value is not None]
        if not known:
            return previous_us
        return max(previous_us, min(known) if self.combine == "min" else max(known))

    def watermarks(
        self, progress: Iterable[SourceProgress], *, previous_us: Mapping[str, int], now_us: int | None
    ) -> dict[str, int]:
        """The watermark of each input by itself; an idle one goes with the others, and none goes back."""
        known = {name: self._input_watermark(name, places, now_us) for name, places in merge_progress(progress).items()}
        active = max((value for value in known.values() if value is not None), default=NEVER)
        return {
            name: max(active if value is None else value, previous_us.get(name, NEVER)) for name, value in known.items()
        }

    def awaited(self, now_us: int | None) -> SourceProgress:
        """What is noted of each input in the first batch, before it has had rows."""
        return {str(number): {"": (NEVER, NEVER if now_us is None else now_us)} for number in range(self.inputs)}

    def bound_us(self, now_us: int | None) -> int:
        """The latest event time that may move the watermark: one clock from the far future must not close everything."""
        return EVER if self.future_us is None or now_us is None else now_us + self.future_us

    def _input_watermark(self, name: str, places: Mapping[str, tuple[int, int]], now_us: int | None) -> int | None:
        own = self.of_input(name)
        known = [place for place in places.values() if place[0] > NEVER]
        active = [
            latest
            for latest, at in known or places.values()
            if own.idle_us is None or now_us is None or now_us - at <= own.idle_us
        ]
        if not active:
            return None
        return (max(active) if own.scope == "input" else min(active)) - own.delay_us


def merge_progress(progress: Iterable[SourceProgress]) -> SourceProgress:
    """What several partitions saw, together.

    >>> merge_progress([{"": {"0": (5, 1)}}, {"": {"0": (7, 1), "1": (2, 1)}}])
    {'': {'0': (7, 1), '1': (2, 1)}}
    """
    merged: SourceProgress = {}
    for one in progress:
        for name, places in one.items():
            known = merged.setdefault(name, {})
            for place, (latest, at) in places.items():
                before = known.get(place, (NEVER, NEVER))
                known[place] = (max(latest, before[0]), max(at, before[1]))
    return merged


def merge_learnt(learnt: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    """What several partitions have counted, together.

    >>> merge_learnt([{"delays": [1, 2]}, {"delays": [0, 5]}, {}])
    {'delays': [1, 7]}
    """
    merged: dict[str, list[int]] = {}
    for one in learnt:
        for name, counts in one.items():
            before = merged.get(name, [0] * len(counts))
            merged[name] = [left + right for left, right in zip(before, counts, strict=True)]
    return merged


def fading(learnt: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Counts that never grow beyond a bound: all are halved, so that what is new outweighs what is long past."""
    return {
        name: [count // 2 for count in counts] if sum(counts) > LEARNT_ROWS_MAX else list(counts)
        for name, counts in learnt.items()
    }


@dataclass(frozen=True, kw_only=True)
class BatchTime:
    """What time it is for a step: the watermark in event time, and the processing time that the source recorded.

    `watermark_before_us` is the watermark of the batch before: a timer between the two is due now, and was not then.
    Where each key has its own, `key_watermarks_us` has them by the number of the key; a step that asks
    `watermark_of(keys)` need not know. `learnt` is what the steps of all partitions had counted by the batch before.
    `local_watermark_us` is the watermark as far as this partition can tell with the rows of this very batch: what is earlier is
    complete, and a step that says so keeps to it by taking rows before `local_watermark_before_us` for late.
    `processing_before_us` is the processing time of the batch before, which is never later. `of_inputs_us` has the
    watermark of each input by itself, by the text of its number.
    """

    watermark_us: int = NEVER
    watermark_before_us: int = NEVER
    local_watermark_us: int = NEVER
    local_watermark_before_us: int = NEVER
    processing_us: int | None = None
    processing_before_us: int | None = None
    batch: int | None = None
    final: bool = False
    broadcast: Mapping[str, pa.Table] = field(default_factory=dict)
    key_watermarks_us: Int64s | None = None
    key_watermarks_before_us: Int64s | None = None
    learnt: Mapping[str, Sequence[int]] = field(default_factory=dict)
    of_inputs_us: Mapping[str, int] = field(default_factory=dict)

    def watermark_of(self, keys: Int64s) -> Int64s:
        """The watermark that holds for each of these keys."""
        if self.key_watermarks_us is None:
            return np.full(len(keys), self.watermark_us, np.int64)
        return self.key_watermarks_us[keys]

    def watermark_before_of(self, keys: Int64s) -> Int64s:
        """The watermark that held for each of these keys when it was looked at last."""
        if self.key_watermarks_before_us is None:
            return np.full(len(keys), self.watermark_before_us, np.int64)
        return self.key_watermarks_before_us[keys]


#: Of several inputs, whether time is that of the one furthest behind or of the one furthest ahead.
Follow = Literal["slowest", "fastest"]
COMBINES: Mapping[Follow, Combine] = {"slowest": "min", "fastest": "max"}
Late = Literal["drop", "side_output"]
#: So many of the rows that are dropped in a partition and batch are kept for people to look at.
LATE_SAMPLE_ROWS = 20


def check_late(late: str, *known: str) -> None:
    """Raise unless `late` is one of the ways in which late rows are treated."""
    known = known or ("drop", "side_output")
    if late not in known:
        raise ArgumentInvalid(name="late", value=late, expected=" or ".join(f'"{one}"' for one in known))


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def late_schema(rows: pa.Schema) -> pa.Schema:
    """The columns of late rows in a topic of their own: as they came, and how far each was behind the watermark."""
    kept = [one for one in rows if not one.name.startswith("_") and one.name != LATE_BY]
    return pa.schema([*kept, pa.field(LATE_BY, pa.int64())])


def with_late_by(rows: pa.Table, late_by_us: Int64s) -> pa.Table:
    """Add to late rows how far each is behind the watermark, in place of what it was where they were late before."""
    if LATE_BY in rows.column_names:
        rows = rows.drop_columns([LATE_BY])
    return rows.append_column(LATE_BY, pa.array(late_by_us, pa.int64()))


def split_late_rows(
    rows: pa.Table, late: npt.NDArray[np.bool_], late_by_us: Int64s
) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Split rows into those in time and the side output `late`, with how far each was behind."""
    if not late.any():
        return rows, {}
    side = rows.filter(pa.array(late))
    own = [name for name in side.column_names if name == KEY or name.startswith(ARGUMENT)]
    return rows.filter(pa.array(~late)), {"late": with_late_by(side.drop_columns(own), late_by_us[late])}
