"""Tests find the examples by name, wherever they are started, and share one Spark session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater

sys.path.insert(0, str(Path(__file__).parent))

#: These few run with `make test`: windows and a sink, views on views and a step of one's own.
CORE = ("test_fraud.py", "test_sensors.py")


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.name in CORE:
        item.add_marker("core")


@pytest.fixture(autouse=True)
def shared_session(spark: SparkSession) -> Iterator[None]:
    """An example gives its `AppTest` no session, as its user would: it finds the one that is there, and changes it."""
    state = spark.conf.get("spark.headwater.state")
    yield
    headwater.session(state=state)
