"""Windows that rows make themselves (sessions, sliding windows): their settings, and how they become a contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate
from headwater.operators.agg.computation import ARGUMENT, Computation
from headwater.operators.keyed import Contract, Policy, Step, apply
from headwater.operators.keyed.per_key import per_key
from headwater.operators.keyed.plan import default_name
from headwater.operators.keyed.watermark import Scope
from headwater.operators.process import policy
from headwater.operators.windowed.operator import EMITS, late_schema
from headwater.operators.windowed.prepared import ALL, LATE_SAMPLE_ROWS, Late, keys_of, prepared
from headwater.operators.windowed.step import END, START, Emit, output_fields
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class OwnWindows(ABC):
    """Aggregation per key over windows whose ends depend on the rows of the key."""

    on: str
    by: str | tuple[str, ...] = ()
    compute: Mapping[str, Aggregate] | None = None
    late_by: str | float = 0.0
    lateness: str | float = 0.0
    late: Late = "drop"
    emit: Emit = "final"
    idle: str | float | None = None
    ahead: str | float | None = "1 day"
    watermark: Scope = "partition"
    quiet: str | float | None = None
    partitions: int | None = None
    name: str | None = None

    #: Names that results have already.
    taken: ClassVar[tuple[str, ...]] = (START, END)

    def __post_init__(self) -> None:
        if self.emit not in EMITS:
            raise ArgumentInvalid(name="emit", value=self.emit, expected='"final", "net" or "each"')
        if self.late not in ("drop", "side"):
            raise ArgumentInvalid(name="late", value=self.late, expected='"drop" or "side"')
        self.policy()

    def policy(self) -> Policy:
        return policy(
            late_by=self.late_by, idle=self.idle, ahead=self.ahead, watermark=self.watermark, quiet=self.quiet
        )

    @abstractmethod
    def step(self, computation: Computation) -> Step:
        """What happens to a batch."""

    @abstractmethod
    def state(self, computation: Computation) -> pa.Schema:
        """What is kept of a key."""

    def fields(self, computation: Computation) -> list[pa.Field]:
        """The columns of a result beside its key."""
        return output_fields(computation, self.emit)

    @property
    def lateness_us(self) -> int:
        return round(parse_seconds(self.lateness) * 1e6)

    def __call__(self, rows: DataFrame) -> DataFrame:
        made = prepared(
            self.name or type(self).__name__,
            rows,
            on=self.on,
            by=self.by,
            compute=self.compute or {},
            taken=self.taken,
            whole=self.late == "side",
        )
        return apply(self.contract, made, partitions=self.partitions if self.by else 1)

    def contract(self, rows: pa.Schema) -> Contract:
        keys = keys_of(self.by)
        computation = Computation.over(self.compute or {}, rows)
        shown = [rows.field(name) for name in keys if name != ALL]
        contract = Contract(
            name=self.name or default_name(self),
            step=self.step(computation),
            key=keys,
            rows=rows,
            state=self.state(computation),
            sides={"late": late_schema(rows)},
            output=pa.schema([*shown, *self.fields(computation)]),
            time=self.on,
            policy=self.policy(),
            late="step",
            hidden=tuple(name for name in rows.names if name.startswith(ARGUMENT) or name == ALL),
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )
        return per_key(contract)
