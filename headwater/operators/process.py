"""`Process`: the user's own step, with state and timers. Everything the engine can do, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headwater.operators.keyed import Broadcast, Contract, Policy, Step, apply
from headwater.operators.keyed.plan import default_name
from headwater.schema import parse_schema
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Process:
    """Run a function over the rows of each key, with state that survives and timers that fire.

    The function is called once per partition and batch with all its keys at once: `step(state, rows, time)` gets two
    Arrow tables sorted by `_key` and returns the new state and the output, both with `_key`. Compute on whole columns
    and it is as fast as anything in Spark; loop over rows and it is as slow as Python.

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
    sides: Mapping[str, Any] = field(default_factory=dict)
    on: str | None = None
    late_by: str | float = 0.0
    idle: str | float | None = None
    ahead: str | float | None = "1 day"
    late: Literal["side", "step"] = "side"
    tables: Mapping[str, Broadcast] = field(default_factory=dict)
    partitions: int | None = None
    name: str | None = None

    def __call__(self, *inputs: DataFrame) -> DataFrame:
        return apply(self.contract, *inputs, partitions=self.partitions)

    def side(self, name: str, *inputs: DataFrame) -> DataFrame:
        """The rows of a side output of bounded input. In a stream they lie in the state folder, computed once."""
        return apply(self.contract, *inputs, partitions=self.partitions, side=name)

    def contract(self, rows: pa.Schema) -> Contract:
        return Contract(
            name=self.name or default_name(self),
            step=self.step,
            key=(self.by,) if isinstance(self.by, str) else tuple(self.by),
            rows=rows,
            state=state_schema(self.state),
            output=parse_schema(self.output),
            sides={name: parse_schema(schema) for name, schema in self.sides.items()},
            time=self.on,
            policy=policy(late_by=self.late_by, idle=self.idle, ahead=self.ahead),
            late=self.late,
            broadcast=self.tables,
        )


def state_schema(declared: Any) -> pa.Schema:
    """A state's columns; the timers `_wake_at` and `_wake_at_processing` may stand among them."""
    if isinstance(declared, pa.Schema):
        return declared
    timers = [name for name in declared if name.startswith("_")]
    plain = {name: kind for name, kind in declared.items() if name not in timers}
    fields = list(parse_schema(plain)) if plain else []
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in timers)])


def policy(*, late_by: str | float, idle: str | float | None, ahead: str | float | None, inputs: int = 0) -> Policy:
    """A watermark's policy in the words of people."""
    return Policy(
        late_by_us=round(parse_seconds(late_by) * 1e6),
        idle_us=None if idle is None else round(parse_seconds(idle) * 1e6),
        ahead_us=None if ahead is None else round(parse_seconds(ahead) * 1e6),
        inputs=inputs,
    )
