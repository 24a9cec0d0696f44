"""`Panes`: windows that say what they know more than once, and how what they say later relates to what they said before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate
from headwater.operators.agg.computation import ARGUMENT, Computation, check_compute
from headwater.operators.keyed import Contract, Policy, apply
from headwater.operators.keyed.per_key import per_key
from headwater.operators.keyed.plan import default_name
from headwater.operators.panes.machine import machine_of
from headwater.operators.panes.step import (
    IS_LAST,
    PANE_INDEX,
    PANE_TIMING,
    Mode,
    PaneStep,
    When,
    output_fields,
)
from headwater.operators.panes.trigger import AfterWatermark, Trigger, check_trigger, rows
from headwater.operators.process import policy
from headwater.operators.windowed import END, START, Windowed, keys_of, prepared
from headwater.operators.windowed.operator import late_schema
from headwater.operators.windowed.prepared import ALL, LATE_SAMPLE_ROWS
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHOICES: dict[str, tuple[str, ...]] = {
    "mode": ("discarding", "accumulating", "retracting"),
    "emit": ("net", "each"),
    "on_time": ("always", "non_empty"),
    "closing": ("always", "non_empty"),
}

#: What a window in panes must not be given: most of it is given to the panes.
WINDOWS_OWN = {
    "compute": (None, "none: `compute` of Panes"),
    "by": ((), "none: `by` of Panes"),
    "lateness": (0.0, "none: `allowed_lateness` of Panes"),
    "emit": ("final", "none: `emit` of Panes"),
    "name": (None, "none: `name` of Panes"),
    "time": ("event", '"event": panes are of event time'),
    "completeness": (False, "none: panes have none"),
}


@dataclass(frozen=True, kw_only=True)
class Panes:
    """Aggregate the rows of each key per window, and say the result early, on time, and again when late rows come.

    Each time a window says something is a pane, with its number (`pane_index`), its timing (`pane_timing`: `"early"`,
    `"on_time"` or `"late"`) and whether it is the last (`is_last`). A discarding pane holds the rows since the pane
    before, an accumulating one all rows so far; retracting ones are a changelog (`_op`) in which each pane takes back
    the one before. `early` and `late` say how often; `trigger` says it all in one, and Beam's triggers can be put
    together. State: one row per key and window, until the window's end lies `allowed_lateness` behind the watermark.

    >>> from headwater.operators import Panes, Tumbling, agg
    >>> from headwater.operators.panes import every
    >>> Panes(
    ...     window=Tumbling(size="1 hour", on="at", late_by="1 minute"), by="url", compute={"views": agg.count()},
    ...     early=every("5 seconds"), allowed_lateness="1 day", mode="retracting",
    ... ).mode
    'retracting'
    """

    window: Windowed
    compute: Mapping[str, Aggregate]
    by: str | tuple[str, ...] = ()
    early: Trigger | None = None
    late: Trigger | None = None
    trigger: Trigger | None = None
    mode: Mode = "accumulating"
    allowed_lateness: str | float = 0.0
    emit: Literal["net", "each"] = "net"
    on_time: When = "always"
    closing: When = "non_empty"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                expected = " or ".join(f'"{choice}"' for choice in choices)
                raise ArgumentInvalid(name=name, value=getattr(self, name), expected=expected)
        self._check_window()
        check_compute(self.compute)
        self._check_triggers()
        machine_of(self.triggers)

    def _check_window(self) -> None:
        if not isinstance(self.window, Windowed):
            raise ArgumentInvalid(name="window", value=self.window, expected="a Tumbling or a Hopping window")
        for name, (default, expected) in WINDOWS_OWN.items():
            if getattr(self.window, name) != default:
                raise ArgumentInvalid(name=f"window.{name}", value=getattr(self.window, name), expected=expected)

    def _check_triggers(self) -> None:
        for name in ("early", "late", "trigger"):
            if getattr(self, name) is not None:
                check_trigger(name, getattr(self, name))
        if self.trigger is not None and (self.early is not None or self.late is not None):
            raise ArgumentInvalid(name="trigger", value=self.trigger, expected="either it, or `early` and `late`")
        if not self.lateness_us and self.late is not None:
            raise ArgumentInvalid(name="late", value=self.late, expected="an `allowed_lateness` beside it")

    @property
    def triggers(self) -> Trigger:
        """The whole trigger. By default every late arrival gives a pane."""
        return self.trigger or AfterWatermark(early=self.early, late=self.late or rows(1))

    @property
    def lateness_us(self) -> int:
        return round(parse_seconds(self.allowed_lateness, name="allowed_lateness") * 1e6)

    def __call__(self, rows: DataFrame) -> DataFrame:
        made = prepared(
            self.name or type(self).__name__,
            rows,
            on=self.window.on,
            by=self.by,
            compute=self.compute,
            taken=(START, END, PANE_INDEX, PANE_TIMING, IS_LAST),
            whole=self.window.late == "side",
        )
        partitions = self.partitions or self.window.partitions
        return apply(self.contract, made, partitions=partitions if self.by else 1)

    def contract(self, rows: pa.Schema) -> Contract:
        keys = keys_of(self.by)
        computation = Computation.over(self.compute, rows)
        step = PaneStep(
            on=self.window.on,
            spans=self.window.spans(),
            computation=computation,
            trigger=self.triggers,
            mode=self.mode,
            lateness_us=self.lateness_us,
            each=self.emit == "each",
            on_time=self.on_time,
            closing=self.closing,
        )
        shown = [rows.field(name) for name in keys if name != ALL]
        contract = Contract(
            name=self.name or default_name(self),
            step=step,
            key=keys,
            rows=rows,
            state=step.layout.schema,
            sides={"late": late_schema(rows)},
            output=pa.schema([*shown, *output_fields(computation, self.mode)]),
            time=self.window.on,
            policy=self._policy(),
            late="step",
            hidden=tuple(name for name in rows.names if name.startswith(ARGUMENT) or name == ALL),
            late_rows_max=LATE_SAMPLE_ROWS if self.window.late == "drop" else None,
        )
        return per_key(contract)

    def _policy(self) -> Policy:
        window = self.window
        return policy(
            late_by=window.late_by,
            idle=window.idle,
            ahead=window.ahead,
            watermark=window.watermark,
            quiet=window.quiet,
        )
