"""The ten largest stocks, as their user tests them."""

from __future__ import annotations

from decimal import Decimal

import stocks

from headwater.testing import AppTest


def test_a_stock_that_is_traded_more_moves_up() -> None:
    with AppTest(stocks.app) as test:

        def trade(symbol: str, price: str, pieces: int) -> None:
            row = {"symbol": symbol, "price": Decimal(price), "pieces": pieces, "at": test.now}
            test.feed("trades", [row])

        def ranking() -> list[str]:
            rows = test.views["top_stocks"].rows()
            return [row["symbol"] for row in sorted(rows, key=lambda row: row["rank"])]

        for number in range(12):
            trade(f"S{number:02d}", "10.00", 100 - number)
        assert ranking() == [f"S{number:02d}" for number in range(10)]
        trade("S11", "20.00", 50)
        assert ranking() == ["S11", *(f"S{number:02d}" for number in range(9))]
        first = test.views["top_stocks"].get(rank=1)
        assert first is not None
        assert (first["turnover"], first["trades"]) == (Decimal("1890.00"), 2)
