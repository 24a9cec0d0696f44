"""Syslog over UDP, TCP and TLS as rows: RFC 5424 and RFC 3164, with counted octets or line ends.

One thread reads what has come on all sockets and appends it together; it reads no more while the log is slow, so that TCP stops the senders,
and UDP fills the kernel's buffer, whose drops are counted. Syslog has no acknowledgement: what a sender wrote to a connection and this
gateway did not read is lost without a trace when either of them dies.
"""

from __future__ import annotations

import errno
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headwater.errors import ArgumentInvalid
from headwater.gateways.append_retry import AppendRetry, Attempt, at_once
from headwater.gateways.dead_letters import malformed_inputs
from headwater.gateways.errors import AddressUnusable
from headwater.gateways.port import Counters, Direction
from headwater.gateways.syslog_frames import Frames
from headwater.gateways.syslog_message import SYSLOG_SCHEMA, MessageInvalid, Row, parse_message
from headwater.gateways.tls import TlsSocket, server_context
from headwater.gateways.udp import UdpSocket
from headwater.log.dead_letters import append_dead_letters
from headwater.log.port import Log
from headwater.units import KIB, MIB, Duration, parse_seconds

#: What is read of one socket in one round, so that a fast sender does not hold others back.
DATAGRAMS_AT_ONCE = 4_096
STREAM_BYTES_AT_ONCE = 256 * KIB
#: How often timeouts are looked at.
CHECK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Syslog:
    """Messages of syslog as rows; malformed ones are dead letters.

    `protocols` are "udp", and "tcp" or "tls", on one port. TLS (RFC 5425) needs the files `certificate` and `key`; with `client_authority`, a
    file of certificates, only senders with a certificate of that authority may write. `zone` is that of the times of RFC 3164. A connection that has been inside of a
    message for `message_timeout`, or silent for `idle_timeout`, is closed; while there are `connections_max`, no further one is accepted.

    >>> import tempfile, headwater, socket, threading
    >>> log = headwater.open(tempfile.mkdtemp())
    >>> session = Syslog(port=0).open(log)
    >>> with socket.create_connection(("127.0.0.1", session.port)) as client:
    ...     client.sendall(b"<14>1 2026-01-31T12:00:00Z web shop 42 - - ready\\n")
    >>> while session.counters.appended == 0:
    ...     session.step(seconds=1)
    >>> [(row["host"], row["app"], row["severity"], row["message"]) for row in log.read("syslog").rows()]
    [('web', 'shop', 'info', 'ready')]
    >>> session.close()
    """

    topic: str = "syslog"
    host: str = "127.0.0.1"
    port: int = 5514
    protocols: tuple[str, ...] = ("udp", "tcp")
    zone: str = "UTC"
    message_bytes_max: int = 64 * KIB
    connections_max: int = 5_000
    message_timeout: Duration = "30 seconds"
    idle_timeout: Duration = "1 hour"
    buffer_bytes: int = 64 * MIB
    partitions: int = 1
    certificate: str = ""
    key: str = ""
    client_authority: str = ""

    kind: ClassVar[str] = "syslog"
    direction: ClassVar[Direction] = "in"

    def __post_init__(self) -> None:
        chosen = set(self.protocols)
        if not chosen or not chosen <= {"udp", "tcp", "tls"} or chosen >= {"tcp", "tls"}:
            raise ArgumentInvalid(
                name="protocols", value=self.protocols, expected="udp, and one of tcp and tls, or one alone"
            )
        if ("tls" in chosen) != bool(self.certificate and self.key):
            expected = "files of a certificate and its `key` for the protocol tls, and for no other"
            raise ArgumentInvalid(name="certificate", value=self.certificate, expected=expected)
        if not 480 <= self.message_bytes_max <= 16 * MIB:
            expected = "from 480 bytes, which every receiver must take, to 16 MiB"
            raise ArgumentInvalid(name="message_bytes_max", value=self.message_bytes_max, expected=expected)
        if self.connections_max < 1:
            raise ArgumentInvalid(name="connections_max", value=self.connections_max, expected="at least 1")
        for name in ("message_timeout", "idle_timeout"):
            parse_seconds(getattr(self, name), name=name)
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            expected = "a time zone such as Europe/Zurich"
            raise ArgumentInvalid(name="zone", value=self.zone, expected=expected) from error

    @property
    def name(self) -> str:
        return f"syslog-{self.topic}"

    def create_topics(self, log: Log) -> None:
        log.create(self.topic, SYSLOG_SCHEMA, time="at", partitions=self.partitions, exist_ok=True)

    def open(self, log: Log) -> SyslogSession:
        self.create_topics(log)
        return SyslogSession(log, self)


@dataclass
class Connection:
    """A connection of TCP or TLS: its socket, its sender, and the beginning of a message."""

    socket: socket.socket
    receive: Callable[[], bytes | None]
    sender: str
    frames: Frames
    #: When bytes last came, and when the open message began.
    active_us: int
    begun_us: int | None = None


class SyslogSession:
    """The sockets of a gateway, and the messages that were read and are not appended yet."""

    def __init__(self, log: Log, gateway: Syslog) -> None:
        self._log = log
        self._gateway = gateway
        self._zone: tzinfo = ZoneInfo(gateway.zone)
        self.counters = Counters()
        self._drops = 0
        self._attempt: Attempt[object] = at_once
        self._rows: list[Row] = []
        self._bad: list[tuple[bytes, str]] = []
        self._connections: dict[int, Connection] = {}
        self._checked_us = 0
        self._selector = selectors.DefaultSelector()
        self._context: ssl.SSLContext | None = None
        if "tls" in gateway.protocols:
            self._context = server_context(gateway.certificate, gateway.key, gateway.client_authority)
        self._listener = _listener(gateway) if {"tcp", "tls"} & set(gateway.protocols) else None
        self._listening = False
        self.port = gateway.port if self._listener is None else int(self._listener.getsockname()[1])
        self._datagrams: UdpSocket | None = None
        try:
            if "udp" in gateway.protocols:
                self._datagrams = UdpSocket(gateway.name, gateway.host, self.port, buffer_bytes=gateway.buffer_bytes)
                self.port = self._datagrams.port
                self._selector.register(self._datagrams.socket, selectors.EVENT_READ, self._receive)
        except AddressUnusable:
            self.close()
            raise
        host = f"[{gateway.host}]" if ":" in gateway.host else gateway.host
        self.address = ", ".join(f"{protocol}://{host}:{self.port}" for protocol in gateway.protocols)
        self._listen()

    def run(self, stop: threading.Event) -> None:
        self._attempt = AppendRetry(self.counters, stop)
        try:
            while not stop.is_set():
                self.step(seconds=0.1)
            self.step(seconds=0)
            for connection in list(self._connections.values()):
                self._end(connection, "the gateway was stopped inside of a message")
            self._append()
        except BaseException:
            left = len(self._rows) + len(self._bad)
            if self._datagrams is not None:
                left += self._datagrams.discard(size_max=self._gateway.message_bytes_max)
            self.counters.add(received=left, lost=left)
            raise

    def step(self, *, seconds: float) -> None:
        """Read what has come on all sockets, wait up to so many seconds for it, and append it."""
        for key, _ in self._selector.select(seconds):
            act: Callable[[], None] = key.data
            act()
        self._append()
        self._count_drops()
        self._close_idle()

    def close(self) -> None:
        self._count_drops()
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()
        self._selector.close()
        if self._listener is not None:
            self._listener.close()
        if self._datagrams is not None:
            self._datagrams.close()

    def _listen(self) -> None:
        """Accept connections as long as there may be more; further ones wait in the kernel."""
        wanted = self._listener is not None and len(self._connections) < self._gateway.connections_max
        if self._listener is None or wanted == self._listening:
            return
        self._listening = wanted
        if wanted:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        else:
            self._selector.unregister(self._listener)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            own, (host, *_) = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # no further file may be opened: it waits in the kernel
                self._selector.unregister(self._listener)
                self._listening = False
            return  # else it has left already
        own.setblocking(False)
        now_us, begun_us = self._log.clock.now_us(), None
        receive: Callable[[], bytes | None] = partial(_receive_plain, own)
        if self._context is not None:
            secure = TlsSocket(own, self._context, self._selector, failed=self.counters.note)
            own, receive, begun_us = secure.socket, secure.receive, now_us  # its handshake has the time of a message
        frames = Frames(self._gateway.message_bytes_max)
        connection = Connection(own, receive, str(host), frames, active_us=now_us, begun_us=begun_us)
        self._connections[own.fileno()] = connection
        self._selector.register(own, selectors.EVENT_READ, lambda: self._read(connection))
        self._listen()

    def _read(self, connection: Connection) -> None:
        data = connection.receive()
        if data is None:
            return
        if not data:
            self._end(connection, "the connection ended inside of a message")
            return
        now_us = self._log.clock.now_us()
        messages, too_long = connection.frames.feed(data)
        connection.active_us = now_us
        if not connection.frames.is_open:
            connection.begun_us = None
        elif connection.begun_us is None or messages:
            connection.begun_us = now_us
        self.counters.add(bytes=len(data))
        self._take(messages, connection.sender)
        self._reject(too_long, f"the message is longer than {self._gateway.message_bytes_max} bytes")

    def _end(self, connection: Connection, why: str) -> None:
        """Close a connection; a last line without an end is a message."""
        messages, cut = connection.frames.end()
        self._take(messages, connection.sender)
        self._reject(cut, why)
        self._connections.pop(connection.socket.fileno())
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._listen()

    def _receive(self) -> None:
        assert self._datagrams is not None
        found, cut = self._datagrams.datagrams(count_max=DATAGRAMS_AT_ONCE, size_max=self._gateway.message_bytes_max)
        for data, sender in found:
            self.counters.add(bytes=len(data))
            self._take([data.rstrip(b"\r\n\0")], str(sender[0]))
        self.counters.add(received=cut, rejected=cut)

    def _take(self, messages: Iterable[bytes], sender: str) -> None:
        now_us = self._log.clock.now_us()
        for message in messages:
            try:
                self._rows.append(parse_message(message, sender=sender, now_us=now_us, zone=self._zone))
            except MessageInvalid as error:
                self._bad.append((message, str(error)))

    def _reject(self, inputs: Iterable[bytes], why: str) -> None:
        self._bad += [(data, why) for data in inputs]

    def _append(self) -> None:
        rows, bad = self._rows, self._bad
        if rows:
            self._attempt(lambda: self._log.append(self._gateway.topic, rows))
            self.counters.add(received=len(rows), appended=len(rows))
            self._rows = []
        if bad:
            now_us = self._log.clock.now_us()
            letters = malformed_inputs(self._gateway.name, self._gateway.topic, bad, at_us=now_us)
            self._attempt(lambda: append_dead_letters(self._log, self._gateway.topic, letters))
            self.counters.add(received=len(bad), rejected=len(bad))
            self._bad = []

    def _close_idle(self) -> None:
        now_us = self._log.clock.now_us()
        if abs(now_us - self._checked_us) < CHECK_SECONDS * 1e6:
            return
        self._checked_us = now_us
        self._listen()
        inside, silent = (parse_seconds(one) for one in (self._gateway.message_timeout, self._gateway.idle_timeout))
        for connection in list(self._connections.values()):
            begun_us = connection.begun_us
            if begun_us is not None and now_us - begun_us > inside * 1e6:
                self._end(connection, f"the message did not end within {inside:g} seconds")
            elif now_us - connection.active_us > silent * 1e6:
                self._end(connection, "the connection was silent")

    def _count_drops(self) -> None:
        drops = None if self._datagrams is None else self._datagrams.drops()
        if drops is not None and drops != self._drops:
            self.counters.add(lost=(drops - self._drops) % 2**32)
            self._drops = drops


def _receive_plain(own: socket.socket) -> bytes | None:
    """What has come over a connection; None if nothing has, and no bytes at its end."""
    try:
        return own.recv(STREAM_BYTES_AT_ONCE)
    except BlockingIOError:
        return None
    except OSError:  # it was reset
        return b""


def _listener(gateway: Syslog) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in gateway.host else socket.AF_INET
        listener = socket.create_server((gateway.host, gateway.port), family=family, backlog=1_024)
    except OSError as error:
        address = f"tcp {gateway.host}:{gateway.port}"
        raise AddressUnusable(gateway=gateway.name, address=address, why=str(error)) from error
    listener.setblocking(False)
    return listener
