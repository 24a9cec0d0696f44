"""What an aggregate is: how rows become a partial result, partial results become one, and that becomes a value.

Partial results are Arrow columns, so they travel through a shuffle, lie in an operator's state, and merge in any order:
`finish(merge(lift(some rows), lift(the others)))` is `finish(lift(all rows))`. `Computation` is `compute=` as a whole:
several named aggregates, whose arguments Spark evaluates.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Union

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.errors import AggregateInvalid
from headwater.errors import ArgumentInvalid, ColumnUnknown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Int64s = npt.NDArray[np.int64]
#: A partition and an offset as one number, in the order of both.
OFFSET_BITS = 47


@dataclass(frozen=True)
class Groups:
    """`rows` rows in groups that stand one after the other; group i begins at row `starts[i]`. None is empty."""

    starts: Int64s
    rows: int

    @staticmethod
    def of(*sorted_keys: npt.NDArray[np.generic]) -> Groups:
        """The groups of rows that are sorted by these keys.

        >>> Groups.of(np.array([1, 1, 2]), np.array([0, 5, 5])).starts.tolist()
        [0, 1, 2]
        """
        rows = len(sorted_keys[0])
        if not rows:
            return Groups(np.empty(0, np.int64), 0)
        begins = np.zeros(rows, bool)
        begins[0] = True
        for keys in sorted_keys:
            begins[1:] |= keys[1:] != keys[:-1]
        return Groups(np.flatnonzero(begins), rows)

    @property
    def count(self) -> int:
        return len(self.starts)

    def sizes(self) -> Int64s:
        """How many rows each group has."""
        return np.diff(self.starts, append=self.rows)

    def numbers(self) -> Int64s:
        """For each row the number of its group."""
        return np.repeat(np.arange(self.count), self.sizes())

    def offsets(self) -> npt.NDArray[np.int32]:
        """The starts and the end, as Arrow's lists want them."""
        return np.append(self.starts, self.rows).astype(np.int32)


@dataclass(frozen=True)
class Order:
    """Where each row stands in the order of processing: event time, then partition and offset."""

    at_us: Int64s
    position: Int64s

    def take(self, rows: Int64s) -> Order:
        return Order(self.at_us[rows], self.position[rows])


def positions(partitions: Int64s, offsets: Int64s) -> Int64s:
    """Partition and offset as one number.

    >>> positions(np.array([0, 1]), np.array([7, 0])).tolist()
    [7, 140737488355328]
    """
    packed: Int64s = (partitions.astype(np.int64) << OFFSET_BITS) | offsets
    return packed


Argument = Union[str, "Column", None]
Columns = Mapping[str, pa.Array]


@dataclass(frozen=True)
class Aggregate(ABC):
    """One value out of many rows. Nulls are left out, as in SQL; of no row at all the value is null, and a count 0."""

    of: Argument

    #: Whether it matters in which order the rows of a group come.
    ordered: ClassVar[bool] = False

    @property
    def by_place(self) -> bool:
        """Whether rows must know their place in a topic."""
        return False

    @property
    def called(self) -> str:
        """Its name in `headwater.operators.agg`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()

    @abstractmethod
    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """Return the columns of a partial result, for an argument of this type; raise on a type that makes no sense."""

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

    def lift_unsorted(self, values: pa.Array, numbers: Int64s, count: int) -> Columns | None:
        """The partial result of each of `count` groups, of rows in any order, where `numbers` says which group each row
        is of; None where rows of a group must stand together."""
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


#: What the argument of an aggregate is called on its way from the JVM: the name of the result comes after it.
ARGUMENT = "_of_"
SEPARATOR = "__"


def arguments(compute: Mapping[str, Aggregate]) -> dict[str, Column]:
    """The Spark columns that the aggregates need, by the name under which they travel."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    found = {}
    for name, aggregate in compute.items():
        if aggregate.of is not None:
            found[f"{ARGUMENT}{name}"] = F.col(aggregate.of) if isinstance(aggregate.of, str) else aggregate.of
    return found


def check_compute(compute: Mapping[str, Aggregate], *, taken: tuple[str, ...] = ()) -> None:
    """Raise on what is no aggregate, and on names that the result has already."""
    if not compute:
        raise ArgumentInvalid(
            name="compute", value=compute, expected='aggregates, such as {"total": agg.sum("amount")}'
        )
    for name, aggregate in compute.items():
        if not isinstance(aggregate, Aggregate):
            raise ArgumentInvalid(
                name=f"compute[{name!r}]", value=aggregate, expected='an aggregate: agg.sum("amount")'
            )
        if name in taken or name.startswith("_"):
            raise ArgumentInvalid(name="compute", value=name, expected="names that are free, and begin with no `_`")


def check_arguments(operator: str, compute: Mapping[str, Aggregate], rows: DataFrame) -> None:
    """Raise on a column that the rows do not have, with a shorter message than Spark's."""
    for aggregate in compute.values():
        if isinstance(aggregate.of, str) and aggregate.of.split(".")[0].strip("`") not in rows.columns:
            raise ColumnUnknown(topic=operator, column=aggregate.of, columns=", ".join(rows.columns))


@dataclass(frozen=True)
class Computation:
    """Aggregates whose argument types are known."""

    compute: Mapping[str, Aggregate]
    kinds: Mapping[str, pa.DataType]

    @staticmethod
    def over(compute: Mapping[str, Aggregate], rows: pa.Schema) -> Computation:
        """For rows that carry the arguments; raise where one goes by places that the rows have lost."""
        for name, aggregate in compute.items():
            if aggregate.by_place and "_offset" not in rows.names:
                expected = 'rows with `_partition` and `_offset`, as a topic has them, or `order="time"`'
                raise ArgumentInvalid(name=f"compute[{name!r}]", value=aggregate, expected=expected)
        kinds = {
            name: pa.null() if aggregate.of is None else rows.field(f"{ARGUMENT}{name}").type
            for name, aggregate in compute.items()
        }
        # A column of Spark's cannot travel to workers; what is left of it is what people call it.
        named = {name: one if one.of is None else replace(one, of=str(one.of)) for name, one in compute.items()}
        return Computation(named, kinds)

    @property
    def partials(self) -> pa.Schema:
        """The columns of the partial results."""
        return pa.schema(
            [
                pa.field(f"{name}{SEPARATOR}{part}", kind)
                for name, aggregate in self.compute.items()
                for part, kind in aggregate.partial(self.kinds[name]).items()
            ]
        )

    @property
    def results(self) -> pa.Schema:
        """The columns of the values."""
        return pa.schema([pa.field(name, one.result(self.kinds[name])) for name, one in self.compute.items()])

    @property
    def ordered(self) -> bool:
        return any(aggregate.ordered for aggregate in self.compute.values())

    @property
    def invertible(self) -> bool:
        return all(isinstance(aggregate, Invertible) for aggregate in self.compute.values())

    def lift(self, rows: pa.Table, order: Order, groups: Groups) -> pa.Table:
        """The partial results of groups of rows."""
        columns: list[pa.Array] = []
        for name, aggregate in self.compute.items():
            if aggregate.of is None:
                values = pa.nulls(groups.rows)
            else:
                values = rows.column(f"{ARGUMENT}{name}").combine_chunks()
            columns += self._columns(name, aggregate.lift(values, order, groups))
        return self._table(columns)

    def merge(self, partials: pa.Table, groups: Groups) -> pa.Table:
        """One partial result for each group of them."""
        if groups.count == groups.rows:
            return partials.select(self.partials.names)
        columns: list[pa.Array] = []
        for name, aggregate in self.compute.items():
            columns += self._columns(name, aggregate.merge(self._of(name, partials), groups))
        return self._table(columns)

    def remove(self, partials: pa.Table) -> pa.Table:
        """What takes partial results out again; for computations that are `invertible`."""
        columns: list[pa.Array] = []
        for name, aggregate in self.compute.items():
            if isinstance(aggregate, Invertible):
                columns += self._columns(name, aggregate.remove(self._of(name, partials)))
        return self._table(columns)

    def finish(self, partials: pa.Table) -> pa.Table:
        """The values of partial results."""
        columns = [aggregate.finish(self._of(name, partials)) for name, aggregate in self.compute.items()]
        return pa.table(columns, schema=self.results)

    def _of(self, name: str, partials: pa.Table) -> Columns:
        parts = self.compute[name].partial(self.kinds[name])
        return {part: partials.column(f"{name}{SEPARATOR}{part}").combine_chunks() for part in parts}

    def _columns(self, name: str, found: Columns) -> list[pa.Array]:
        return [found[part].cast(kind) for part, kind in self.compute[name].partial(self.kinds[name]).items()]

    def _table(self, columns: list[pa.Array]) -> pa.Table:
        return pa.table(columns, schema=self.partials)


def order_of(rows: pa.Table, at_us: np.ndarray) -> Order:
    """The order of processing of rows that the engine has sorted."""
    if "_partition" in rows.column_names and "_offset" in rows.column_names:
        partitions, offsets = (
            np.asarray(rows.column(name).combine_chunks().fill_null(0)) for name in ("_partition", "_offset")
        )
        return Order(at_us, positions(partitions, offsets))
    # Rows that have lost their place are told apart by what they hold; here it is enough that they keep their order.
    return Order(at_us, np.zeros(rows.num_rows, np.int64))


LARGEST = 2**63 - 1
