"""An app and its log on one port. Spark is not needed for that: it serves before Spark is up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headwater.apps import App
from headwater.apps.runner import Runner
from headwater.http import Settings, Tokens
from headwater.http.server import served_app
from headwater.log import open as open_log
from headwater.services import app_services
from headwater.services.queries import AppStatus
from headwater.services.tokens import TokenInvalid
from headwater.units import MIB
from headwater.views import ViewSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with open_log(tmp_path / "log") as log:
        log.create("payments", "card int64, amount float64")
        log.append("payments", [{"card": 1, "amount": 2.5}])
    app = App("fraud", log=str(tmp_path / "log"))

    @app.topic(name="large")
    def large(payments: DataFrame) -> DataFrame:
        return payments.where("amount > 100")

    with Runner(app, served=served_app).ready() as running:
        yield running


def test_the_log_and_the_app_are_served_on_one_port(runner: Runner) -> None:
    address, token = runner.announced.address, runner.announced.token
    with open_log(address, token=token) as remote:
        assert remote.read("payments").count() == 1
        remote.append("payments", [{"card": 2, "amount": 500.0}])
    assert runner.log.read("payments").count() == 2
    headers = {"Authorization": f"Bearer {token}"}
    [query] = httpx.get(f"{address}/api/v1/queries", headers=headers).json()["queries"]
    assert query["name"] == "large"
    assert httpx.get(f"{address}/api/v1/views", headers=headers).json()["views"] == []
    scraped = httpx.get(f"{address}/metrics", headers=headers).text
    assert 'headwater_query_restarts_total{query="large",version="1"} 0' in scraped
    assert 'headwater_topic_end_offset{topic="payments",partition="0"} 2' in scraped


@pytest.mark.process
def test_a_statement_has_the_bounds_of_the_server(tmp_path: Path) -> None:
    serve = partial(served_app, settings=Settings(answer_rows_max=2))
    with Runner(App("fraud", log=str(tmp_path / "log")), served=serve).ready() as running:
        headers = {"Authorization": f"Bearer {running.announced.token}"}
        asked = {"sql": "SELECT * FROM range(3)"}
        answer = httpx.post(f"{running.announced.address}/api/v1/sql", json=asked, headers=headers)
        assert (answer.json()["error"], answer.json()["facts"]["bound"]) == ("StatementExceeded", "2 rows")


@pytest.mark.process
def test_what_a_statement_takes_is_not_taken_from_the_app(tmp_path: Path) -> None:
    """One that may take more than the rows of a view runs in a process that the app hands the rows to."""
    serve = partial(served_app, settings=Settings(statement_memory_max=64 * MIB))
    with Runner(App("fraud", log=str(tmp_path / "log")), served=serve).ready() as running:
        spend = running.log.create("spend", "card int64, total float64", key="card", compact=True)
        running.log.append("spend", [{"card": 1, "total": 2.5}, {"card": 2, "total": 4.0}])
        running.keeper.add(ViewSpec(name="spend", topic="spend", key=spend.key, schema=spend.schema))
        running.keeper.catch_up()
        headers = {"Authorization": f"Bearer {running.announced.token}"}

        def ask(path: str, **body: Any) -> Any:
            address = f"{running.announced.address}/api/v1{path}"
            answer = httpx.post(address, json=body, headers=headers, timeout=60).json()
            return answer.get("rows", answer.get("error"))

        assert ask("/sql", sql="SELECT sum(total) AS t FROM spend") == [{"t": 6.5}]
        assert ask("/sql", sql="SELECT string_agg(repeat('x', card::INTEGER), '-' ORDER BY card) AS t FROM spend") == [
            {"t": "x-xx"}
        ]
        assert ask("/views/spend/rows", where="length(repeat('x', card::INTEGER)) = $1", parameters=[2]) == [
            {"card": 2, "total": 4.0}
        ]
        for path, body in (
            ("/sql", {"sql": "SELECT repeat('a', 3000000000) FROM spend"}),
            ("/views/spend/rows", {"where": "length(repeat('a', 3000000000)) > 1"}),
        ):
            assert ask(path, **body) == "StatementExceeded"


def test_other_processes_find_the_app_by_its_home(runner: Runner) -> None:
    with app_services(runner.home) as services:
        assert services.queries.apps() == [AppStatus(name="fraud", running=True, spark=False)]


def test_nobody_is_let_in_without_a_token(runner: Runner) -> None:
    with open_log(runner.announced.address) as stranger, pytest.raises(TokenInvalid):
        stranger.topics()
    assert httpx.get(f"{runner.announced.address}/api/v1/queries").status_code == 401


def test_tokens_of_the_log_are_good_for_what_they_say(runner: Runner) -> None:
    reader = Tokens(runner.log.home).create("reader", ["read:*"])
    headers = {"Authorization": f"Bearer {reader}"}
    address = runner.announced.address
    assert httpx.get(f"{address}/api/v1/queries", headers=headers).status_code == 200
    assert httpx.post(f"{address}/api/v1/apps/fraud/stop", headers=headers).status_code == 403
    assert httpx.post(f"{address}/api/v1/queries/large/stop", headers=headers).status_code == 403
    assert not runner.is_stopping


@pytest.mark.process
def test_a_server_needs_no_spark() -> None:
    script = "import headwater.http, sys; print({'pyspark', 'pandas', 'duckdb'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
