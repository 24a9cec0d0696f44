"""Gateways in the console: state, counters, losses and settings; shown to callers who see the whole log."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

import headwater
from headwater.console.topology.flow import flow_of
from headwater.gateways import GatewayRunner, StatsD
from headwater.gateways.report import reports
from headwater.log import Log
from headwater.services.gateways import GatewayStatus
from headwater.services.tokens import Tokens
from tests.conditions import until
from tests.console.simulation import SimulatedConsole, simulated


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with headwater.open(tmp_path_factory.mktemp("gateways") / "log") as made:
        assert isinstance(made, Log)
        yield made


@pytest.fixture(scope="module")
def console(log: Log) -> Iterator[SimulatedConsole]:
    with simulated(log) as made:
        yield made


def test_a_gateway_says_what_it_took_and_what_became_of_it(log: Log, console: SimulatedConsole) -> None:
    console.open("/gateways").later().sees("No gateway has run on this machine")
    runner = GatewayRunner(log, StatsD(port=0), app="load")
    runner.start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        for line in (b"a:1|c\nb:2|c", b"nonsense"):
            client.sendto(line, ("127.0.0.1", int(runner.address.rpartition(":")[2])))
    until(lambda: [one.counters["rejected"] for one in reports(log)] == [1])
    row = console.open("/gateways").later().sees_row("Gateways", "statsd-metrics")
    assert all(told in row for told in ("running", "app load", "metrics", runner.address))
    page = console.open("/gateways/statsd-metrics")
    for told, within in (("2", "Received"), ("2", "Appended"), ("1", "Rejected"), ("0", "Lost")):
        page.sees(told, within=within)
    page.sees(f"process {os.getpid()}").sees("buffer_bytes").sees_not("No process runs it now")
    runner.stop()
    page.later().sees("stopped").sees("No process runs it now")


def test_a_caller_who_sees_some_topics_sees_no_gateway(log: Log, console: SimulatedConsole) -> None:
    some = Tokens(log.home).create("clerk", ["read:metrics"])
    for path in ("/gateways", "/gateways/statsd-metrics"):
        assert console.open(path, some).text("page").startswith("ScopeMissing")
    Tokens(log.home).revoke("clerk")


def test_gateways_are_nodes_of_the_topology() -> None:
    def gateway(name: str, direction: str) -> GatewayStatus:
        return GatewayStatus(
            name=name,
            kind="k",
            direction="in" if direction == "in" else "out",
            topic="metrics",
            address="udp://1",
            state="running",
        )

    flow = flow_of([], [], gateways=[gateway("a", "in"), gateway("b", "out")])
    assert flow.after("gateway:a") == ["topic:metrics"]
    assert flow.before("gateway:b") == ["topic:metrics"]
    assert flow.stations["gateway:a"].href == "/console/gateways/a"
    assert not flow_of([], [], gateways=[gateway("a", "in")], sees=lambda _: False).stations
