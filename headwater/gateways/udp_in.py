"""Numbered datagrams as rows, each once: gaps are asked for again, and what does not come is counted as lost.

Rows and what is known of each publisher are committed in one transaction of the log, so that a gateway that was killed neither appends a
datagram twice nor counts one twice. Of each publisher, rows and lost datagrams are together the number of those that it has sent.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import orjson
import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.gateways.dead_letters import malformed_inputs
from headwater.gateways.port import Counters, Direction
from headwater.gateways.udp import Address, UdpSender, UdpSocket
from headwater.gateways.udp_protocol import (
    BEAT,
    DATA,
    Datagram,
    DatagramInvalid,
    Gaps,
    Repair,
    as_ranges,
    parse_datagram,
    request_bytes,
)
from headwater.log.dead_letters import DeadLetter, dead_letter_topic, make_dead_letter_topic
from headwater.log.port import Log
from headwater.schema import parse_schema
from headwater.units import MIB, Duration, parse_seconds

DATAGRAM_SCHEMA: pa.Schema = parse_schema(
    "at timestamp not null, publisher string not null, sequence int64 not null, payload binary not null, "
    "sender string not null"
)
PUBLISHER_SCHEMA: pa.Schema = parse_schema(
    "publisher string not null, at timestamp not null, sequence_next int64 not null, sequence_first int64 not null, "
    "lost int64 not null, duplicates int64 not null, reordered int64 not null, missing string not null"
)
#: The datagrams of one transaction, at most.
DATAGRAMS_AT_ONCE = 16_384
#: The longest wait: a request may be due, or a publisher be forgotten.
WAIT_SECONDS = 0.02
# Any: values of a row.
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class UdpIn:
    """Datagrams of `UdpPublisher` or a gateway `udp-out`, sent to a port or, if `host` is one, to a multicast group.

    A gap is asked for after `repair_delay`, so that datagrams which only changed their order are not sent twice, then with doubled pauses
    up to `repair_attempts` times. `start` is "first", where datagrams before the first that came are missing, too, or "now". The topic
    `<topic>.publishers` has one row for each publisher, with its gaps and losses.

    >>> UdpIn(host="239.1.2.3", port=9_000, topic="ticks").name
    'udp-in-ticks'
    """

    topic: str = "datagrams"
    host: str = "127.0.0.1"
    port: int = 9_100
    interface: str = ""
    start: Literal["first", "now"] = "first"
    repair_delay: Duration = "20 ms"
    repair_attempts: int = 8
    #: Missing datagrams of one publisher, and publishers; the oldest missing one beyond that is lost.
    missing_max: int = 65_536
    publishers_max: int = 10_000
    publisher_timeout: Duration = "1 day"
    buffer_bytes: int = 64 * MIB
    partitions: int = 1

    kind: ClassVar[str] = "udp-in"
    direction: ClassVar[Direction] = "in"

    def __post_init__(self) -> None:
        if self.start not in ("first", "now"):
            raise ArgumentInvalid(name="start", value=self.start, expected="first or now")
        for name in ("missing_max", "publishers_max"):
            if getattr(self, name) < 1:
                raise ArgumentInvalid(name=name, value=getattr(self, name), expected="at least 1")
        if self.repair_attempts < 0:
            raise ArgumentInvalid(name="repair_attempts", value=self.repair_attempts, expected="0 or more")
        for name in ("repair_delay", "publisher_timeout"):
            parse_seconds(getattr(self, name), name=name)

    @property
    def name(self) -> str:
        return f"udp-in-{self.topic}"

    @property
    def publishers_topic(self) -> str:
        return f"{self.topic}.publishers"

    def create_topics(self, log: Log) -> None:
        log.create(self.topic, DATAGRAM_SCHEMA, time="at", partitions=self.partitions, exist_ok=True)
        log.create(self.publishers_topic, PUBLISHER_SCHEMA, key="publisher", compact=True, exist_ok=True)
        make_dead_letter_topic(log, self.topic)

    def open(self, log: Log) -> UdpInSession:
        self.create_topics(log)
        return UdpInSession(log, self)


@dataclass
class Publisher:
    """What is known of a publisher, and where requests to it go."""

    gaps: Gaps
    active_us: int
    sequence_first: int = 0
    address: Address | None = None
    changed: bool = False


@dataclass
class Received:
    """What one transaction holds: rows, malformed datagrams, and what is counted when it is committed."""

    rows: list[Row] = field(default_factory=list)
    malformed: list[tuple[bytes, str]] = field(default_factory=list)
    datagrams: int = 0
    bytes: int = 0


class UdpInSession:
    """Two sockets: one that is sent to, and one that asks for what is missing and gets it."""

    def __init__(self, log: Log, gateway: UdpIn) -> None:
        self._log = log
        self._gateway = gateway
        self.counters = Counters()
        self._repair = Repair(delay_seconds=parse_seconds(gateway.repair_delay), attempts=gateway.repair_attempts)
        self._forget_us = round(parse_seconds(gateway.publisher_timeout) * 1e6)
        self._producer = f"gateway.{gateway.name}"
        self._epoch = log.open_producer(self._producer)
        self._publishers = self._known()
        self._looked_us = log.clock.now_us()
        self._socket = UdpSocket(
            gateway.name, gateway.host, gateway.port, buffer_bytes=gateway.buffer_bytes, interface=gateway.interface
        )
        self.address, self.port = self._socket.address, self._socket.port
        try:
            self._requests = UdpSender(gateway.name, gateway.host, self.port, interface=gateway.interface)
        except BaseException:
            self._socket.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._socket.socket, select.POLLIN)
        self._poll.register(self._requests.socket, select.POLLIN)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.step(seconds=WAIT_SECONDS)
        self.step(seconds=0)

    def step(self, *, seconds: float) -> None:
        """Read what has come, wait up to so many seconds for it, append it, and ask for what is missing."""
        self._poll.poll(seconds * 1_000)
        self._forget()
        found, _ = self._socket.datagrams(count_max=DATAGRAMS_AT_ONCE, size_max=65_535)
        found += self._requests.received()
        self.take(found)
        for data, address in self.due():
            self._requests.send(data, to=address)

    def take(self, found: Iterable[tuple[bytes, Address]]) -> None:
        """Append the datagrams that are new, in one transaction with what is then known of their publishers."""
        now_us = self._log.clock.now_us()
        received = Received()
        lost, duplicates = self._sums()
        for data, address in found:
            received.datagrams += 1
            received.bytes += len(data)
            try:
                datagram = parse_datagram(data)
                if datagram.kind == BEAT:
                    received.datagrams -= 1
                self._take(datagram, address, received, now_us)
            except DatagramInvalid as error:
                received.malformed.append((data, str(error)))
        letters = malformed_inputs(self._gateway.name, self._gateway.topic, received.malformed, at_us=now_us)
        self._commit(received.rows, letters, now_us)
        lost_now, duplicates_now = self._sums()
        self.counters.add(
            received=received.datagrams,
            bytes=received.bytes,
            appended=len(received.rows),
            rejected=len(received.malformed),
            lost=lost_now - lost,
            duplicates=duplicates_now - duplicates,
        )

    def due(self) -> list[tuple[bytes, Address]]:
        """The requests that are due, and where they go."""
        now_us = self._log.clock.now_us()
        found = []
        for id, publisher in self._publishers.items():
            before = publisher.gaps.lost
            ranges = publisher.gaps.due(now_us=now_us) if publisher.gaps.missing else []
            if publisher.gaps.lost != before:
                publisher.changed = True
                self.counters.add(lost=publisher.gaps.lost - before)
            if ranges and publisher.address is not None:
                found.append((request_bytes(id, ranges), publisher.address))
        return found

    @property
    def missing(self) -> int:
        """How many datagrams are missing now, and may still come."""
        return sum(len(publisher.gaps.missing) for publisher in self._publishers.values())

    def close(self) -> None:
        self._socket.close()
        self._requests.close()

    def _take(self, datagram: Datagram, address: Address, received: Received, now_us: int) -> None:
        if datagram.kind not in (DATA, BEAT):
            raise DatagramInvalid("a receiver takes no requests")
        publisher = self._publishers.get(datagram.publisher)
        if publisher is None:
            if len(self._publishers) >= self._gateway.publishers_max:
                raise DatagramInvalid(f"there are {self._gateway.publishers_max} publishers already")
            publisher = Publisher(Gaps(self._repair, self._gateway.missing_max), now_us)
            if self._gateway.start == "now":
                publisher.sequence_first = publisher.gaps.sequence_next = datagram.sequence
            self._publishers[datagram.publisher] = publisher
        publisher.address, publisher.active_us = address, now_us
        before = (publisher.gaps.sequence_next, publisher.gaps.lost, publisher.gaps.duplicates)
        if datagram.kind == BEAT:
            publisher.gaps.announce(sequence_next=datagram.sequence, oldest=datagram.oldest, now_us=now_us)
            after = (publisher.gaps.sequence_next, publisher.gaps.lost, publisher.gaps.duplicates)
            publisher.changed = publisher.changed or after != before
            return
        publisher.changed = True
        if publisher.gaps.take(datagram.sequence, now_us=now_us):
            received.rows.append(
                {
                    "at": now_us,
                    "publisher": f"{datagram.publisher:016x}",
                    "sequence": datagram.sequence,
                    "payload": datagram.payload,
                    "sender": str(address[0]),
                }
            )

    def _commit(self, rows: list[Row], letters: list[DeadLetter], now_us: int) -> None:
        changed = {id: publisher for id, publisher in self._publishers.items() if publisher.changed}
        if not rows and not letters and not changed:
            return
        with self._log.transaction(self._producer, epoch=self._epoch) as transaction:
            if rows:
                transaction.append(self._gateway.topic, rows)
            if letters:
                transaction.append(dead_letter_topic(self._gateway.topic), [letter.as_row() for letter in letters])
            if changed:
                states = [_row(id, publisher, now_us) for id, publisher in changed.items()]
                transaction.append(self._gateway.publishers_topic, states)
        for publisher in changed.values():
            publisher.changed = False

    def _sums(self) -> tuple[int, int]:
        gaps = [publisher.gaps for publisher in self._publishers.values()]
        return sum(one.lost for one in gaps), sum(one.duplicates for one in gaps)

    def _forget(self) -> None:
        """Forget publishers that have been silent for long; what is missing of them is lost."""
        now_us = self._log.clock.now_us()
        if now_us - self._looked_us < 1_000_000:
            return
        self._looked_us = now_us
        old = [id for id, one in self._publishers.items() if now_us - one.active_us > self._forget_us]
        if not old:
            return
        for id in old:
            self.counters.add(lost=len(self._publishers.pop(id).gaps.missing))
        rows = [{"publisher": f"{id:016x}", "_tombstone": True} for id in old]
        self._log.append(self._gateway.publishers_topic, rows)

    def _known(self) -> dict[int, Publisher]:
        """The publishers of the topic; what was missing of them is asked for at once when they are heard again."""
        rows = {row["publisher"]: row for row in self._log.read(self._gateway.publishers_topic).rows()}
        found = {}
        now_us = self._log.clock.now_us()
        for id, row in rows.items():
            if row["_tombstone"]:
                continue
            gaps = Gaps(self._repair, self._gateway.missing_max, sequence_next=row["sequence_next"], lost=row["lost"])
            gaps.duplicates, gaps.reordered = row["duplicates"], row["reordered"]
            for first, stop in orjson.loads(row["missing"]):
                for sequence in range(first, stop):
                    gaps.missing[sequence] = (0, now_us)
            found[int(id, 16)] = Publisher(gaps, now_us, sequence_first=row["sequence_first"])
        return found


def _row(id: int, publisher: Publisher, now_us: int) -> Row:
    gaps = publisher.gaps
    return {
        "publisher": f"{id:016x}",
        "at": now_us,
        "sequence_next": gaps.sequence_next,
        "sequence_first": publisher.sequence_first,
        "lost": gaps.lost,
        "duplicates": gaps.duplicates,
        "reordered": gaps.reordered,
        "missing": orjson.dumps([[some.start, some.stop] for some in as_ranges(gaps.missing)]).decode(),
    }
