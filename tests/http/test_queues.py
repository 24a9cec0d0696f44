"""Queues over HTTP, as a client in another language sees them."""

from __future__ import annotations

from starlette.testclient import TestClient

QUEUE = "/api/v1/queues/jobs"


def test_a_full_queue_says_when_to_try_again(client: TestClient) -> None:
    assert client.put(QUEUE, json={"length_max": 1}).json()["settings"]["length_max"] == 1
    assert client.post(f"{QUEUE}/put", json={"body": {"n": 1}}).json() == "0-0"
    answer = client.post(f"{QUEUE}/put", json={"body": {"n": 2}})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"] == "QueueFull"


def test_a_message_is_taken_and_acknowledged_once(client: TestClient) -> None:
    client.put(QUEUE)
    client.post(f"{QUEUE}/put-many", json={"messages": [{"body": 1}, {"body": 2, "delay": "1 hour"}]})
    [message] = client.post(f"{QUEUE}/take", json={"n": 10, "wait_seconds": 5, "lease": "1 minute"}).json()
    assert client.post(f"{QUEUE}/ack", json={"receipts": [message["receipt"]]}).status_code == 204
    again = client.post(f"{QUEUE}/ack", json={"receipts": [message["receipt"]]})
    assert (again.status_code, again.json()["error"]) == (409, "LeaseLost")
    assert client.post(f"{QUEUE}/ack", json={"receipts": []}).status_code == 400
    [group] = client.get(f"{QUEUE}/groups").json()
    assert (group["stats"]["acknowledged"], group["stats"]["scheduled"]) == (1, 1)
