"""While the log takes no rows, a gateway whose senders do not send again keeps what it has, and counts what it cannot keep."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.gateways import Gateway, GatewayRunner, StatsD, Syslog
from headwater.log.errors import DiskFull
from headwater.log.port import Log
from tests.conditions import until

SENT = 50
GATEWAYS: dict[str, tuple[Gateway, bytes]] = {
    "statsd": (StatsD(port=0, topic="rows"), b"a:1|c"),
    "syslog": (Syslog(port=0, topic="rows", protocols=("udp",)), b"<14>1 2026-01-31T12:00:00Z web shop - - - ready"),
}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with headwater.open(tmp_path / "log") as made:
        yield made


@pytest.fixture(params=list(GATEWAYS))
def started(request: pytest.FixtureRequest, log: Log) -> tuple[GatewayRunner, bytes]:
    gateway, event = GATEWAYS[request.param]
    runner = GatewayRunner(log, gateway)
    runner.start()
    return runner, event


# Any: arguments and results of `append`.
def fill_disk(log: Log, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let appends fail; the function that is returned frees the disk."""
    append, full = log.append, [True]

    def attempt(*arguments: Any, **settings: Any) -> Any:
        if full[0]:
            raise DiskFull(path="/data")
        return append(*arguments, **settings)

    monkeypatch.setattr(log, "append", attempt)
    return lambda: full.__setitem__(0, False)


def send(runner: GatewayRunner, event: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", int(runner.address.rpartition(":")[2])))
        for _ in range(SENT):
            client.send(event)


def test_nothing_is_lost_while_the_disk_is_full_for_a_while(
    started: tuple[GatewayRunner, bytes], log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, event = started
    free = fill_disk(log, monkeypatch)
    address = runner.address
    send(runner, event)
    until(lambda: runner.status().state == "failed")
    send(runner, event)
    assert "The disk that holds /data is full" in runner.status().error
    free()
    until(lambda: runner.status().counters["appended"] == 2 * SENT)
    status = runner.status()
    assert (status.state, status.address, status.restarts) == ("running", address, 0)
    runner.stop()
    assert log.read("rows").count() == 2 * SENT
    assert runner.status().counters["lost"] == 0


def test_what_a_stop_leaves_behind_is_counted_as_lost(
    started: tuple[GatewayRunner, bytes], log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, event = started
    send(runner, event)
    until(lambda: runner.status().counters["appended"] == SENT)
    fill_disk(log, monkeypatch)
    send(runner, event)
    until(lambda: runner.status().state == "failed")
    send(runner, event)
    runner.stop()
    counters = runner.status().counters
    assert (counters["received"], counters["appended"], counters["lost"]) == (3 * SENT, SENT, 2 * SENT)
    assert log.read("rows").count() == SENT
