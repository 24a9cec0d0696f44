"""A log on Kafka behind a server: rows, refusals, and one of two servers that evaluates alert rules."""

from __future__ import annotations

import httpx
import pytest

from benchmarks.kafka_broker import Kafka
from headwater.alerts import Rule, Watcher
from headwater.errors import UsageError
from headwater.log import open as open_log
from tests.cli.test_serve import serving
from tests.conditions import until
from tests.kafka_server import kafka as kafka
from tests.log.adapters import kafka_address
from tests.servers import http_receiver

RULES = "/api/v1/alerts/rules"

pytestmark = [pytest.mark.process, pytest.mark.kafka]


def test_of_two_servers_of_a_log_on_kafka_one_notifies_and_the_other_takes_over(kafka: Kafka) -> None:
    address = kafka_address(kafka)
    with (
        http_receiver() as receiver,
        serving("--log", address, "--no-console") as (first, process),
        open_log(address) as log,
    ):
        with open_log(first) as remote:
            remote.create("orders", "id int64", key="id")
            remote.append("orders", [{"id": 1}, {"id": 2}])
            assert remote.read("orders").count() == log.read("orders").count() == 2
            with pytest.raises(UsageError, match="A log on Kafka has no conditional append"):
                remote.append("orders", [{"id": 3}], partition=0, expected_offset=0)
            remote.commit_offsets("billing", "orders", {0: 0})
        until(lambda: httpx.get(f"{first}/api/v1/alerts").json()["watching"])
        second = Watcher(log, look_seconds=0.05)
        with second.running():
            rule = Rule(name="slow", kind="lag", group="billing", threshold=1, webhooks=(receiver.url,))
            second.put(rule)
            until(lambda: receiver.requests)
            assert second.is_watched()
            assert not second.is_watching
            process.terminate()
            process.wait(60)
            until(lambda: second.is_watching and second.looked_us)
            log.commit_offsets("billing", "orders", {0: 2})
            until(lambda: len(receiver.requests) == 2)
        assert [change.state for change in second.history()] == ["resolved", "firing"]
        assert len({request.headers["webhook-id"] for request in receiver.requests}) == 2
        assert not second.is_watched()
