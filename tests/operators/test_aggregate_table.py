"""Aggregates over tables that change: after any changes they are those of SQL over the rows that are there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.errors import ChangelogInvalid
from headwater.engine.table_input import Follow
from headwater.errors import ArgumentInvalid
from headwater.operators import AggregateTable, agg
from headwater.operators.aggregate_table import CHANGED_AT, ORDER, ROW_KEY
from headwater.operators.aggregates import Aggregate
from tests.laws import costly
from tests.operators.batches import bounded, duck, streamed, table_of, with_arguments
from tests.operators.table_changes import Change, cut, rows_of, table_after, topic

SECOND = 1_000_000
SALES = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("amount", pa.int64()), ("day", pa.int64())])
INVERTIBLE = {
    "n": agg.count(),
    "total": agg.sum("amount"),
    "mean": agg.mean("amount"),
    "kinds": agg.count_distinct("amount"),
    "median": agg.percentile("amount"),
}
OTHERS = {
    "least": agg.min("amount"),
    "most": agg.max("amount"),
    "opening": agg.first("amount"),
    "closing": agg.last("amount"),
    "all": agg.collect_list("amount"),
    "spread": agg.stddev("amount"),
    "total": agg.sum("amount"),
}
INVERTIBLE_SQL = "count(*), sum(amount)::BIGINT, avg(amount), count(DISTINCT amount), quantile_cont(amount, 0.5)"
OTHERS_SQL = """min(amount), max(amount),
    first(amount ORDER BY day, amount) FILTER (amount IS NOT NULL), last(amount ORDER BY day, amount) FILTER (amount IS NOT NULL),
    coalesce(list(amount ORDER BY day, amount) FILTER (amount IS NOT NULL), []), stddev_samp(amount), sum(amount)::BIGINT"""
EMITS = st.sampled_from(["changes", "every_change"])
Batches = list[list[Change]]


@st.composite
def sales(draw: st.DrawFn) -> Batches:
    rest = st.tuples(st.sampled_from("abc"), st.integers(-3, 3) | st.none(), st.integers(0, 2))
    changes = st.tuples(st.tuples(st.integers(1, 6)), st.none() | rest | rest)
    return cut(draw, draw(st.lists(changes, max_size=30)))


def aggregated(operator: AggregateTable, batches: Sequence[pa.Table], **how: Any) -> list[pa.Table]:
    """What the operator makes of the rows of a topic, as `AggregateTable` does of Spark's DataFrames."""
    made = []
    for batch in batches:
        rows = with_arguments(batch, operator.compute, by="shop")
        if operator.order_by is not None:
            rows = rows.append_column(ORDER, rows.column(operator.order_by))
        made.append(rows.append_column(f"{ROW_KEY}id", rows.column("id")).drop_columns(["id", "amount", "day"]))
    follow = Follow(name="rows", key=(f"{ROW_KEY}id",), emit=operator.emit_of_batch)
    changes = streamed(follow.contract, made, **how)
    return streamed(operator.contract, [one.drop_columns([f"{ROW_KEY}id"]) for one in changes], **how)


def by_sql(batches: Batches, query: str) -> list[tuple[Any, ...]]:
    last = table_after([change for batch in batches for change in batch])
    rows = [dict(zip(SALES.names, (*key, *rest), strict=True)) for key, rest in last.items()]
    with duck() as connection:
        connection.register("sales", pa.Table.from_pylist(rows, SALES))
        return sorted(connection.sql(query).fetchall(), key=repr)


def same(found: Sequence[tuple[Any, ...]], wanted: Sequence[tuple[Any, ...]]) -> bool:
    return len(found) == len(wanted) and all(
        len(one) == len(other) and all(_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))
        for one, other in zip(found, wanted, strict=True)
    )


def _equal(one: Any, other: Any) -> bool:
    return math.isclose(one, other, abs_tol=1e-9) if isinstance(one, float) and other is not None else one == other


@costly(3)
@given(
    batches=sales(),
    compute=st.sampled_from([(INVERTIBLE, INVERTIBLE_SQL), (OTHERS, OTHERS_SQL)]),
    emit=EMITS,
    replay=st.integers(0, 4),
    partitions=st.integers(1, 3),
)
def test_the_aggregates_of_a_table_are_those_of_sql(
    batches: Batches, compute: tuple[Mapping[str, Aggregate], str], emit: Any, replay: int, partitions: int
) -> None:
    operator = AggregateTable(by="shop", compute=compute[0], key="id", order_by="day", emit=emit)
    outputs = aggregated(operator, topic(batches, SALES, keys=1), replay=replay, partitions=partitions)
    wanted = by_sql(batches, f"SELECT shop, {compute[1]} FROM sales GROUP BY shop")
    assert same(rows_of(table_of(outputs, ["shop"])), wanted)
    if emit == "changes":
        for output in outputs:
            afters = [row["shop"] for row in output.to_pylist() if row["_op"] in ("+I", "+U")]
            assert len(afters) == len(set(afters)), "one correction per group and batch"


@costly(3)
@given(batches=sales(), emit=EMITS, compute=st.sampled_from([{"most": agg.max("n")}, {"mean": agg.mean("n")}]))
def test_aggregates_of_aggregates_follow(batches: Batches, emit: Any, compute: Mapping[str, Aggregate]) -> None:
    """How many rows the shops have at most, or on average."""
    inner = AggregateTable(by="shop", compute={"n": agg.count()}, key="id", emit=emit)
    counts = aggregated(inner, topic(batches, SALES, keys=1))
    outer = AggregateTable(compute=compute, emit=emit)
    (name,) = compute
    rows = [with_arguments(one, compute, by=()).drop_columns(["shop", "n"]) for one in counts]
    found = rows_of(table_of(streamed(outer.contract, rows, partitions=1), []))
    call = {"most": "max", "mean": "avg"}[name]
    wanted = by_sql(batches, f"SELECT {call}(n) FROM (SELECT count(*) n FROM sales GROUP BY shop) HAVING count(*) > 0")
    assert same(found, wanted)


@costly(3)
@given(batches=sales(), emit=EMITS, replay=st.integers(0, 4))
def test_rows_that_are_only_added_need_not_be_kept(batches: Batches, emit: Any, replay: int) -> None:
    compute = {"least": agg.min("amount"), "three": agg.max_n("amount", 3), "mean": agg.mean("amount")}
    operator = AggregateTable(by="shop", compute=compute, emit=emit)
    added = [[(key, rest) for key, rest in batch if rest is not None] for batch in batches]
    rows = [
        with_arguments(one, compute, by="shop").drop_columns(["id", "amount", "day"])
        for one in topic(added, SALES, keys=1)
    ]
    ours, kept = (
        streamed(partial(operator.contract, appends=appends), rows, replay=replay) for appends in (True, False)
    )
    assert [one.to_pylist() for one in ours] == [one.to_pylist() for one in kept]


def changelog(*rows: tuple[str, str, float | None]) -> pa.Table:
    ops, shops, amounts = zip(*rows, strict=True)
    return pa.table({"shop": shops, "_of_total": pa.array(amounts, pa.float64()), "_op": ops})


TOTAL = AggregateTable(by="shop", compute={"total": agg.sum("amount")})


def totals(*batches: pa.Table) -> list[tuple[str, float | None]]:
    return [(row["_op"], row["total"]) for one in streamed(TOTAL.contract, batches) for row in one.to_pylist()]


def test_a_group_that_becomes_empty_is_deleted() -> None:
    assert totals(changelog(("+I", "a", 5.0)), changelog(("-D", "a", 5.0))) == [("+I", 5.0), ("-D", 5.0)]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_leaves_no_trace_when_it_is_corrected(odd: float) -> None:
    batches = [changelog(("+I", "a", 5.0)), changelog(("+I", "a", odd)), changelog(("-U", "a", odd), ("+U", "a", 1.0))]
    found = totals(*batches)
    assert found[0] == ("+I", 5.0)
    assert [op for op, _ in found[1:]] == ["-U", "+U", "-U", "+U"]
    assert not math.isfinite(found[2][1] or 0.0)
    assert found[4] == ("+U", 6.0)


def test_changes_within_a_batch_may_be_looked_at_in_any_order() -> None:
    forth = changelog(("+I", "a", 1.0), ("-U", "a", 1.0), ("+U", "a", 2.0), ("-U", "a", 2.0), ("+U", "a", 3.0))
    back = forth.take(pa.array(range(forth.num_rows - 1, -1, -1)))
    assert totals(forth) == totals(back) == [("+I", 3.0)]


@pytest.mark.parametrize("compute", [{"total": agg.sum("amount")}, {"total": agg.max("amount")}])
def test_a_retraction_of_what_is_not_there_is_refused(compute: Mapping[str, Aggregate]) -> None:
    operator = AggregateTable(by="shop", compute=compute)
    with pytest.raises(ChangelogInvalid, match="retracted that is not there"):
        streamed(operator.contract, [changelog(("-U", "a", 5.0))])


def test_rows_that_are_all_there_give_each_group_once() -> None:
    output, _ = bounded(TOTAL.contract, changelog(("+I", "a", 5.0), ("+I", "b", 1.0), ("-D", "b", 1.0)))
    assert [(row["_op"], row["shop"], row["total"]) for row in output.to_pylist()] == [("+I", "a", 5.0)]


def test_rows_without_a_group_are_put_aside() -> None:
    sides: dict[str, list[pa.Table]] = {}
    rows = changelog(("+I", "a", 5.0), ("+I", "b", 1.0))
    rows = rows.set_column(
        0, "shop", pc.if_else(pc.equal(rows["shop"], "b"), pa.scalar(None, pa.string()), rows["shop"])
    )
    assert len(streamed(TOTAL.contract, [rows], sides=sides)[0]) == 1
    assert [one["_reason"].to_pylist() for one in sides["rejected"]] == [["the key is null"]]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: AggregateTable(by="shop", compute={}), "compute"),
        (lambda: AggregateTable(by="shop", compute={"shop": agg.count()}), "names that are free"),
        (lambda: AggregateTable(by="shop", compute={"n": agg.count()}, emit="final"), "emit"),  # type: ignore[arg-type]
        (lambda: AggregateTable(by="shop", compute={"first": agg.first("amount")}), "no order of its own"),
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make: Any, says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        make()


# -- the event time of results ----------------------------------------------------------------------------------------


def timed_results(operator: AggregateTable, batches: Sequence[pa.Table], **how: Any) -> list[pa.Table]:
    """Like `aggregated`, with `day` as the event time; a deletion has none, and so a time before all others."""
    made = []
    for batch in batches:
        rows = with_arguments(batch, operator.compute, by="shop")
        seconds = [0 if day is None else (day + 1) * SECOND for day in rows.column("day").to_pylist()]
        rows = rows.append_column(CHANGED_AT, pa.array(seconds, pa.timestamp("us", "UTC")))
        if operator.order_by is not None:
            rows = rows.append_column(ORDER, rows.column(operator.order_by))
        made.append(rows.append_column(f"{ROW_KEY}id", rows.column("id")).drop_columns(["id", "amount", "day"]))
    time = EventTime(CHANGED_AT, future_max=None)
    follow = Follow(name="rows", key=(f"{ROW_KEY}id",), emit=operator.emit_of_batch, time=time)
    changes = streamed(follow.contract, made, **how)
    return streamed(operator.contract, [one.drop_columns([f"{ROW_KEY}id"]) for one in changes], **how)


def latest_days(changes: Sequence[Change]) -> dict[str, int]:
    """The latest day of the changes of each shop since it last had no row: by the definition, change after change."""
    rows: dict[Any, Any] = {}
    days: dict[str, int] = {}
    for key, rest in changes:
        old = rows.pop(key, None)
        if rest is not None:
            rows[key] = rest
        if old == rest:
            continue  # nothing comes of a row that is equal
        for shop, _, day in (one for one in (old, rest) if one is not None):
            days[shop] = max(day, days.get(shop, day))
        for shop in days.keys() - {shop for shop, _, _ in rows.values()}:
            del days[shop]
    return days


@costly(2)
@given(batches=sales(), emit=EMITS, compute=st.sampled_from([INVERTIBLE, OTHERS]), replay=st.integers(0, 4))
def test_each_result_carries_the_latest_time_of_its_changes(
    batches: Batches, emit: Any, compute: Any, replay: int
) -> None:
    time = EventTime("changed", future_max=None)
    operator = AggregateTable(by="shop", compute=compute, key="id", order_by="day", emit=emit, time=time)
    changes = [change for batch in batches for change in batch]
    # Of changes within a batch only what comes of them is seen, so each is a batch of its own.
    assert days_of(timed_results(operator, topic([[one] for one in changes] or [[]], SALES, keys=1))) == latest_days(
        changes
    )
    found = days_of(timed_results(operator, topic(batches, SALES, keys=1), replay=replay))
    last = table_after(changes).values()
    newest = {shop: max(day for name, _, day in last if name == shop) for shop, _, _ in last}
    ever = [rest for _, rest in changes if rest is not None]
    assert found.keys() == newest.keys()
    for shop, day in found.items():
        assert newest[shop] <= day <= max(one for name, _, one in ever if name == shop)


def days_of(outputs: Sequence[pa.Table]) -> dict[str, int]:
    rows = table_of(outputs, ["shop"]).values()
    return {row["shop"]: round(row["changed"].timestamp()) - 1 for row in rows}


def test_a_time_that_is_a_group_or_an_aggregate_is_refused() -> None:
    for column in ("shop", "n"):
        with pytest.raises(ArgumentInvalid, match="neither in `by` nor the name of an aggregate"):
            AggregateTable(by="shop", compute={"n": agg.count()}, time=column)
