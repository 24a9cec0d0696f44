"""Rules on captures: how old the oldest change is that is not captured, and what a database keeps for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.alerts import LogMeasures, Rule
from headwater.alerts.measurements import CaptureHealth, Sample, measurements
from headwater.capture import Capture, CaptureStore
from headwater.capture.report import Reporter
from headwater.errors import ArgumentInvalid, NotFound
from headwater.log.port import Log
from headwater.services import Settings
from headwater.services.host import Host
from headwater.services.metrics import Metrics
from tests.alerts.numbers import Numbers
from tests.capture.shop import config_of, log_at, shop_at


def told(rule: Rule, *captures: CaptureHealth) -> list[tuple[str, bool, str]]:
    found = measurements(rule, Sample(Numbers(captured=list(captures))))
    return [(one.subject, one.is_over, one.message) for one in found]


def test_a_capture_that_falls_behind_is_over_its_limit() -> None:
    rule = Rule(name="slow", kind="capture_delay", capture="*", threshold=60)
    behind = CaptureHealth(name="shop", delay_seconds=75.0)
    fast = CaptureHealth(name="stock", delay_seconds=0.5)
    assert told(rule, behind, fast) == [
        ("shop", True, "Capture 'shop' is 1.2 min behind its database, more than 1 min"),
        ("stock", False, "Capture 'stock' is 500 ms behind its database"),
    ]


def test_a_database_that_does_not_answer_counts_as_behind_from_its_last_answer_on() -> None:
    rule = Rule(name="slow", kind="capture_delay", capture="shop", threshold=60)
    away = CaptureHealth(name="shop", unknown_seconds=90.0, error="connection refused")
    message = "The delay of capture 'shop' is not known for 1.5 min: connection refused, more than 1 min"
    assert told(rule, away) == [("shop", True, message)]


def test_what_a_database_keeps_is_compared_in_bytes() -> None:
    rule = Rule(name="slot", kind="capture_retention", capture="*", threshold=1024**3)
    slot = CaptureHealth(name="shop", delay_seconds=0.0, retained_bytes=3 * 1024**3)
    message = "The database of capture 'shop' keeps 3 GiB for it, more than 1 GiB"
    assert told(rule, slot, CaptureHealth(name="file")) == [("shop", True, message)]


def test_a_rule_on_a_capture_needs_its_name() -> None:
    with pytest.raises(ArgumentInvalid, match="the name of a capture, or a pattern"):
        Rule(name="slow", kind="capture_delay", threshold=60)
    with pytest.raises(NotFound, match="shop"):
        told(Rule(name="slow", kind="capture_delay", capture="shap"), CaptureHealth(name="shop", delay_seconds=0.0))


def scraped(log: Log) -> str:
    return Metrics(Host(log=log, settings=Settings())).scrape()


def test_a_log_measures_its_captures(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    shop.execute("INSERT INTO orders VALUES (1, 'tea', 2.5, 1)")
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=("orders",)))
        with Capture.open(log, "shop") as capture, Reporter(log, "shop") as reporter:
            capture.catch_up(on_piece=lambda _: reporter.captured(capture))
            (health,) = LogMeasures(log).captures()
            assert (health.delay_seconds, health.error) == (0.0, "")
            assert 'headwater_capture_running{capture="shop"} 1' in scraped(log)
        shop.execute("UPDATE orders SET price = 3")
        (health,) = LogMeasures(log).captures()  # no process runs it: the database is asked
        assert health.delay_seconds is not None
        lines = scraped(log).splitlines()
        for line in (
            'headwater_capture_running{capture="shop"} 0',
            'headwater_capture_pending{capture="shop",unit="change"} 1',
            'headwater_capture_rows_total{capture="shop"} 1',
            'headwater_capture_snapshot_share{capture="shop",table="orders"} 1',
        ):
            assert line in lines
        (tmp_path / "shop.db").rename(tmp_path / "away.db")
        (health,) = LogMeasures(log).captures()
        assert health.delay_seconds is None
        assert health.unknown_seconds >= 0
        assert "there is no such file" in health.error
