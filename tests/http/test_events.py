"""CloudEvents from other systems, in each of HTTP's three forms, to each kind of topic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from headwater.log import Log
from headwater.schema import cloudevents

EVENT = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.paid", "partitionkey": "ada"}
DATA = {"id": 73314510714175488, "user": "ada"}


def post(client: TestClient, body: Any, kind: str, **headers: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post("/api/v1/topics/t/rows", content=content, headers={"Content-Type": kind, **headers})


@pytest.mark.parametrize("form", ["structured", "batch", "binary"])
def test_an_events_data_becomes_a_row_and_its_attributes_headers(client: TestClient, log: Log, form: str) -> None:
    log.create("t", "id int64, user string")
    if form == "structured":
        answer = post(client, {**EVENT, "data": DATA}, cloudevents.CONTENT_TYPE)
    elif form == "batch":
        answer = post(client, [{**EVENT, "data": DATA}], cloudevents.CONTENT_TYPE_BATCH)
    else:
        answer = post(client, DATA, "application/json", **{f"ce-{name}": value for name, value in EVENT.items()})
    assert answer.status_code == 200, answer.text
    [row] = log.read("t").rows()
    assert (row["id"], row["user"]) == (DATA["id"], "ada")
    assert row["_headers"]["ce_id"] == b"7"
    assert row["_headers"]["ce_type"] == b"order.paid"


def test_a_topic_without_a_schema_keeps_the_data_under_its_key(client: TestClient, log: Log) -> None:
    log.create("t")
    assert post(client, {**EVENT, "data": DATA}, cloudevents.CONTENT_TYPE).status_code == 200
    [row] = log.read("t").rows()
    assert (row["key"], json.loads(row["value"])) == (b"ada", DATA)


def test_a_topic_of_events_keeps_them_whole(client: TestClient, log: Log) -> None:
    log.create("t", cloudevents.CLOUDEVENT_SCHEMA)
    event = {**EVENT, "data": DATA}
    assert post(client, [event, {**event, "id": "8"}], cloudevents.CONTENT_TYPE_BATCH).status_code == 200
    assert [cloudevents.from_row(row)["id"] for row in log.read("t").rows()] == ["7", "8"]


@pytest.mark.parametrize("body", [{"id": "7"}, {**EVENT, "data": 5}, b"{", []])
def test_what_is_no_event_is_refused(client: TestClient, log: Log, body: Any) -> None:
    log.create("t", "id int64")
    answer = post(client, body, cloudevents.CONTENT_TYPE)
    assert (answer.status_code, answer.json()["error"]) == (400, "EncodingInvalid")
    assert log.end_offsets("t") == {0: 0}
