"""`RowId`: a key for rows that have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.engine.aggregation import OFFSET_BITS
from headwater.engine.columns import POSITION
from headwater.errors import ArgumentInvalid, ColumnUnknown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class RowId:
    """Add a column that tells each row of a topic from all others: its partition and offset as one number.

    The number is the same in every run, and as a column of its own it goes through joins and into topics, where
    `_partition` and `_offset` are others. Rows of a partition have it in the order in which they were appended.

    >>> from headwater.operators import RowId
    >>> RowId("bid").column
    'bid'
    """

    column: str = "id"

    def __post_init__(self) -> None:
        if not self.column or self.column.startswith("_"):
            raise ArgumentInvalid(
                name="column", value=self.column, expected="a name of your own: `_` begins the system's"
            )

    def __call__(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        for name in POSITION:
            if name not in rows.columns:
                raise ColumnUnknown(topic="RowId", column=name, columns=", ".join(rows.columns))
        if self.column in rows.columns:
            raise ArgumentInvalid(name="column", value=self.column, expected="a name that the rows do not have")
        partition = F.shiftleft(F.col("_partition").cast("long"), OFFSET_BITS)
        return rows.withColumn(self.column, partition.bitwiseOR(F.col("_offset")))
