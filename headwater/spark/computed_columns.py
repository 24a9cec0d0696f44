"""What a DataFrame computes of a topic, computed by the reader of the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def in_reader(rows: DataFrame) -> DataFrame:
    """The same DataFrame, computed in the reader of its topic where that can be.

    Where a DataFrame is a stream of one topic with columns chosen, renamed or computed by simple expressions, and rows left
    out by simple conditions, its reader does all of that on Arrow columns, and only the result goes to Spark. Other
    DataFrames are returned as they are.
    """
    # Here, since a session is made without any of it.
    from headwater.engine.reader_protocol import read_computed

    return read_computed(rows)
