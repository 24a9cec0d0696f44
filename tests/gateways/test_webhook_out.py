"""Webhooks out: each row reaches each endpoint at least once under one id, or is a dead letter; no endpoint holds another back."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, none, sampled_from

import headwater
from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, NotFound
from headwater.faults import WEBHOOK_CRASH_POINTS
from headwater.gateways import GatewayRunner, WebhookIn, WebhookOut
from headwater.gateways.delivery_plan import Circuit, Delivery, Pending
from headwater.gateways.kinds import gateway_from_text
from headwater.gateways.outlet import Outgoing
from headwater.gateways.signatures import verified_id
from headwater.gateways.webhook_out import WebhookOutSession
from headwater.http.bodies import rows_of_events
from headwater.log import Log
from headwater.schema import cloudevents
from headwater.testing import CrashAt, run_until_killed
from tests.conditions import until
from tests.servers import free_port
from tests.sourcing.account import DECIDER, Deposit, Open

HOOK = "http://hook.test/in"
Reply = Callable[[httpx.Request], httpx.Response]


class Receiver:
    """Answers requests as a test says, and keeps them."""

    def __init__(self, *statuses: int, headers: dict[str, str] | None = None) -> None:
        self.requests: list[httpx.Request] = []
        self._statuses = itertools.chain(statuses, itertools.repeat(200))
        self._headers = headers or {}
        self._lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self.requests.append(request)
            status = next(self._statuses)
        if status == 0:
            raise httpx.ConnectError("no answer")
        return httpx.Response(status, headers=self._headers if status != 200 else {})

    @property
    def ids(self) -> list[str]:
        return [request.headers["webhook-id"] for request in self.requests]

    @property
    def data(self) -> list[Any]:
        return [orjson.loads(request.content)["data"]["id"] for request in self.requests]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with headwater.open(tmp_path / "log", clock=ManualClock()) as log:
        log.create("orders", {"id": "int64 not null", "customer": "string"})
        yield log


def advance(log: Log, seconds: float) -> None:
    assert isinstance(log.clock, ManualClock)
    log.clock.advance(seconds=seconds)


def opened(log: Log, reply: Reply, **settings: Any) -> WebhookOutSession:
    gateway = WebhookOut(**{"topic": "orders", "endpoints": (HOOK,), "secret": "s3cret", **settings})
    gateway.create_topics(log)
    return WebhookOutSession(log, gateway, transport=httpx.MockTransport(reply))


def drain(session: WebhookOutSession) -> None:
    """Do all that is due now."""
    for endpoint in session.endpoints:
        while True:
            endpoint.step(seconds=0)
            if not endpoint._flying and not endpoint._pending.ready(
                now_us=endpoint._log.clock.now_us(), circuit=endpoint._circuit, concurrency=1
            ):
                break
            endpoint.drain()


def put(log: Log, *ids: int, customer: str | None = None) -> None:
    log.append("orders", [{"id": id, "customer": customer} for id in ids])


def attempts(log: Log) -> list[tuple[int, int | None, str]]:
    return [(row["attempt"], row["status"], row["outcome"]) for row in log.read("orders.attempts").rows()]


def test_a_row_is_a_signed_request_and_its_attempt_is_logged(log: Log) -> None:
    receiver = Receiver()
    session = opened(log, receiver)
    put(log, 1)
    drain(session)
    [request] = receiver.requests
    id = verified_id(
        "standard",
        request.headers,
        request.content,
        secrets=["s3cret"],
        now=log.clock.now_us() / 1e6,
        replay_window_seconds=1,
    )
    body = orjson.loads(request.content)
    assert body["id"] == id == request.headers["idempotency-key"]
    assert (body["type"], body["data"]) == ("orders", {"id": 1, "customer": None})
    [row] = log.read("orders.attempts").rows()
    assert (row["id"], row["endpoint"], row["attempt"], row["status"], row["outcome"]) == (
        id,
        HOOK,
        1,
        200,
        "delivered",
    )
    assert (session.counters.received, session.counters.appended) == (1, 1)
    session.close()


def test_a_failure_is_repeated_with_growing_pauses_under_the_same_id(log: Log) -> None:
    receiver = Receiver(500, 0, 429)
    session = opened(log, receiver, retry_first=10, circuit_failures=100)
    put(log, 1)
    drain(session)
    for pause in (10, 20, 40):
        tried = len(receiver.requests)
        advance(log, pause - 1)
        drain(session)
        assert len(receiver.requests) == tried
        advance(log, 1)
        drain(session)
        assert len(receiver.requests) == tried + 1
    assert len(set(receiver.ids)) == 1
    assert attempts(log) == [(1, 500, "retry"), (2, None, "retry"), (3, 429, "retry"), (4, 200, "delivered")]
    session.close()


def test_after_the_deadline_or_a_refusal_a_row_is_a_dead_letter_and_the_others_go_on(log: Log) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        id = orjson.loads(request.content)["data"]["id"]
        return httpx.Response({1: 503, 2: 422}.get(id, 200), text="no such article" if id == 2 else "")

    session = opened(log, reply, retry_first=10, deadline=25, circuit_failures=100)
    put(log, 1, 2, 3)
    drain(session)
    assert session.counters.appended == 1
    for _ in range(3):
        advance(log, 10)
        drain(session)
    found = log.read("orders.dlq").rows()
    assert [(row["offset"], row["attempt"], row["error"]) for row in found] == [
        (1, 1, "DeliveryFailed"),
        (0, 2, "DeliveryFailed"),
    ]
    assert "422 Unprocessable" in found[0]["message"]
    assert "no such article" in found[0]["message"]
    assert orjson.loads(found[1]["row"]) == {"id": 1, "customer": None}
    assert log.committed(session._gateway.group(HOOK), "orders") == {0: 3}
    session.close()


def test_a_receiver_that_asks_to_wait_is_left_alone_for_so_long(log: Log) -> None:
    receiver = Receiver(429, headers={"Retry-After": "120"})
    session = opened(log, receiver, retry_first=1)
    put(log, 1)
    drain(session)
    put(log, 2)
    advance(log, 119)
    drain(session)
    assert receiver.data == [1]
    advance(log, 1)
    drain(session)
    assert sorted(receiver.data[1:]) == [1, 2]
    session.close()


def test_an_endpoint_that_is_down_holds_no_other_back_and_is_tried_with_one_message(log: Log) -> None:
    down, up = Receiver(*[0] * 5), Receiver()
    hooks = {"down.test": down, "up.test": up}
    session = opened(
        log,
        lambda request: hooks[request.url.host](request),
        endpoints=("http://down.test/", "http://up.test/"),
        concurrency=1,
        circuit_failures=3,
        circuit_pause=30,
        retry_first=1,
    )
    put(log, *range(10))
    drain(session)
    assert len(up.requests) == 10
    assert len(down.requests) == 3
    first, second = session.endpoints
    assert (first.circuit, second.circuit) == ("open", "closed")
    for pause, circuit in ((30, "open"), (60, "open"), (120, "closed")):
        advance(log, pause)
        assert first.circuit == "half-open"
        drain(session)
        assert first.circuit == circuit
    assert len(down.requests) >= 15
    assert sorted(set(down.data)) == list(range(10))
    assert log.read("orders.dlq").count() == 0
    session.close()


def test_rows_of_one_key_are_in_order_and_others_do_not_wait(log: Log) -> None:
    receiver = Receiver(500)
    session = opened(log, receiver, key="customer", concurrency=4, circuit_failures=100, retry_first=10)
    put(log, 1, customer="ada")
    put(log, 2, customer="ada")
    put(log, 3, customer="bob")
    put(log, 4)
    put(log, 5, customer="ada")
    endpoint = session.endpoints[0]
    endpoint._read(seconds=0)
    [first, *rest] = endpoint._pending.ready(now_us=log.clock.now_us(), circuit=endpoint._circuit, concurrency=9)
    assert [delivery.rows[0].offset for delivery in (first, *rest)] == [0, 2, 3]
    drain(session)
    advance(log, 10)
    drain(session)
    assert [id for id in receiver.data if id in (1, 2, 5)] in ([1, 1, 2, 5], [1, 2, 5])
    session.close()


@given(
    keys=lists(sampled_from(["a", "b", "c"]) | none(), max_size=12),
    answers=lists(integers(0, 99), max_size=60),
)
def test_in_any_order_of_answers_keys_keep_theirs_and_no_undone_row_is_committed(
    keys: list[str | None], answers: list[int]
) -> None:
    pending, circuit = Pending(), Circuit(100, 1, 1)
    for offset, key in enumerate(keys):
        row = Outgoing(subject="", payload=b"", headers=(), partition=offset % 2, offset=offset // 2, appended_us=0)
        pending.add(Delivery(id=str(offset), rows=[row], body=b"", keys=frozenset({key} if key else ())))
    done: list[int] = []
    for answer in answers:
        ready = pending.ready(now_us=0, circuit=circuit, concurrency=9)
        if not ready:
            break
        chosen = ready[answer % len(ready)]
        pending.done(chosen)
        done.append(int(chosen.id))
        for partition, offset in pending.committable().items():
            assert all(place in done for place in range(len(keys)) if place % 2 == partition and place // 2 < offset)
    for key in ("a", "b", "c"):
        of_key = [place for place in done if keys[place] == key]
        assert of_key == sorted(of_key)


def test_rows_may_go_together_and_each_has_its_id(log: Log) -> None:
    receiver = Receiver()
    session = opened(log, receiver, rows_per_request=2)
    put(log, 1, 2, 3)
    drain(session)
    sent = [message for request in receiver.requests for message in orjson.loads(request.content)["messages"]]
    assert sorted(message["data"]["id"] for message in sent) == [1, 2, 3]
    assert len({message["id"] for message in sent}) == 3
    assert session.counters.appended == 3
    session.close()


def test_rows_go_out_as_cloudevents_and_events_of_entities_as_their_own(log: Log) -> None:
    receiver = Receiver()
    with headwater.Entities(log, "account", DECIDER) as accounts:
        accounts.send("acc-1", Open("Ada"), correlation="day-1")
        accounts.send("acc-1", Deposit(5), by="Ada")
    log.append("orders", [{"id": 1, "_headers": [("ce_id", b"7"), ("ce_source", b"/shop"), ("ce_type", b"paid")]}])
    log.append("orders", [{"id": 2, "_headers": [("ce_no name", b"x")]}])
    log.create("received", cloudevents.CLOUDEVENT_SCHEMA)
    log.append(
        "received", [cloudevents.to_row({"specversion": "1.0", "id": "9", "source": "/s", "type": "t", "data": 5})]
    )
    for topic, more in (("orders", {}), ("received", {}), ("account.events", {"rows_per_request": 9})):
        session = opened(log, receiver, topic=topic, cloudevents=True, concurrency=1, **more)
        drain(session)
        session.close()
    paid, plain, whole, history = receiver.requests
    assert [each.headers["content-type"] for each in receiver.requests] == [cloudevents.CONTENT_TYPE] * 3 + [
        cloudevents.CONTENT_TYPE_BATCH
    ]
    first, second = cloudevents.from_structured(paid.content), cloudevents.from_structured(plain.content)
    assert (first["id"], first["source"], first["type"], first["data"]["id"]) == ("7", "/shop", "paid", 1)
    assert (second["id"], second["source"], second["type"]) == (plain.headers["webhook-id"], "/topics/orders", "orders")
    assert cloudevents.from_structured(whole.content)["data"] == 5
    events = cloudevents.from_structured_batch(history.content)
    assert [(each["id"], each["type"], each["source"]) for each in events] == [
        ("acc-1/1", "Opened", "/entities/account"),
        ("acc-1/2", "Deposited", "/entities/account"),
    ]
    assert (events[0]["correlationid"], events[1]["by"], events[1]["data"]) == ("day-1", "Ada", {"amount": 5})
    rows = rows_of_events(cloudevents.CONTENT_TYPE_BATCH, {}, history.content, log.topic("received"))
    log.append("received", rows)
    assert [row["subject"] for row in log.read("received").rows()] == [None, "acc-1", "acc-1"]


def test_what_was_not_done_is_sent_again_after_a_restart_under_the_same_id(log: Log) -> None:
    receiver = Receiver(200, 500, 200)
    put(log, 1, 2, 3)
    first = opened(log, receiver, concurrency=1)
    drain(first)
    first.close()
    ids = receiver.ids
    second = opened(log, receiver, concurrency=1)
    advance(log, 5)
    drain(second)
    second.close()
    assert receiver.ids == [*ids, *ids[1:]]


def test_the_schedule_goes_on_after_a_restart_up_to_the_same_deadline(log: Log) -> None:
    receiver = Receiver(*[500] * 9)
    put(log, 1)
    for pause in (0, 10, 20, 40):  # since the attempt before
        session = opened(log, receiver, retry_first=10, deadline=100, circuit_failures=1)
        tried = len(receiver.requests)
        for seconds in (pause - 1, 1) if pause else ():
            drain(session)
            assert len(receiver.requests) == tried
            advance(log, seconds)
        drain(session)
        assert len(receiver.requests) == tried + 1
        session.close()
    assert attempts(log) == [(1, 500, "retry"), (2, 500, "retry"), (3, 500, "retry"), (4, 500, "dead letter")]
    assert [row["attempt"] for row in log.read("orders.dlq").rows()] == [4]


def test_a_row_that_was_delivered_after_failures_is_sent_at_once_when_its_group_is_moved_back(log: Log) -> None:
    receiver = Receiver(500)
    put(log, 1)
    for _ in range(2):
        session = opened(log, receiver, retry_first=10)
        drain(session)
        advance(log, 10)
        drain(session)
        session.close()
        log.groups.seek(session._gateway.group(HOOK), "orders", "earliest")
    assert [outcome for _, _, outcome in attempts(log)] == ["retry", "delivered", "delivered"]


def test_one_message_or_all_from_a_time_on_can_be_replayed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver()
    gateway = WebhookOut(topic="orders", endpoints=(HOOK,), secret="s3cret")
    monkeypatch.setattr(WebhookOut, "open", lambda _, log: opened(log, receiver))
    session = opened(log, receiver)
    put(log, 1)
    advance(log, 100)
    since = log.clock.now_us()
    put(log, 2)
    drain(session)
    session.close()
    sent = dict(zip(receiver.data, receiver.ids, strict=True))
    assert gateway.replay(log, sent[1]) == {HOOK: 200}
    assert (receiver.ids[-1], attempts(log)[-1]) == (sent[1], (0, 200, "replay"))
    with pytest.raises(NotFound, match="9999"):
        gateway.replay(log, sent[1].rpartition(".")[0] + ".9999")
    with pytest.raises(NotFound, match="endpoint"):
        gateway.replay(log, sent[1], endpoint="http://other.test/")
    log.groups.seek(gateway.group(HOOK), "orders", log.offset_at("orders", since))
    again = opened(log, receiver)
    drain(again)
    again.close()
    assert (receiver.data[-1], receiver.ids[-1], len(receiver.ids)) == (2, sent[2], 4)


def test_of_an_answer_without_end_only_the_beginning_is_read(log: Log) -> None:
    read = itertools.count()

    class Endless(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for _ in read:
                yield b"no " * 1_000

    session = opened(log, lambda _: httpx.Response(400, stream=Endless()))
    put(log, 1)
    drain(session)
    assert next(read) < 100
    [letter] = log.read("orders.dlq").rows()
    assert "400 Bad Request: no no" in letter["message"]
    session.close()


def test_settings_that_cannot_be_are_named(log: Log) -> None:
    for setting in ("endpoints=ftp://example.org", "endpoints=", f"endpoints={HOOK},{HOOK}"):
        with pytest.raises(ArgumentInvalid):
            gateway_from_text("webhook-out", [setting])
    with pytest.raises(ArgumentInvalid, match="concurrency"):
        gateway_from_text("webhook-out", [f"endpoints={HOOK}", "concurrency=0"])
    with pytest.raises(ArgumentInvalid, match="base64"):
        gateway_from_text("webhook-out", [f"endpoints={HOOK}", "topic=orders", "secret=whsec_a"]).open(log)
    with pytest.raises(NotFound, match="nothing"):
        gateway_from_text("webhook-out", [f"endpoints={HOOK}", "topic=nothing"]).open(log)


def test_from_webhook_out_to_webhook_in_each_row_is_once_although_answers_are_lost(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "log") as log:
        log.create("orders", {"id": "int64 not null", "customer": "string"})
        inward = GatewayRunner(log, WebhookIn(topic="hooks", port=0, secrets=("s3cret",)))
        inward.start()
        count, real = itertools.count(), httpx.HTTPTransport()

        def lossy(request: httpx.Request) -> httpx.Response:
            response = real.handle_request(request)
            response.read()
            if next(count) % 3 == 0:
                raise httpx.ReadError("the answer was lost")
            return response

        session = opened(log, lossy, endpoints=(inward.address,), retry_first=0, circuit_failures=1_000)
        put(log, *range(60))
        stop = threading.Event()
        thread = threading.Thread(target=session.run, args=(stop,))
        thread.start()
        until(lambda: session.counters.appended == 60)
        stop.set()
        thread.join()
        session.close()
        real.close()
        inward.stop()
        assert inward.status().counters["duplicates"] >= 20
        found = [orjson.loads(row["body"])["data"]["id"] for row in log.read("hooks").rows()]
        assert sorted(found) == list(range(60))


@pytest.mark.process
@pytest.mark.parametrize("point", WEBHOOK_CRASH_POINTS)
def test_from_webhook_out_to_webhook_in_each_row_is_once_after_kill_9(tmp_path: Path, point: str) -> None:
    port = free_port()

    def work(*ids: int) -> None:
        with headwater.open(tmp_path / "log") as log:
            log.create("orders", {"id": "int64 not null", "customer": "string"}, exist_ok=True)
            inward = GatewayRunner(log, WebhookIn(topic="hooks", port=port, secrets=("s3cret",)))
            inward.start()
            gateway = WebhookOut(topic="orders", endpoints=(inward.address,), secret="s3cret", concurrency=2)
            put(log, *ids)
            session = gateway.open(log)
            [endpoint] = session.endpoints

            def is_done() -> bool:
                endpoint.step(seconds=1)
                return log.committed(gateway.group(endpoint.url), "orders") == log.end_offsets("orders")

            until(is_done)
            session.close()
            inward.stop()

    ended = run_until_killed(lambda: work(*range(20)), at=CrashAt(point=point, visit=3), errors=tmp_path / "errors")
    assert ended.killed, ended
    work(20)
    with headwater.open(tmp_path / "log") as log:
        found = [orjson.loads(row["body"])["data"]["id"] for row in log.read("hooks").rows()]
        assert sorted(found) == list(range(21))
        assert log.read("orders.attempts").count() >= 21 - 2
