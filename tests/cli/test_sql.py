"""SQL over topics and views from the command line: the same answers in every format, with or without a running app."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater.apps.home import Home
from headwater.log import Log
from headwater.views import DuckStore, ViewKeeper, ViewSpec
from tests.cli.conftest import SECONDS_MAX, Cli, program
from tests.views.view_server import serve_views

TOTALS = "SELECT card, sum(amount) AS total FROM payments GROUP BY card ORDER BY card"


@pytest.fixture
def log(an_empty_folder: Path) -> Iterator[Log]:
    with headwater.open(an_empty_folder / "data") as log:
        log.create("payments", {"card": "int64", "amount": "decimal(10,2)"}, key="card")
        log.append("payments", [{"card": 1, "amount": 2}, {"card": 2, "amount": 3}, {"card": 1, "amount": 4}])
        yield log


@contextlib.contextmanager
def kept(log: Log, home: Path) -> Iterator[ViewKeeper]:
    """A view `spend` of the app `shop`, with one row, and a changelog of two."""
    topic = log.create("spend", {"card": "int64", "total": "float64"}, key="card", compact=True, exist_ok=True)
    log.append("spend", [{"card": 1, "total": 1.0}, {"card": 1, "total": 6.0}])
    store = DuckStore(home / "views.duckdb")
    keeper = ViewKeeper(log, store)
    keeper.add(ViewSpec(name="spend", topic="spend", key=topic.key, schema=topic.schema))
    keeper.catch_up()
    keeper.start()
    yield keeper
    keeper.stop()
    store.close()


@pytest.fixture(params=["running", "left"])
def shop(request: pytest.FixtureRequest, log: Log) -> Iterator[str]:
    """The app `shop` with a view: one that runs and serves it, or one that has been stopped."""
    path = Path(log.home, "apps", "shop")
    if request.param == "left":
        with kept(log, path):
            pass
        yield "app stopped"
        return
    home = Home(path)
    with home.held("shop"), kept(log, path) as keeper, serve_views(keeper) as address:
        home.announce(address)
        yield "maintained"


@pytest.mark.usefixtures("log")
def test_a_result_comes_in_every_format(cli: Cli) -> None:
    assert cli("sql", TOTALS).out.splitlines() == ["card  total", "   1   6.00", "   2   3.00"]
    assert cli("sql", TOTALS, "--json").json == [{"card": 1, "total": "6.00"}, {"card": 2, "total": "3.00"}]
    assert cli("sql", TOTALS, "--output", "jsonl").rows == [{"card": 1, "total": "6.00"}, {"card": 2, "total": "3.00"}]
    assert cli("sql", TOTALS, "--output", "csv", "--limit", "1").out == "card,total\n1,6.00\n"
    assert cli("sql", "SELECT * FROM payments WHERE card > 9").err == "No rows.\n"


@pytest.mark.usefixtures("log")
def test_values_that_json_does_not_know_are_shown_as_text(cli: Cli) -> None:
    told = cli("sql", "SELECT INTERVAL 1 DAY AS span, [1, 2] AS list, card, card FROM payments LIMIT 1", "--json").json
    assert told[0]["list"] == [1, 2]
    assert (told[0]["card"], told[0]["card:1"]) == (1, 1)
    assert told[0]["span"]


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("SELECT * FROM paymens", "did you mean 'payments'"),
        ("DROP TABLE payments", "DROP is no query"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("SELECT max(at) FROM payments", "double quotes"),
        ("SELECT * FROM current.nothing", "no topic or view"),
    ],
)
def test_what_cannot_be_run_is_told_in_one_clear_error(cli: Cli, statement: str, why: str) -> None:
    told = cli("sql", statement)
    assert told.code == 2
    assert why in told.err


def test_a_view_is_asked_wherever_it_is(cli: Cli, shop: str) -> None:
    assert cli("sql", "SELECT * FROM spend", "--json").json == [{"card": 1, "total": 6.0}]
    assert cli("sql", "SELECT count(*) AS n FROM log.spend", "--json").json == [{"n": 2}]
    joined = "SELECT total, sum(amount) AS paid FROM spend JOIN payments USING (card) GROUP BY total"
    assert cli("sql", joined, "--json").json == [{"total": 6.0, "paid": "6.00"}]
    [listed] = cli("view", "list", "--json").json
    assert (listed["name"], listed["app"], listed["key"], listed["running"]) == (
        "spend",
        "shop",
        ["card"],
        shop == "maintained",
    )
    assert shop in cli("view", "list").out
    shown = cli("view", "show", "spend", "--json").json
    assert shown["rows"] == [{"card": 1, "total": 6.0}]
    assert "changelog   spend" in cli("view", "show", "spend").out
    assert "Did you mean 'spend'" in cli("view", "show", "spnd").err


def test_a_view_is_changed_only_where_its_app_runs(cli: Cli, shop: str) -> None:
    told = cli("view", "rebuild", "spend", "--dry-run")
    if shop == "maintained":
        assert "would be rebuilt" in told.err
        assert "would be dropped" in cli("view", "drop", "spend", "--dry-run").err
    else:
        assert told.code != 0
        assert "shop" in told.err
        assert cli("view", "drop", "spend", "--yes").code != 0


@pytest.mark.process
def test_a_result_that_is_watched_is_shown_again_as_rows_come(log: Log, an_empty_folder: Path) -> None:
    words = program("sql", "SELECT count(*) AS n FROM payments", "--watch", "--output", "jsonl")
    watching = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=an_empty_folder, env=os.environ)
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline() == '{"n": 3}\n'
        log.append("payments", [{"card": 7, "amount": 1}])
        assert watching.stdout.readline() == '{"n": 4}\n'
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=SECONDS_MAX)
    assert watching.returncode == 130
