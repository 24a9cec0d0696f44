"""Captures in the console: state, delay, tables and dead letters; paused, resumed and read again by callers who may."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater.capture import Capture, CaptureConfig, CaptureStore
from headwater.capture.report import Reporter
from headwater.capture.runner import CaptureRunner
from headwater.console.topology.flow import flow_of
from headwater.log import Log
from headwater.services.captures import CapturedTable, CaptureStatus
from headwater.services.tokens import Tokens
from tests.console.simulation import SimulatedConsole, simulated


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


@pytest.fixture(scope="module")
def database(folder: Path) -> sqlite3.Connection:
    made = sqlite3.connect(folder / "shop.db", isolation_level=None, check_same_thread=False)
    made.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, price REAL)")
    made.execute("INSERT INTO orders VALUES (1, 2.5), (2, 1.0)")
    return made


@pytest.fixture(scope="module")
def log(folder: Path, database: sqlite3.Connection) -> Iterator[Log]:
    with headwater.open(folder / "log") as made:
        assert isinstance(made, Log)
        CaptureStore(made).create(CaptureConfig(name="shop", url=f"sqlite:///{folder}/shop.db"))
        CaptureRunner(made, "shop").catch_up()
        database.execute("INSERT INTO orders VALUES (3, 'much')")
        CaptureRunner(made, "shop").catch_up()
        yield made


@pytest.fixture(scope="module")
def console(log: Log) -> Iterator[SimulatedConsole]:
    with simulated(log) as made:
        yield made


def test_a_capture_says_whether_it_runs_and_what_is_pending(
    log: Log, console: SimulatedConsole, database: sqlite3.Connection
) -> None:
    page = console.open("/captures").later()
    row = page.sees_row("Captures", "shop")
    assert all(told in row for told in ("streaming", "no process", "complete"))
    database.execute("UPDATE orders SET price = 4 WHERE id = 1")
    page = console.open("/captures/shop").sees("1", within="Pending").sees("No process runs it now")
    with Reporter(log, "shop", app="revenue") as reporter, Capture.open(log, "shop") as capture:
        capture.catch_up(on_piece=lambda _: reporter.captured(capture))
        page.later().sees("0", within="Pending").sees("app revenue").sees_not("No process runs it now")
    page.sees_row("Tables", "orders shop.orders")
    assert "orders" in page.later().chart("Rows per second over time")


def test_a_capture_is_paused_and_goes_on(log: Log, console: SimulatedConsole) -> None:
    page = console.open("/captures/shop").press("Pause").sees("Its database keeps the changes")
    page.press("Pause").hears("Capture shop is paused.")
    assert CaptureStore(log).config("shop").paused
    page.later().sees("paused").press("Resume").hears("Capture shop goes on.")
    assert not CaptureStore(log).config("shop").paused
    actions = [row["action"] for row in log.read("__audit").rows()]
    assert actions[-2:] == ["captures.pause", "captures.resume"]


def test_a_caller_who_reads_all_changes_nothing_and_one_who_reads_some_sees_none(
    log: Log, console: SimulatedConsole
) -> None:
    every = Tokens(log.home).create("auditor", ["read:*"])
    page = console.open("/captures/shop", every).sees("Rows captured")
    page.sees_not("Pause").sees_not("Read again")
    some = Tokens(log.home).create("clerk", ["read:shop.orders"])
    for path in ("/captures", "/captures/shop"):
        assert console.open(path, some).text("page").startswith("ScopeMissing")
    Tokens(log.home).revoke("auditor")
    Tokens(log.home).revoke("clerk")


def test_captures_are_nodes_of_the_topology() -> None:
    table = CapturedTable(table="orders", topic="shop.orders")
    shop = CaptureStatus(name="shop", url="sqlite:///shop.db", state="streaming", envelope="flat", tables=[table])
    flow = flow_of([], [], captures=[shop], topics=["shop.orders"])
    assert flow.after("capture:shop") == ["topic:shop.orders"]
    assert flow.stations["capture:shop"].href == "/console/captures/shop"
    assert "capture:shop" not in flow_of([], [], captures=[shop], sees=lambda _: False).stations
