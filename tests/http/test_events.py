"""CloudEvents from other systems, in each of HTTP's three forms, to each kind of topic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

import headwater as hw
from headwater.log import Log
from headwater.schema import cloudevents
from tests.sourcing.account import DECIDER, Deposit, Open
from tests.sourcing.customer import CUSTOMER, Register

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


def test_the_history_of_an_entity_goes_out_as_cloudevents_that_come_in_as_they_were(
    client: TestClient, log: Log
) -> None:
    with hw.Entities(log, "account", DECIDER) as accounts:
        accounts.send("acc/1", Open("Ada"), by="clerk", why="new", correlation="day-1", causation="call-7")
        accounts.send("acc/1", Deposit(2**60), command_id="c-1")
        opened, deposited = accounts.history("acc/1")
    answer = client.get("/api/v1/entities/account/cloudevents", params={"id": "acc/1"})
    assert answer.headers["content-type"] == cloudevents.CONTENT_TYPE_BATCH
    events = cloudevents.from_structured_batch(answer.content)
    assert events[0] == {
        "specversion": "1.0",
        "id": "acc/1/1",
        "source": "/entities/account",
        "type": "Opened",
        "subject": "acc/1",
        "time": opened.at.isoformat().replace("+00:00", "Z"),
        "partitionkey": "acc/1",
        "entityversion": 1,
        "schemaversion": 1,
        "correlationid": "day-1",
        "causationid": "call-7",
        "by": "clerk",
        "why": "new",
        "datacontenttype": "application/json",
        "data": {"owner": "Ada"},
    }
    assert (events[1]["commandid"], events[1]["data"]) == ("c-1", {"amount": 2**60})
    log.create("t", cloudevents.CLOUDEVENT_SCHEMA)
    assert post(client, answer.content, cloudevents.CONTENT_TYPE_BATCH).status_code == 200
    # Extensions of a row are text.
    texts = [{name: str(value) if isinstance(value, int) else value for name, value in one.items()} for one in events]
    assert [cloudevents.from_row(row) for row in log.read("t").rows()] == texts
    after = client.get("/api/v1/entities/account/cloudevents", params={"id": "acc/1", "after": 1, "source": "urn:bank"})
    [second] = cloudevents.from_structured_batch(after.content)
    assert (second["source"], second["time"]) == ("urn:bank", deposited.at.isoformat().replace("+00:00", "Z"))


def test_personal_values_of_an_event_do_not_go_out(client: TestClient, log: Log) -> None:
    with hw.Entities(log, "customer", CUSTOMER) as customers:
        customers.send("c-1", Register("Ada"))
    [event] = client.get("/api/v1/entities/customer/cloudevents", params={"id": "c-1"}).json()
    assert event["data"] == {"name": "[encrypted]"}
