"""Rows that are combined where they are read: the windows are the same, and what is late or rejected is counted row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater import EventTime
from headwater.engine.aggregation import Computation
from headwater.engine.column_expressions import Expression, Selection, column
from headwater.engine.columns import HASH, SLOT
from headwater.engine.packed_rows import unpacked
from headwater.engine.spark_plan import applied_operators
from headwater.engine.state_folder import LocalFolder
from headwater.engine.state_maintenance import states
from headwater.engine.step import PartitionEngine
from headwater.engine.window_combine import Combine
from headwater.engine.window_step import WindowStep
from headwater.operators import Hopping, Tumbling, agg
from headwater.operators.aggregates import Aggregate
from tests.laws import costly
from tests.operators.batches import _placed, streamed, with_arguments
from tests.operators.registry.windows import ORDERS
from tests.operators.stream_runs import Stream
from tests.operators.test_windows import COMPUTE, SECOND, Row, arrivals, numbered, table

#: Aggregates that Arrow's own grouping has, some that take rows in any order, and some that need them in theirs.
COMPUTES: list[Mapping[str, Aggregate]] = [
    {"total": agg.sum("amount"), "n": agg.count(), "least": agg.min("amount"), "mean": agg.mean("amount")},
    {"most": agg.max_n("amount", 2), "different": agg.approx_count_distinct("amount"), "total": agg.sum("amount")},
    COMPUTE,
]
NEEDED = ["user", "at", "amount", "_partition", "_offset"]


#: Users by their first half, and doubled amounts, of the rows whose amount is at least -5.
COMPUTED: Mapping[str, Expression] = {
    **{name: column(name) for name in NEEDED},
    "user": ("case", (("is_in", column("user"), ("a", "b"), "string"), ("literal", "a", "string")), column("user")),
    "amount": ("multiply_checked", column("amount"), ("literal", 2, "bigint")),
}
LARGE: Expression = ("less_equal", ("literal", -5, "bigint"), column("amount"))


def as_computed(rows: pa.Table) -> pa.Table:
    """The same, row by row."""
    found = [one for one in rows.to_pylist() if one["amount"] is not None and one["amount"] >= -5]
    for one in found:
        one |= {"user": "a" if one["user"] in ("a", "b") else one["user"], "amount": one["amount"] * 2}
    return pa.Table.from_pylist(found, rows.schema)


def combine_of(operator: Hopping | Tumbling, *, computed: bool = False) -> Combine:
    """What the operator gives to the source of a topic."""
    compute = operator.compute or {}
    rows = table([]).select(NEEDED)
    selection = Selection.whole(rows.schema)
    if computed:
        selection = Selection.of(rows.schema, (LARGE,), COMPUTED, rows.schema)
    return Combine(
        name="windows",
        time_column="at",
        keys=("user",),
        spans=operator.spans(),
        computation=Computation.over(compute, with_arguments(rows, compute).schema),
        selection=selection,
        arguments={name: str(one.of) for name, one in compute.items() if one.of is not None},
        partitions=2,
    )


def combined(combine: Combine, rows: pa.Table) -> pa.Table:
    """The partial results of a batch, as they come out of the shuffle: two partitions of the topic have combined theirs."""
    parts = []
    for partition in (0, 1):
        own = rows.filter(pa.compute.equal(rows["_partition"], partition)).select(NEEDED)
        parts += list(combine(iter(own.to_batches(max_chunksize=5))))
    found = unpacked(parts).drop_columns([HASH, SLOT]) if parts else combine.partials.empty_table()
    return found.select(combine.partials.names).cast(combine.partials)


def in_two_partitions(rows: pa.Table) -> pa.Table:
    places = pa.array([sum(user.encode()) % 2 for user in rows["user"].to_pylist()], pa.int32())
    return rows.set_column(rows.schema.get_field_index("_partition"), "_partition", places)


def flat(outputs: Sequence[pa.Table]) -> list[list[str]]:
    return [sorted(map(repr, output.to_pylist())) for output in outputs]


@costly(6)
@given(
    batches=arrivals(late_by=7),
    size=st.integers(1, 30),
    every=st.integers(1, 40),
    compute=st.sampled_from(COMPUTES),
    emit=st.sampled_from(["final", "changes"]),
    late_by=st.sampled_from([0, 7]),
    replay=st.integers(0, 5),
    computed=st.booleans(),
)
def test_combined_or_not_each_batch_gives_the_same(
    batches: list[list[Row]],
    size: int,
    every: int,
    compute: Mapping[str, Aggregate],
    emit: Any,
    late_by: int,
    replay: int,
    computed: bool,
) -> None:
    operator = Hopping(
        size=size,
        every=every,
        time=EventTime("at", delay=late_by, future_max=None),
        by="user",
        compute=compute,
        emit=emit,
    )
    tables = [in_two_partitions(one) for one in numbered(batches)]
    combine = combine_of(operator, computed=computed)
    rows = [as_computed(one.select(NEEDED)) if computed else one.select(NEEDED) for one in tables]
    whole = [with_arguments(one, compute) for one in rows]
    partials = [combined(combine, one) for one in tables]
    contract = partial(operator.contract, combine=combine)
    assert flat(streamed(contract, partials, replay=replay)) == flat(streamed(operator.contract, whole, replay=replay))


def test_late_and_rejected_rows_are_counted_when_rows_are_combined(tmp_path: Path) -> None:
    operator = Tumbling(
        size=10, time=EventTime("at", future_max=None), by="user", compute={"n": agg.count()}, name="few"
    )
    combine = combine_of(operator)
    contract = operator.contract(combine.partials, combine=combine)
    late = table([("a", 1, 5), ("a", 1, 6), ("b", 1, 7)], first=1).select(NEEDED).to_pylist()
    nothing = {"amount": 1, "_partition": 0}
    rejected = [
        {**nothing, "user": None, "at": 5 * SECOND, "_offset": 4},
        {**nothing, "user": "a", "at": None, "_offset": 5},
    ]
    batches = [table([("a", 1, 100)]).select(NEEDED), pa.Table.from_pylist([*late, *rejected], combine.rows)]
    for number, rows in enumerate(batches):
        (placed,) = _placed(combined(combine, rows), contract)
        engine = PartitionEngine(contract, LocalFolder(tmp_path / "query" / "few"), slot=0)
        engine.run(placed, batch=number, processing_us=None, broadcast={})
    counts = [one.counts for one in states(tmp_path) if one.counts]
    assert sum(one.get("late", 0) for one in counts) == 3
    assert sum(one.get("rejected", 0) for one in counts) == 2


def test_rows_are_combined_in_the_reader_wherever_that_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    def is_combined(rows: DataFrame, **changes: Any) -> bool:
        given: dict[str, Any] = {"size": 10, "time": "at", "by": "user", "compute": {"total": agg.sum("amount")}}
        with applied_operators() as found:
            rows.transform(Tumbling(**{**given, **changes}))
        step = found[0].step
        assert isinstance(step, WindowStep)
        return step.combined

    topic = Stream(spark, tmp_path, lambda rows: rows, ORDERS).source("orders")
    assert is_combined(topic)
    assert is_combined(topic, emit="changes")
    assert is_combined(topic, by=())
    assert not is_combined(topic, emit="every_change")
    assert not is_combined(topic, late="side_output")
    assert not is_combined(topic, combine=False)
    assert is_combined(topic, compute={"total": agg.sum(F.col("amount") + 1)})
    assert not is_combined(topic.where("user IS NOT NULL AND length(user) < 9"))
    assert is_combined(topic.filter("amount > 0").withColumn("amount", F.col("amount") % 7))
    assert not is_combined(topic, compute={"total": agg.sum(F.expr("hour(at)"))})
    assert not is_combined(topic.select("user", "at", "amount"), compute={"all": agg.collect_list("amount")})
