"""Aggregates give what DuckDB gives, over any rows, however they are split into partial results and merged again."""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.aggregation import ARGUMENT, Computation, Groups, Order, check_compute
from headwater.engine.errors import AggregateInvalid, NumberTooLarge
from headwater.errors import ArgumentInvalid
from headwater.operators import AggregateTable, agg
from tests.laws import costly
from tests.operators.batches import duck

#: Our aggregate of the column `v`, and the same in DuckDB; rows are in the order of `at`, then `position`.
NUMBERS: dict[str, tuple[agg.Aggregate, str]] = {
    "rows": (agg.count(), "count(*)"),
    "count": (agg.count("v"), "count(v)"),
    "sum": (agg.sum("v"), "sum(v)"),
    "mean": (agg.mean("v"), "avg(v)"),
    "least": (agg.min("v"), "min(v)"),
    "most": (agg.max("v"), "max(v)"),
    "spread": (agg.stddev("v"), "stddev_samp(v)"),
    "spread_all": (agg.stddev("v", population=True), "stddev_pop(v)"),
    "first": (agg.first("v"), "first(v order by t, p) filter (v is not null)"),
    "last": (agg.last("v"), "last(v order by t, p) filter (v is not null)"),
    "all": (agg.collect_list("v"), "coalesce(list(v order by t, p) filter (v is not null), [])"),
    "two": (agg.collect_list("v", count_max=2), "coalesce(list(v order by t, p) filter (v is not null), [])[:2]"),
    "first_come": (agg.first("v", order="arrival"), "first(v order by p) filter (v is not null)"),
    "last_come": (agg.last("v", order="arrival"), "last(v order by p) filter (v is not null)"),
    "as_come": (agg.collect_list("v", order="arrival"), "coalesce(list(v order by p) filter (v is not null), [])"),
    "different": (agg.count_distinct("v"), "count(distinct v)"),
    "least_two": (agg.min_n("v", 2), "coalesce(min(v, 2), [])"),
    "most_three": (agg.max_n("v", 3), "coalesce(max(v, 3), [])"),
    "median": (agg.percentile("v"), "quantile_cont(v, 0.5)"),
    "tail": (agg.percentile("v", 0.9), "quantile_cont(v, 0.9)"),
}
TEXTS = {name: NUMBERS[name] for name in ("rows", "count", "least", "most", "first", "last", "all", "two", "different")}
TEXTS |= {name: NUMBERS[name] for name in ("least_two", "most_three")}

Row = tuple[int, Any, int]


def computed(
    compute: dict[str, agg.Aggregate], rows: Sequence[Row], kind: pa.DataType, cuts: int
) -> dict[int, dict[str, Any]]:
    """What we compute per group, over rows cut into so many parts whose partial results are merged."""
    schema = pa.schema([pa.field(f"{ARGUMENT}{name}", kind) for name in compute])
    computation = Computation.over(compute, schema.append(pa.field("_offset", pa.int64())))
    parts = [
        _lifted(computation, [(row, at) for at, row in enumerate(rows) if at % cuts == part], kind)
        for part in range(cuts)
    ]
    partials = pa.concat_tables(parts).combine_chunks()
    groups_of = np.asarray(partials.column("group"))
    order = np.argsort(groups_of, kind="stable")
    groups = Groups.of(groups_of[order])
    merged = computation.merge(partials.take(pa.array(order)), groups)
    found = computation.finish(merged).to_pylist()
    return {int(groups_of[order][start]): row for start, row in zip(groups.starts, found, strict=True)}


def _lifted(computation: Computation, rows: list[tuple[Row, int]], kind: pa.DataType) -> pa.Table:
    rows = sorted(rows, key=lambda one: (one[0][0], one[0][2], one[1]))
    values = pa.array([value for (_, value, _), _ in rows], kind)
    numbers = np.array([group for (group, _, _), _ in rows], np.int64)
    order = Order(np.array([at for (_, _, at), _ in rows], np.int64), np.array([place for _, place in rows], np.int64))
    groups = Groups.of(numbers)
    table = pa.table({f"{ARGUMENT}{name}": values for name in computation.compute})
    return computation.lift(table, order, groups).append_column("group", pa.array(numbers[groups.starts], pa.int64()))


def expected(wanted: dict[str, str], rows: Sequence[Row], kind: pa.DataType) -> dict[int, dict[str, Any]]:
    table = pa.table(
        {
            "g": pa.array([group for group, _, _ in rows], pa.int64()),
            "v": pa.array([value for _, value, _ in rows], kind),
            "t": pa.array([at for _, _, at in rows], pa.int64()),
            "p": pa.array(range(len(rows)), pa.int64()),
        }
    )
    columns = ", ".join(f'{text} AS "{name}"' for name, text in wanted.items())
    with duck() as connection:
        connection.register("rows", table)
        found = connection.sql(f"SELECT g, {columns} FROM rows GROUP BY g").to_arrow_table().to_pylist()
    return {row.pop("g"): row for row in found}


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float | decimal.Decimal | int):
        return math.isclose(ours, float(theirs), rel_tol=1e-9, abs_tol=1e-9)
    return bool(ours == theirs)


def check(known: dict[str, tuple[agg.Aggregate, str]], rows: Sequence[Row], kind: pa.DataType, cuts: int) -> None:
    ours = computed({name: one for name, (one, _) in known.items()}, rows, kind, cuts)
    theirs = expected({name: text for name, (_, text) in known.items()}, rows, kind)
    assert ours.keys() == theirs.keys()
    for group, row in ours.items():
        for name, value in row.items():
            assert same(value, theirs[group][name]), (group, name, value, theirs[group][name])


def rows_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.tuples(st.integers(0, 3), st.none() | values, st.integers(0, 5)), min_size=1, max_size=40)


@given(rows=rows_of(st.integers(-1000, 1000)), cuts=st.integers(1, 4))
def test_whole_numbers_are_aggregated_as_duckdb_does_it(rows: list[Row], cuts: int) -> None:
    check(NUMBERS, rows, pa.int64(), cuts)


@costly(2)
@given(rows=rows_of(st.integers(-1000, 1000).map(lambda number: number / 4)), cuts=st.integers(1, 4))
def test_fractions_too(rows: list[Row], cuts: int) -> None:
    check(NUMBERS, rows, pa.float64(), cuts)


@given(rows=rows_of(st.integers(-9999, 9999).map(lambda number: decimal.Decimal(number) / 100)), cuts=st.integers(1, 4))
def test_decimals_stay_exact(rows: list[Row], cuts: int) -> None:
    check(
        {
            name: NUMBERS[name]
            for name in ("sum", "least", "most", "least_two", "most_three", "first", "last", "different")
        },
        rows,
        pa.decimal128(10, 2),
        cuts,
    )


@given(rows=rows_of(st.text(alphabet="abä", max_size=3)), cuts=st.integers(1, 4))
def test_texts_too(rows: list[Row], cuts: int) -> None:
    check(TEXTS, rows, pa.string(), cuts)


STRUCTS = st.fixed_dictionaries(
    {"price": st.none() | st.integers(0, 3), "bid": st.fixed_dictionaries({"who": st.none() | st.sampled_from("ab")})}
)


@given(rows=rows_of(STRUCTS), cuts=st.integers(1, 4))
def test_the_greatest_struct_is_that_of_the_greatest_first_field_then_the_second(rows: list[Row], cuts: int) -> None:
    def by_fields(value: Any) -> tuple[Any, ...]:
        price, who = value["price"], value["bid"]["who"]
        return (price is not None, price, who is not None, who)  # null comes first, as in Spark

    kind = pa.struct([("price", pa.int64()), ("bid", pa.struct([("who", pa.string())]))])
    found = computed({"least": agg.min("v"), "most": agg.max("v")}, rows, kind, cuts)
    for group, row in found.items():
        values = [value for number, value, _ in rows if number == group and value is not None]
        for name, wanted in (("least", min), ("most", max)):
            assert row[name] == wanted(values, key=by_fields, default=None)


@given(rows=rows_of(STRUCTS), cuts=st.integers(1, 4), n=st.integers(1, 3))
def test_the_greatest_structs_are_sorted_by_their_first_field_then_the_second(
    rows: list[Row], cuts: int, n: int
) -> None:
    def by_fields(value: Any) -> tuple[Any, ...]:
        price, who = value["price"], value["bid"]["who"]
        return (price is not None, price, who is not None, who)

    kind = pa.struct([("price", pa.int64()), ("bid", pa.struct([("who", pa.string())]))])
    found = computed({"top": agg.max_n("v", n), "bottom": agg.min_n("v", n)}, rows, kind, cuts)
    for group, row in found.items():
        values = sorted((value for of, value, _ in rows if of == group and value is not None), key=by_fields)
        assert row == {"top": values[::-1][:n], "bottom": values[:n]}


def test_a_crowded_group_keeps_the_least_and_greatest_numbers_that_there_are() -> None:
    least, greatest = -(2**63), 2**63 - 1
    rows: list[Row] = [
        (at % 2, value, 0) for at, value in enumerate([least, greatest, *range(-50, 50), greatest, least])
    ]
    found = computed({"top": agg.max_n("v", 2), "bottom": agg.min_n("v", 2)}, rows, pa.int64(), 1)
    assert found[0] == {"top": [greatest, 48], "bottom": [least, -50]}
    assert found[1] == {"top": [greatest, 49], "bottom": [least, -49]}


def test_not_a_number_is_the_greatest() -> None:
    found = computed({"top": agg.max_n("v", 2)}, [(0, 1.0, 0), (0, math.nan, 0), (0, math.inf, 0)], pa.float64(), 2)
    assert [math.isnan(found[0]["top"][0]), found[0]["top"][1]] == [True, math.inf]


def test_the_order_of_arrival_needs_rows_that_know_their_place() -> None:
    with pytest.raises(ArgumentInvalid, match="_offset"):
        Computation.over({"last": agg.last("v", order="arrival")}, pa.schema([(f"{ARGUMENT}last", pa.int64())]))
    with pytest.raises(ArgumentInvalid, match='"time" or "arrival"'):
        agg.last("v", order="offset")  # type: ignore[arg-type]
    with pytest.raises(ArgumentInvalid, match="RowId"):
        AggregateTable(by="k", compute={"last": agg.last("v", order="arrival")})


@given(rows=rows_of(st.sampled_from("abcdef")), cuts=st.integers(1, 4), count=st.integers(1, 4))
def test_the_commonest_come_first_and_ties_go_to_the_least(rows: list[Row], cuts: int, count: int) -> None:
    found = computed({"top": agg.top_k("v", count)}, rows, pa.string(), cuts)
    for group, row in found.items():
        values = [value for number, value, _ in rows if number == group and value is not None]
        ranked = sorted({(-values.count(value), value) for value in values})[:count]
        assert [(one["value"], one["count"]) for one in row["top"]] == [(value, -times) for times, value in ranked]


@given(rows=rows_of(st.integers(-9, 9)), taken=st.integers(0, 39))
def test_what_is_taken_out_again_leaves_no_trace(rows: list[Row], taken: int) -> None:
    names = ("rows", "count", "sum", "mean", "different", "median")
    computation = Computation.over(
        {name: NUMBERS[name][0] for name in names}, pa.schema([(f"{ARGUMENT}{name}", pa.int64()) for name in names])
    )
    assert computation.invertible
    numbered = [((0, value, at), place) for place, (_, value, at) in enumerate(rows)]
    gone, kept = numbered[:taken], numbered[taken:]
    if not gone or not kept:
        return
    everything, out = _lifted(computation, numbered, pa.int64()), _lifted(computation, gone, pa.int64())
    both = pa.concat_tables([everything.drop_columns("group"), computation.remove(out.drop_columns("group"))])
    left = computation.finish(computation.merge(both, Groups(np.array([0]), 2)))
    alone = computation.finish(_lifted(computation, kept, pa.int64()))
    assert left.to_pylist() == alone.to_pylist()


def test_a_custom_aggregate_is_three_functions_over_tables() -> None:
    def product(name: str) -> Any:
        def fold(table: pa.Table) -> pa.Table:
            return table.group_by("group").aggregate([(name, "product")]).rename_columns(["group", "product"])

        return fold

    made = agg.custom(
        "v",
        partial={"product": "int64"},
        result="int64",
        lift=product("value"),
        merge=product("product"),
        finish=lambda table: table["product"],
    )
    found = computed({"product": made}, [(0, 2, 0), (0, 3, 1), (1, 5, 0), (0, 7, 2)], pa.int64(), 2)
    assert found == {0: {"product": 42}, 1: {"product": 5}}


def test_a_custom_aggregate_that_loses_a_group_is_refused() -> None:
    made = agg.custom(
        "v",
        partial={"n": "int64"},
        result="int64",
        lift=lambda table: table.slice(0, 0).append_column("n", pa.array([], pa.int64())),
        merge=lambda table: table,
        finish=lambda table: table["n"],
    )
    with pytest.raises(ArgumentInvalid, match="one row for each of 1 groups"):
        computed({"n": made}, [(0, 2, 0)], pa.int64(), 1)


def test_a_sum_never_wraps_round() -> None:
    with pytest.raises(NumberTooLarge, match="too large for a whole number of 64 bits"):
        computed({"sum": agg.sum("v")}, [(0, 2**62, 0), (0, 2**62, 1), (0, 1, 2)], pa.int64(), 1)
    with pytest.raises(NumberTooLarge):
        computed({"sum": agg.sum("v")}, [(0, 2**62, 0), (0, 2**62, 1), (0, 1, 2)], pa.int64(), 3)
    fits = computed({"sum": agg.sum("v")}, [(0, 2**62, 0), (0, 2**62 - 1, 1), (1, -(2**63), 2)], pa.int64(), 1)
    assert fits == {0: {"sum": 2**63 - 1}, 1: {"sum": -(2**63)}}


@pytest.mark.parametrize("made", [agg.sum("v"), agg.mean("v"), agg.stddev("v"), agg.percentile("v")])
def test_text_is_no_number(made: agg.Aggregate) -> None:
    with pytest.raises(AggregateInvalid, match=r"over v, which is of type string\. Give it a number"):
        Computation.over({"x": made}, pa.schema([(f"{ARGUMENT}x", pa.string())])).partials  # noqa: B018


@pytest.mark.parametrize(
    ("compute", "why"),
    [
        ({}, "aggregates, such as"),
        ({"total": "amount"}, "an aggregate"),
        ({"_total": agg.count()}, "begin with no `_`"),
        ({"user": agg.count()}, "names that are free"),
    ],
)
def test_what_is_no_computation_is_refused(compute: Any, why: str) -> None:
    with pytest.raises(ArgumentInvalid, match=why):
        check_compute(compute, taken=("user",))


@pytest.mark.parametrize(
    "make", [lambda: agg.percentile("v", 1.5), lambda: agg.top_k("v", 0), lambda: agg.max_n("v", 0)]
)
def test_numbers_out_of_range_are_refused(make: Any) -> None:
    with pytest.raises(ArgumentInvalid):
        make()


def test_nothing_at_all_is_nothing() -> None:
    computation = Computation.over(
        {"n": agg.count(), "all": agg.collect_list("v")}, pa.schema([(f"{ARGUMENT}all", pa.int64())])
    )
    empty = Groups(np.empty(0, np.int64), 0)
    none = Order(np.empty(0, np.int64), np.empty(0, np.int64))
    lifted = computation.lift(pa.table({f"{ARGUMENT}all": pa.array([], pa.int64())}), none, empty)
    assert computation.finish(computation.merge(lifted, empty)).num_rows == 0
    assert pc.sum(pa.array([], pa.int64())).as_py() is None
