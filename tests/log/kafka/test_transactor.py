"""Transactions whose brokers are lost, with producers that only pretend: they are made once, and never assumed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headwater import Config
from headwater.log.errors import BrokerUnreachable
from headwater.log.kafka.address import Address
from headwater.log.kafka.cluster import Cluster
from headwater.log.kafka.errors import BrokerRefused
from headwater.log.kafka.fence import SPARE, Commit, Transactor

NAME = "producer.w"


def failure(code: int, **flags: bool) -> KafkaException:
    return KafkaException(KafkaError(code, "as the test wants it", **flags))


class PretendedProducer:
    """Does what the test has prepared for a call, once; else the call succeeds."""

    def __init__(self, acts: dict[str, Callable[[], object]], calls: list[str]) -> None:
        self._acts = acts
        self._calls = calls

    def _call(self, name: str) -> int:
        self._calls.append(name)
        self._acts.pop(name, lambda: None)()
        return 0

    # Any: as confluent-kafka's producer takes them.
    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._call(name)


class PretendedCluster(Cluster):
    """Makes such producers, and says what a group has committed."""

    def __init__(self) -> None:
        super().__init__(Address.parse("kafka://127.0.0.1:1"), Config(kafka_seconds_max=0.3))
        self.acts: dict[str, Callable[[], object]] = {}
        self.calls: list[str] = []

    def fail(self, call: str, error: KafkaException) -> None:
        def act() -> None:
            raise error

        self.acts[call] = act

    def new_producer(self, **_settings: Any) -> Any:  # Any: as the base class
        self.calls.append("new")
        return PretendedProducer(self.acts, self.calls)

    @contextmanager
    def group_client(self, group: str) -> Iterator[Any]:  # noqa: ARG002  # Any: as the base class
        yield PretendedProducer({}, [])


@pytest.fixture
def cluster() -> PretendedCluster:
    return PretendedCluster()


def run(cluster: Cluster, *decisions: Commit | None, name: str = NAME) -> int:
    """Let a transactor decide as it is told; returns how often it has decided."""
    left = list(decisions)
    Transactor(cluster).run(name, lambda: left.pop(0))
    return len(decisions) - len(left)


def fenced() -> Commit:
    return Commit(messages={}, fence=lambda _: ("group", TopicPartition("t", 0, 1)))


def test_a_commit_without_an_answer_is_decided_by_the_fence(cluster: PretendedCluster) -> None:
    cluster.fail("commit_transaction", failure(KafkaError._TIMED_OUT))
    assert run(cluster, fenced(), None) == 2
    # The second producer has ended the transaction of the first one before the fence was read again.
    assert cluster.calls[-2:] == ["new", "init_transactions"]
    assert "abort_transaction" not in cluster.calls


def test_a_commit_without_an_answer_and_without_a_fence_is_an_error(cluster: PretendedCluster) -> None:
    cluster.fail("commit_transaction", failure(KafkaError._TIMED_OUT))
    with pytest.raises(BrokerUnreachable):
        run(cluster, Commit(messages={}))
    assert cluster.calls.count("commit_transaction") == 1


def test_a_commit_under_a_name_of_its_own_that_is_fenced_at_the_end_is_an_error(cluster: PretendedCluster) -> None:
    cluster.fail("commit_transaction", failure(KafkaError.INVALID_TXN_STATE, fatal=True))
    with pytest.raises(BrokerRefused):
        run(cluster, Commit(messages={}), name=f"{SPARE}1")
    assert cluster.calls.count("commit_transaction") == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("send_offsets_to_transaction", failure(KafkaError._TRANSPORT)),
        ("flush", failure(KafkaError._MSG_TIMED_OUT)),
        ("commit_transaction", failure(KafkaError.UNKNOWN_PRODUCER_ID, txn_requires_abort=True)),
    ],
)
def test_what_was_surely_not_committed_is_aborted_and_made_again(
    cluster: PretendedCluster, call: str, error: KafkaException
) -> None:
    cluster.fail(call, error)
    offsets = {"group": [TopicPartition("t", 0, 1)]}
    assert run(cluster, *[Commit(messages={}, offsets=offsets)] * 2) == 2
    assert cluster.calls.count("abort_transaction") == 1
    assert cluster.calls[-1] == "commit_transaction"


def test_a_producer_that_waits_for_a_coordinator_that_is_gone_is_left_behind(cluster: PretendedCluster) -> None:
    found = threading.Event()
    cluster.acts["send_offsets_to_transaction"] = found.wait
    try:
        assert run(cluster, fenced(), fenced()) == 2
    finally:
        found.set()
    assert cluster.calls.count("new") == 2
    assert "abort_transaction" not in cluster.calls
    assert cluster.calls[-1] == "commit_transaction"
