"""Syncs in the console: state, delay, tables and what the last comparison found; paused, resumed and compared by callers who may."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater.log import Log
from headwater.services.tokens import Tokens
from headwater.sync import ChangeRefused, SyncConfig, SyncStore
from headwater.sync.report import Reporter, report_of
from headwater.sync.runner import SyncRunner
from headwater.sync.sync import Sync
from tests.console.simulation import SimulatedConsole, simulated


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("syncs")


@pytest.fixture(scope="module")
def log(folder: Path) -> Iterator[Log]:
    with headwater.open(folder / "log") as made:
        assert isinstance(made, Log)
        made.create("shop.orders", {"id": "int64", "item": "string"}, key="id", compact=True)
        made.append("shop.orders", [{"id": 1, "item": "tea"}, {"id": 2, "item": "milk"}])
        SyncStore(made).create(SyncConfig(name="copy", url=f"sqlite:///{folder}/copy.db", topics=("shop.*",)))
        yield made


@pytest.fixture(scope="module")
def console(log: Log) -> Iterator[SimulatedConsole]:
    with simulated(log) as made:
        yield made


def test_a_sync_says_whether_it_runs_what_is_pending_and_what_differs(
    log: Log, console: SimulatedConsole, folder: Path
) -> None:
    row = console.open("/syncs").later().sees_row("Syncs", "copy")
    assert all(told in row for told in ("new", "no process", "never"))
    SyncRunner(log, "copy").catch_up()
    page = console.open("/syncs/copy").sees("in sync").sees("No process runs it now")
    log.append("shop.orders", [{"id": 3, "item": "salt"}])
    page.later().sees("behind").sees("1", within="Pending")
    with Reporter(log, "copy") as reporter, Sync.open(log, "copy") as sync:
        sync.catch_up(on_step=lambda _: reporter.applied(sync))
        page.later().sees("in sync").sees_not("No process runs it now")
    page.sees_row("Tables", "shop.orders")
    with contextlib.closing(sqlite3.connect(folder / "copy.db")) as copy, copy:
        copy.execute("UPDATE orders SET item = 'coffee' WHERE id = 1")
    page.press("Compare").sees("The whole target").press("Compare").hears("Sync copy is compared.")
    page.later().sees("1", within="Last comparison")
    assert "different: id=1" in page.sees_row("Last comparison", "orders")
    assert "1 row differs" in console.open("/syncs").later().sees_row("Syncs", "copy")


def test_a_sync_that_its_target_stopped_is_failed_and_says_why(
    log: Log, console: SimulatedConsole, folder: Path
) -> None:
    with contextlib.closing(sqlite3.connect(folder / "copy.db")) as copy, copy:
        copy.execute("CREATE TRIGGER no BEFORE INSERT ON orders BEGIN SELECT RAISE(ABORT, 'no salt'); END")
    log.append("shop.orders", [{"id": 4, "item": "salt"}])
    with pytest.raises(ChangeRefused):
        SyncRunner(log, "copy").catch_up()
    assert "no salt" in report_of(log, "copy")[0].error
    console.open("/syncs/copy").sees("failed").sees("no salt")
    with contextlib.closing(sqlite3.connect(folder / "copy.db")) as copy, copy:
        copy.execute("DROP TRIGGER no")
    SyncRunner(log, "copy").catch_up()
    console.open("/syncs/copy").sees("in sync").sees_not("no salt")


def test_a_sync_is_paused_and_goes_on(log: Log, console: SimulatedConsole) -> None:
    page = console.open("/syncs/copy").press("Pause").sees("Its topics keep the changes")
    page.press("Pause").hears("Sync copy is paused.")
    assert SyncStore(log).config("copy").paused
    page.later().sees("paused").press("Resume").hears("Sync copy goes on.")
    assert not SyncStore(log).config("copy").paused


def test_a_caller_who_reads_all_changes_nothing_and_one_who_reads_some_sees_none(
    log: Log, console: SimulatedConsole
) -> None:
    every = Tokens(log.home).create("auditor", ["read:*"])
    console.open("/syncs/copy", every).sees("Last comparison").sees_not("Pause").sees_not("Compare")
    some = Tokens(log.home).create("clerk", ["read:shop.orders"])
    for path in ("/syncs", "/syncs/copy"):
        assert console.open(path, some).text("page").startswith("ScopeMissing")
