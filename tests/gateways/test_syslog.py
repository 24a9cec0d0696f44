"""Syslog: each message is a row or a dead letter, however it is framed, and no client holds the others back."""

from __future__ import annotations

import contextlib
import itertools
import select
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers, lists, sampled_from, text, tuples

import headwater
from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid
from headwater.gateways import AddressUnusable, Syslog
from headwater.gateways.kinds import gateway_from_text
from headwater.gateways.syslog import SyslogSession
from headwater.gateways.syslog_frames import Frames
from headwater.gateways.syslog_message import FACILITIES, SEVERITIES, MessageInvalid, Row, parse_message
from headwater.log import Appended, Log
from tests.certificates import certificate
from tests.conditions import until

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW_US = int(NOW.timestamp()) * 1_000_000


def parsed(message: str | bytes, *, zone: str = "UTC") -> Row:
    data = message.encode() if isinstance(message, str) else message
    return parse_message(data, sender="10.0.0.1", now_us=NOW_US, zone=ZoneInfo(zone))


def moment(row: Row) -> datetime:
    return datetime.fromtimestamp(row["at"] / 1e6, tz=UTC)


# -- messages -----------------------------------------------------------------------------------------------------------

VALUES = text(alphabet=sampled_from('ab"]\\ =é\n'), max_size=6)


@given(
    priority=integers(0, 191),
    elements=lists(
        tuples(sampled_from(["a", "b@1", "c"]), lists(tuples(sampled_from(["x", "y"]), VALUES), max_size=3)),
        unique_by=lambda one: one[0],
        max_size=3,
    ),
    message=text(max_size=20),
)
def test_a_message_of_rfc_5424_is_read_as_it_was_written(
    priority: int, elements: list[tuple[str, list[tuple[str, str]]]], message: str
) -> None:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")

    data = "".join(
        f"[{id}{''.join(f' {name}={chr(34)}{escaped(value)}{chr(34)}' for name, value in pairs)}]"
        for id, pairs in elements
    )
    row = parsed(f"<{priority}>1 2026-01-02T03:04:05.006+02:00 web shop - ID {data or '-'} {message}")
    assert (FACILITIES.index(row["facility"]), SEVERITIES.index(row["severity"])) == divmod(priority, 8)
    assert (row["host"], row["app"], row["message_id"], "process" in row) == ("web", "shop", "ID", False)
    assert moment(row) == datetime(2026, 1, 2, 1, 4, 5, 6000, tzinfo=UTC)
    assert row["message"] == message.removeprefix("\ufeff")
    nothing: list[tuple[str | None, str | None]] = [(None, None)]
    expected = [
        {"id": id, "name": name, "value": value} for id, pairs in elements for name, value in (pairs or nothing)
    ]
    assert (row["structured_data"] or []) == expected


@given(data=binary(max_size=60))
def test_bytes_of_any_kind_are_a_row_or_malformed(data: bytes) -> None:
    for message in (data, b"<13>" + data, b"<13>1 " + data, b"<13>1 - - - - - " + data, b"<13>Jan  1 00:00:00 " + data):
        with contextlib.suppress(MessageInvalid):
            assert isinstance(parsed(message)["message"], str)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "no priority",
        "<192>too high",
        "<013>a leading zero",
        "<13>1 2026-13-01T00:00:00Z web shop - - - no such month",
        "<13>1 2026-01-01T00:00:00Z web shop - -",
        "<13>1 - web shop - - [a x=1] no quotes",
        '<13>1 - web shop - - [a x="1" not closed',
        "<13>1 - web shop - - [a][a] an id twice",
        "<13>Feb 30 00:00:00 web shop: no such day",
        b"<13>\xff",
    ],
)
def test_a_malformed_message_says_why(message: str | bytes) -> None:
    with pytest.raises(MessageInvalid, match=r"\w"):
        parsed(message)


def test_times_without_a_year_are_the_nearest_and_in_the_zone_of_the_gateway() -> None:
    assert moment(parsed("<13>Dec 31 23:00:00 web shop: x")) == datetime(2025, 12, 31, 23, tzinfo=UTC)
    assert moment(parsed("<13>Jan  3 00:00:00 web shop: x")) == datetime(2026, 1, 3, tzinfo=UTC)
    berlin = moment(parsed("<13>Jan  2 04:04:05 web shop: x", zone="Europe/Berlin"))
    assert berlin == NOW


def test_what_devices_leave_out_is_null_and_the_rest_is_the_message() -> None:
    row = parsed("<13>just words")
    assert (row["at"], row["message"], row.get("host"), row.get("app")) == (NOW_US, "just words", None, None)
    row = parsed("<13>2026-01-02T03:04:05Z web shop[7]: done")
    assert (row["host"], row["app"], row["process"], row["message"]) == ("web", "shop", "7", "done")


# -- frames -------------------------------------------------------------------------------------------------------------

MESSAGES = lists(tuples(sampled_from(["count", "line"]), text("<ab12 ", min_size=0, max_size=30)), max_size=8)


@given(messages=MESSAGES, cuts=lists(integers(0, 400)))
def test_a_stream_cut_anywhere_has_the_same_messages(messages: list[tuple[str, str]], cuts: list[int]) -> None:
    stream = b"".join(
        b"%d <%s" % (len(body) + 1, body.encode()) if framing == "count" else b"<%s\n" % body.encode()
        for framing, body in messages
    )
    frames, found, long = Frames(20), list[bytes](), list[bytes]()
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in itertools.pairwise(places):
        some, too_long = frames.feed(stream[start:end])
        found += some
        long += too_long
    whole = [b"<" + body.encode() for _, body in messages]
    assert found == [message for message in whole if len(message) <= 20]
    assert long == [message[:20] for message in whole if len(message) > 20]
    assert not frames.is_open


# -- sockets ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return headwater.open(tmp_path / "log", clock=ManualClock())


@pytest.fixture
def session(log: Log) -> Iterator[SyslogSession]:
    session = Syslog(port=0, message_bytes_max=480, connections_max=2).open(log)
    yield session
    session.close()


def connect(session: SyslogSession) -> socket.socket:
    return socket.create_connection(("127.0.0.1", session.port))


def secured(session: SyslogSession, trusted: str, pair: tuple[Path, Path] | None = None) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=trusted)
    if pair is not None:
        context.load_cert_chain(*pair)
    return context.wrap_socket(connect(session), server_hostname="127.0.0.1")


def readable(client: socket.socket) -> bool:
    return bool(select.select([client], [], [], 0)[0])


def stepping(session: SyslogSession, holds: Callable[[], bool], what: str = "it has happened") -> None:
    def stepped() -> bool:
        session.step(seconds=0.05)
        return holds()

    until(stepped, what)


def received(session: SyslogSession, count: int) -> bool:
    stepping(session, lambda: session.counters.received >= count, f"{count} received")
    return True


def messages(log: Log) -> list[str]:
    return [row["message"] for row in log.read("syslog").rows()]


def test_messages_of_both_protocols_and_framings_are_rows_and_others_dead_letters(
    log: Log, session: SyslogSession
) -> None:
    with connect(session) as client, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        client.sendall(b"11 <13>counted<13>line\nnonsense\n<13>" + b"x" * 600 + b"\n999 <13>long" + b"y" * 991)
        datagrams.sendto(b"<13>datagram\nof two lines\n", ("127.0.0.1", session.port))
        datagrams.sendto(b"z" * 481, ("127.0.0.1", session.port))
        client.sendall(b"<13>without an end")
        client.close()
        received(session, 8)
    assert sorted(messages(log)) == ["counted", "datagram\nof two lines", "line", "without an end"]
    assert sorted(row["value"][:7] for row in log.read("syslog.dlq").rows()) == [b"<13>lon", b"<13>xxx", b"nonsens"]
    counts = session.counters
    assert (counts.received, counts.appended, counts.rejected, counts.lost) == (8, 4, 4, 0)


def test_a_slow_or_silent_client_is_cut_off_and_what_it_sent_is_a_dead_letter(log: Log, session: SyslogSession) -> None:
    clock = log.clock
    assert isinstance(clock, ManualClock)
    with connect(session) as slow, connect(session) as silent:
        slow.sendall(b"50 <13>begun")
        silent.sendall(b"<13>one\n")
        received(session, 1)

        def begun() -> bool:
            session.step(seconds=0.05)
            return any(connection.begun_us is not None for connection in session._connections.values())

        until(begun)
        clock.advance(seconds=31)
        session.step(seconds=0)
        assert len(session._connections) == 1
        assert slow.recv(1) == b""
        clock.advance(seconds=3_601)
        session.step(seconds=0)
        assert silent.recv(1) == b""
    [letter] = log.read("syslog.dlq").rows()
    assert letter["value"] == b"50 <13>begun"
    assert "did not end within 30 seconds" in letter["message"]


def test_connections_beyond_the_maximum_wait_and_lose_nothing(log: Log, session: SyslogSession) -> None:
    first, second, third = connect(session), connect(session), connect(session)
    with second, third:
        with first:
            for number, client in enumerate((first, second, third)):
                client.sendall(b"<13>%d\n" % number)
            received(session, 2)
            session.step(seconds=0.05)
            assert sorted(messages(log)) == ["0", "1"]
        received(session, 3)
    assert sorted(messages(log)) == ["0", "1", "2"]


def test_a_log_that_fails_leaves_what_was_not_read_in_the_connection(log: Log, session: SyslogSession) -> None:
    log.delete("syslog")
    with connect(session) as client:
        client.sendall(b"<13>one\n")
        with pytest.raises(headwater.errors.NotFound):
            received(session, 1)
        assert session.counters.appended == 0


def test_a_slow_log_makes_a_sender_of_tcp_wait_and_loses_nothing(
    log: Log, session: SyslogSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, stop, append = threading.Event(), threading.Event(), log.append

    def slow(topic: str, rows: list[Row]) -> Appended:
        disk.wait()
        return append(topic, rows)

    monkeypatch.setattr(log, "append", slow)
    thread = threading.Thread(target=session.run, args=(stop,))
    thread.start()
    line, sent = b"<13>" + b"x" * 395 + b"\n", 0
    with connect(session) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        client.setblocking(False)

        def waits() -> bool:
            nonlocal sent
            with contextlib.suppress(BlockingIOError):
                while True:
                    sent += client.send(line[sent % len(line) :])
            return not select.select([], [client], [], 0.5)[1]

        until(waits, "the sender has to wait")
        disk.set()
        client.setblocking(True)
        client.sendall(line[sent % len(line) :])
        sent += len(line) - sent % len(line)
    until(lambda: session.counters.received == sent // len(line))
    stop.set()
    thread.join()
    assert log.read("syslog").count() == sent // len(line)


def test_a_sender_over_tls_is_a_row_and_one_without_it_is_closed_and_shown(log: Log, tmp_path: Path) -> None:
    public, private = map(str, certificate(tmp_path))
    session = Syslog(port=0, protocols=("tls",), certificate=public, key=private, message_bytes_max=480).open(log)
    clock = log.clock
    assert isinstance(clock, ManualClock)
    with connect(session) as plain, connect(session) as silent:
        plain.sendall(b"<13>one\n" * 10)
        stepping(session, lambda: bool(session.counters.error))
        assert "HTTP_REQUEST" in session.counters.error or "WRONG_VERSION" in session.counters.error
        clock.advance(seconds=31)  # the handshake of the other does not come
        stepping(session, lambda: readable(silent))
        assert silent.recv(100) == b""
    sent = [f"{number:04}{'x' * 400}" for number in range(3_000)]

    def send() -> None:
        with secured(session, public) as client:
            client.sendall("".join(f"<13>{message}\n" for message in sent).encode())

    sender = threading.Thread(target=send)
    sender.start()
    received(session, 3_000)
    sender.join()
    assert sorted(messages(log)) == sent
    assert session.address == f"tls://127.0.0.1:{session.port}"
    session.close()


def test_with_an_authority_only_its_clients_may_write(log: Log, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    own, other = certificate(tmp_path), certificate(tmp_path / "other")
    gateway = Syslog(port=0, protocols=("tls",), certificate=str(own[0]), key=str(own[1]), client_authority=str(own[0]))
    session, stop = gateway.open(log), threading.Event()
    thread = threading.Thread(target=session.run, args=(stop,))
    thread.start()
    for pair in (None, other, own):
        with contextlib.suppress(OSError), secured(session, str(own[0]), pair) as client:
            client.sendall(b"<13>hello\n")
            if pair is not own:
                client.recv(1)  # the end of the connection
    until(lambda: session.counters.received == 1)
    stop.set()
    thread.join()
    session.close()
    assert messages(log) == ["hello"]


def test_a_port_in_use_and_wrong_settings_are_named(log: Log, session: SyslogSession) -> None:
    for protocol in ("udp", "tcp"):
        with pytest.raises(AddressUnusable, match=str(session.port)):
            Syslog(port=session.port, protocols=(protocol,)).open(log)
    with pytest.raises(ArgumentInvalid, match="one of tcp and tls"):
        gateway_from_text("syslog", ["protocols=udp,sctp"])
    with pytest.raises(ArgumentInvalid, match="one of tcp and tls"):
        gateway_from_text("syslog", ["protocols=tcp,tls"])
    with pytest.raises(ArgumentInvalid, match="its `key`"):
        gateway_from_text("syslog", ["protocols=tls", "certificate=web.pem"])
    with pytest.raises(ArgumentInvalid, match="No such file"):
        Syslog(protocols=("tls",), certificate="web.pem", key="web.key").open(log)
    with pytest.raises(headwater.errors.UsageError, match="Atlantis"):
        Syslog(zone="Atlantis")


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments",
    [["--udp", "--rfc5424"], ["--udp", "--rfc3164"], ["--tcp", "--rfc5424", "--octet-count"], ["--tcp", "--rfc3164"]],
    ids=" ".join,
)
def test_the_logger_of_util_linux_is_understood(log: Log, session: SyslogSession, arguments: list[str]) -> None:
    if shutil.which("logger") is None:
        pytest.skip("logger of util-linux is not on this machine: apt-get install bsdutils")
    command = ["logger", "--server", "127.0.0.1", "--port", str(session.port), *arguments]
    subprocess.run([*command, "--tag", "shop", "--priority", "local3.warning", "ready to sell"], check=True)
    received(session, 1)
    [row] = log.read("syslog").rows()
    assert (row["facility"], row["severity"], row["app"], row["message"]) == (
        "local3",
        "warning",
        "shop",
        "ready to sell",
    )
    assert row["host"]
