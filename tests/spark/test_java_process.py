"""A JVM that is started before its session: which sessions may have it, and what it is told of the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from company.app import CONF
from company.topics import JAVA_OPTIONS

from headwater.spark import java_process
from headwater.spark.java_process import OPTIONS, EarlyJava, take_early
from headwater.spark.session import spark_settings

SETTINGS = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.app.name": "one", OPTIONS: "-Xss4m"}


@pytest.fixture
def early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EarlyJava]:
    """A process that stands in for the JVM."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = EarlyJava(process=process, connection=tmp_path / "none", options="-Xss4m", environment=dict(os.environ))
    monkeypatch.setattr(java_process, "_early", started)
    yield started
    started.end()
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.process
def test_a_session_takes_the_jvm_once(early: EarlyJava) -> None:
    assert take_early(SETTINGS) is early
    assert take_early(SETTINGS) is None
    assert early.process.poll() is None


@pytest.mark.process
@pytest.mark.parametrize(
    "others",
    [
        {"spark.driver.memory": "2g"},
        {"spark.jars.packages": "org.example:one:1"},
        {"spark.master": "spark://host:7077"},
        {OPTIONS: "-Xss8m"},
    ],
)
def test_a_jvm_that_would_have_been_started_otherwise_is_ended(early: EarlyJava, others: dict[str, str]) -> None:
    assert take_early(SETTINGS | others) is None
    assert early.process.poll() is not None


@pytest.mark.process
def test_workers_get_what_an_app_has_put_into_the_environment(
    early: EarlyJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_APP", "told")
    assert take_early(SETTINGS) is early
    assert early.settings()["spark.executorEnv.OF_THE_APP"] == "told"
    assert "spark.executorEnv.HOME" not in early.settings()


@pytest.mark.process
def test_a_variable_of_the_jvm_that_was_set_since_needs_another_jvm(
    early: EarlyJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert not early.fits(SETTINGS)


@pytest.mark.process
def test_a_jvm_that_no_session_has_asked_for_ends_with_the_process(early: EarlyJava) -> None:
    assert java_process.is_starting()
    java_process._end_unused()
    assert early.process.poll() is not None


@pytest.mark.process
def test_a_jvm_that_has_ended_has_no_gateway(early: EarlyJava) -> None:
    early.end()
    assert early.gateway() is None


def test_the_release_of_spark_is_read_without_importing_it() -> None:
    import pyspark

    assert java_process._version(java_process.spark_home()) == pyspark.__version__


def test_an_app_takes_the_jvm_that_was_started_early() -> None:
    """A setting of ours that the JVM had to know at its start would end each early JVM, and start another one."""
    settings = spark_settings("local[2]", "/state", None, CONF)
    assert settings.pop(OPTIONS) == JAVA_OPTIONS
    assert [name for name in settings if not name.startswith(java_process._OF_SESSION)] == []
