"""Tables that go by a time of their rows: whatever comes out of order, the latest version of each key holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from headwater.engine.table_input import Follow, Versions
from headwater.errors import ArgumentInvalid
from headwater.operators import AggregateTable, TableJoin, TopN, agg
from headwater.schema.event_time import EventTime
from headwater.units import Duration
from tests.laws import costly
from tests.operators.batches import bounded, duck, streamed, table_of
from tests.operators.table_changes import cut, rows_of

SECOND = 1_000_000
#: The key, the second of the version, and the value; None deletes.
Change = tuple[int, int, int | None]


@st.composite
def disordered(draw: st.DrawFn, *, delay: int) -> list[list[Change]]:
    """Changes in batches, each of which comes at most so many seconds after its time."""
    changes = draw(
        st.lists(st.tuples(st.integers(1, 4), st.integers(0, 60), st.none() | st.integers(0, 2)), max_size=30)
    )
    delays = [draw(st.integers(0, delay)) for _ in changes]
    order = sorted(range(len(changes)), key=lambda row: changes[row][1] + delays[row])
    return cut(draw, [changes[row] for row in order])


def rows_from(batches: list[list[Change]]) -> list[pa.Table]:
    own = [
        pa.field("id", pa.int64(), nullable=False),
        ("value", pa.int64()),
        ("_op", pa.string()),
        ("_version", pa.timestamp("us", "UTC")),
    ]
    schema = pa.schema([*own, ("_partition", pa.int32()), ("_offset", pa.int64())])
    tables, offset = [], 0
    for batch in batches:
        rows = [
            (key, value, "-D" if value is None else "+U", at * SECOND, 0, offset + place)
            for place, (key, at, value) in enumerate(batch)
        ]
        offset += len(batch)
        tables.append(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema))
    return tables


def follow(*, history: float, emit: Any = "changes") -> Follow:
    time = EventTime("at", future_max=None)
    return Follow(name="rows", key=("id",), emit=emit, versions=Versions(time=time, history_us=round(history * SECOND)))


def by_sql(batches: list[list[Change]]) -> list[tuple[Any, ...]]:
    rows = pa.concat_tables(rows_from(batches))
    with duck() as connection:
        connection.register("changes", rows)
        query = """SELECT id, value FROM changes QUALIFY row_number() OVER (PARTITION BY id ORDER BY _version DESC, _offset DESC) = 1"""
        return sorted(connection.sql(f"SELECT * FROM ({query}) WHERE value IS NOT NULL").fetchall(), key=repr)


@costly(3)
@given(
    batches=disordered(delay=9),
    emit=st.sampled_from(["changes", "every_change"]),
    replay=st.integers(0, 4),
    partitions=st.integers(1, 3),
)
def test_the_latest_version_holds_in_whatever_order_they_come(
    batches: list[list[Change]], emit: Any, replay: int, partitions: int
) -> None:
    make = follow(history=9, emit=emit).contract
    outputs = streamed(make, rows_from(batches), partitions=partitions, replay=replay)
    shown = [one.select(["id", "value", "_op"]) for one in outputs]
    assert rows_of(table_of(shown, ["id"])) == by_sql(batches)
    whole = bounded(make, pa.concat_tables(rows_from(batches)))[0]
    assert rows_of(table_of([whole.select(["id", "value", "_op"])], ["id"])) == by_sql(batches)


def test_a_deletion_is_remembered_for_as_long_as_history_goes() -> None:
    batches: list[list[Change]] = [[(1, 10, 5), (1, 20, None)], [(1, 15, 6), (2, 25, 7)], [(2, 40, 8)], [(1, 15, 9)]]
    outputs = streamed(follow(history=10).contract, rows_from(batches), partitions=1)
    told = [[(row["_op"], row["id"], row["value"]) for row in one.to_pylist()] for one in outputs]
    assert told == [[], [("+I", 2, 7)], [("-U", 2, 7), ("+U", 2, 8)], [("+I", 1, 9)]]


@dataclass(frozen=True)
class Versioned:
    """A table as an app has it."""

    changes: DataFrame
    key: tuple[str, ...] = ("id",)
    versions: tuple[str, Duration] = ("at", "1 day")


def test_operators_on_tables_go_by_versions(spark: SparkSession) -> None:
    orders = spark.sql(
        """SELECT * FROM VALUES
           (1L, 'a', timestamp_seconds(20), '+U', 0, 0L), (1L, 'b', timestamp_seconds(10), '+U', 0, 1L),
           (2L, 'b', timestamp_seconds(10), '+U', 0, 2L), (2L, 'c', timestamp_seconds(30), '-D', 0, 3L),
           (2L, 'b', timestamp_seconds(20), '+U', 0, 4L) AS t(id, customer, at, _op, _partition, _offset)"""
    )
    customers = spark.sql("SELECT 'a' AS customer, 'Ann' AS name UNION ALL SELECT 'b', 'Bob'")
    told = TableJoin(customers, on="customer", key="id", version="at")(orders)
    known = TableJoin(customers, on="customer", name="known")(Versioned(orders))
    for found in (told, known):
        assert [(row.id, row.name) for row in found.collect()] == [(1, "Ann")]
    counted = AggregateTable(by="customer", compute={"n": agg.count()})(Versioned(orders)).collect()
    assert [(row.customer, row.n) for row in counted] == [("a", 1)]
    first = TopN(n=5, order="id")(Versioned(orders)).collect()
    assert [(row.id, row.customer, row.rank) for row in first] == [(1, "a", 1)]
    with pytest.raises(ArgumentInvalid, match="a column of timestamps"):
        TableJoin(customers, on="customer", key="id", version="customer")(orders)
