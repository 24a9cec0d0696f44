"""What an operator tells the engine: its keys, its state, its outputs, and the one pure function that it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.event_time import BatchTime, WatermarkStrategy
from headwater.schema.event_time import EventTime

if TYPE_CHECKING:
    from headwater.engine.watermark_origin import Origins


@dataclass(frozen=True)
class StepResult:
    """What a step returns: the new state of the keys it was given, its output, and rows for its side outputs."""

    state: pa.Table
    output: pa.Table | None = None
    side_outputs: Mapping[str, pa.Table] = field(default_factory=dict)
    #: What the step has counted in this batch, to be added to what it and the other partitions knew: `time.learnt`.
    learnt: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: The numbers of the keys whose state is another than before; the state of all others stays. None: all of them.
    changed: npt.NDArray[np.int64] | None = None


Step = Callable[[pa.Table, pa.Table, BatchTime], StepResult | tuple[pa.Table, pa.Table]]
"""`step(state, rows, time)`: both tables have `_key`, the number of the key, and are sorted by it; rows of one key are
in the order of event time, source partition and offset. The state returned replaces the state given: a key that is
left out has none any more. A step may be called for a key without rows; it then gives its state back, or acts on its
timers (`_wake_at`, `_wake_at_processing`)."""


@dataclass(frozen=True, kw_only=True)
class Broadcast:
    """A table that every partition sees whole, such as rules: a topic, read up to the same offsets in all of them."""

    log: str
    topic: str


@dataclass(frozen=True, kw_only=True)
class Contract:
    """All that the engine needs to run a step over one partition."""

    name: str
    step: Step
    key: tuple[str, ...]
    rows: pa.Schema
    state: pa.Schema
    output: pa.Schema
    side_outputs: Mapping[str, pa.Schema] = field(default_factory=dict)
    event_time: WatermarkStrategy = field(default_factory=WatermarkStrategy)
    #: The columns of the output that are event time for the operator behind.
    output_times: tuple[EventTime, ...] = ()
    #: For columns of the output: the time before which no later result comes, by the watermark. A column of event time that is
    #: not among them stays behind the watermark by what its delay is longer than that of the input.
    output_floors: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    #: Where the watermark of each input is recorded; empty where the rows decide.
    origins: Origins = ()
    late: Literal["side_output", "step"] = "side_output"
    #: How many of the late rows of a partition and batch are kept; all are counted.
    late_rows_max: int | None = None
    #: The whole numbers by which rows of a key are sorted, where it is not time and place; the most important first.
    order: tuple[str, ...] = ()
    #: Whether rows of a key are in the order of their places, though the operator has an event time.
    by_place: bool = False
    #: Whether a null in a key is a value like others; else its row is rejected.
    null_keys: bool = False
    #: Columns of the rows that are the operator's own affair, and that no side output shows.
    hidden: tuple[str, ...] = ()
    partitions: int = 1
    #: Whether the step goes by `local_watermark_us`: keys are then woken by it, and the step distinguishes the watermark
    #: before a batch, by which rows are late, from the one after it.
    prompt: bool = False
    #: Whether rows come packed for their partitions, so that Spark sees few of them.
    packed: bool = False
    broadcast: Mapping[str, Broadcast] = field(default_factory=dict)

    @property
    def time(self) -> str | None:
        """The column of event time, if the operator has one."""
        return self.event_time.time

    @property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.rows.field(name).with_nullable(True) for name in self.key])
