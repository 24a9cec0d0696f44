"""Queues over HTTP, as a client in another language sees them."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import orjson
from starlette.testclient import TestClient

from headwater.http import Address, served
from headwater.log import Log
from tests.conditions import until

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


def post(address: str, path: str, body: object) -> socket.socket:
    """A request whose answer is not read."""
    parts, content = urlsplit(address), orjson.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    client = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30)
    client.sendall(head.encode() + content)
    return client


def test_a_client_that_vanishes_while_its_take_waits_gets_no_message(log: Log) -> None:
    with served(log, Address(port=0)) as address, log.queue("jobs") as queue:
        with post(address, f"{QUEUE}/take", {"wait_seconds": 60}):
            until(lambda: [one.remote for one in queue.consumers()] == [True])
        with post(address, f"{QUEUE}/request", {"body": 1, "wait_seconds": 60}):
            until(lambda: queue.stats().waiting == 1)
        until(lambda: [name for name in log.topics() if ".reply-" in name] == [])
        queue.put(2)
        assert [message.body for message in queue.take(2)] == [1, 2]
