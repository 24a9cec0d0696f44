"""`Process`: the user's own step, with state and timers. Everything the engine can do, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import pyarrow as pa

from headwater.engine.columns import EVENT_TIMER
from headwater.engine.contract import Broadcast, Contract, Step
from headwater.engine.event_time import LATE_SAMPLE_ROWS, Follow, WatermarkStrategy, check_late
from headwater.engine.key_watermark import per_key
from headwater.engine.operator import EventTimeOperator, is_wanted
from headwater.engine.spark_plan import apply
from headwater.engine.time_metadata import carried_times
from headwater.errors import ArgumentInvalid
from headwater.schema import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Process(EventTimeOperator):
    """Run a function over the rows of each key, with state that survives and timers that fire.

    The function is called once per partition and batch with all its keys at once: `step(state, rows, time)` gets two
    Arrow tables sorted by `_key` and returns the new state and the output, both with `_key`. Compute on whole columns
    and it is as fast as anything in Spark; loop over rows and it is as slow as Python.

    The event time is the one that all inputs carry under the same name; with none there is no watermark, unless `time`
    names a column. The output has the columns that `output` says, and carries no event time.

    >>> import pyarrow.compute as pc
    >>> def count(state, rows, time):
    ...     both = pa.concat_tables([state.select(["_key", "n"]), rows.select(["_key"]).append_column(
    ...         "n", pa.array([1] * rows.num_rows, pa.int64()))])
    ...     total = both.group_by("_key").aggregate([("n", "sum")]).rename_columns(["_key", "n"])
    ...     return total, total
    >>> Process(step=count, by="user", state={"n": "int64"}, output={"user": "string", "n": "int64"}).by
    'user'
    """

    step: Step = field(repr=False)
    by: str | tuple[str, ...]
    state: Any
    output: Any
    side_outputs: Mapping[str, Any] = field(default_factory=dict)
    late: Literal["drop", "side_output", "step"] = "drop"
    follow: Follow = "slowest"
    tables: Mapping[str, Broadcast] = field(default_factory=dict)

    per_key: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_late(self.late, "drop", "side_output", "step")
        if self.follow not in get_args(Follow):
            raise ArgumentInvalid(name="follow", value=self.follow, expected='"slowest" or "fastest"')

    def strategy(self) -> WatermarkStrategy:
        return WatermarkStrategy.of(None if self.time is None else self.event_time, follow=self.follow)

    def __call__(self, *inputs: DataFrame) -> DataFrame:
        return apply(self._of(inputs).contract, *inputs, partitions=self.partitions)

    def _of(self, inputs: Sequence[DataFrame]) -> Self:
        """With the event time of its inputs, where the step needs one: it was given, for timers, or for late rows.

        Any other step gets all rows, also those without a time.
        """
        if self.time is not None:
            return self.resolved(inputs[0])
        if EVENT_TIMER not in state_schema(self.state).names and self.late == "drop" and not is_wanted("late"):
            return self
        carried = [carried_times(rows.schema) for rows in inputs]
        shared = [name for name in carried[0] if all(name in times for times in carried)]
        if len(shared) != 1:
            return self
        latest = max((times[shared[0]] for times in carried), key=lambda time: time.seconds("delay") or 0.0)
        return replace(self, time=latest, name=self.called).resolved(inputs[0])

    def side_output(self, name: str, *inputs: DataFrame) -> DataFrame:
        """The rows of a side output of bounded input. In a stream they lie in the state folder, computed once."""
        return apply(self._of(inputs).contract, *inputs, partitions=self.partitions, side=name)

    def contract(self, rows: pa.Schema) -> Contract:
        contract = Contract(
            name=self.called,
            step=self.step,
            key=(self.by,) if isinstance(self.by, str) else tuple(self.by),
            rows=rows,
            state=state_schema(self.state),
            output=parse_schema(self.output),
            side_outputs={name: parse_schema(schema) for name, schema in self.side_outputs.items()},
            event_time=self.strategy(),
            late="step" if self.late == "step" else "side_output",
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
            broadcast=self.tables,
        )
        return per_key(contract)


def state_schema(declared: Any) -> pa.Schema:
    """A state's columns; the timers `_wake_at` and `_wake_at_processing` may stand among them."""
    if isinstance(declared, pa.Schema):
        return declared
    timers = [name for name in declared if name.startswith("_")]
    plain = {name: kind for name, kind in declared.items() if name not in timers}
    fields = list(parse_schema(plain)) if plain else []
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in timers)])
