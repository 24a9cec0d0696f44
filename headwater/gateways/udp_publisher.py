"""A sender of numbered datagrams, for programs that have no log."""

from __future__ import annotations

import secrets
import threading
from types import TracebackType
from typing import Self

from headwater.errors import ArgumentInvalid, Closed
from headwater.gateways.udp import Address, UdpSender
from headwater.gateways.udp_protocol import PAYLOAD_BYTES_MAX, REQUEST, DatagramInvalid, Ring, parse_datagram
from headwater.units import MIB

HEARTBEAT_SECONDS = 0.2


class UdpPublisher:
    """Sends numbered datagrams to a gateway `udp-in` or a multicast group, and those again that a receiver asks for.

    The last `count_max` datagrams are kept, up to `bytes_max`; an older one that was lost stays lost, and the receiver counts it. A thread
    answers requests, and says five times a second what was sent last, so that the loss of the last datagram is noticed, too. At its end
    call `close` with the time that receivers may need to ask.

    >>> import tempfile, threading, headwater
    >>> from headwater.gateways import UdpIn
    >>> log = headwater.open(tempfile.mkdtemp())
    >>> session = UdpIn(port=0, topic="ticks").open(log)
    >>> with UdpPublisher("127.0.0.1", session.port) as publisher:
    ...     publisher.send(b"tick")
    0
    >>> while session.counters.appended == 0:
    ...     session.step(seconds=1)
    >>> [row["payload"] for row in log.read("ticks").rows()]
    [b'tick']
    >>> session.close()
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        count_max: int = 65_536,
        bytes_max: int = 64 * MIB,
        interface: str = "",
        hops: int = 1,
    ) -> None:
        if count_max < 1:
            raise ArgumentInvalid(name="count_max", value=count_max, expected="at least 1")
        self._sender = UdpSender("udp-publisher", host, port, interface=interface, hops=hops)
        self._ring = Ring(publisher=secrets.randbits(63), count_max=count_max, bytes_max=bytes_max)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="headwater-udp-publisher", daemon=True)
        self._thread.start()

    @property
    def id(self) -> str:
        """The id of this publisher, as the rows have it."""
        return f"{self._ring.publisher:016x}"

    def send(self, payload: bytes) -> int:
        """Send a datagram and return its sequence."""
        if self._stop.is_set():
            raise Closed(what="publisher")
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ArgumentInvalid(
                name="payload", value=f"{len(payload)} bytes", expected=f"at most {PAYLOAD_BYTES_MAX}"
            )
        with self._lock:
            sequence = self._ring.sequence_next
            self._sender.send(self._ring.add(payload))
        return sequence

    def close(self, *, linger_seconds: float = 0.0) -> None:
        """Stop, after so many seconds in which receivers may ask for what they miss."""
        self._stop.wait(linger_seconds)
        self._stop.set()
        self._thread.join()
        self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._stop.is_set():
            if not self._sender.wait(HEARTBEAT_SECONDS):
                with self._lock:
                    self._sender.send(self._ring.heartbeat())
                continue
            for data, address in self._sender.received():
                self._answer(data, address)
        with self._lock:
            self._sender.send(self._ring.heartbeat())

    def _answer(self, data: bytes, address: Address) -> None:
        try:
            asked = parse_datagram(data)
        except DatagramInvalid:
            return
        if asked.kind != REQUEST or asked.publisher != self._ring.publisher:
            return
        with self._lock:
            answers = self._ring.answer(asked.ranges)
        for answer in answers:
            self._sender.send(answer, to=address)
