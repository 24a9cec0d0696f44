"""What every windowed operator does with its rows before the engine gets them: check them, and carry only what is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators.agg.aggregate import Aggregate
from headwater.operators.agg.computation import arguments, check_arguments, check_compute
from headwater.operators.process import LATE_SAMPLE_ROWS as LATE_SAMPLE_ROWS
from headwater.operators.process import Late as Late

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The key of rows that have none: all of them in one group.
ALL = "_all"
#: What the engine orders rows by and learns time from, where the rows have it.
PLACES = ("_topic", "_partition", "_offset", "_punctuation")


def keys_of(by: str | tuple[str, ...]) -> tuple[str, ...]:
    """The columns of a key; of no column, the one that is the same for all rows."""
    return (by,) if isinstance(by, str) else tuple(by) or (ALL,)


def check_columns(operator: str, rows: DataFrame, *names: str) -> None:
    """Refuse columns that the rows do not have."""
    for name in names:
        if name not in rows.columns and name != ALL:
            raise ColumnUnknown(topic=operator, column=name, columns=", ".join(rows.columns))


def check_time(operator: str, rows: DataFrame, on: str) -> None:
    """Refuse a time that is none."""
    check_columns(operator, rows, on)
    time_kind("on", rows, on)


def time_kind(setting: str, rows: DataFrame, column: str) -> str:
    """The type of a column of timestamps, by its name in Spark; another is refused."""
    kind: str = rows.schema[column].dataType.typeName()
    if kind not in ("timestamp", "timestamp_ntz"):
        raise ArgumentInvalid(name=setting, value=f"{column} ({kind})", expected="a column of timestamps")
    return kind


def prepared(
    operator: str,
    rows: DataFrame,
    *,
    on: str,
    by: str | tuple[str, ...],
    compute: Mapping[str, Aggregate],
    taken: tuple[str, ...] = (),
    whole: bool = False,
) -> DataFrame:
    """The rows with their key, time, place and the arguments of the aggregates; with `whole`, everything else too."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    keys = keys_of(by)
    check_time(operator, rows, on)
    check_columns(operator, rows, *keys)
    check_compute(compute, taken=(*keys, *taken))
    check_arguments(operator, compute, rows)
    needed = [name for name in (*keys, on, *PLACES) if name in rows.columns]
    kept = rows.columns if whole else list(dict.fromkeys(needed))
    more = {ALL: F.lit(0)} if ALL in keys else {}
    columns = {**more, **arguments(compute)}
    return rows.select(*(F.col(f"`{name}`") for name in kept), *(one.alias(name) for name, one in columns.items()))
