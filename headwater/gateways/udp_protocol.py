"""Numbered datagrams: their bytes, what a receiver knows of the gaps, and what a sender keeps for those who ask again.

All integers are unsigned, in network byte order. Every datagram begins with 20 bytes:

    0   2  the characters HW
    2   1  version: 1
    3   1  kind: 1 data, 2 heartbeat, 3 request
    4   8  publisher: chosen at random when a sender starts, or fixed for a partition of a topic
    12  8  data: the sequence of this datagram, counted from 0
           heartbeat: the sequence that the next datagram will have
           request: 0
    20     data: the payload
           heartbeat: 8 bytes, the oldest sequence that can still be sent again
           request: ranges of sequences to send again, 12 bytes each: the first (8), and how many (4)

A sender sends data and heartbeats to the receiver or the multicast group. A receiver sends requests to where the data came from, and is
answered there, by data and a heartbeat. A sequence that was asked for in vain, or that is older than the oldest of a heartbeat, is lost;
if it comes after that, it is ignored. So of each publisher the number of rows and that of the lost are together the number of those sent.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

HEADER = struct.Struct(">2sBBQQ")
HEARTBEAT = struct.Struct(">Q")
RANGE = struct.Struct(">QI")
MAGIC, VERSION = b"HW", 1
DATA, BEAT, REQUEST = 1, 2, 3
#: A sequence is a number of the log, too: it has 63 bits.
SEQUENCE_MAX = 2**63 - 1
#: The payload of the largest datagram of UDP over IPv4.
PAYLOAD_BYTES_MAX = 65_507 - HEADER.size
RANGES_MAX = 100
#: How many datagrams are asked for and answered at once: no request makes a sender flood the network.
ASKED_MAX = 1_000


class DatagramInvalid(ValueError):
    """Bytes that are no numbered datagram; its text says why."""


@dataclass(frozen=True, kw_only=True)
class Datagram:
    """A datagram as it was read; of a request, `ranges` are asked for."""

    kind: int
    publisher: int
    sequence: int
    payload: bytes = b""
    oldest: int = 0
    ranges: tuple[range, ...] = ()


def data_bytes(publisher: int, sequence: int, payload: bytes) -> bytes:
    """A datagram with a payload.

    >>> data_bytes(7, 1, b"tick").hex(" ", 4)
    '48570101 00000000 00000007 00000000 00000001 7469636b'
    """
    return HEADER.pack(MAGIC, VERSION, DATA, publisher, sequence) + payload


def heartbeat_bytes(publisher: int, *, sequence_next: int, oldest: int) -> bytes:
    return HEADER.pack(MAGIC, VERSION, BEAT, publisher, sequence_next) + HEARTBEAT.pack(oldest)


def request_bytes(publisher: int, ranges: Iterable[range]) -> bytes:
    body = b"".join(RANGE.pack(some.start, len(some)) for some in ranges)
    return HEADER.pack(MAGIC, VERSION, REQUEST, publisher, 0) + body


def parse_datagram(data: bytes) -> Datagram:
    """Read a datagram; raise `DatagramInvalid` if it is none.

    >>> parse_datagram(data_bytes(7, 1, b"tick")).payload
    b'tick'
    """
    if len(data) < HEADER.size:
        raise DatagramInvalid(f"it has {len(data)} bytes, and the header {HEADER.size}")
    magic, version, kind, publisher, sequence = HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise DatagramInvalid("it does not begin with HW and version 1")
    if sequence > SEQUENCE_MAX:
        raise DatagramInvalid("its sequence has 64 bits")
    if kind == DATA:
        return Datagram(kind=kind, publisher=publisher, sequence=sequence, payload=data[HEADER.size :])
    if kind == BEAT and len(data) == HEADER.size + HEARTBEAT.size:
        [oldest] = HEARTBEAT.unpack_from(data, HEADER.size)
        if oldest <= sequence:
            return Datagram(kind=kind, publisher=publisher, sequence=sequence, oldest=oldest)
    if kind == REQUEST and (len(data) - HEADER.size) % RANGE.size == 0:
        pairs = list(RANGE.iter_unpack(data[HEADER.size :]))
        if len(pairs) <= RANGES_MAX and all(first + count <= SEQUENCE_MAX for first, count in pairs):
            ranges = tuple(range(first, first + count) for first, count in pairs)
            return Datagram(kind=kind, publisher=publisher, sequence=sequence, ranges=ranges)
    raise DatagramInvalid("it is no data, heartbeat or request")


def as_ranges(sequences: Iterable[int]) -> list[range]:
    """Ascending numbers as ranges.

    >>> as_ranges([1, 2, 3, 7])
    [range(1, 4), range(7, 8)]
    """
    found: list[range] = []
    for number in sequences:
        if found and found[-1].stop == number:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found


@dataclass(frozen=True, kw_only=True)
class Repair:
    """When a missing datagram is asked for: after `delay_seconds`, again after twice as long, and so on, so many times.

    >>> repair = Repair(delay_seconds=0.02, attempts=4)
    >>> [repair.pause_us(asked) for asked in range(5)]
    [20000, 40000, 80000, 160000, 320000]
    """

    delay_seconds: float
    attempts: int

    def pause_us(self, asked: int) -> int:
        return round(self.delay_seconds * 1e6) << min(asked, 16)


@dataclass
class Gaps:
    """What a receiver knows of the sequences of one publisher.

    >>> gaps = Gaps(Repair(delay_seconds=0.02, attempts=3), missing_max=1_000)
    >>> [gaps.take(sequence, now_us=0) for sequence in (0, 3, 3, 1)]
    [True, True, False, True]
    >>> gaps.due(now_us=20_000), gaps.due(now_us=20_001)
    ([range(2, 3)], [])
    >>> gaps.announce(sequence_next=5, oldest=3, now_us=30_000); gaps.lost, gaps.sequence_next, list(gaps.missing)
    (1, 5, [4])
    """

    repair: Repair
    missing_max: int
    sequence_next: int = 0
    lost: int = 0
    duplicates: int = 0
    #: Datagrams that came after a later one.
    reordered: int = 0
    #: How often each missing sequence was asked for, and when it is due again. In ascending order.
    missing: OrderedDict[int, tuple[int, int]] = field(default_factory=OrderedDict)

    def take(self, sequence: int, *, now_us: int) -> bool:
        """Whether a datagram is the first of its sequence, and not counted as lost."""
        if sequence >= self.sequence_next:
            self._expect(sequence, now_us=now_us)
            self.sequence_next = sequence + 1
            return True
        if self.missing.pop(sequence, None) is not None:
            self.reordered += 1
            return True
        self.duplicates += 1
        return False

    def announce(self, *, sequence_next: int, oldest: int, now_us: int) -> None:
        """Take up a heartbeat: what was sent, and what cannot be sent again."""
        self._expect(sequence_next, now_us=now_us)
        for sequence in list(self.missing):
            if sequence >= oldest:
                break
            self._lose(sequence)

    def due(self, *, now_us: int) -> list[range]:
        """The sequences to ask for now. Those that were asked for often enough are lost."""
        due: list[int] = []
        for sequence, (asked, at_us) in list(self.missing.items()):
            if at_us > now_us:
                continue
            if asked >= self.repair.attempts:
                self._lose(sequence)
            elif len(due) < ASKED_MAX:
                due.append(sequence)
                self.missing[sequence] = (asked + 1, now_us + self.repair.pause_us(asked + 1))
        ranges = as_ranges(due)
        for left in ranges[RANGES_MAX:]:  # they are due again at once
            for sequence in left:
                asked, _ = self.missing[sequence]
                self.missing[sequence] = (asked - 1, now_us)
        return ranges[:RANGES_MAX]

    def _expect(self, sequence_next: int, *, now_us: int) -> None:
        """Everything before a sequence was sent: what did not come is missing, or lost if that is too much."""
        first = max(self.sequence_next, sequence_next - self.missing_max)
        self.lost += max(0, first - self.sequence_next)
        for sequence in range(first, sequence_next):
            self.missing[sequence] = (0, now_us + self.repair.pause_us(0))
        while len(self.missing) > self.missing_max:
            self._lose(next(iter(self.missing)))
        self.sequence_next = max(self.sequence_next, sequence_next)

    def _lose(self, sequence: int) -> None:
        del self.missing[sequence]
        self.lost += 1


@dataclass
class Ring:
    """The last datagrams of a sender, bounded in number and bytes, for receivers that ask again.

    >>> ring = Ring(publisher=7, count_max=2, bytes_max=1_000)
    >>> _ = [ring.add(payload) for payload in (b"a", b"b", b"c")]
    >>> [parse_datagram(data).sequence for data in ring.answer([range(0, 3)])]
    [1, 2, 3]
    """

    publisher: int
    count_max: int
    bytes_max: int
    sequence_next: int = 0
    _kept: OrderedDict[int, bytes] = field(default_factory=OrderedDict)
    _bytes: int = 0

    def add(self, payload: bytes) -> bytes:
        """The datagram with the next sequence; the oldest are dropped where there is no more room."""
        data = data_bytes(self.publisher, self.sequence_next, payload)
        self._kept[self.sequence_next] = data
        self._bytes += len(data)
        self.sequence_next += 1
        while len(self._kept) > self.count_max or self._bytes > self.bytes_max:
            self._bytes -= len(self._kept.popitem(last=False)[1])
        return data

    @property
    def oldest(self) -> int:
        return next(iter(self._kept), self.sequence_next)

    def heartbeat(self) -> bytes:
        return heartbeat_bytes(self.publisher, sequence_next=self.sequence_next, oldest=self.oldest)

    def answer(self, ranges: Sequence[range]) -> list[bytes]:
        """The datagrams of some ranges that are still there, and a heartbeat that says which are not."""
        found: list[bytes] = []
        for some in ranges:
            for sequence in range(max(some.start, self.oldest), min(some.stop, self.sequence_next)):
                if len(found) < ASKED_MAX:
                    found.append(self._kept[sequence])
        return [*found, self.heartbeat()]
