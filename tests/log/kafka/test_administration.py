"""The administration client, and questions that are asked again, on clients that only pretend."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from headwater import Config
from headwater.errors import NotFound
from headwater.log.errors import BrokerUnreachable
from headwater.log.kafka.address import Address
from headwater.log.kafka.administration import Administration
from headwater.log.kafka.cluster import Cluster


def answered(value: int) -> Future[int]:
    future: Future[int] = Future()
    future.set_result(value)
    return future


def failed(code: int) -> Future[int]:
    future: Future[int] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


def test_a_client_that_is_not_answered_is_replaced() -> None:
    made: list[Any] = []  # Any: a client that is no client

    def make() -> Any:
        made.append(Mock())
        return made[-1]

    administration = Administration(make)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        administration.answers(lambda _: {"a": Future[int]()}, seconds=0.01)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        administration.answers(lambda _: {"a": failed(KafkaError._TIMED_OUT)}, seconds=10)
    found = administration.answers(lambda client: {"a": answered(made.index(client))}, seconds=10)
    assert found["a"].result() == 2
    # An error is an answer.
    assert administration.answers(lambda _: {"a": failed(KafkaError._NOENT)}, seconds=10)["a"].exception()
    assert len(made) == 3


def test_a_client_that_goes_by_an_earlier_epoch_of_a_leader_is_replaced() -> None:
    administration = Administration(Mock)
    before = administration.client
    administration.answers(lambda _: {"a": failed(KafkaError.UNKNOWN_TOPIC_OR_PART)}, seconds=10)
    assert administration.client is before
    administration.answers(lambda _: {"a": failed(KafkaError.FENCED_LEADER_EPOCH)}, seconds=10)
    assert administration.client is not before


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(Address.parse("kafka://127.0.0.1:1"), Config(kafka_seconds_max=0.2))


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._NOENT,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
    ],
)
def test_a_question_is_asked_again_while_brokers_change(cluster: Cluster, code: int) -> None:
    told = iter([failed(code), failed(code), answered(7)])
    assert cluster.ask(lambda _: next(told).result()) == 7
    with pytest.raises(BrokerUnreachable):
        cluster.ask(lambda _: failed(code).result())


def test_a_question_is_not_asked_again_after_an_answer(cluster: Cluster) -> None:
    told = iter([failed(KafkaError.UNKNOWN_TOPIC_OR_PART)])
    with pytest.raises(NotFound):
        cluster.ask(lambda _: next(told).result(), name="orders")


def test_a_question_that_was_not_answered_may_wait_longer_the_next_time() -> None:
    cluster, waits = Cluster(Address.parse("kafka://127.0.0.1:1"), Config()), []

    def question(seconds: float) -> int:
        waits.append(seconds)
        return (failed(KafkaError._TIMED_OUT) if len(waits) < 3 else answered(0)).result()

    cluster.ask(question)
    assert waits == [2.0, 4.0, 8.0]
