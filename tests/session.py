"""The Spark session of the tests: a pytest plug-in, so that examples have it too."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tests end before Java's second compiler pays: without it each JVM that they start takes half the time of the processors.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session", autouse=True)
def _no_topic_stays_in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove the folders in shared memory of topics whose log is in a folder of this test process."""
    yield
    home = str(tmp_path_factory.getbasetemp().resolve())
    for link in Path("/dev/shm").glob("headwater-*-*/topic"):
        if str(link.readlink()).startswith(f"{home}{os.sep}"):
            shutil.rmtree(link.parent, ignore_errors=True)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of a test process, as starting it is what costs. Use it, and leave it as it is.

    It has everything registered, two cores and two shuffle partitions.
    """
    import headwater
    from headwater.spark.errors import JavaMissing

    try:
        session = headwater.session("tests", master="local[2]", state=tmp_path_factory.mktemp("state"))
    except JavaMissing as error:
        pytest.skip(str(error))
    yield session
    session.stop()
