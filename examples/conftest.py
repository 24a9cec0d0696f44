"""Tests find the examples by name, wherever they are started, and share one Spark session.

Each app is tested on a log in a folder and, at night, on Kafka: only the address is another one.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater
from benchmarks.kafka_broker import Kafka
from headwater.testing import AppTest
from tests.kafka_server import kafka as kafka

sys.path.insert(0, str(Path(__file__).parent))

#: These few run with `make test`: windows and a sink, views on views and a step of one's own.
CORE = ("test_fraud.py",)
ON_KAFKA = pytest.param("kafka", marks=[pytest.mark.long, pytest.mark.process, pytest.mark.kafka])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if hasattr(metafunc.module, "AppTest"):
        core = [pytest.mark.core] if Path(metafunc.module.__file__ or "").name in CORE else []
        metafunc.parametrize("log_of_apps", [pytest.param("folder", marks=core), ON_KAFKA], indirect=True)


@pytest.fixture(autouse=True)
def shared_session(spark: SparkSession) -> Iterator[None]:
    """An example gives its `AppTest` no session, as its user would: it finds the one that is there, and changes it."""
    state = spark.conf.get("spark.headwater.state")
    yield
    headwater.session(state=state)


@pytest.fixture(autouse=True)
def log_of_apps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app on Kafka has topics of its own on the one broker."""
    if getattr(request, "param", "folder") == "kafka":
        broker: Kafka = request.getfixturevalue("kafka")
        monkeypatch.setattr(AppTest, "_address", lambda _test: f"{broker.address}/app-{uuid.uuid4().hex[:12]}")
