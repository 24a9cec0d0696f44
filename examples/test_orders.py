"""Orders, as their user tests them: each ends, nothing is sold twice and no money is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orders import Add, Added, Cancelled, Order, Paid, Place, Placed, Reserved, Taken, open_shop

import headwater as hw
from tests.laws import costly


@pytest.fixture(autouse=True)
def shared_session() -> None:
    """In the place of the one of all examples: this one needs no Spark."""


def test_an_order_reserves_an_article_and_charges_its_customer(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        saga, shop = open_shop(log)
        shop["article"].send("chair", Add(1))
        shop["account"].send("ada", Add(50))
        shop["order"].send("o-1", Place("chair", "ada", 40), by="Ada")
        saga.run(until_idle=True)
        assert [each.event for each in shop["order"].history("o-1")] == [
            Placed("chair", "ada", 40),
            Reserved("ada", 40),
            Paid(),
        ]
        assert (shop["article"].load("chair").state, shop["account"].load("ada").state) == (0, 10)
        [_, charge] = shop["account"].history("ada")
        assert (charge.by, charge.correlation, charge.causation) == ("Ada", "o-1", "order/o-1/2")


def test_an_article_that_cannot_be_paid_is_released(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        saga, shop = open_shop(log)
        shop["article"].send("chair", Add(1))
        shop["order"].send("o-1", Place("chair", "ada", 40))
        shop["order"].send("o-2", Place("table", "ada", 40))
        saga.run(until_idle=True)
        assert shop["order"].history("o-1")[-1].event == Cancelled("no money: only 0 are left", release="chair")
        assert [each.event for each in shop["article"].history("chair")] == [Added(1), Taken(1), Added(1)]
        assert shop["order"].history("o-2")[-1].event == Cancelled("no article: only 0 are left", release=None)


orders = st.lists(
    st.builds(Place, st.sampled_from(["chair", "table"]), st.sampled_from(["ada", "eve"]), st.integers(1, 9))
)


@costly(30)
@given(orders, st.integers(0, 3), st.integers(0, 20))
def test_each_order_ends_and_nothing_is_lost(
    tmp_path_factory: pytest.TempPathFactory, placed: list[Place], chairs: int, money: int
) -> None:
    with hw.open(tmp_path_factory.mktemp("shop")) as log:
        saga, shop = open_shop(log)
        shop["article"].send("chair", Add(chairs))
        shop["account"].send("ada", Add(money))
        shop["order"].send_many([(f"o-{number}", place) for number, place in enumerate(placed)])
        saga.run(until_idle=True)
        ended: list[Order] = [shop["order"].load(f"o-{number}").state for number in range(len(placed))]
        assert Counter(order.status for order in ended).keys() <= {"paid", "cancelled"}
        paid = [order.placed for order in ended if order.status == "paid" and order.placed is not None]
        assert shop["article"].load("chair").state == chairs - len(paid)
        assert shop["account"].load("ada").state == money - sum(each.price for each in paid)
