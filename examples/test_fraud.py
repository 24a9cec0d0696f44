"""How a user tests an app: rows go in, time passes, rows come out."""

from __future__ import annotations

from datetime import timedelta

import fraud

from headwater.testing import AppTest


def test_a_large_payment_after_two_small_ones_is_suspicious() -> None:
    with AppTest(fraud.app) as test:

        def pay(number: int, card: int, amount: float) -> None:
            at = test.now + timedelta(seconds=number)
            test.feed("payments", [{"id": number, "card": card, "country": "NL", "amount": amount, "at": at}])

        for number, amount in enumerate([2.0, 3.0, 900.0]):
            pay(number, 7, amount)
        pay(3, 8, 900.0)  # no small ones before it
        pay(2, 7, 900.0)  # the terminal repeats itself
        assert [(row["card"], row["id"]) for row in test.rows("stolen")] == [(7, 2)]
        assert test.views["spend"].get(card=7) == {"card": 7, "payments": 3, "total": 905.0}
        assert test.views["big_spenders"].get(card=7) is None
        pay(4, 7, 200.0)
        assert test.views["big_spenders"].get(card=7) == {"card": 7, "payments": 4, "total": 1105.0}
