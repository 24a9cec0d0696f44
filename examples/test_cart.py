"""Carts, as their user tests them: what was decided, what the views show of it, and whom a mail reaches."""

from __future__ import annotations

import pytest
from cart import CART, Add, Added, CheckedOut, CheckOut, Remove, Sold, app, carts_of

from headwater.sourcing import CommandRejected
from headwater.testing import AppTest

CHAIR, LAMP = Add("chair", 2, 40), Add("lamp", 1, 25)


def test_a_cart_is_ordered_once_and_as_it_is() -> None:
    cart = CART.fold([Added("chair", 2, 40), Added("lamp", 1, 25)])
    ordered = CART.decide(cart, CheckOut("ada"))
    assert ordered == [Sold("chair", 2, 40), Sold("lamp", 1, 25), CheckedOut("ada", 105)]


def test_views_and_mails_follow_the_carts() -> None:
    with AppTest(app) as test, carts_of(test.log) as carts:
        test.feed("customers", [{"customer": "ada", "email": "ada@example.org"}])
        carts.send_many([("c-1", CHAIR), ("c-1", LAMP), ("c-1", Remove("chair")), ("c-2", CHAIR), ("c-3", LAMP)])
        for cart, customer in (("c-2", "ada"), ("c-3", "eve")):
            carts.send(cart, CheckOut(customer))
        with pytest.raises(CommandRejected, match="checked out"):
            carts.send("c-2", LAMP)
        [row] = test.views["open_carts"].rows()
        assert (row["entity"], row["articles"], row["changed"]) == ("c-1", ["lamp"], test.now)
        sold = {row["article"]: (row["count"], row["revenue"]) for row in test.views["sold"].rows()}
        assert sold == {"chair": (2, 80), "lamp": (1, 25)}
        [mail] = test.sent("mail")
        assert (mail["email"], mail["cart"], mail["total"]) == ("ada@example.org", "c-2", "80")
        last = carts.send("c-1", CheckOut("ada"))
        test.advance("1 second")
        lamps = test.views["sold"].get(article="lamp", at_least={"cart.events": last.offsets})
        assert lamps is not None
        assert lamps["count"] == 2
        assert test.views["open_carts"].rows() == []
        assert [mail["cart"] for mail in test.sent("mail")] == ["c-2", "c-1"]
