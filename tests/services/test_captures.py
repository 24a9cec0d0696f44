"""The status of captures: from the report of the process that runs one, or from the database itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.capture import Capture, CaptureStore
from headwater.capture.report import REPORT_SECONDS, Reporter, report_of
from headwater.log import Log
from headwater.services import Services, Settings, local
from headwater.services.host import Host
from tests.capture.shop import config_of, log_at, shop_at


@pytest.fixture
def shop(tmp_path: Path) -> sqlite3.Connection:
    return shop_at(tmp_path)


@pytest.fixture
def log(tmp_path: Path, shop: sqlite3.Connection) -> Iterator[Log]:
    shop.execute("INSERT INTO orders VALUES (1, 'tea', 2.5, 1), (2, 'milk', 1.0, 0)")
    with log_at(tmp_path) as made:
        CaptureStore(made).create(config_of(tmp_path, tables=("orders",)))
        yield made


def services(log: Log) -> Services:
    return local(Host(log=log, settings=Settings()))


def test_the_process_that_runs_a_capture_reports_its_rates(log: Log, shop: sqlite3.Connection) -> None:
    now = [100.0]
    with Reporter(log, "shop", app="revenue", monotonic=lambda: now[0]) as reporter:
        with Capture.open(log, "shop") as capture:
            now[0] += 4
            capture.catch_up(on_piece=lambda _: reporter.captured(capture))
            status = services(log).captures.status("shop")
            assert (status.running, status.app, status.rows_per_second, status.pending) == (True, "revenue", 0.5, 0)
            assert (status.tables[0].rows_per_second, status.tables[0].snapshot_share) == (0.5, 1.0)
            shop.execute("UPDATE orders SET price = 3")
            now[0] += REPORT_SECONDS / 2
            capture.catch_up(on_piece=lambda _: reporter.captured(capture))
            assert report_of(log, "shop")[0].rows == {"orders": 2}, "the next report is not due yet"
            now[0] += 20
            capture.catch_up(on_piece=lambda _: reporter.captured(capture))
            assert report_of(log, "shop")[0].rows == {"orders": 4}
        with Capture.open(log, "shop") as again:  # after a failure
            now[0] += 20
            again.catch_up(on_piece=lambda _: reporter.captured(again))
            assert report_of(log, "shop")[0].rows == {"orders": 4}
    status = services(log).captures.status("shop")
    assert (status.running, status.pid, status.rows, status.rows_per_second) == (False, None, 4, 0.0)


def test_the_last_error_stays_until_rows_are_captured_again(log: Log) -> None:
    with pytest.raises(ValueError, match="connection"), Reporter(log, "shop") as reporter:
        with Reporter(log, "shop"):  # a second one reports, too, without the lock
            pass
        reporter.fail(ValueError("connection\nrefused"))
        status = services(log).captures.status("shop")
        assert (status.state, status.error, status.restarts) == ("restarting", "connection refused", 1)
        raise ValueError("connection refused")
    status = services(log).captures.status("shop")
    assert (status.state, status.running, status.error) == ("new", False, "connection refused")
    with Reporter(log, "shop") as reporter, Capture.open(log, "shop") as capture:
        capture.catch_up(on_piece=lambda _: reporter.captured(capture))
    assert services(log).captures.status("shop").error == ""


def test_a_snapshot_says_how_long_it_takes_yet(
    log: Log, shop: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.capture.capture.ROWS_MAX", 100)
    shop.execute("BEGIN")
    shop.executemany("INSERT INTO orders VALUES (?, 'tea', 1.0, 0)", [(number,) for number in range(10, 250)])
    shop.execute("COMMIT")
    now = [100.0]
    with (
        Reporter(log, "shop", monotonic=lambda: now[0]) as reporter,
        Capture.open(log, "shop") as capture,
    ):
        while not capture.progress.snapshot or capture.progress.snapshot["orders"].rows == 0:
            now[0] += 10
            capture.step()
            reporter.captured(capture)
        (table,) = services(log).captures.status("shop").tables
        assert not table.snapshot_complete
        assert table.snapshot_share is not None
        assert 0 < table.snapshot_share < 1
        assert table.snapshot_rows_expected is not None
        assert table.snapshot_seconds_left == pytest.approx(
            (table.snapshot_rows_expected - table.snapshot_rows) / table.rows_per_second
        )


def test_dead_letters_of_a_table_are_counted(log: Log, shop: sqlite3.Connection) -> None:
    with Capture.open(log, "shop") as capture:
        capture.catch_up()
        shop.execute("INSERT INTO orders VALUES (3, 'tea', 'much', 1)")
        capture.catch_up()
    assert services(log).captures.status("shop").tables[0].dead_letters == 1


def test_a_dropped_capture_leaves_no_report(log: Log, tmp_path: Path) -> None:
    with Reporter(log, "shop"):
        pass
    services(log).captures.drop("shop")
    assert not list((tmp_path / "log" / "captures").glob("*.json"))
