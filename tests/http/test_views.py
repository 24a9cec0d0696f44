"""Views and SQL over a log that is served without its app."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from headwater.http import Settings, Tokens
from headwater.log import Log
from headwater.log.remote.wire import ARROW
from headwater.units import MIB
from headwater.views import DuckStore, ViewKeeper, ViewSpec
from tests.console.other_app import running_elsewhere
from tests.http.conftest import Ask


@pytest.fixture
def kept(log: Log) -> Log:
    return with_view(log)


def with_view(log: Log) -> Log:
    """A view that an app has left behind."""
    log.create("spend", "card int64, total float64", key="card", compact=True)
    log.append("spend", [{"card": 1, "total": 2.5}, {"card": 73314510714175488, "total": 4.0}])
    keep(log, "fraud", spend="spend")
    return log


def keep(log: Log, app: str, **views: str) -> None:
    """Leave views behind, each of a topic, as an app does."""
    home = log.home / "apps" / app
    home.mkdir(parents=True)
    store = DuckStore(home / "views.duckdb")
    keeper = ViewKeeper(log, store)
    for name, topic in views.items():
        found = log.topic(topic)
        keeper.add(ViewSpec(name=name, topic=topic, key=found.key, schema=found.schema))
    keeper.catch_up()
    keeper.stop()
    store.close()


@pytest.fixture
def client(client_of: Ask, kept: Log) -> TestClient:
    assert kept.topics()
    return client_of()


def test_what_an_app_has_left_can_be_looked_up(client: TestClient) -> None:
    [found] = client.get("/api/v1/views").json()["views"]
    assert (found["name"], found["running"]) == ("spend", False)
    assert client.post("/api/v1/views/spend/get", json={"key": {"card": 1}}).json() == {
        "row": {"card": 1, "total": 2.5}
    }
    rows = client.post("/api/v1/views/spend/rows", json={"where": "total > $1", "parameters": [3]})
    assert b'"card":73314510714175488' in rows.content
    assert client.get("/api/v1/views/nope").status_code == 404


def test_a_reader_of_what_an_app_has_left_may_ask_for_offsets_that_it_reflects(client: TestClient) -> None:
    for path, body in (("/views/spend/rows", {}), ("/sql", {"sql": "SELECT * FROM spend", "view": "spend"})):
        for offset, status in ((2, 200), (3, 503)):
            asked = {**body, "at_least": {"spend": {0: offset}}, "timeout": 0.05}
            assert client.post(f"/api/v1{path}", json=asked).status_code == status
    refused = client.get("/api/v1/views/spend/subscribe")
    assert (refused.status_code, refused.json()["error"]) == (404, "RunnerNotFound")


def test_sql_reads_topics_and_views(client: TestClient) -> None:
    answer = client.post("/api/v1/sql", json={"sql": "SELECT count(*) AS n FROM log.spend"})
    assert answer.json()["rows"] == [{"n": 2}]
    answer = client.post("/api/v1/sql", json={"sql": "SELECT sum(total) AS t FROM spend"})
    assert answer.json()["rows"] == [{"t": 6.5}]


@pytest.fixture(scope="module")
def refused(shared_log: Log, shared_client_of: Ask) -> TestClient:
    """A client for statements that are refused and change nothing."""
    with_view(shared_log)
    return shared_client_of()


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
def test_sql_from_elsewhere_reaches_no_file_of_this_machine(
    refused: TestClient, tmp_path: Path, statement: str
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("password\nhunter2\n")
    answer = refused.post("/api/v1/sql", json={"sql": statement.format(file=secret)})
    assert answer.status_code == 400
    assert "hunter2" not in answer.text
    assert secret.read_text() == "password\nhunter2\n"


@pytest.mark.usefixtures("kept")
def test_a_view_needs_its_scope_and_sql_all_of_them(client_of: Ask, tokens: Tokens) -> None:
    token = tokens.create("reader", ["read:spend"])
    client = client_of(token=token)
    assert client.post("/api/v1/views/spend/rows", json={}).status_code == 200
    assert client.post("/api/v1/views/other/rows", json={}).status_code == 403
    assert client.post("/api/v1/sql", json={"sql": "SELECT 1"}).status_code == 403
    assert [one["name"] for one in client.get("/api/v1/views").json()["views"]] == ["spend"]
    others = client_of(token=tokens.create("others", ["read:other"]))
    assert others.get("/api/v1/views").json() == {"views": [], "silent": []}


@pytest.mark.parametrize("pattern", ["[!s]*", "?", "[*]"])
@pytest.mark.usefixtures("kept")
def test_a_scope_for_some_topics_asks_nothing_of_all(client_of: Ask, tokens: Tokens, pattern: str) -> None:
    client = client_of(token=tokens.create("some", [f"admin:{pattern}"]))
    answers = [
        client.post("/api/v1/sql", json={"sql": "SELECT * FROM log.spend"}),
        client.get("/api/v1/graphs"),
        client.get("/metrics"),
        client.get("/api/v1/alerts"),
        client.get("/api/v1/transactions/prepared"),
        client.put("/config", json={"compatibility": "NONE"}),
    ]
    assert {answer.status_code for answer in answers} == {403}


@pytest.mark.usefixtures("kept")
def test_a_condition_needs_no_more_than_its_view_and_gets_no_more(client_of: Ask, tokens: Tokens) -> None:
    client = client_of(token=tokens.create("reader", ["read:spend"]))
    for condition in ("false UNION ALL SELECT * FROM spend", "card IN (SELECT version FROM headwater.views)"):
        answer = client.post("/api/v1/views/spend/rows", json={"where": condition})
        assert (answer.status_code, answer.json()["error"]) == (400, "StatementInvalid")
    answer = client.post("/api/v1/views/spend/rows", json={"where": "card IN (SELECT max(card) FROM spend)"})
    assert [row["total"] for row in answer.json()["rows"]] == [4.0]


@pytest.mark.parametrize("name", ["rows", "get", "sql"])
def test_a_view_with_the_name_of_a_question_is_dropped_by_admins_alone(
    client_of: Ask, tokens: Tokens, name: str
) -> None:
    reader = client_of(token=tokens.create("reader", [f"read:{name}"]))
    assert reader.delete(f"/api/v1/views/{name}").status_code == 403
    admin = client_of(token=tokens.create("admin", ["admin:*"]))
    assert admin.delete(f"/api/v1/views/{name}").json()["error"] == "NotFound"


def test_values_of_every_type_can_be_asked_for(refused: TestClient) -> None:
    answer = refused.post("/api/v1/sql", json={"sql": "SELECT * FROM test_all_types()"})
    assert answer.status_code == 200
    row = answer.json()["rows"][1]
    assert (row["interval"], row["fixed_int_array"]) == ("P999M999DT999.999999S", [4, 5, 6])
    answer = refused.post(
        "/api/v1/sql", content='{"sql": "SELECT \'\\ud800\'"}', headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400


# -- views of several apps --------------------------------------------------------------------------------------------


def ask(client: TestClient, statement: str, **parameters: str) -> Any:
    answer = client.post("/api/v1/sql", json={"sql": statement}, params=parameters)
    return answer.json()["rows"] if answer.status_code == 200 else answer.json()["error"]


def test_views_of_two_apps_are_asked_alone_and_together(client: TestClient, kept: Log) -> None:
    kept.create("shops", "card int64, city string", key="card", compact=True)
    kept.append("shops", [{"card": 1, "city": "Rome"}])
    keep(kept, "places", cities="shops")
    assert ask(client, "SELECT sum(total) AS t FROM spend") == [{"t": 6.5}]
    assert ask(client, "SELECT city FROM cities") == [{"city": "Rome"}]
    assert ask(client, "SELECT total, city FROM spend JOIN cities USING (card)") == [{"total": 2.5, "city": "Rome"}]
    assert [one["app"] for one in client.get("/api/v1/views").json()["views"]] == ["places", "fraud"]


def test_a_name_that_two_apps_have_is_in_nobodys_way_and_can_be_told_apart(client: TestClient, kept: Log) -> None:
    kept.create("other", "card int64, total float64", key="card", compact=True)
    kept.append("other", [{"card": 1, "total": 9.0}])
    keep(kept, "another", spend="other", own="other")
    assert sorted((one["app"], one["name"]) for one in client.get("/api/v1/views").json()["views"]) == [
        ("another", "own"),
        ("another", "spend"),
        ("fraud", "spend"),
    ]
    assert ask(client, "SELECT count(*) AS n FROM log.spend") == [{"n": 2}]
    assert ask(client, "SELECT total FROM own") == [{"total": 9.0}]
    assert ask(client, "SELECT * FROM spend") == "NotPossible"
    assert ask(client, "SELECT sum(total) AS t FROM spend", app="another") == [{"t": 9.0}]
    assert ask(client, "SELECT sum(total) AS t FROM spend", app="fraud") == [{"t": 6.5}]
    refused = client.post("/api/v1/views/spend/rows", json={})
    assert (refused.status_code, "another, fraud" in refused.json()["detail"]) == (400, True)
    assert "?app=" in refused.json()["detail"]
    rows = client.post("/api/v1/views/spend/rows", json={}, params={"app": "another"})
    assert [row["total"] for row in rows.json()["rows"]] == [9.0]


def test_an_app_that_hangs_is_in_nobodys_way(client: TestClient, kept: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.apps.views.ASK_SECONDS_MAX", 0.05)
    kept.create("cities", "city string", key="city", compact=True)
    with running_elsewhere(kept, "hung") as hung:
        (kept.home / "apps" / "hung" / "queries" / "cities").mkdir(parents=True)
        hung.awake.clear()
        assert [one["app"] for one in client.get("/api/v1/views").json()["views"]] == ["fraud"]
        assert ask(client, "SELECT sum(total) AS t FROM spend") == [{"t": 6.5}]
        assert ask(client, "SELECT count(*) AS n FROM log.spend") == [{"n": 2}]
        assert ask(client, "SELECT count(*) AS n FROM log.cities") == [{"n": 0}]
        for statement in ("SELECT * FROM cities", "SELECT * FROM cities, spend"):
            assert ask(client, statement) == "AppSilent"
        for answer in (
            client.post("/api/v1/views/cities/rows", json={}),
            client.get("/api/v1/views/cities"),
            client.get("/api/v1/views", params={"app": "hung"}),
        ):
            assert (answer.status_code, answer.json()["facts"]) == (503, {"app": "hung"})


# -- what a statement may take ----------------------------------------------------------------------------------------


def exceeded(client: TestClient, path: str, body: dict[str, Any], **headers: str) -> str:
    answer = client.post(path, json=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (422, "StatementExceeded"), answer.text[:500]
    bound: str = answer.json()["facts"]["bound"]
    return bound


ENDLESS = "SELECT sum(a.range * b.range) AS n FROM range(3000000) a, range(3000000) b"


@pytest.mark.usefixtures("kept")
def test_a_statement_over_http_has_bounds(client_of: Ask) -> None:
    bounds = Settings(answer_rows_max=1_000, statement_seconds_max=120, statement_memory_max=32 * MIB)
    client = client_of(settings=bounds)
    path, arrow = "/api/v1/sql", {"Accept": ARROW}
    assert exceeded(client, path, {"sql": "SELECT * FROM range(10000000000)"}) == "1,000 rows"
    assert exceeded(client, path, {"sql": "SELECT * FROM range(10000000000)"}, **arrow) == "32 MiB"
    assert exceeded(client, path, {"sql": "SELECT list(range) FROM range(100000000)"}) == "32 MiB"
    assert len(client.post(path, json={"sql": "SELECT * FROM range(1000)"}).json()["rows"]) == 1_000


@pytest.mark.usefixtures("kept")
def test_a_statement_over_http_has_its_time(client_of: Ask) -> None:
    client = client_of(settings=Settings(statement_seconds_max=0.5))
    path = "/api/v1/sql"
    assert exceeded(client, path, {"sql": f"SELECT n FROM spend, ({ENDLESS})"}) == "0.5 seconds"
    assert (
        exceeded(
            client,
            path,
            {"sql": "SELECT count(*) FROM spend a, spend b, " + ", ".join(f"spend c{number}" for number in range(34))},
        )
        == "0.5 seconds"
    )  # where the views are


@pytest.mark.usefixtures("kept")
def test_a_small_answer_may_come_from_a_view_that_is_larger_than_an_answer(client_of: Ask) -> None:
    client = client_of(settings=Settings(answer_rows_max=1))
    for statement in (
        "SELECT sum(s.total) AS t FROM spend s JOIN log.spend l USING (card)",  # the view is brought
        "SELECT sum(total) AS t FROM view.spend",
        "SELECT sum(total) AS t FROM spend",  # the statement goes to the view
    ):
        assert ask(client, statement) == [{"t": 6.5}]
    assert exceeded(client, "/api/v1/sql", {"sql": "SELECT * FROM spend"}) == "1 rows"


@pytest.mark.usefixtures("kept")
def test_rows_of_a_view_over_http_have_bounds(client_of: Ask) -> None:
    client = client_of(settings=Settings(answer_rows_max=1))
    path = "/api/v1/views/spend/rows"
    assert exceeded(client, path, {}) == "1 rows"
    assert exceeded(client, path, {"limit": 2}) == "1 rows"
    assert len(client.post(path, json={"limit": 1}).json()["rows"]) == 1
    table = pa.ipc.open_stream(client.post(path, json={}, headers={"Accept": ARROW}).content).read_all()
    assert table.num_rows == 2
