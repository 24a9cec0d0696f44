"""Trading, as its user tests it."""

from __future__ import annotations

from datetime import timedelta

import pytest
import trading

from headwater.testing import AppTest


def test_what_leaves_its_mean_in_its_own_direction_is_traded() -> None:
    with AppTest(trading.app) as test:

        def traded(symbol: str, *prices: float, first: int) -> None:
            rows = [
                {"symbol": symbol, "price": price, "at": test.now + timedelta(seconds=first + 10 * number)}
                for number, price in enumerate(prices)
            ]
            test.feed("prices", rows)

        traded("UP", 100.0, 100.5, 101.0, 101.5, 102.0, 106.0, first=0)
        test.drain()  # what comes next is later, and whatever is read first, nothing is late
        traded("DOWN", 100.0, 99.5, 99.0, 98.0, 94.0, first=60)
        test.drain()
        traded("FLAT", 100.0, 100.1, 100.0, 100.1, 100.0, 100.1, first=120)
        test.drain()
        for later in (600, 1200, 1800):  # time passes for one operator after the other, in every partition
            for number in range(20):
                traded(f"OTHER{number}", 1.0, first=later)
            test.drain()
        found = {row["symbol"]: row for row in test.rows("signals")}
        assert {symbol: row["side"] for symbol, row in found.items()} == {"UP": "buy", "DOWN": "sell"}
        assert found["UP"]["change"] == pytest.approx(106 / 101 - 1)
        assert found["UP"]["slope"] > 0 > found["DOWN"]["slope"]
