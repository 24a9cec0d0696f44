"""Tables that are joined as they change: any changes, any split and any replay give what SQL gives for the last rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.errors import ChangelogInvalid
from headwater.errors import ArgumentInvalid
from headwater.operators import TableJoin
from headwater.operators.table_join import Joined, JoinPlan
from tests.laws import costly
from tests.operators.batches import duck, table_of
from tests.operators.table_changes import Change, cut, joined, rows_of, table_after, topic

ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.int64())])
CUSTOMERS = pa.schema([("id", pa.string()), ("name", pa.string())])
HOWS = st.sampled_from(["inner", "left", "right", "outer"])
EMITS = st.sampled_from(["changes", "every_change"])
SQL = {"inner": "INNER", "left": "LEFT", "right": "RIGHT", "outer": "FULL"}
Batches = list[list[Change]]


@st.composite
def order_changes(draw: st.DrawFn, *, at_least: int = 0) -> Batches:
    keys = st.tuples(st.integers(1, 5))
    rest = st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 2))
    return cut(draw, draw(st.lists(st.tuples(keys, st.none() | rest | rest), min_size=at_least, max_size=25)))


@st.composite
def customer_changes(draw: st.DrawFn, *, at_least: int = 0) -> Batches:
    keys = st.tuples(st.sampled_from("abc"))
    rest = st.tuples(st.sampled_from(["x", "y", None]))
    return cut(draw, draw(st.lists(st.tuples(keys, st.none() | rest | rest), min_size=at_least, max_size=15)))


def final(batches: Batches, schema: pa.Schema) -> pa.Table:
    """The table that the changes lead to."""
    last = table_after([change for batch in batches for change in batch])
    rows = [dict(zip(schema.names, (*key, *rest), strict=True)) for key, rest in last.items()]
    return pa.Table.from_pylist(rows, schema)


def by_sql(query: str, **tables: pa.Table) -> list[tuple[Any, ...]]:
    with duck() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return sorted(connection.sql(query).fetchall(), key=repr)


def orders_plan(how: Any, emit: Any = "changes") -> JoinPlan:
    return JoinPlan(
        "joined",
        Joined(("id", "customer", "amount"), ("id",), ("customer",)),
        Joined(("id", "name"), ("id",), ("id",)),
        how,
        None,
        emit,
    )


@costly(2)
@given(
    orders=order_changes(),
    customers=customer_changes(),
    how=HOWS,
    emit=EMITS,
    replay=st.integers(0, 4),
    partitions=st.integers(1, 3),
)
def test_a_foreign_key_join_is_that_of_sql(
    orders: Batches, customers: Batches, how: Any, emit: Any, replay: int, partitions: int
) -> None:
    outputs = joined(
        orders_plan(how, emit),
        topic(orders, ORDERS, keys=1),
        topic(customers, CUSTOMERS, keys=1),
        partitions=partitions,
        replay=replay,
    )
    # An order has one row; a customer without orders has one, too, which has no order's key.
    found = rows_of(table_of(outputs, ["id"] if how in ("inner", "left") else ["id", "customer"]))
    kept = "coalesce(o.customer, c.id)" if how in ("right", "outer") else "o.customer"
    wanted = by_sql(
        f"SELECT o.id, {kept}, o.amount, c.name FROM orders o {SQL[how]} JOIN customers c ON o.customer = c.id",
        orders=final(orders, ORDERS),
        customers=final(customers, CUSTOMERS),
    )
    assert found == wanted


@costly(3)
@given(lefts=customer_changes(), rights=customer_changes(), how=HOWS, emit=EMITS, replay=st.integers(0, 4))
def test_tables_with_one_key_are_joined_row_to_row(
    lefts: Batches, rights: Batches, how: Any, emit: Any, replay: int
) -> None:
    plan = JoinPlan(
        "joined",
        Joined(("id", "name"), ("id",), ("id",)),
        Joined(("id", "name"), ("id",), ("id",)),
        how,
        "_right",
        emit,
    )
    outputs = joined(plan, topic(lefts, CUSTOMERS, keys=1), topic(rights, CUSTOMERS, keys=1), replay=replay)
    wanted = by_sql(
        f"SELECT coalesce(l.id, r.id), l.name, r.name FROM lefts l {SQL[how]} JOIN rights r ON l.id = r.id",
        lefts=final(lefts, CUSTOMERS),
        rights=final(rights, CUSTOMERS),
    )
    assert rows_of(table_of(outputs, ["id"])) == wanted
    if emit == "changes":
        for output in outputs:
            afters = [row["id"] for row in output.to_pylist() if row["_op"] in ("+I", "+U")]
            assert len(afters) == len(set(afters)), "one correction per key and batch"


FOLLOWS = pa.schema([("follower", pa.string()), ("followee", pa.string()), ("since", pa.int64())])


@st.composite
def follow_changes(draw: st.DrawFn) -> Batches:
    keys = st.tuples(st.sampled_from("uvw"), st.sampled_from("abc"))
    return cut(draw, draw(st.lists(st.tuples(keys, st.none() | st.tuples(st.integers(0, 2))), max_size=20)))


@costly(6)
@given(tweets=order_changes(), follows=follow_changes(), how=HOWS, emit=EMITS, replay=st.integers(0, 4))
def test_many_meet_many(tweets: Batches, follows: Batches, how: Any, emit: Any, replay: int) -> None:
    """Tweets and follows: an author has many tweets and many followers."""
    plan = JoinPlan(
        "timeline",
        Joined(("id", "customer", "amount"), ("id",), ("customer",)),
        Joined(("follower", "followee", "since"), ("follower", "followee"), ("followee",)),
        how,
        None,
        emit,
    )
    outputs = joined(plan, topic(tweets, ORDERS, keys=1), topic(follows, FOLLOWS, keys=2), replay=replay)
    kept = "coalesce(t.customer, f.followee)" if how in ("right", "outer") else "t.customer"
    wanted = by_sql(
        f"SELECT t.id, {kept}, t.amount, f.follower, f.since FROM tweets t {SQL[how]} JOIN follows f "
        "ON t.customer = f.followee",
        tweets=final(tweets, ORDERS),
        follows=final(follows, FOLLOWS),
    )
    assert rows_of(table_of(outputs, ["id", "follower", "customer"])) == wanted


def told(outputs: Sequence[pa.Table]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for one in outputs for row in one.to_pylist()]


def test_an_order_that_goes_to_another_customer_is_one_update() -> None:
    orders: Batches = [[((1,), ("a", 5))], [((1,), ("b", 5))]]
    customers: Batches = [[(("a",), ("Ann",)), (("b",), ("Bob",))], []]
    outputs = joined(orders_plan("inner"), topic(orders, ORDERS, keys=1), topic(customers, CUSTOMERS, keys=1))
    assert told(outputs) == [
        ("+I", 1, "a", 5, "Ann"),
        ("-U", 1, "a", 5, "Ann"),
        ("+U", 1, "b", 5, "Bob"),
    ]


def test_each_tells_every_change_and_net_tells_the_outcome() -> None:
    orders: Batches = [[((1,), ("a", 5)), ((1,), ("b", 5)), ((1,), ("b", 6)), ((1,), None)]]
    customers: Batches = [[(("b",), ("Bob",)), (("b",), ("Rob",))]]
    arguments = topic(orders, ORDERS, keys=1), topic(customers, CUSTOMERS, keys=1)
    assert told(joined(orders_plan("left", "changes"), *arguments)) == []
    # Changes of the left come before those of the right.
    assert told(joined(orders_plan("left", "every_change"), *arguments)) == [
        ("+I", 1, "a", 5, None),
        ("-U", 1, "a", 5, None),
        ("+U", 1, "b", 5, None),
        ("-U", 1, "b", 5, None),
        ("+U", 1, "b", 6, None),
        ("-D", 1, "b", 6, None),
    ]


def test_a_customer_that_is_deleted_leaves_its_orders_alone() -> None:
    orders: Batches = [[((1,), ("a", 5)), ((2,), ("a", 6))], []]
    customers: Batches = [[(("a",), ("Ann",))], [(("a",), None)]]
    arguments = topic(orders, ORDERS, keys=1), topic(customers, CUSTOMERS, keys=1)
    assert told(joined(orders_plan("left"), *arguments)[1:]) == [
        ("-U", 1, "a", 5, "Ann"),
        ("+U", 1, "a", 5, None),
        ("-U", 2, "a", 6, "Ann"),
        ("+U", 2, "a", 6, None),
    ]
    assert [row[0] for row in told(joined(orders_plan("inner"), *arguments)[1:])] == ["-D", "-D"]


def test_two_rows_of_one_key_of_which_none_is_later_are_refused() -> None:
    customers = pa.table({"id": ["a", "a"], "name": ["Ann", "Anna"], "_op": ["+U", "+U"]})
    nobody = pa.table({"id": [], "name": [], "_op": []}, schema=customers.schema)
    side = Joined(("id", "name"), ("id",), ("id",), has_place=False)
    plan = JoinPlan("pairs", side, side, "inner", "_right")
    with pytest.raises(ChangelogInvalid, match="nothing says which of them is later"):
        joined(plan, [customers], [nobody])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TableJoin(None, on="id", how="anti"), "how"),  # type: ignore[arg-type]
        (lambda: TableJoin(None, on="id", emit="final"), "emit"),  # type: ignore[arg-type]
        (lambda: TableJoin(None, on=[]), "on"),
        (lambda: TableJoin(None, on=("a", "b", "c")), "a pair"),  # type: ignore[arg-type]
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make: Any, says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        make()
