"""Topics and rows over plain HTTP, as with curl."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from headwater.http import Settings
from headwater.log import Log
from headwater.log.remote.wire import ARROW, bytes_to_batches, table_to_bytes
from tests.http.conftest import Ask

LARGE = 73314510714175488
LINES = {"Content-Type": "application/x-ndjson"}


def make(client: TestClient, name: str = "orders", **more: Any) -> None:
    answer = client.post("/api/v1/topics", json={"name": name, "schema": "id int64, user string", **more})
    assert answer.status_code == 201, answer.text


def rows(client: TestClient, topic: str = "orders", **parameters: Any) -> list[Any]:
    answer = client.get(f"/api/v1/topics/{topic}/rows", params=parameters)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_topic_is_made_changed_described_and_deleted(client: TestClient) -> None:
    make(client, partitions=2, key="user", retention="7 days")
    assert client.get("/api/v1/topics/orders").json()["retention"]["seconds_max"] == 604_800
    changed = client.patch("/api/v1/topics/orders", json={"schema": "id int64, user string, note string"})
    assert changed.json()["topic"]["schema_version"] == 2
    assert [one["name"] for one in client.get("/api/v1/topics/orders/schemas/1").json()["columns"]] == ["id", "user"]
    assert client.get("/api/v1/topics/orders/describe").json()["rows"] == 0
    assert client.delete("/api/v1/topics/orders").status_code == 204
    assert client.get("/api/v1/topics/orders").status_code == 404


@pytest.mark.parametrize("pages", [[["t0", "t1"], ["t2", "t3"]], [["t0", "t1"], ["t2", "t3"], ["t4"]]])
def test_topics_are_listed_a_page_at_a_time(client: TestClient, pages: list[list[str]]) -> None:
    for name in chain(*pages):
        make(client, name)
    seen: list[list[str]] = []
    after: str | None = ""
    while after is not None:
        page = client.get("/api/v1/topics", params={"limit": 2, "after": after}).json()
        seen.append(page["topics"])
        after = page["next"]
    assert seen == pages


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"id": 1, "user": "ada"}\n{"id": 2, "user": null}\n', "application/x-ndjson"),
        (b'[{"id": 1, "user": "ada"}, {"id": 2}]', "application/json"),
        (table_to_bytes(pa.table({"id": [1, 2], "user": ["ada", None]})), ARROW),
    ],
    ids=["lines", "array", "arrow"],
)
def test_rows_go_in_as_lines_as_an_array_and_as_arrow(client: TestClient, body: bytes, kind: str) -> None:
    make(client)
    answer = client.post("/api/v1/topics/orders/rows", content=body, headers={"Content-Type": kind})
    assert answer.json() == {"topic": "orders", "ranges": {"0": [0, 2]}, "count": 2, "duplicate": False}
    assert [(row["id"], row["user"]) for row in rows(client)] == [(1, "ada"), (2, None)]


def test_large_integers_keep_their_digits_in_every_form(client: TestClient) -> None:
    make(client)
    client.post("/api/v1/topics/orders/rows", content=b'{"id": %d}' % LARGE, headers=LINES)
    client.post(
        "/api/v1/topics/orders/rows", content=b'[{"id": %d}]' % LARGE, headers={"Content-Type": "application/json"}
    )
    assert [row["id"] for row in rows(client)] == [LARGE, LARGE]
    assert [row["id"] for row in rows(client, integers="text")] == [str(LARGE), str(LARGE)]
    array = client.get("/api/v1/topics/orders/rows", headers={"Accept": "application/json"})
    assert f'"id":{LARGE}'.encode() in array.content
    arrow = client.get("/api/v1/topics/orders/rows", headers={"Accept": ARROW})
    assert [row["id"] for one in bytes_to_batches(arrow.content, topic="orders") for row in one.rows()] == [LARGE] * 2


def test_reading_goes_on_where_the_last_answer_ended(client: TestClient, log: Log) -> None:
    make(client, partitions=3, key="user")
    log.append("orders", [{"id": number, "user": f"u{number}"} for number in range(50)])
    seen, place = [], "earliest"
    while True:
        answer = client.get("/api/v1/topics/orders/rows", params={"start": place, "limit": 7})
        seen += [json.loads(line)["id"] for line in answer.text.splitlines()]
        place = answer.headers["headwater-next"]
        if answer.headers["headwater-more"] == "false":
            break
    assert sorted(seen) == list(range(50))


def test_a_reader_may_wait_for_rows(client: TestClient, log: Log) -> None:
    make(client)
    log.append("orders", [{"id": 1}])
    assert rows(client, start="latest", wait_seconds=0.01) == []
    assert [row["id"] for row in rows(client, start="0:0", wait_seconds=30)] == [1]


def test_a_batch_sent_again_is_not_doubled(client: TestClient, log: Log) -> None:
    make(client)
    send = {"params": {"producer": "loader", "sequence": 3}, "content": b'{"id": 1}', "headers": LINES}
    first, again = (client.post("/api/v1/topics/orders/rows", **send).json() for _ in range(2))  # type: ignore[arg-type]
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert log.read("orders").count() == 1


@pytest.fixture(scope="module")
def refused(shared_client_of: Ask) -> TestClient:
    """A client for requests that are refused and change nothing."""
    client = shared_client_of()
    make(client)
    return client


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        ("GET", "/api/v1/topics/nope", None, 404, "NotFound"),
        ("GET", "/api/v1/topics/..%2Fx", None, 404, "NotFound"),
        ("POST", "/api/v1/topics", {"name": "orders"}, 409, "TopicExists"),
        ("POST", "/api/v1/topics", {"name": "../x"}, 400, "NameInvalid"),
        ("POST", "/api/v1/topics", {"name": "x", "colour": "red"}, 400, "ArgumentInvalid"),
        ("GET", "/api/v1/topics/orders/rows?start=11", None, 416, "OffsetAhead"),
        ("GET", "/api/v1/topics/orders/rows?start=soon", None, 400, "ArgumentInvalid"),
        ("GET", "/api/v1/topics/orders/rows?column=nope", None, 400, "ColumnUnknown"),
        ("GET", "/api/v1/topics/orders/rows?partition=9", None, 404, "NotFound"),
        ("GET", "/nowhere", None, 404, "NotFound"),
        ("PUT", "/api/v1/topics", None, 405, "ArgumentInvalid"),
        ("POST", "/api/v1/topics/orders/rows", {"id": "many"}, 400, "RowInvalid"),
        ("POST", "/api/v1/topics/orders/rows?expected_offset=7", {"id": 1}, 409, "OffsetConflict"),
    ],
)
def test_what_fails_says_why_as_problem_details(
    refused: TestClient, method: str, path: str, body: Any, status: int, error: str
) -> None:
    answer = refused.request(method, path, json=body)
    told = answer.json()
    assert (answer.status_code, told["error"]) == (status, error)
    assert answer.headers["content-type"] == "application/problem+json"
    assert told["status"] == status
    assert told["detail"]


def test_the_type_of_a_problem_can_be_looked_up(client: TestClient) -> None:
    told = client.get("/api/v1/topics/nope").json()
    assert "{name" in client.get(told["type"]).json()["problem"]
    assert client.get("/api/v1/problems/dataclass").status_code == 404


def test_bytes_that_are_no_rows_are_refused(client: TestClient) -> None:
    make(client)
    for kind, body in (
        (ARROW, b"\xff" * 64),
        ("application/json", b"[{}, }"),
        ("application/json", b"\xff"),
        ("application/x-ndjson", b"{"),
    ):
        answer = client.post("/api/v1/topics/orders/rows", content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["error"]) == (400, "EncodingInvalid")
    answer = client.post("/api/v1/topics/orders/rows", content=b"x", headers={"Content-Type": "text/html"})
    assert (answer.status_code, answer.json()["error"]) == (415, "MediaTypeUnknown")
    assert rows(client) == []


def test_rows_of_a_transaction_appear_together(client: TestClient, log: Log) -> None:
    make(client, "a")
    make(client, "b")
    begun = client.post("/api/v1/transactions", json={}).json()["id"]
    for topic in ("a", "b"):
        added = client.post(f"/api/v1/transactions/{begun}/rows/{topic}", content=b'{"id": 1}', headers=LINES)
        assert added.status_code == 204
    assert log.read("a").count() == 0
    first, again = (client.post(f"/api/v1/transactions/{begun}/commit").json() for _ in range(2))
    assert first == again
    assert (log.read("a").count(), log.read("b").count()) == (1, 1)
    assert client.delete(f"/api/v1/transactions/{begun}").status_code == 409


def test_only_open_transactions_count_towards_the_most_that_the_server_holds(client_of: Ask, log: Log) -> None:
    client = client_of(settings=Settings(transactions_max=2))
    make(client)
    for number in range(5):
        begun = client.post("/api/v1/transactions", json={}).json()["id"]
        client.post(f"/api/v1/transactions/{begun}/rows/orders", content=b'{"id": 1}', headers=LINES)
        if number % 2:
            client.delete(f"/api/v1/transactions/{begun}")
        else:
            assert client.post(f"/api/v1/transactions/{begun}/commit").status_code == 200
    assert log.read("orders").count() == 3
    assert [client.post("/api/v1/transactions", json={}).status_code for _ in range(3)] == [201, 201, 429]
    assert "transactions_max" in client.post("/api/v1/transactions", json={}).json()["detail"]


def test_dead_letters_are_put_back_once(client: TestClient, log: Log) -> None:
    from headwater.log.dead_letters import DeadLetter, append_dead_letters

    make(client)
    letter = DeadLetter(topic="orders", partition=0, offset=0, row='{"id": 7}', error="Odd", message="m", at_us=0)
    append_dead_letters(log, "orders", [letter])
    assert client.get("/api/v1/dead-letters").json() == ["orders.dlq"]
    assert client.get("/api/v1/dead-letters/orders/reasons").json()[0]["open"] == 1
    assert client.get("/api/v1/dead-letters/orders").json()["dead_letters"][0]["letter"]["row"] == '{"id": 7}'
    assert client.post("/api/v1/dead-letters/orders/redrive", json={"dry_run": True}).json()["outcome"]["redriven"] == {
        "Odd": 1
    }
    assert rows(client) == []
    done = [client.post("/api/v1/dead-letters/orders/redrive", json={}).json()["outcome"]["redriven"] for _ in range(2)]
    assert done == [{"Odd": 1}, {}]
    assert [row["id"] for row in rows(client)] == [7]


def test_the_server_says_that_it_lives_and_how_it_does(client: TestClient, log: Log) -> None:
    make(client)
    log.commit_offsets("billing", "orders", {0: 0})
    assert client.get("/livez").text == client.get("/readyz").text == "ok\n"
    assert 'headwater_topic_end_offset{topic="orders",partition="0"} 0' in client.get("/metrics").text
    assert "kafka_" not in client.get("/metrics").text


def test_lag_is_told_under_kafkas_names_where_that_is_asked_for(client_of: Any, log: Log) -> None:
    log.create("orders", "id int64")
    log.append("orders", [{"id": 1}])
    log.commit_offsets("billing", "orders", {0: 0})
    text = client_of(settings=Settings(kafka_names=True)).get("/metrics").text
    assert 'kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="0"} 1' in text
    assert 'kafka_topic_partitions{topic="orders"} 1' in text
