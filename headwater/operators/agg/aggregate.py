"""What an aggregate is: how rows become a partial result, partial results become one, and that becomes a value.

Partial results are Arrow columns, so they travel through a shuffle, lie in an operator's state, and merge in any order:
`finish(merge(lift(some rows), lift(the others)))` is `finish(lift(all rows))`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Union

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.errors import AggregateInvalid
from headwater.operators.agg.groups import Groups, Order

if TYPE_CHECKING:
    from pyspark.sql import Column

Argument = Union[str, "Column", None]
Columns = Mapping[str, pa.Array]


@dataclass(frozen=True)
class Aggregate(ABC):
    """One value out of many rows. Nulls are left out, as in SQL; of no row at all the value is null, and a count 0."""

    of: Argument

    #: Whether it matters in which order the rows of a group come.
    ordered: ClassVar[bool] = False

    @property
    def called(self) -> str:
        return type(self).__name__.lower()

    @abstractmethod
    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """The columns of a partial result, for an argument of this type; a type that makes no sense is refused."""

    @abstractmethod
    def result(self, kind: pa.DataType) -> pa.DataType:
        """The type of the value."""

    @abstractmethod
    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        """The partial result of each group of rows. The rows of a group are in the order of processing."""

    @abstractmethod
    def merge(self, partials: Columns, groups: Groups) -> Columns:
        """One partial result for each group of partial results."""

    @abstractmethod
    def finish(self, partials: Columns) -> pa.Array:
        """The value of each partial result."""

    def hashed(self, kind: pa.DataType) -> Mapping[str, str] | None:
        """Which of Arrow's grouped functions gives each column of the partial result, where there is one for each."""
        return None

    def refuse(self, kind: pa.DataType, expected: str) -> AggregateInvalid:
        return AggregateInvalid(aggregate=self.called, argument=str(self.of), kind=str(kind), expected=expected)


@dataclass(frozen=True)
class Invertible(Aggregate):
    """An aggregate whose partial results can be taken out of another again: a deletion costs no more than a row."""

    @abstractmethod
    def remove(self, partials: Columns) -> Columns:
        """What must be merged in to take these partial results out again."""


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def numbers_of(values: pa.Array) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_] | None]:
    """An array of numbers, and where they are valid; `None` where all of them are."""
    if not values.null_count:
        return np.asarray(values), None
    zero = pa.scalar(0, values.type)
    return np.asarray(values.fill_null(zero)), np.asarray(values.is_valid())


def valid_counts(values: pa.Array, groups: Groups) -> npt.NDArray[np.int64]:
    """How many values of each group are not null."""
    if not values.null_count:
        return groups.sizes()
    valid = np.asarray(values.is_valid()).astype(np.int64)
    found: npt.NDArray[np.int64] = np.add.reduceat(valid, groups.starts) if groups.count else valid[:0]
    return found


def nulled(values: npt.NDArray[np.generic], counts: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """Values that are null where nothing was counted."""
    return pa.array(values, mask=counts == 0).cast(kind)
