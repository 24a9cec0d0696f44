"""The report of a gateway is true for every process: while it runs, after it has stopped, and after it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

import headwater
from headwater.errors import InUse, NotFound
from headwater.gateways import AddressUnusable, Counters, GatewayRunner, StatsD
from headwater.gateways.port import Direction
from headwater.gateways.report import RATE_SECONDS, Reporter, remove_report, report_of, reports, shown_settings
from headwater.log.port import Log
from tests.conditions import until


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """A gateway whose sessions do what the test says: each takes one step from the script."""

    topic: str = "events"
    url: str = "mqtt://user:secret@broker/x"
    password: str = field(default="s3cret", repr=False)
    steps: list[Exception | None] = field(default_factory=list, repr=False)
    opened: list[ScriptedSession] = field(default_factory=list, repr=False)
    kind: ClassVar[str] = "scripted"
    direction: ClassVar[Direction] = "in"

    @property
    def name(self) -> str:
        return f"scripted-{self.topic}"

    def create_topics(self, log: Log) -> None:
        log.create(self.topic, "id int64", exist_ok=True)

    def open(self, log: Log) -> ScriptedSession:
        self.create_topics(log)
        step = self.steps.pop(0) if self.steps else None
        if isinstance(step, AddressUnusable):
            raise step
        self.opened.append(ScriptedSession(step))
        return self.opened[-1]


class ScriptedSession:
    def __init__(self, error: Exception | None) -> None:
        self.counters = Counters(received=10, appended=9, lost=1)
        self.address = "nowhere:1"
        self._error = error

    def run(self, stop: threading.Event) -> None:
        if self._error is not None:
            raise self._error
        stop.wait()
        self.counters.add(received=1, appended=1)

    def close(self) -> None:
        if self._error is not None:
            raise OSError("closed already")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with headwater.open(tmp_path / "log") as made:
        yield made


def test_a_gateway_is_reported_while_it_runs_and_after_it_has_stopped(log: Log) -> None:
    runner = GatewayRunner(log, Scripted(), app="shop")
    runner.start()
    until(lambda: reports(log))
    running = report_of(log, "scripted-events")
    assert (running.state, running.pid, running.app, running.address) == ("running", os.getpid(), "shop", "nowhere:1")
    assert running.counters["received"] == 10
    with pytest.raises(InUse, match=str(os.getpid())):
        remove_report(log, "scripted-events")
    runner.stop()
    stopped = report_of(log, "scripted-events")
    assert (stopped.state, stopped.counters["received"], stopped.per_second) == ("stopped", 11, {})
    remove_report(log, "scripted-events")
    with pytest.raises(NotFound):
        report_of(log, "scripted-events")


def test_counters_go_on_when_a_gateway_is_restarted_and_the_error_stays(log: Log) -> None:
    gateway = Scripted(steps=[RuntimeError("the log\nis full")])
    runner = GatewayRunner(log, gateway)
    runner.start()
    until(lambda: len(gateway.opened) == 2)
    runner.stop()
    report = report_of(log, "scripted-events")
    assert (report.state, report.restarts, report.error) == ("stopped", 1, "the log is full")
    assert report.error_us is not None
    assert dict(report.counters) == {
        "received": 21, "appended": 19, "rejected": 0, "duplicates": 0, "lost": 2, "bytes": 0
    }  # fmt: skip


def test_two_processes_cannot_run_one_gateway(log: Log) -> None:
    first, second = (GatewayRunner(log, Scripted()) for _ in range(2))
    first.start()
    with pytest.raises(InUse, match="scripted-events"):
        second.start()
    first.stop()
    second.start()
    second.stop()


def test_an_address_that_cannot_be_used_ends_the_start_or_is_retried_with_standby(log: Log) -> None:
    def taken() -> AddressUnusable:
        return AddressUnusable(gateway="scripted-events", address="nowhere:1", why="it is taken")

    with pytest.raises(AddressUnusable):
        GatewayRunner(log, Scripted(steps=[taken()])).start()
    runner = GatewayRunner(log, Scripted(steps=[taken(), taken()]), standby=True)
    runner.start()
    assert runner.status().state == "failed"
    until(lambda: runner.status().state == "running")
    runner.stop()
    assert "it is taken" in runner.status().error


def test_rates_are_those_of_the_last_seconds(log: Log) -> None:
    now = [100.0]
    runner = GatewayRunner(log, Scripted())
    reporter = Reporter(log, Scripted(), monotonic=lambda: now[0])
    reporter.acquire()
    runner._before.add(received=40)
    now[0] += 4
    reporter.write(runner.status())
    assert report_of(log, "scripted-events").per_second["received"] == 10
    for _ in range(5):
        now[0] += RATE_SECONDS / 2
        reporter.write(runner.status())
    assert report_of(log, "scripted-events").per_second["received"] == 0
    reporter.release()


def test_no_password_is_in_a_report() -> None:
    shown = shown_settings(Scripted())
    assert shown["url"] == "mqtt://…@broker/x"
    assert shown["password"] == "(hidden)"


RUNS = """
import sys, time, headwater
from headwater.gateways import GatewayRunner, StatsD
runner = GatewayRunner(headwater.open(sys.argv[1]), StatsD(port=0))
runner.start()
print(runner.address, "pandas" in sys.modules, flush=True)
time.sleep(600)
"""


@pytest.mark.process
def test_a_gateway_that_was_killed_is_not_said_to_run_and_can_be_started_again(log: Log, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", RUNS, tmp_path / "log"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address, is_prepared = process.stdout.readline().split()
        assert address.startswith(b"udp://")
        assert is_prepared == b"True", "what Arrow loads at its first array would make the first events wait"
        until(lambda: reports(log) and report_of(log, "statsd-metrics").state == "running", process=process)
        with pytest.raises(InUse, match=f"process {process.pid}"):
            GatewayRunner(log, StatsD(port=0)).start()
        process.send_signal(signal.SIGKILL)
    killed = report_of(log, "statsd-metrics")
    assert (killed.state, killed.pid, killed.per_second) == ("killed", process.pid, {})
    again = GatewayRunner(log, StatsD(port=0))
    again.start()
    again.stop()
    report = report_of(log, "statsd-metrics")
    assert (report.state, report.pid, report.started_us > killed.started_us) == ("stopped", os.getpid(), True)
