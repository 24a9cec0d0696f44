"""Alerts through the server: rules, states, history, a test, who may do what; and a watcher that runs with the server."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.testclient import TestClient

from headwater.alerts import Rule, Watcher
from headwater.apps import App
from headwater.apps.runner import Runner
from headwater.http import Tokens
from headwater.http.server import served_app
from headwater.log import Log
from headwater.log import open as open_log
from tests.conditions import until
from tests.http.conftest import Ask
from tests.servers import Receiver, http_receiver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RULES = "/api/v1/alerts/rules"


def with_orders(log: Log) -> Log:
    log.create("orders", "id int64, user string")
    log.append("orders", [{"id": number, "user": "ada"} for number in range(5)])
    log.commit_offsets("billing", "orders", {0: 0})
    return log


@pytest.fixture
def orders(log: Log) -> Log:
    return with_orders(log)


@pytest.fixture(scope="module")
def refused(shared_log: Log, shared_client_of: Ask) -> TestClient:
    """A client for rules that are refused and change nothing."""
    with_orders(shared_log)
    return shared_client_of()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as started:
        yield started


def test_a_rule_is_put_evaluated_changed_and_removed(orders: Log, client: TestClient) -> None:
    answer = client.put(f"{RULES}/slow", json={"kind": "lag", "group": "billing", "threshold": 2})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["state"], answer.json()["rule"]["severity"]) == ("ok", "warning")
    Watcher(orders).look()
    [listed] = client.get("/api/v1/alerts").json()["rules"]
    assert (listed["name"], listed["state"]) == ("slow", "firing")
    assert listed["subjects"][0]["message"] == "Group 'billing' is 5 rows behind in topic 'orders', more than 2 rows"
    assert client.post(f"{RULES}/slow/snooze", json={"until_us": 2**60}).json()["is_snoozed"]
    assert not client.post(f"{RULES}/slow/snooze", json={"until_us": None}).json()["is_snoozed"]
    assert client.post(f"{RULES}/slow/pause").json()["state"] == "paused"
    assert client.post(f"{RULES}/slow/resume").json()["state"] == "firing"
    [change] = client.get("/api/v1/alerts/history").json()
    assert (change["rule"], change["state"], change["value"], change["deliveries"]) == ("slow", "firing", 5.0, [])
    scraped = client.get("/metrics").text
    assert 'headwater_alert_firing{rule="slow",severity="warning"} 1' in scraped
    assert 'headwater_alert_unknown{rule="slow"} 0' in scraped
    assert client.delete(f"{RULES}/slow").status_code == 204
    assert client.get(f"{RULES}/slow").json()["error"] == "NotFound"
    assert client.get("/api/v1/alerts").json()["rules"] == []


@pytest.mark.parametrize(
    ("body", "error", "status"),
    [
        ({"kind": "lag", "group": "biling"}, "NotFound", 404),
        ({"kind": "query_down", "query": "spend"}, "NotFound", 404),
        ({"kind": "dead_letters", "topic": "order"}, "NotFound", 404),
        ({"kind": "view", "sql": "SELEC 1"}, "StatementInvalid", 400),
        ({"kind": "view", "sql": "SELECT * FROM spend"}, "StatementInvalid", 400),
        ({"kind": "view", "sql": "SELECT wrong FROM orders"}, "StatementInvalid", 400),
        ({"kind": "view", "sql": "DROP TABLE orders"}, "StatementInvalid", 400),
        ({"kind": "view", "sql": "SELECT * FROM '/etc/passwd'"}, "StatementInvalid", 400),
        ({"kind": "view", "sql": "SELECT id FROM orders", "key": ["user"]}, "ArgumentInvalid", 400),
        ({"kind": "lag"}, "ArgumentInvalid", 400),
        ({"kind": "lag", "group": "billing", "webhooks": ["mailto:ada"]}, "ArgumentInvalid", 400),
        ({"kind": "lag", "group": "billing", "treshold": 2}, "ArgumentInvalid", 400),
    ],
)
def test_a_bad_rule_gets_one_clear_error(
    shared_log: Log, refused: TestClient, body: dict[str, Any], error: str, status: int
) -> None:
    answer = refused.put(f"{RULES}/wrong", json=body)
    assert (answer.status_code, answer.json()["error"]) == (status, error), answer.text
    assert refused.get("/api/v1/alerts").json()["rules"] == []
    assert not shared_log.topics("__alerts", internal=True)


def test_a_statement_over_a_topic_fires_for_its_rows(orders: Log, client: TestClient) -> None:
    sql = 'SELECT "user", count(*) AS value FROM orders GROUP BY ALL HAVING count(*) > 3; -- too many'
    body = {"kind": "view", "sql": sql.replace("; -- too many", ";"), "key": ["user"]}
    assert client.put(f"{RULES}/busy", json=body).status_code == 200
    Watcher(orders).look()
    [listed] = client.get("/api/v1/alerts").json()["rules"]
    assert [(one["subject"], one["value"]) for one in listed["subjects"]] == [("user=ada", 5.0)]


def test_dead_letters_of_the_last_minute_are_counted(orders: Log, client: TestClient) -> None:
    from headwater.log.dead_letters import DeadLetter, append_dead_letters

    assert client.put(f"{RULES}/bad", json={"kind": "dead_letters", "topic": "orders", "threshold": 1}).is_success
    letter = DeadLetter(topic="orders", partition=0, offset=1, error="RowInvalid", message="…", at_us=0)
    append_dead_letters(orders, "orders", [letter, letter])
    [change] = Watcher(orders).look()
    assert change.message == "Topic 'orders' had 2 dead letters in the last minute, more than 1 dead letter"


@pytest.mark.usefixtures("orders")
def test_only_admins_change_rules_and_see_where_webhooks_go(tokens: Tokens, client_of: Ask) -> None:
    reader = client_of(token=tokens.create("reader", ["read:*"]))
    admin = client_of(token=tokens.create("admin", ["admin:*"]))
    other = client_of(token=tokens.create("other", ["read:cards"]))
    body = {"kind": "lag", "group": "billing", "webhooks": ["https://hooks.example.org/s3cret"]}
    assert reader.put(f"{RULES}/slow", json=body).status_code == 403
    assert admin.put(f"{RULES}/slow", json=body).json()["rule"]["webhooks"] == body["webhooks"]
    assert reader.get(f"{RULES}/slow").json()["rule"]["webhooks"] == ["https://hooks.example.org/…"]
    for path in ("/api/v1/alerts", "/api/v1/alerts/history", "/api/v1/alerts/changes", f"{RULES}/slow"):
        assert other.get(path).status_code == 403
    for path in ("test", "pause", "resume"):
        assert reader.post(f"{RULES}/slow/{path}").status_code == 403
    assert reader.delete(f"{RULES}/slow").status_code == 403


def test_a_server_that_watches_tells_and_browsers_wait_for_it(orders: Log, client_of: Ask, receiver: Receiver) -> None:
    watcher = Watcher(orders, look_seconds=0.05)
    client = client_of(watcher=watcher)
    until(lambda: client.get("/api/v1/alerts").json()["watching"])
    place = client.get("/api/v1/alerts/changes").json()["next"]
    body = {"kind": "lag", "group": "billing", "threshold": 2, "webhooks": [receiver.url]}
    assert client.put(f"{RULES}/slow", json=body).status_code == 200
    heard = client.get("/api/v1/alerts/changes", params={"after": place, "wait_seconds": 60}).json()
    assert [(one["rule"], one["state"]) for one in heard["changes"]] == [("slow", "firing")]
    until(lambda: len(receiver.requests) == 1)
    orders.commit_offsets("billing", "orders", {0: 5})
    heard = client.get("/api/v1/alerts/changes", params={"after": heard["next"], "wait_seconds": 60}).json()
    assert [one["state"] for one in heard["changes"]] == ["resolved"]
    until(lambda: len(receiver.requests) == 2)

    def states() -> list[str]:
        changes = client.get("/api/v1/alerts/history").json()
        return [one["state"] for change in changes for one in change["deliveries"]]

    assert until(lambda: states() if "waiting" not in states() else None) == ["sent", "sent"]
    [tried] = client.post(f"{RULES}/slow/test").json()
    assert (tried["target"], tried["state"]) == (receiver.url, "sent")
    assert len(receiver.requests) == 3


def test_one_watcher_looks_and_the_other_takes_over(orders: Log) -> None:
    first, second = Watcher(orders, look_seconds=0.02), Watcher(orders, look_seconds=0.02)
    first.put(Rule(name="slow", kind="lag", group="billing"))
    with contextlib.ExitStack() as stack:
        with first.running():
            until(lambda: first.is_watching and first.looked_us)
            stack.enter_context(second.running())
            until(lambda: second.states()[0].state == "firing")
            assert not second.is_watching
        until(lambda: second.is_watching and second.looked_us)
    assert [change.state for change in second.history()] == ["firing"]
    assert not first.is_watching
    assert os.path.exists(orders.home / "server" / "alerts.lock")


def test_a_running_app_watches_its_own_queries_and_a_server_sees_that_nobody_runs_them(tmp_path: Path) -> None:
    app = App("fraud", log=str(tmp_path / "log"))
    app.input("payments", "card int64, amount float64")

    @app.topic(name="large")
    def large(payments: DataFrame) -> DataFrame:
        return payments.where("amount > 100")

    with Runner(app, served=served_app).ready() as runner:
        headers = {"Authorization": f"Bearer {runner.announced.token}"}
        with httpx.Client(base_url=runner.announced.address, headers=headers) as client:
            until(lambda: client.get("/api/v1/alerts").json()["watching"])
            wrong = client.put(f"{RULES}/down", json={"kind": "query_down", "query": "larg"}).json()
            assert wrong["detail"].startswith("There is no query 'larg'. Did you mean 'large'?")
            made = client.put(f"{RULES}/down", json={"kind": "query_down", "query": "large"})
            assert made.json()["state"] == "ok", made.text
            until(lambda: client.get(f"{RULES}/down").json()["subjects"])
            [subject] = client.get(f"{RULES}/down").json()["subjects"]
            assert (subject["subject"], subject["message"]) == ("large", "Query 'large' is waiting")
    with open_log(tmp_path / "log") as log:
        watcher = Watcher(log)
        assert [(change.subject, change.state) for change in watcher.look()] == [("large", "firing")]
        assert watcher.history(limit=1)[0].message == "Query 'large' is stopped"


@pytest.mark.process
def test_a_rule_over_a_view_works_wherever_the_view_is_kept(tmp_path: Path) -> None:
    app = App("fraud", log=str(tmp_path / "log"))
    app.input("payments", "card int64, amount float64")

    @app.view(key="card")
    def spend(payments: DataFrame) -> DataFrame:
        return payments

    sql = "SELECT card, total AS value FROM spend WHERE total > 500 -- too much"
    rule = Rule(name="rich", kind="view", sql=sql, key=("card",))

    def found(watcher: Watcher) -> list[tuple[str, float]]:
        watcher.look()
        return [(one.subject, one.value) for one in watcher.state("rich").subjects]

    with open_log(tmp_path / "log") as log:
        log.create("spend", "card int64 not null, total float64", key="card", compact=True)
        log.append("spend", [{"card": 7, "total": 900.0}, {"card": 8, "total": 100.0}])
        with Runner(app, served=served_app).ready() as runner:
            headers = {"Authorization": f"Bearer {runner.announced.token}"}
            with httpx.Client(base_url=runner.announced.address, headers=headers) as client:
                until(lambda: "rich" not in [one["name"] for one in client.get("/api/v1/alerts").json()["rules"]])
                body = {name: value for name, value in rule.as_dict().items() if name != "name"}
                assert client.put(f"{RULES}/rich", json=body).status_code == 200
                until(lambda: client.get(f"{RULES}/rich").json()["state"] == "firing")  # by the app's own process
                elsewhere = Watcher(log)
                assert found(elsewhere) == [("card=7", 900.0)]  # asked of the app that runs
        assert found(Watcher(log)) == [("card=7", 900.0)]  # read from what it left
        shutil.rmtree(log.home / "apps")
        log.delete("spend")
        watcher = Watcher(log)
        [change] = watcher.look()
        assert (change.state, "there is no topic or view 'spend'" in change.message) == ("unknown", True)
        assert watcher.state("rich").state == "firing"
        assert [one.state for one in watcher.history()] == ["unknown", "firing"]
