"""Fixtures for every test: one Spark session for the whole process, as starting it is what costs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# How long an example takes says nothing about what is tested, and a machine may be slow. The same code gives the same
# verdict, run after run; `--hypothesis-profile=explore` looks for what nobody has tried yet.
settings.register_profile("headwater", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("headwater")


# Tests end before Java's second compiler pays: without it each JVM that they start takes half the time of the processors.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with everything registered, two cores and two shuffle partitions. Use it, and leave it as it is."""
    import headwater

    session = headwater.session("tests", master="local[2]", state=tmp_path_factory.mktemp("state"))
    yield session
    session.stop()
