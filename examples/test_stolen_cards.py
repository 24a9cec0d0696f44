"""Stolen cards, as their user tests them."""

from __future__ import annotations

from datetime import timedelta

import stolen_cards

from headwater.testing import AppTest


def test_a_card_that_was_tried_out_is_blocked_and_its_next_payment_refused() -> None:
    with AppTest(stolen_cards.app) as test:
        start = test.now

        def pay(number: int, card: int, amount: float, *, second: int) -> None:
            at = start + timedelta(seconds=second)
            test.feed("card_payments", [{"id": number, "card": card, "amount": amount, "at": at}])

        def time_passes(second: int) -> None:
            """Payments of other cards in every partition: only then is it certain that nothing came in between."""
            for card in range(100, 110):
                pay(card, card, 50.0, second=second)
            test.advance("1 second")

        for number, amount in enumerate([2.0, 3.0, 900.0]):
            pay(number, 7, amount, second=10 * number)
        pay(3, 8, 900.0, second=0)  # it was not tried out
        pay(4, 9, 2.0, second=0)
        pay(5, 9, 3.0, second=10)
        pay(6, 9, 900.0, second=1_000)  # too late to have to do with the small ones
        test.drain()  # these were decided before the card was blocked
        time_passes(1_100)
        (row,) = test.views["blocked"].rows()
        assert (row["card"], row["tries"], row["loss"], row["payment"]) == (7, 2, 900.0, 2)

        assert {(row["card"], row["loss"]) for row in test.rows("tried")} == {(9, None)}

        for number, card in ((7, 7), (8, 8), (9, 9)):
            pay(number, card, 20.0, second=1_200)
        accepted = {row["id"]: row["accepted"] for row in test.rows("decided")}
        assert {number: accepted[number] for number in range(10)} == {
            **dict.fromkeys(range(10), True),
            7: False,
        }
