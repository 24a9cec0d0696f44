"""`Join`: rows of two streams that belong together, whenever they come, as far as they are remembered."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import ArgumentInvalid, JoinUnbounded
from headwater.operators.joining.everything import KeepingStep, kept_schema
from headwater.operators.joining.inputs import Columns, Meeting, On, check_appends, pairs_of
from headwater.operators.keyed import Contract, apply
from headwater.operators.keyed.plan import default_name
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Join:
    """Put rows of two streams together that have the same key, without regard to when they happened.

    A row meets the rows of the other input that come in the same batch, and those that are remembered: the last
    `rows_max_per_key` of its key, those that came within `expire` of processing time, or both. Without either the join
    would remember everything, and is refused. As long as neither bound is reached the result is that of SQL's inner
    join; beyond, it depends on what arrived first. Pairs leave at once. Where rows have times, `JoinWithin` is better:
    its bound does not depend on arrival.

    >>> from headwater.operators import Join
    >>> Join(None, on={"buyer": "user"}, rows_max_per_key=100).rows_max_per_key
    100
    """

    # None only where no row is ever joined, as in the example above.
    other: DataFrame | None = field(kw_only=False, repr=False)
    on: On
    rows_max_per_key: int | None = None
    expire: str | float | None = None
    suffix: str | None = None
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        pairs_of(self.on)
        if self.rows_max_per_key is None and self.expire is None:
            bounds = '`rows_max_per_key=100` or `expire="1 hour"`, or use `JoinWithin` with `within`'
            raise JoinUnbounded(operator=self.name or "Join", bounds=bounds)
        if self.rows_max_per_key is not None and self.rows_max_per_key < 1:
            raise ArgumentInvalid(name="rows_max_per_key", value=self.rows_max_per_key, expected="at least 1")
        if self.expire is not None and parse_seconds(self.expire, name="expire") <= 0:
            raise ArgumentInvalid(name="expire", value=self.expire, expected='a time such as "1 hour"')

    def __call__(self, rows: DataFrame) -> DataFrame:
        if self.other is None:
            raise ArgumentInvalid(name="other", value=None, expected="a DataFrame")
        check_appends("rows", rows)
        check_appends("other", self.other)
        meeting = Meeting.of(self.name or "Join", rows, self.other, on=self.on, suffix=self.suffix)
        make = partial(self.contract, columns=meeting.columns())
        return apply(make, meeting.left_rows(), meeting.right_rows(), partitions=self.partitions)

    def contract(self, rows: pa.Schema, columns: Columns) -> Contract:
        expire_us = None if self.expire is None else round(parse_seconds(self.expire) * 1e6)
        return Contract(
            name=self.name or default_name(self),
            step=KeepingStep(columns=columns, rows_max_per_key=self.rows_max_per_key, expire_us=expire_us),
            key=columns.key,
            rows=rows,
            state=kept_schema(rows, columns, expires=expire_us is not None),
            output=pa.schema([rows.field(name) for name in columns.shown]),
        )
