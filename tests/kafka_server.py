"""One Kafka broker for all tests of a process; see `benchmarks/kafka_broker.py` for what is started, and where from.

With `HEADWATER_TEST_KAFKA=host:port` in the environment the tests use that broker, which is faster while one works on
them; `HEADWATER_TEST_KAFKA_SASL` is its listener with SASL. Tests that need more of it are left out then.
"""

from __future__ import annotations

import contextlib
import os

import pytest

from benchmarks.kafka_broker import Kafka, KafkaBroker, kafka_brokers, kafka_jars
from benchmarks.peer_servers import PeerUnavailable
from tests.servers import or_skip

_BROKER = pytest.StashKey[Kafka]()
GIVEN = os.environ.get("HEADWATER_TEST_KAFKA")
GIVEN_SASL = os.environ.get("HEADWATER_TEST_KAFKA_SASL")


class GivenKafka(Kafka):
    """A broker that another process has started."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__([])
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    @property
    def sasl_address(self) -> str:
        if not GIVEN_SASL:
            pytest.skip("the broker in HEADWATER_TEST_KAFKA has no listener with SASL in HEADWATER_TEST_KAFKA_SASL")
        return f"kafka://{GIVEN_SASL}"

    @property
    def broker(self) -> KafkaBroker:
        pytest.skip("the broker in HEADWATER_TEST_KAFKA cannot be ended by a test")


def jars_or_skip() -> None:
    """Skip a test whose child process needs a broker, where there can be none."""
    try:
        kafka_jars()
    except PeerUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kafka:
    """A broker for all tests of the process; use topics of your own, and leave it running."""
    if GIVEN:
        return GivenKafka(GIVEN)
    # Each module that imports the fixture has one of its own, so the broker is kept elsewhere.
    stash = request.config.stash
    if _BROKER not in stash:
        stack = contextlib.ExitStack()
        request.config.add_cleanup(stack.close)
        stash[_BROKER] = stack.enter_context(or_skip(kafka_brokers(tmp_path_factory.mktemp("kafka"))))
    return stash[_BROKER]
