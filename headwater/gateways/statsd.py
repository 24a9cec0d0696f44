"""StatsD over UDP: counters, gauges, timers and sets as rows, with every lost datagram counted.

Datagrams are joined as they come and parsed together: no Python runs for a line that is well-formed. A row is what one line says; a counter
with the sample rate 0.1 counts ten times, so that a total is `sum(value / sample_rate)`. Lines that are malformed become dead letters.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ArgumentInvalid
from headwater.gateways.append_retry import AppendRetry, Attempt, at_once
from headwater.gateways.dead_letters import malformed_inputs
from headwater.gateways.port import Counters, Direction
from headwater.gateways.udp import UdpSocket
from headwater.log.dead_letters import append_dead_letters
from headwater.log.port import Log
from headwater.schema import parse_schema
from headwater.units import MIB

METRIC_SCHEMA: pa.Schema = parse_schema(
    "at timestamp not null, name string not null, kind string not null, value double, member string, "
    "sample_rate double not null, relative bool not null, tags string"
)
#: What stands behind the first bar, and what a row calls it. DogStatsD's histograms and distributions are timers of other units.
KINDS = {"c": "counter", "g": "gauge", "ms": "timer", "h": "timer", "d": "timer", "s": "set"}
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_LINE = (
    rf"^(?P<name>[^:|@#\x00-\x1f]{{1,500}}):(?:(?P<value>{_NUMBER})\|(?P<kind>c|g|ms|h|d)|(?P<member>[^|\x00-\x1f]{{1,500}})\|s)"
    r"(?:\|@(?P<rate>1(?:\.0*)?|0?\.[0-9]{1,12}))?(?:\|#(?P<tags>[^|\x00-\x1f]*))?\r?$"
)
#: Datagrams that were received and are not appended yet: so many buffers, and then the kernel's.
BUFFERS = 8
BUFFER_BYTES = 2 * MIB


@dataclass(frozen=True, kw_only=True)
class StatsD:
    """Metrics of StatsD clients as rows of a topic.

    `buffer_bytes` is the kernel's receive buffer: what does not fit is dropped, and counted as lost. A process without privileges gets
    up to `net.core.rmem_max`.

    >>> StatsD(port=8125, topic="metrics").name
    'statsd-metrics'
    """

    topic: str = "metrics"
    host: str = "127.0.0.1"
    port: int = 8125
    datagram_bytes_max: int = 8_932
    buffer_bytes: int = 64 * MIB
    partitions: int = 1

    kind: ClassVar[str] = "statsd"
    direction: ClassVar[Direction] = "in"

    def __post_init__(self) -> None:
        if not 16 <= self.datagram_bytes_max <= 65_507:
            expected = "a size from 16 to 65507 bytes"
            raise ArgumentInvalid(name="datagram_bytes_max", value=self.datagram_bytes_max, expected=expected)

    @property
    def name(self) -> str:
        return f"statsd-{self.topic}"

    def create_topics(self, log: Log) -> None:
        log.create(self.topic, METRIC_SCHEMA, time="at", partitions=self.partitions, exist_ok=True)

    def open(self, log: Log) -> StatsDSession:
        self.create_topics(log)
        return StatsDSession(log, self)


class StatsDSession:
    """A thread receives, another one parses and appends: while the disk is slow, datagrams wait in bounded buffers."""

    def __init__(self, log: Log, gateway: StatsD) -> None:
        self._log = log
        self._gateway = gateway
        self._socket = UdpSocket(gateway.name, gateway.host, gateway.port, buffer_bytes=gateway.buffer_bytes)
        self.counters = Counters()
        self._drops = 0
        self._free: queue.Queue[bytearray] = queue.Queue()
        #: What was received: buffers, each with its bytes and the number of datagrams.
        self._full: queue.Queue[tuple[bytearray, int, int] | None] = queue.Queue()
        self._attempt: Attempt[object] = at_once
        for _ in range(BUFFERS):
            self._free.put(bytearray(BUFFER_BYTES))

    @property
    def address(self) -> str:
        return self._socket.address

    @property
    def port(self) -> int:
        return self._socket.port

    def run(self, stop: threading.Event) -> None:
        failures: list[BaseException] = []
        self._attempt = AppendRetry(self.counters, stop)

        def append() -> None:
            try:
                self._append_all()
            except BaseException as error:
                failures.append(error)

        appender = threading.Thread(target=append, name=f"{self._gateway.name}-append", daemon=True)
        appender.start()
        try:
            while not failures:
                stopping = stop.is_set()
                if self._socket.wait(0.0 if stopping else 0.1):
                    self._receive(appender)
                elif stopping:
                    break
                self._count_drops()
        finally:
            self._full.put(None)
            appender.join()
        if failures:
            self._count_unappended()
            raise failures[0]

    def close(self) -> None:
        self._count_drops()
        self._socket.close()

    def _receive(self, appender: threading.Thread) -> None:
        while appender.is_alive():
            try:
                buffer = self._free.get(timeout=0.5)
                break
            except queue.Empty:  # the log is slower than the senders; the kernel's buffer fills meanwhile
                continue
        else:
            return
        size, count, cut = self._socket.burst(buffer, size_max=self._gateway.datagram_bytes_max)
        self.counters.add(received=count + cut, rejected=cut, bytes=size - count)
        self._full.put((buffer, size, count))

    def _count_drops(self) -> None:
        drops = self._socket.drops()
        if drops is not None and drops != self._drops:
            self.counters.add(lost=(drops - self._drops) % 2**32)
            self._drops = drops

    def _count_unappended(self) -> None:
        """Count what waits here and in the kernel as lost: its senders do not send it again."""
        lost = 0
        while not self._full.empty():
            item = self._full.get()
            lost += 0 if item is None else item[2]
        left = self._socket.discard(size_max=self._gateway.datagram_bytes_max)
        self.counters.add(received=left, lost=lost + left)

    def _append_all(self) -> None:
        while (item := self._full.get()) is not None:
            buffer, size, count = item
            data = bytes(memoryview(buffer)[:size])
            self._free.put(buffer)
            parts, ended = [data], False
            while not self._full.empty():  # one append for all that has come meanwhile
                more = self._full.get()
                if more is None:
                    ended = True
                    break
                parts.append(bytes(memoryview(more[0])[: more[1]]))
                count += more[2]
                self._free.put(more[0])
            self._append(b"".join(parts), count)
            if ended:
                return

    def _append(self, data: bytes, count: int) -> None:
        if not data:
            return
        now_us = self._log.clock.now_us()
        rows, malformed = parse(data, now_us=now_us)
        unappended = count
        try:
            if rows.num_rows:
                self._attempt(lambda: self._log.append(self._gateway.topic, rows))
            unappended = len(malformed)
            self.counters.add(appended=rows.num_rows)
            self._add_dead_letters(malformed, now_us)
        except BaseException:
            self.counters.add(lost=unappended)
            raise

    def _add_dead_letters(self, malformed: list[bytes], now_us: int) -> None:
        if malformed:
            why = "a line must be NAME:VALUE|KIND, with |@RATE and |#TAGS behind it"
            letters = malformed_inputs(
                self._gateway.name, self._gateway.topic, [(line, why) for line in malformed], at_us=now_us
            )
            self._attempt(lambda: append_dead_letters(self._log, self._gateway.topic, letters))
            self.counters.add(rejected=len(malformed))


def parse(data: bytes, *, now_us: int) -> tuple[pa.RecordBatch, list[bytes]]:
    """The rows that lines of StatsD say, and the lines that are malformed. Empty lines say nothing.

    >>> rows, malformed = parse(b"page.views:1|c|@0.1\\nload:-0.5|g\\nusers:ada|s\\nnonsense\\n", now_us=0)
    >>> [(row["name"], row["kind"], row["value"], row["member"], row["sample_rate"]) for row in rows.to_pylist()]
    [('page.views', 'counter', 1.0, None, 0.1), ('load', 'gauge', -0.5, None, 1.0), ('users', 'set', None, 'ada', 1.0)]
    >>> malformed
    [b'nonsense']
    """
    lines = _lines(data)
    # Clients repeat themselves: each distinct line is parsed once.
    encoded = lines.dictionary_encode()
    parts = pc.extract_regex(encoded.dictionary, _LINE)
    rate = parts.field("rate")
    rates = pc.if_else(pc.equal(rate, ""), "1", rate).cast(pa.float64())
    # A rate of 0 would make a count infinite.
    is_good = pc.fill_null(pc.and_(pc.is_valid(parts), pc.not_equal(rates, 0.0)), False)
    good = is_good.take(encoded.indices)
    malformed = [line.encode() for line in lines.filter(pc.invert(good)).to_pylist() if line.strip()] + _not_text(data)
    places = encoded.indices.filter(good)
    at = pa.array(np.full(len(places), now_us, dtype="int64")).cast(METRIC_SCHEMA.field("at").type)
    columns = [at, *(column.take(places) for column in _columns(parts, rates))]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, METRIC_SCHEMA, strict=True)], schema=METRIC_SCHEMA
    ), malformed


def _columns(parts: pa.StructArray, rates: pa.DoubleArray) -> list[pa.Array]:
    """The columns behind the time, of lines in parts; of malformed lines they are null."""
    name, value, kind, member, tags = (parts.field(name) for name in ("name", "value", "kind", "member", "tags"))
    is_set = pc.equal(kind, "")
    sign = pc.utf8_slice_codeunits(value, 0, 1)
    kinds = pa.array([*KINDS.values(), "set"])
    numbers = pc.index_in(kind, value_set=pa.array(list(KINDS)))
    kind = kinds.take(pc.fill_null(numbers, len(kinds) - 1))
    return [
        name,
        kind,
        pc.if_else(is_set, None, value).cast(pa.float64()),
        pc.if_else(is_set, member, None),
        rates,
        pc.and_(pc.equal(kind, "gauge"), pc.is_in(sign, value_set=pa.array(["+", "-"]))),
        pc.if_else(pc.equal(tags, ""), None, tags),
    ]


def _lines(data: bytes) -> pa.StringArray:
    """The lines of text, without a copy of their bytes; lines that are not UTF-8 are left out."""
    try:
        data.decode()
    except UnicodeDecodeError:
        data = b"\n".join(line for line in data.split(b"\n") if _is_text(line))
    if not data.endswith(b"\n"):
        data += b"\n"
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10).astype(np.int32)
    offsets = np.empty(len(ends) + 1, dtype=np.int32)
    offsets[0], offsets[1:] = 0, ends + 1
    with_ends = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data))
    return pc.utf8_rtrim(with_ends, characters="\n")


def _not_text(data: bytes) -> list[bytes]:
    return [] if _is_text(data) else [line for line in data.split(b"\n") if not _is_text(line)]


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
