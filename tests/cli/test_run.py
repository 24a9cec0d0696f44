"""`headwater run` and `headwater dev` as people start them: a file, a process, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from headwater.apps import runner
from headwater.apps.home import Home
from headwater.errors import HeadwaterError, InUse
from headwater.http import Settings
from headwater.services import app_services
from headwater.units import GIB
from tests.cli.conftest import Cli, execute, program
from tests.conditions import until
from tests.shared_session import left_as_it_was

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_MAX = 180.0
APP = """
import headwater as hw
from pyspark.sql import DataFrame, functions as F

app = hw.App("shop", log="./data")
app.input("orders", {"id": "int64", "user": "string", "amount": "int64"}, key="user")

@app.view(key="user")
def spend(orders: DataFrame) -> DataFrame:
    return orders.groupBy("user").agg(F.sum("amount").alias("total"))
"""
FAILING = (
    APP
    + """
@app.topic
def halves(orders: DataFrame) -> DataFrame:
    @F.udf("long")
    def half(amount):
        return 1 // (amount - amount)
    return orders.select(half("amount").alias("half"))
"""
)
MORE = (
    APP
    + """
@app.view(key="user")
def counts(orders: DataFrame) -> DataFrame:
    return orders.groupBy("user").count()
"""
)


def orders(count: int) -> None:
    with hw.open("data") as log:
        log.append("orders", [{"id": n, "user": f"u{n % 2}", "amount": n} for n in range(count)])


def totals() -> dict[str, int]:
    """The totals in the view's topic, whichever process runs the app."""
    with hw.open("data") as log:
        if "spend" not in log.topics():
            return {}
        return {row["user"]: row["total"] for row in log.read("spend").rows()}


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with Path("out.txt").open("w") as out:
        process = subprocess.Popen(program(*arguments), stdout=out, stderr=subprocess.STDOUT, text=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(60)


@pytest.fixture
def stops(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SparkSession]]:
    """Commands of this process join the shared session, and would stop it: each time that they do so is noted."""
    noted: list[SparkSession] = []
    monkeypatch.setattr(type(spark), "stop", lambda session: noted.append(session))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    with left_as_it_was(spark):
        yield noted
    sys.modules.pop("shop", None)


@pytest.mark.core
def test_a_file_is_a_batch_job_and_its_views_can_be_queried_afterwards(cli: Cli, stops: list[SparkSession]) -> None:
    Path("shop.py").write_text(APP)
    with hw.open("data") as log:
        log.create("orders", {"id": "int64", "user": "string", "amount": "int64"}, key="user")
    orders(10)
    assert cli("run", "shop.py", "--until-caught-up").code == 0  # though the shared JVM was started in another folder
    assert len(stops) == 1
    found = cli("sql", "select user, total from spend order by user", "--json")
    assert found.json == [{"user": "u0", "total": 20}, {"user": "u1", "total": 25}]
    listed = cli("query", "list", "--json")
    assert [(one["name"], one["state"], one["lag_rows"]) for one in listed.json] == [("spend", "stopped", 0)]
    again = cli("run", "shop.py", "--until-caught-up", "--from", "latest")
    assert again.code == 2
    assert "`headwater replay` runs a second version beside it" in again.err


@pytest.mark.parametrize("more", [[], ["--until-caught-up"]])
def test_whoever_runs_says_what_a_statement_may_take(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    Path("shop.py").write_text(APP)
    given: list[Settings] = []

    def refuse(*_: object, served: partial[object], **__: object) -> None:
        given.append(served.keywords["settings"])
        raise InUse(what="App 'shop'", by="another process", instead="Stop it")

    monkeypatch.setattr(runner, "Runner", refuse)
    flags = ["--answer-rows", "7", "--statement-seconds", "90", "--statement-memory", "2 GiB"]
    assert "another process" in cli("run", "shop.py", *flags, *more).err
    bounds = given[0].statement_bounds
    assert (bounds.rows_max, bounds.seconds_max, bounds.memory_max) == (7, 90.0, 2 * GIB)


@pytest.mark.usefixtures("stops")
def test_an_error_begins_with_the_users_own_line(cli: Cli) -> None:
    Path("shop.py").write_text(FAILING)
    with hw.open("data") as log:
        log.create("orders", {"id": "int64", "user": "string", "amount": "int64"}, key="user")
    orders(3)
    found = cli("run", "shop.py", "--until-caught-up")
    assert found.code == 1
    error = found.err[found.err.rindex("error:") :]
    assert "shop.py:16, in half" in error
    assert "ZeroDivisionError" in error
    assert "is left out; `--verbose` shows it" in error
    assert "\tat org.apache" not in error


@pytest.mark.process
def test_a_standby_takes_over_and_a_saved_file_is_taken_in() -> None:
    Path("shop.py").write_text(APP)
    home = Home(Path("data/apps/shop").absolute())
    with started("run", "shop.py") as first:
        until(lambda: home.runner() is not None and home.is_held(), "the app runs", first)
        orders(4)
        until(lambda: totals() == {"u0": 2, "u1": 4}, "the view is right", first)
        refused = execute("run", "shop.py")
        assert refused.code == 5
        assert f"process {first.pid}" in refused.err
        second = subprocess.Popen(program("dev", "shop.py"), stderr=subprocess.PIPE, text=True)
        assert second.wait(60) == 5  # `dev` is a runner like any other
        assert second.stderr is not None
        second.stderr.close()
        with started("run", "shop.py", "--standby") as standby:
            first.kill()
            first.wait(60)
            until(lambda: (found := home.runner()) is not None and found.pid == standby.pid, "it took over", standby)
            orders(4)
            until(lambda: totals() == {"u0": 4, "u1": 8}, "it goes on where the first was killed", standby)
            standby.send_signal(signal.SIGINT)
            assert standby.wait(SECONDS_MAX) == 0
        assert home.runner() is None
    with started("dev", "shop.py") as dev:
        until(lambda: home.runner() is not None and home.is_held(), "the app runs", dev)
        Path("shop.py").write_text("this is no Python")
        until(lambda: "cannot be run" in Path("out.txt").read_text(), "the mistake is told", dev)
        Path("shop.py").write_text(MORE)
        until(lambda: home.is_held() and _queries() == ["counts", "spend"], "the new query runs", dev)
        dev.send_signal(signal.SIGINT)
        assert dev.wait(SECONDS_MAX) == 0


def _queries() -> list[str]:
    try:
        with app_services(Home(Path("data/apps/shop"))) as services:
            return sorted(one.name for one in services.queries.statuses().queries)
    except HeadwaterError:
        return []
