"""Tax rates, as their user tests them."""

from __future__ import annotations

from datetime import timedelta

import tax_rates

from headwater.testing import AppTest


def test_a_sale_is_taxed_at_the_rate_that_held_even_if_that_comes_late() -> None:
    with AppTest(tax_rates.app) as test:
        start = test.now

        def sell(country: str, net: float, *, minute: int) -> None:
            test.feed("sales", [{"country": country, "net": net, "sold_at": start + timedelta(minutes=minute)}])

        def rate(country: str, percent: float, *, minute: int) -> None:
            test.feed("rates", [{"country": country, "percent": percent, "since": start + timedelta(minutes=minute)}])

        def taxes() -> list[tuple[str, float, float | None]]:
            return sorted((row["country"], row["net"], row["tax"]) for row in test.rows("taxed"))

        rate("DE", 19.0, minute=-10_000)
        sell("DE", 100.0, minute=0)
        sell("DE", 200.0, minute=20)
        assert taxes() == [], "the rates have not come so far: a change could be under way"
        rate("DE", 16.0, minute=15)
        sell("DE", 300.0, minute=30)
        sell("DE", 0.0, minute=110)  # an hour and late_by have passed: no row waits for rates any longer
        test.advance("1 second")
        assert taxes() == [("DE", 100.0, 19.0), ("DE", 200.0, 32.0), ("DE", 300.0, 48.0)]
        sell("FR", 10.0, minute=115)
        sell("DE", 0.0, minute=300)
        test.advance("1 second")
        assert ("FR", 10.0, None) in taxes()
        owed = {row["country"]: (row["tax"], row["sales"], row["without_rate"]) for row in test.views["owed"].rows()}
        assert owed == {"DE": (99.0, 4, 0), "FR": (None, 1, 1)}
