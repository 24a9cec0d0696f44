"""Operators that add columns to rows in the order of event time: their settings, and how they become a contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate, Argument, is_number
from headwater.operators.agg.computation import ARGUMENT
from headwater.operators.agg.numbers import Count, Floats, Mean
from headwater.operators.analytics.ordered import Measure, OrderedStep, ordered_state
from headwater.operators.joining.inputs import check_appends
from headwater.operators.keyed import Contract, Policy, apply
from headwater.operators.keyed.engine import PUNCTUATION
from headwater.operators.keyed.per_key import per_key
from headwater.operators.keyed.plan import default_name
from headwater.operators.keyed.watermark import Scope
from headwater.operators.process import check_late, policy
from headwater.operators.windowed.operator import late_schema
from headwater.operators.windowed.prepared import ALL, LATE_SAMPLE_ROWS, Late, keys_of, prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What the only argument of an operator is called on its way: no column that a person names is.
VALUE = "its value"


@dataclass(frozen=True, kw_only=True)
class InOrder(ABC):
    """A row in, the same row out with more columns, when nothing earlier can follow.

    Rows leave in the order of event time over all keys, so that an operator behind this one finds none of them late. With
    `prompt=True` a row leaves in its own batch where that is known to be early enough; rows of other keys that are
    earlier may then follow a batch later, and an operator behind needs a `late_by` for them.
    """

    on: str
    by: str | tuple[str, ...] = ()
    late_by: str | float = 0.0
    late: Late = "drop"
    idle: str | float | None = None
    ahead: str | float | None = "1 day"
    watermark: Scope = "partition"
    quiet: str | float | None = None
    prompt: bool = False
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_late(self.late)
        self.policy()
        self.check()

    def policy(self) -> Policy:
        return policy(
            late_by=self.late_by, idle=self.idle, ahead=self.ahead, watermark=self.watermark, quiet=self.quiet
        )

    @abstractmethod
    def check(self) -> None:
        """Refuse settings that make no sense."""

    @abstractmethod
    def arguments(self) -> Mapping[str, Aggregate]:
        """What Spark is to evaluate for each row."""

    @abstractmethod
    def measure(self, rows: pa.Schema) -> Measure:
        """What is made of the past of a row."""

    def __call__(self, rows: DataFrame) -> DataFrame:
        check_appends("rows", rows)
        called = self.name or type(self).__name__
        made = prepared(called, rows, on=self.on, by=self.by, compute=self.arguments(), whole=True)
        return apply(self.contract, made, partitions=self.partitions if self.by else 1)

    def contract(self, rows: pa.Schema) -> Contract:
        keys = keys_of(self.by)
        hidden = tuple(name for name in rows.names if name.startswith(ARGUMENT) or name == ALL)
        carried = tuple(name for name in rows.names if name not in (*keys, PUNCTUATION))
        shown = tuple(name for name in rows.names if name not in (*hidden, PUNCTUATION))
        measure = self.measure(rows)
        self._check_free(measure.added, shown)
        contract = Contract(
            name=self.name or default_name(self),
            step=OrderedStep(self.on, keys, carried, shown, measure, self.prompt),
            key=keys,
            rows=rows,
            state=ordered_state(rows, carried, measure.memory),
            sides={"late": late_schema(rows)},
            output=pa.schema([*(rows.field(name) for name in shown), *measure.added]),
            time=self.on,
            policy=self.policy(),
            late="step",
            prompt=self.prompt,
            hidden=hidden,
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )
        return per_key(contract)

    def _check_free(self, added: pa.Schema, shown: tuple[str, ...]) -> None:
        for name in added.names:
            if name in shown:
                expected = "other names, or a `prefix`: the rows have a column of that name already"
                raise ArgumentInvalid(name=type(self).__name__, value=name, expected=expected)


def number(of: Argument) -> Mapping[str, Aggregate]:
    """The one argument of an operator: a column, or any expression of Spark's; without one, each row counts."""
    return {VALUE: Count() if of is None else Mean(of)}


def check_number(of: Argument, rows: pa.Schema) -> None:
    """Refuse an argument that is no number."""
    kind = rows.field(f"{ARGUMENT}{VALUE}").type
    if not is_number(kind):
        raise ArgumentInvalid(name="of", value=f"{of} ({kind})", expected="a column of numbers")


def values_of(rows: pa.Table) -> Floats:
    """The argument of each row as a float: NaN where it is null, and where it is no finite number."""
    values = np.asarray(rows.column(f"{ARGUMENT}{VALUE}").combine_chunks().cast(pa.float64()))
    found: Floats = np.where(np.isfinite(values), values, np.nan)
    return found
