"""The screens of the console on a log of Kafka: each opens with what is there, also those for what Kafka cannot hold."""

from __future__ import annotations

import pytest

from benchmarks.kafka_broker import Kafka
from headwater.alerts import Rule, Watcher
from headwater.gateways import GatewayRunner, StatsD
from headwater.log.dead_letters import DeadLetter, append_dead_letters
from tests.console.simulation import simulated
from tests.console.test_every_screen import LISTED
from tests.kafka_server import kafka as kafka
from tests.log.adapters import open_kafka

pytestmark = [pytest.mark.process, pytest.mark.kafka, pytest.mark.long]
#: Pages of things that the log of this test has.
FOUND = [
    "/topics/orders",
    "/topics/orders/browse",
    "/topics/orders/search",
    "/topics/orders/tail",
    "/topics/orders/produce",
    "/topics/orders/0/0",
    "/groups/billing",
    "/schemas/orders",
    "/alerts/slow",
    "/dead-letters/orders",
    "/gateways/statsd-metrics",
]


def test_each_screen_opens_on_kafka(kafka: Kafka) -> None:
    with open_kafka(kafka) as log:
        log.create("orders", "customer string, amount long", partitions=2)
        log.append("orders", [{"customer": "ada", "amount": number} for number in range(50)])
        log.groups.seek("billing", "orders", {0: 0, 1: 0})
        Watcher(log).put(Rule(name="slow", kind="lag", group="billing", threshold=100))
        letter = DeadLetter(topic="orders", partition=0, offset=1, error="Bad", message="no", row="{}", at_us=1)
        append_dead_letters(log, "orders", [letter])
        gateway = GatewayRunner(log, StatsD(port=0))
        gateway.start()
        gateway.stop()
        with simulated(log) as console:
            for path in [*LISTED, *FOUND]:
                page = console.open(path)
                assert page.markup().count("<h1>") == 1, path
                page.later()  # what it reads again and again can be read again
