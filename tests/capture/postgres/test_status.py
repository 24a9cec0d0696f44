"""A capture of PostgreSQL, declared in an app: what is said of it, and of its replication slot, while it runs and after."""

from __future__ import annotations

import re
from typing import Any

import headwater as hw
from headwater.alerts import LogMeasures
from headwater.apps.capture_supervision import SupervisedCapture
from headwater.apps.check import problems
from headwater.capture import CaptureStore
from headwater.capture.report import report_of
from headwater.services import Settings, local
from headwater.services.host import Host
from headwater.services.metrics import Metrics
from tests.apps.test_metrics import documented
from tests.capture.postgres.shop import PASSWORD_ENV, Shop
from tests.conditions import until


def test_delay_and_slot_of_a_capture_are_seen_while_it_runs_and_after(shop: Shop) -> None:
    shop.sql("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    shop.sql("INSERT INTO orders SELECT g, 'tea' FROM generate_series(1, 100) g")
    app = hw.App("revenue", log=shop.log.address)
    declared = app.capture(shop.url, name="shop", tables=["public.orders"], password_env=PASSWORD_ENV)

    @app.topic(key="id")
    def copied(orders: Any) -> Any:
        return orders

    assert problems(app, start_spark=None) == []
    assert shop.sql("SELECT count(*) FROM pg_publication") == [(0,)], "a check creates nothing in the database"
    host = Host(log=shop.log, settings=Settings())
    captures = local(host).captures
    one = SupervisedCapture(shop.log, declared, app="revenue")
    assert one.prepare() == ["public.orders"]
    one.start()
    try:
        until(lambda: CaptureStore(shop.log).progress("shop").rows == 100)
        until(lambda: report_of(shop.log, "shop")[0].pending is not None)
        shop.sql("UPDATE orders SET item = 'milk' WHERE id = 7")
        until(lambda: CaptureStore(shop.log).progress("shop").rows == 101)
        until(lambda: report_of(shop.log, "shop")[0].retained_bytes is not None)
        status = captures.status("shop")
        assert (status.state, status.running, status.app, status.pending_unit) == (
            "streaming", True, "revenue", "byte",
        )  # fmt: skip
        assert "slot" in status.details
        lines = Metrics(host).scrape()
        assert 'headwater_capture_running{capture="shop"} 1' in lines
        told = set(re.findall(r"^# TYPE (headwater_capture_\S+ \S+)$", lines, flags=re.MULTILINE))
        assert told == {pair for pair in documented() if pair.startswith("headwater_capture_")}
    finally:
        one.stop()
    shop.sql("UPDATE orders SET item = 'tea' WHERE id = 7")
    status = captures.status("shop")
    assert (status.state, status.running, status.error) == ("streaming", False, "")
    assert status.pending
    (health,) = LogMeasures(shop.log).captures()
    assert health.retained_bytes is not None
    assert health.delay_seconds is not None
