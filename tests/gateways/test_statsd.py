"""StatsD: every well-formed line is a row, every other one a dead letter, and every dropped datagram is counted."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
import statsd
from hypothesis import given
from hypothesis.strategies import binary, booleans, floats, lists, sampled_from, tuples

import headwater
from headwater.gateways import AddressUnusable, GatewayRunner, StatsD
from headwater.gateways.statsd import BUFFER_BYTES, BUFFERS, StatsDSession, parse
from tests.conditions import until as wait_until

NAMES = sampled_from(["a", "page.views", "größe", "disk-0_free"])
NUMBERS = floats(-1e6, 1e6, allow_nan=False).map(lambda number: round(number, 3))
RATES = sampled_from([None, 1.0, 0.5, 0.1, 0.001])


@given(lines=lists(tuples(NAMES, NUMBERS, sampled_from(["c", "g", "ms", "s"]), RATES, booleans())))
def test_what_a_client_sends_is_what_the_rows_say(lines: list[tuple[str, float, str, float | None, bool]]) -> None:
    sent = "\n".join(
        f"{name}:{number}|{kind}" + (f"|@{rate}" if rate else "") + ("|#env:prod,zone:a" if tagged else "")
        for name, number, kind, rate, tagged in lines
    )
    rows, malformed = parse(sent.encode(), now_us=0)
    assert malformed == []
    assert [
        (row["name"], row["kind"], row["value"], row["member"], row["sample_rate"], row["relative"], row["tags"])
        for row in rows.to_pylist()
    ] == [
        (
            name,
            {"c": "counter", "g": "gauge", "ms": "timer", "s": "set"}[kind],
            None if kind == "s" else number,
            str(number) if kind == "s" else None,
            rate or 1.0,
            kind == "g" and str(number)[0] in "+-",
            "env:prod,zone:a" if tagged else None,
        )
        for name, number, kind, rate, tagged in lines
    ]


@given(junk=lists(binary(max_size=30)))
def test_bytes_of_any_kind_break_nothing_and_no_line_is_lost(junk: list[bytes]) -> None:
    sent = b"\n".join([b"ok:1|c", *junk, b"ok:2|c"])
    rows, malformed = parse(sent, now_us=0)
    said = [line for line in sent.split(b"\n") if line.decode(errors="replace").strip()]
    assert rows.num_rows + len(malformed) == len(said)
    assert rows.num_rows >= 2


@pytest.mark.parametrize(
    "line", ["a:1", "a|c", ":1|c", "a:x|c", "a:1|q", "a:1|c|@2", "a:1|c|@0.0", "a:nan|g", "a:1|c|x"]
)
def test_a_malformed_line_is_a_dead_letter(line: str) -> None:
    rows, malformed = parse(f"{line}\na:1|c".encode(), now_us=0)
    assert (rows.num_rows, len(malformed)) == (1, 1)


def test_datagrams_become_rows_and_dead_letters(tmp_path: Path) -> None:
    log = headwater.open(tmp_path / "log")
    runner = GatewayRunner(log, StatsD(port=0, datagram_bytes_max=64))
    runner.start()
    with _client(runner) as client:
        for data in (b"a:1|c\nb:2|g", b"nonsense", b"x" * 65, b"a:3|c\n"):
            client.send(data)
    wait_until(lambda: runner.status().counters["received"] == 4)
    assert runner.status().state == "running"
    runner.stop()
    status = runner.status()
    assert (status.state, status.address) == ("stopped", runner.address)
    assert status.counters == {
        "received": 4,
        "appended": 3,
        "rejected": 2,
        "duplicates": 0,
        "lost": 0,
        "bytes": status.counters["bytes"],
    }
    assert sorted(row["value"] for row in log.read("metrics").rows()) == [1.0, 2.0, 3.0]
    assert [row["value"] for row in log.read("metrics.dlq").rows()] == [b"nonsense"]


def test_what_the_statsd_library_sends_is_understood(tmp_path: Path) -> None:
    log = headwater.open(tmp_path / "log")
    runner = GatewayRunner(log, StatsD(port=0))
    runner.start()
    client = statsd.StatsClient("127.0.0.1", int(runner.address.rpartition(":")[2]), prefix="shop")
    with client.pipeline() as packet:  # several lines in one datagram
        packet.incr("orders", 3)
        packet.decr("orders")
        packet.gauge("depth", 7)
        packet.gauge("depth", -2, delta=True)
        packet.timing("answer", 12.5)
        packet.set("users", "ada")
    client.incr("visits")
    client.close()
    wait_until(lambda: runner.status().counters["appended"] == 7)
    runner.stop()
    rows = log.read("metrics").rows()
    assert [(row["name"], row["kind"], row["value"], row["member"], row["relative"]) for row in rows] == [
        ("shop.orders", "counter", 3.0, None, False),
        ("shop.orders", "counter", -1.0, None, False),
        ("shop.depth", "gauge", 7.0, None, False),
        ("shop.depth", "gauge", -2.0, None, True),
        ("shop.answer", "timer", 12.5, None, False),
        ("shop.users", "set", None, "ada", False),
        ("shop.visits", "counter", 1.0, None, False),
    ]


def test_datagrams_that_the_kernel_drops_are_counted_exactly(tmp_path: Path) -> None:
    log = headwater.open(tmp_path / "log")
    session = StatsD(port=0, buffer_bytes=4_096).open(log)
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(("127.0.0.1", session.port))
    with client:
        for number in range(500):  # before the session reads any of them
            client.send(b"a:%d|c" % number)
    stop = threading.Event()
    stop.set()
    session.run(stop)
    session.close()
    counters = session.counters
    assert counters.lost > 0
    assert counters.received + counters.lost == 500
    assert counters.appended == counters.received == log.read("metrics").count()


def test_a_log_that_fails_stops_the_session_and_the_runner_restarts_it(tmp_path: Path) -> None:
    log = headwater.open(tmp_path / "log")
    gateway = StatsD(port=0)
    session = gateway.open(log)
    log.delete("metrics")
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(("127.0.0.1", session.port))
    with client:
        client.send(b"a:1|c")
    with pytest.raises(headwater.errors.NotFound):
        session.run(threading.Event())
    session.close()


def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    log = headwater.open(tmp_path / "log")
    session = StatsD(port=0).open(log)
    with pytest.raises(AddressUnusable, match=str(session.port)):
        StatsD(port=session.port).open(log)
    session.close()


def test_buffers_are_bounded() -> None:
    assert BUFFERS * BUFFER_BYTES <= 32 * 2**20


def _client(runner: GatewayRunner) -> socket.socket:
    assert isinstance(runner._session, StatsDSession)
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(("127.0.0.1", runner._session.port))
    return client
