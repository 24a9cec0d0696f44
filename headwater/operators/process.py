"""`Process`: the user's own step, with state and timers. Everything the engine can do, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.keyed import Broadcast, Contract, Policy, Step, apply
from headwater.operators.keyed.per_key import per_key
from headwater.operators.keyed.plan import default_name
from headwater.operators.keyed.watermark import Combine, Scope
from headwater.schema import parse_schema
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Of several inputs, whether time is that of the one furthest behind or of the one furthest ahead.
Follow = Literal["slowest", "fastest"]
COMBINES: Mapping[Follow, Combine] = {"slowest": "min", "fastest": "max"}
Late = Literal["drop", "side"]
#: So many of the rows that are dropped in a partition and batch are kept for people to look at.
LATE_SAMPLE_ROWS = 20


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
    late: Literal["drop", "side", "step"] = "drop"
    watermark: Scope = "partition"
    quiet: str | float | None = None
    follow: Follow = "slowest"
    tables: Mapping[str, Broadcast] = field(default_factory=dict)
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_late(self.late, "drop", "side", "step")
        self.policy()

    def policy(self) -> Policy:
        return policy(
            late_by=self.late_by,
            idle=self.idle,
            ahead=self.ahead,
            watermark=self.watermark,
            follow=self.follow,
            quiet=self.quiet,
        )

    def __call__(self, *inputs: DataFrame) -> DataFrame:
        return apply(self.contract, *inputs, partitions=self.partitions)

    def side(self, name: str, *inputs: DataFrame) -> DataFrame:
        """The rows of a side output of bounded input. In a stream they lie in the state folder, computed once."""
        return apply(self.contract, *inputs, partitions=self.partitions, side=name)

    def contract(self, rows: pa.Schema) -> Contract:
        contract = Contract(
            name=self.name or default_name(self),
            step=self.step,
            key=(self.by,) if isinstance(self.by, str) else tuple(self.by),
            rows=rows,
            state=state_schema(self.state),
            output=parse_schema(self.output),
            sides={name: parse_schema(schema) for name, schema in self.sides.items()},
            time=self.on,
            policy=self.policy(),
            late="step" if self.late == "step" else "side",
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


def check_late(late: str, *known: str) -> None:
    """Refuse a way with late rows that there is not."""
    known = known or ("drop", "side")
    if late not in known:
        raise ArgumentInvalid(name="late", value=late, expected=" or ".join(f'"{one}"' for one in known))


def policy(
    *,
    late_by: str | float,
    idle: str | float | None,
    ahead: str | float | None,
    inputs: int = 0,
    watermark: Scope = "partition",
    follow: Follow = "slowest",
    quiet: str | float | None = None,
) -> Policy:
    """A watermark's policy in the words of people."""
    if follow not in COMBINES:
        raise ArgumentInvalid(name="follow", value=follow, expected='"slowest" or "fastest"')
    return Policy(
        late_by_us=_micros("late_by", late_by) or 0,
        idle_us=_micros("idle", idle),
        ahead_us=_micros("ahead", ahead),
        inputs=inputs,
        combine=COMBINES[follow],
        scope=watermark,
        quiet_us=_micros("quiet", quiet),
    )


def _micros(name: str, value: str | float | None) -> int | None:
    return None if value is None else round(parse_seconds(value, name=name) * 1e6)
