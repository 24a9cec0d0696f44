"""Gateways at the command line: their kinds, run, listed and looked at."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

import pytest

import headwater
from headwater.gateways import GatewayRunner, StatsD
from headwater.services.gateways import described_kinds
from tests.cli.conftest import Cli, program
from tests.conditions import until


@pytest.fixture
def stopped() -> str:
    """A gateway that has run and stopped."""
    with headwater.open("data") as log:
        runner = GatewayRunner(log, StatsD(port=0))
        runner.start()
        runner.stop()
    return runner.address


def test_the_kinds_are_listed_with_what_they_are_for(cli: Cli) -> None:
    lines = cli("gateway", "kinds").out.splitlines()
    assert lines[0].split() == ["KIND", "DIRECTION", "PURPOSE"]
    assert [line.split()[0] for line in lines[1:]] == [one.kind for one in described_kinds()]
    settings = cli("gateway", "kinds", "statsd")
    assert "  8125" in settings.out
    assert "headwater gateway run statsd" in settings.out
    assert cli("gateway", "kinds", "statsdd").code == 3


def test_a_gateway_that_has_stopped_is_listed_until_its_report_is_deleted(cli: Cli, stopped: str) -> None:
    [listed] = cli("gateway", "list", "--json").json
    assert (listed["name"], listed["state"], listed["address"], listed["running"]) == (
        "statsd-metrics", "stopped", stopped, False
    )  # fmt: skip
    status = cli("gateway", "status", "statsd-metrics").out
    assert "  state       stopped" in status
    assert f"  address     {stopped}" in status
    assert "buffer_bytes" in status
    assert cli("gateway", "status", "statsd-metric").code == 3
    assert cli("gateway", "forget", "statsd-metrics", "--yes").code == 0
    assert "headwater gateway run" in cli("gateway", "list").err


def test_what_cannot_run_ends_with_its_code(cli: Cli, tmp_path: Path) -> None:
    assert cli("gateway", "run").code == 2
    assert cli("gateway", "run", "statsd", "port").code == 2
    wrong = cli("gateway", "run", "statsd", "prt=1")
    assert (wrong.code, "Did you mean 'port'?" in wrong.err) == (2, True)
    (tmp_path / "gateways.toml").write_text('[[gateway]]\ntopic = "a"\n')
    missing = cli("gateway", "run", "--file", "gateways.toml")
    assert (missing.code, "statsd" in missing.err) == (2, True)
    assert cli("gateway", "run", "--file", "none.toml").code == 3


def test_an_address_in_use_is_said_and_leaves_no_gateway_behind(cli: Cli) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        result = cli("gateway", "run", "statsd", f"port={taken.getsockname()[1]}")
    assert result.code == 1
    assert "Address already in use" in result.err
    assert cli("gateway", "list", "--json").json == []


@pytest.mark.process
def test_several_gateways_of_a_file_run_until_they_are_stopped(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "gateways.toml").write_text(
        '[[gateway]]\nkind = "statsd"\nport = 0\n'
        '[[gateway]]\nkind = "webhook-in"\nport = 0\nscheme = "github"\nsecrets = ["s3cret"]\n'
    )
    with subprocess.Popen(
        program("gateway", "run", "--file", "gateways.toml"), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first, second, _ = (process.stderr.readline() for _ in range(3))
        assert first.endswith("→ topic metrics\n")
        assert second.startswith("webhook-in-webhooks: http://127.0.0.1:")
        port = int(first.split(" → ")[0].rpartition(":")[2])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"a:1|c", ("127.0.0.1", port))
        with headwater.open(tmp_path / "data") as log:
            until(lambda: log.read("metrics").count() == 1, process=process)
        assert {one["state"] for one in cli("gateway", "list", "--json").json} == {"running"}
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["GATEWAY", "RECEIVED", "APPENDED"], ["statsd-metrics", "1", "1"], ["webhook-in-webhooks", "0", "0"]
    ]  # fmt: skip
    assert {one["state"] for one in cli("gateway", "list", "--json").json} == {"stopped"}
