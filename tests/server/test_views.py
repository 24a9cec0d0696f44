"""Views and SQL over a log that is served without its app."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import APIRouter
from starlette.testclient import TestClient

from headwater.log import EmbeddedLog
from headwater.server import Tokens, views
from headwater.views import DuckStore, ViewKeeper, ViewSpec
from tests.server.conftest import Ask


@pytest.fixture
def kept(log: EmbeddedLog) -> EmbeddedLog:
    """A view that an app has left behind."""
    topic = log.create("spend", "card int64, total float64", key="card", compact=True)
    log.append("spend", [{"card": 1, "total": 2.5}, {"card": 73314510714175488, "total": 4.0}])
    home = log.path / "apps" / "fraud"
    home.mkdir(parents=True)
    store = DuckStore(home / "views.duckdb")
    keeper = ViewKeeper(log, store)
    keeper.add(ViewSpec(name="spend", topic="spend", key=topic.key, schema=topic.schema))
    keeper.start()
    keeper.view("spend").rows(at_least={"spend": log.end_offsets("spend")})
    keeper.stop()
    store.close()
    return log


@pytest.fixture
def client(client_of: Ask, kept: EmbeddedLog) -> TestClient:
    return client_of(routers=[views.router(kept)])


def test_what_an_app_has_left_can_be_looked_up(client: TestClient) -> None:
    [found] = client.get("/api/v1/views").json()
    assert (found["name"], found["running"]) == ("spend", False)
    assert client.post("/api/v1/views/spend/get", json={"key": {"card": 1}}).json() == {
        "row": {"card": 1, "total": 2.5}
    }
    rows = client.post("/api/v1/views/spend/rows", json={"where": "total > $1", "parameters": [3]})
    assert b'"card":73314510714175488' in rows.content
    assert client.get("/api/v1/views/nope").status_code == 404


def test_sql_reads_topics_and_views(client: TestClient) -> None:
    answer = client.post("/api/v1/sql", json={"sql": "SELECT count(*) AS n FROM log.spend"})
    assert answer.json()["rows"] == [{"n": 2}]
    answer = client.post("/api/v1/sql", json={"sql": "SELECT sum(total) AS t FROM spend"})
    assert answer.json()["rows"] == [{"t": 6.5}]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM read_csv('{file}') JOIN spend ON true",
        "COPY (SELECT 1) TO '{file}'",
        "SET enable_external_access = true",
        "ATTACH '{file}'",
        "SELECT * FROM __audit",
        "SELECT 1; SELECT 2",
    ],
)
def test_sql_from_elsewhere_reaches_no_file_of_this_machine(client: TestClient, tmp_path: Path, statement: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("password\nhunter2\n")
    answer = client.post("/api/v1/sql", json={"sql": statement.format(file=secret)})
    assert answer.status_code == 400
    assert "hunter2" not in answer.text
    assert secret.read_text() == "password\nhunter2\n"


def test_a_view_needs_its_scope_and_sql_all_of_them(client_of: Ask, kept: EmbeddedLog, tokens: Tokens) -> None:
    token = tokens.create("reader", ["read:spend"])
    client = client_of(routers=[views.router(kept)], token=token)
    assert client.post("/api/v1/views/spend/rows", json={}).status_code == 200
    assert client.post("/api/v1/views/other/rows", json={}).status_code == 403
    assert client.post("/api/v1/sql", json={"sql": "SELECT 1"}).status_code == 403
    assert client.get("/api/v1/views").status_code == 403


def test_a_condition_needs_no_more_than_its_view_and_gets_no_more(
    client_of: Ask, kept: EmbeddedLog, tokens: Tokens
) -> None:
    client = client_of(routers=[views.router(kept)], token=tokens.create("reader", ["read:spend"]))
    for condition in ("false UNION ALL SELECT * FROM spend", "card IN (SELECT version FROM headwater.views)"):
        answer = client.post("/api/v1/views/spend/rows", json={"where": condition})
        assert (answer.status_code, answer.json()["error"]) == (400, "StatementInvalid")
    answer = client.post("/api/v1/views/spend/rows", json={"where": "card IN (SELECT max(card) FROM spend)"})
    assert [row["total"] for row in answer.json()["rows"]] == [4.0]


@pytest.mark.parametrize("name", ["rows", "get", "sql"])
def test_a_view_with_the_name_of_a_question_is_dropped_by_admins_alone(
    client_of: Ask, tokens: Tokens, name: str
) -> None:
    dropped: list[str] = []
    routes = APIRouter(prefix="/v1")
    routes.add_api_route("/views/{name}", lambda name: dropped.append(name), methods=["DELETE"])
    reader = client_of(routers=[routes], token=tokens.create("reader", [f"read:{name}"]))
    assert reader.delete(f"/api/v1/views/{name}").status_code == 403
    assert dropped == []
    admin = client_of(routers=[routes], token=tokens.create("admin", ["admin:*"]))
    assert admin.delete(f"/api/v1/views/{name}").status_code == 200
