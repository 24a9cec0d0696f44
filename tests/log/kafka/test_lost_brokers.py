"""Three brokers of which one is lost: every question is answered, and transactions are made once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from benchmarks.kafka_broker import Kafka, KafkaBroker, kafka_brokers
from headwater.log import Log
from headwater.log import open as open_log
from tests.conditions import until
from tests.servers import or_skip

NAMESPACE = "lost"


class Worker(threading.Thread):
    """Does the same again and again until it is stopped, and counts; it ends at the first error."""

    def __init__(self, name: str, act: Callable[[int], object]) -> None:
        super().__init__(name=name, daemon=True)
        self._act = act
        self._stopped = threading.Event()
        self.rounds = 0
        self.error: Exception | None = None

    def run(self) -> None:
        while not self._stopped.wait(0.02):
            try:
                self._act(self.rounds)
            except Exception as error:  # the test shows it
                self.error = error
                return
            self.rounds += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join(60)


def workers_of(log: Log) -> list[Worker]:
    """One for each kind of question and of change that a running query has."""

    def transact(number: int) -> None:
        transaction = log.transaction("w", sequence=number)
        transaction.append("named", [{"n": number}])
        transaction.commit_offsets("billing", "orders", {0: 0})
        transaction.commit()

    def transact_without_name(number: int) -> None:
        transaction = log.transaction()
        transaction.append("nameless", [{"n": number}])
        transaction.commit()

    def commit_staged(number: int) -> None:
        stage = log.stage("s", sequence=number, attempt="a")
        stage.append("staged", [{"n": number}])
        log.commit_staged([stage.finish()], producer="s", sequence=number)

    acts: dict[str, Callable[[int], object]] = {
        "append": lambda number: log.append("orders", [{"n": number}]),
        "named": transact,
        "nameless": transact_without_name,
        "staged": commit_staged,
        "ends": lambda _: log.end_offsets("orders"),
        "topic": lambda _: log.topic("orders"),
        "fence": lambda _: log.committed_sequence("w"),
        "offsets": lambda _: log.commit_offsets("audit", "orders", {0: 0}),
        "groups": lambda _: log.groups.names(),
        "rows": lambda _: log.read("orders", start=-5).count(),
    }
    return [Worker(name, act) for name, act in acts.items()]


def busiest(servers: Kafka) -> KafkaBroker:
    """The broker that leads the most of what the workers need, coordinators of groups and transactions included."""
    topics = [f"{NAMESPACE}.named", f"{NAMESPACE}.orders", "__consumer_offsets", "__transaction_state"]
    admin = AdminClient({"bootstrap.servers": servers.bootstrap, "log_level": 0})
    found = [future.result(30) for future in admin.describe_topics(TopicCollection(topics)).values()]
    led = [partition.leader.id for topic in found for partition in topic.partitions if partition.leader]
    return max(servers.brokers, key=lambda broker: led.count(broker.node))


@pytest.mark.process
@pytest.mark.kafka
def test_a_lost_broker_fails_nothing_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    with (
        or_skip(kafka_brokers(tmp_path, count=3)) as servers,
        open_log(f"{servers.address}/{NAMESPACE}") as log,
    ):
        for topic in ("orders", "named", "nameless", "staged"):
            log.create(topic, {"n": "int64"})
        workers = workers_of(log)
        for worker in workers:
            worker.start()

        def went_on(rounds: dict[str, int]) -> bool:
            return all(worker.error or worker.rounds > rounds[worker.name] + 1 for worker in workers)

        until(lambda: went_on(dict.fromkeys(rounds_of(workers), 0)), "everything works")
        busiest(servers).kill()
        before = rounds_of(workers)
        until(lambda: went_on(before), "everything goes on without the broker")
        for worker in workers:
            worker.stop()
        assert {worker.name: worker.error for worker in workers if worker.error} == {}
        for worker in workers:
            if worker.name in ("named", "nameless", "staged"):
                assert sorted(row["n"] for row in log.read(worker.name).rows()) == list(range(worker.rounds))


def rounds_of(workers: list[Worker]) -> dict[str, int]:
    return {worker.name: worker.rounds for worker in workers}
