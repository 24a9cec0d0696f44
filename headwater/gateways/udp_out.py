"""Rows of a topic as numbered datagrams, to a port or a multicast group, and those again that a receiver asks for.

Each partition is a publisher, and the offset of a row is its sequence. What a receiver asks for is read from the topic, so that only what
retention has deleted is lost, and a datagram that is sent twice after a crash is a duplicate to the receiver.
"""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass
from typing import ClassVar

from headwater.errors import ArgumentInvalid
from headwater.gateways.outlet import Outgoing, Outlet
from headwater.gateways.port import Counters, Direction
from headwater.gateways.udp import Address, UdpSender
from headwater.gateways.udp_protocol import (
    ASKED_MAX,
    PAYLOAD_BYTES_MAX,
    REQUEST,
    DatagramInvalid,
    data_bytes,
    heartbeat_bytes,
    parse_datagram,
)
from headwater.log.port import Log

HEARTBEAT_SECONDS = 0.2
STEP_SECONDS = 0.02
#: Rows that are sent before requests are looked at.
ROWS_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True)
class UdpOut:
    """Rows of a topic as datagrams: each row as JSON, or the bytes of the column `value`.

    `host` may be a multicast group, whose datagrams pass `hops - 1` routers. A receiver is a gateway `udp-in`, or a program that speaks the
    protocol of `headwater.gateways.udp_protocol`.

    >>> UdpOut(topic="ticks", host="239.1.2.3", port=9_000).name
    'udp-out-ticks'
    """

    topic: str = "datagrams"
    host: str = "127.0.0.1"
    port: int = 9_100
    interface: str = ""
    hops: int = 1
    value: str = ""

    kind: ClassVar[str] = "udp-out"
    direction: ClassVar[Direction] = "out"

    @property
    def name(self) -> str:
        return f"udp-out-{self.topic}"

    def create_topics(self, log: Log) -> None:
        """Create nothing: the topic is that of other programs."""

    def open(self, log: Log) -> UdpOutSession:
        if log.topic(self.topic).compact:
            expected = "a topic that is not compacted: its offsets are the numbers of the datagrams"
            raise ArgumentInvalid(name="topic", value=self.topic, expected=expected)
        return UdpOutSession(log, self)


def publisher_of(topic_id: str, partition: int) -> int:
    """The publisher that a partition is: always the same.

    >>> f"{publisher_of('0ff5e75', 0):016x}"
    '1dd287220eda33d9'
    """
    return int.from_bytes(hashlib.blake2b(f"{topic_id}/{partition}".encode(), digest_size=8).digest())


class UdpOutSession:
    """Sends rows as they come, answers requests from the topic, and says five times a second what was sent."""

    def __init__(self, log: Log, gateway: UdpOut) -> None:
        self._log = log
        self._gateway = gateway
        self.counters = Counters()
        self.address = f"udp://{gateway.host}:{gateway.port}"
        topic = log.topic(gateway.topic)
        partitions = range(log.partitions_of(gateway.topic))
        self._publishers = {number: publisher_of(topic.id, number) for number in partitions}
        self._partitions = {id: number for number, id in self._publishers.items()}
        committed = log.committed(gateway.name, gateway.topic)
        self._next = {number: committed.get(number, 0) for number in partitions}
        self._beat_at = 0.0
        self._sender = UdpSender(
            gateway.name, gateway.host, gateway.port, interface=gateway.interface, hops=gateway.hops
        )
        try:
            self._outlet = Outlet(
                log,
                gateway.topic,
                template="",
                value=gateway.value,
                start="earliest",
                rows_max=ROWS_AT_ONCE,
                gateway=gateway.name,
                counters=self.counters,
            )
        except BaseException:
            self._sender.close()
            raise

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.step(seconds=STEP_SECONDS)
            if time.monotonic() >= self._beat_at:
                self.beat()
                self._beat_at = time.monotonic() + HEARTBEAT_SECONDS
        self.beat()

    def step(self, *, seconds: float) -> None:
        """Send the next rows, wait up to so many seconds for them, and answer requests."""
        messages = self._outlet.next(seconds=seconds)
        for message in messages:
            self._send(message)
        if messages:
            self._outlet.commit()
        for data, address in self._sender.received():
            self._answer(data, address)

    def beat(self) -> None:
        """Say of each partition what was sent last, and what can be asked for."""
        oldest = self._log.start_offsets(self._gateway.topic)
        for number in self._next:
            self._sender.send(self._heartbeat(number, oldest[number]))

    def close(self) -> None:
        self._outlet.close()
        self._sender.close()

    def _send(self, message: Outgoing) -> None:
        self.counters.add(received=1)
        self._next[message.partition] = max(self._next.get(message.partition, 0), message.offset + 1)
        if len(message.payload) > PAYLOAD_BYTES_MAX:
            self._outlet.refuse([(message, f"a datagram has at most {PAYLOAD_BYTES_MAX} bytes")])
            return
        self._sender.send(self._datagram(message))
        self.counters.add(appended=1, bytes=len(message.payload))

    def _answer(self, data: bytes, address: Address) -> None:
        try:
            asked = parse_datagram(data)
        except DatagramInvalid:
            return
        number = self._partitions.get(asked.publisher)
        if asked.kind != REQUEST or number is None:
            return
        oldest, left = self._log.start_offsets(self._gateway.topic)[number], ASKED_MAX
        for some in asked.ranges:
            start = max(some.start, oldest)
            stop = min(some.stop, self._next[number], start + left)
            if start < stop:
                left -= stop - start
                for message in self._outlet.messages(number, start=start, stop=stop):
                    if len(message.payload) <= PAYLOAD_BYTES_MAX:
                        self._sender.send(self._datagram(message), to=address)
        self._sender.send(self._heartbeat(number, oldest), to=address)

    def _datagram(self, message: Outgoing) -> bytes:
        return data_bytes(self._publishers[message.partition], message.offset, message.payload)

    def _heartbeat(self, number: int, oldest: int) -> bytes:
        return heartbeat_bytes(self._publishers[number], sequence_next=max(self._next[number], oldest), oldest=oldest)
