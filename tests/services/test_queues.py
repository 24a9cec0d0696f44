"""Queues as services, in this process and over HTTP."""

from __future__ import annotations

import threading

import pytest

from headwater.errors import ArgumentInvalid, NotAllowed, NotFound, Overdue
from headwater.queues import LeaseLost, QueueConfig, QueueExists, QueueFull
from headwater.services import Services
from headwater.services.queues import NewMessage
from tests.services.conftest import Audited, ServicesOf


def put(services: Services, queue: str, *bodies: object) -> list[str]:
    return services.queues.put_many(queue, [NewMessage(body=body) for body in bodies])


def test_a_message_is_put_taken_and_acknowledged(services: Services) -> None:
    queues = services.queues
    queues.create("jobs", QueueConfig(lease="1 minute", attempts_max=None))
    assert queues.put("jobs", NewMessage(body={"n": 1}, key="k", headers={"source": b"test"})) == "0-0"
    [message] = queues.take("jobs", consumer="one")
    assert (message.body, message.key, message.headers, message.attempt) == ({"n": 1}, "k", {"source": b"test"}, 1)
    [consumer] = queues.consumers("jobs")
    assert (consumer.name, consumer.held, consumer.remote) == ("one", 1, True)
    queues.ack("jobs", [message.receipt])
    with pytest.raises(LeaseLost):
        queues.ack("jobs", [message.receipt])
    assert queues.stats("jobs").acknowledged == 1


def test_the_status_has_all_that_an_operator_looks_at(services: Services) -> None:
    queues = services.queues
    queues.create("jobs", QueueConfig(attempts_max=None, priorities=2, ordered=True))
    queues.bind("events", "jobs", pattern="orders.#")
    put(services, "jobs", 1, 2, 3)
    queues.put("jobs", NewMessage(body=4, delay="1 hour"))
    bad, back, _ = queues.take("jobs", n=9, consumer="one")
    queues.reject("jobs", [bad.receipt], reason="no")
    queues.nack("jobs", [back.receipt], delay="1 hour")
    queues.create_group("jobs", "audit")
    queues.pause("jobs", group="audit")
    status = queues.status("jobs")
    assert [each.name for each in queues.list_queues()] == ["jobs"]
    assert status.settings == QueueConfig(attempts_max=None, priorities=2, ordered=True)
    assert [group.name for group in status.groups] == ["audit", "default"]
    audit, default = (group.stats for group in status.groups)
    assert (default.in_flight, default.scheduled, default.dead, default.paused) == (1, 2, 1, False)
    assert audit.paused
    assert audit.oldest_seconds is not None
    assert (status.length, status.dead_letters, status.dead_letter_topic) == (4, 1, "jobs.dlq")
    assert [(binding.exchange, binding.pattern) for binding in status.bindings] == [("events", "orders.#")]


def test_settings_are_altered_for_all_who_have_the_queue_open(services: Services) -> None:
    queues = services.queues
    queues.create("jobs")
    queues.create("jobs")
    with pytest.raises(QueueExists):
        queues.create("jobs", QueueConfig(ordered=True))
    put(services, "jobs", 1)
    assert queues.alter("jobs", {"lease": "1 minute", "attempts_max": None}).settings.lease == 60
    assert queues.settings("jobs").settings.attempts_max is None
    with pytest.raises(ArgumentInvalid):
        queues.alter("jobs", {"leese": 1})
    with pytest.raises(ArgumentInvalid):
        queues.alter("jobs", {"priorities": 2})
    queues.delete("jobs")
    with pytest.raises(NotFound):
        put(services, "jobs", 1)
    queues.create("jobs")
    put(services, "jobs", 2)
    assert [message.body for message in queues.take("jobs", n=9)] == [2]


def test_a_full_queue_refuses_at_once(services: Services) -> None:
    services.queues.create("jobs", QueueConfig(length_max=1))
    put(services, "jobs", 1)
    with pytest.raises(QueueFull):
        put(services, "jobs", 2)


def test_a_waiting_call_gets_a_message_that_is_put_meanwhile(services: Services) -> None:
    services.queues.create("jobs")
    found: list[object] = []
    thread = threading.Thread(
        target=lambda: found.extend(each.body for each in services.queues.take("jobs", wait_seconds=20))
    )
    thread.start()
    put(services, "jobs", "late")
    thread.join(20)
    assert found == ["late"]


def test_bodies_of_bytes_and_of_a_schema_are_json(services: Services) -> None:
    services.queues.create("raw", QueueConfig(body="bytes"))
    put(services, "raw", "text", {"base64": "/w=="})
    assert [each.body for each in services.queues.peek("raw")] == ["text", {"base64": "/w=="}]
    services.queues.create("rows", schema="at timestamp, price decimal(9, 2)")
    put(services, "rows", {"at": "2024-01-31T12:00:00Z", "price": "1.50"}, None)
    assert [each.body for each in services.queues.peek("rows")] == [
        {"at": "2024-01-31T12:00:00Z", "price": "1.50"},
        None,
    ]
    with pytest.raises(ArgumentInvalid):
        put(services, "rows", {"at": "soon"})


def test_a_consumer_that_leaves_gives_its_messages_back(services: Services) -> None:
    services.queues.create("jobs", QueueConfig(ordered=True))
    put(services, "jobs", 1, 2)
    services.queues.take("jobs", n=2, consumer="one")
    services.queues.leave("jobs", "one")
    assert [each.attempt for each in services.queues.take("jobs", n=2)] == [1, 1]


def test_an_exchange_routes_to_queues_that_the_caller_may_write(services_of: ServicesOf) -> None:
    queues = services_of().queues
    queues.bind("events", "europe", pattern="orders.*.eu")
    queues.bind("events", "audit", headers={"kind": "order"})
    order = NewMessage(body=1, headers={"kind": b"order"})
    assert queues.route_message("events", order, routing_key="orders.new.eu") == ["audit", "europe"]
    with pytest.raises(NotAllowed):
        services_of("write:europe").queues.route_message("events", order, routing_key="orders.new.eu")
    assert [binding.queue for binding in services_of("read:europe").queues.exchanges()] == ["europe"]
    queues.unbind("events", "audit")
    with pytest.raises(NotFound):
        queues.unbind("events", "audit")


def test_scopes_are_those_of_the_queues_topic_and_changes_are_audited(
    services_of: ServicesOf, audited: Audited
) -> None:
    services_of().queues.create("jobs")
    writer, reader = services_of("write:jobs").queues, services_of("read:jobs").queues
    writer.put("jobs", NewMessage(body=1))
    assert writer.settings("jobs").groups == ["default"]
    for refused in (
        lambda: writer.take("jobs"),
        lambda: reader.put("jobs", NewMessage(body=1)),
        lambda: reader.pause("jobs"),
        lambda: reader.replay("jobs"),
        lambda: reader.alter("jobs", {"lease": 1}),
        lambda: reader.delete("jobs"),
        lambda: reader.redrive("jobs"),
    ):
        with pytest.raises(NotAllowed):
            refused()
    assert [each.name for each in services_of("read:other").queues.list_queues()] == []
    assert {row["action"] for row in audited()} >= {"queues.create", "queues.pause", "queues.alter", "queues.delete"}
    assert "queues.put" not in {row["action"] for row in audited()}


def test_a_request_is_answered_over_a_queue_of_its_own(services: Services) -> None:
    services.queues.create("square")

    def work() -> None:
        [message] = services.queues.take("square", wait_seconds=20)
        services.queues.reply("square", message.receipt, message.body**2)

    thread = threading.Thread(target=work)
    thread.start()
    assert services.queues.request("square", NewMessage(body=7), wait_seconds=20).body == 49
    thread.join(20)
    with pytest.raises(Overdue):
        services.queues.request("square", NewMessage(body=7), wait_seconds=0.01)
    with pytest.raises(ArgumentInvalid):
        services.queues.request("square", NewMessage(body=7), wait_seconds=1e9)
    assert [status.name for status in services.queues.list_queues()] == ["square"]


def test_replay_and_redrive_deliver_again(services: Services) -> None:
    queues = services.queues
    queues.create("jobs")
    put(services, "jobs", 1, 2)
    good, bad = queues.take("jobs", n=2)
    queues.ack("jobs", [good.receipt])
    queues.reject("jobs", [bad.receipt])
    assert queues.redrive("jobs").outcome.changed == 1
    assert [each.body for each in queues.take("jobs", n=9)] == [2]
    queues.replay("jobs")
    assert [each.body for each in queues.peek("jobs")] == [1, 2, 2]
    with pytest.raises(ArgumentInvalid):
        queues.replay("jobs", "5")
