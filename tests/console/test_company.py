"""The company that other tests look at is really at work."""

from __future__ import annotations

from tests.console import company
from tests.console.conftest import Running


def test_every_query_runs_and_rows_of_every_fate_are_there(running: Running) -> None:
    assert set(running.queries()) == set(company.QUERIES)
    running.until(running.is_at_work, "every query has done a batch")
    assert running.log.describe("alerts").rows > 0
    assert running.log.describe("orders_per_minute").rows > 0
    running.until(lambda: running.queries()["orders_per_minute"].late >= 5, "the late rows are counted")
