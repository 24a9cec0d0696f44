"""ZeroMQ in: messages of PUB or PUSH sockets as rows.

SUB takes what it is subscribed to; a publisher drops what this gateway has no room for. PULL takes its share of what is pushed; while the
log is slow, its queue fills and the senders wait. What waits in the queue is lost if the process is killed: there is no acknowledgement in
ZeroMQ. Messages of `zeromq-out` say their positions: those that are missing are counted as lost.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.gateways.append_retry import AppendRetry
from headwater.gateways.inlet import Inlet, Message, create_topic
from headwater.gateways.port import Counters, Direction
from headwater.gateways.zeromq import Endpoint, Gaps, Position, Socket
from headwater.log.port import Log
from headwater.schema import parse_schema

ZEROMQ_SCHEMA: pa.Schema = parse_schema(
    "at timestamp not null, subject string, payload binary not null, frames list<binary>, position string, "
    "redelivered bool not null"
)
Pattern = Literal["sub", "pull"]
WAIT_SECONDS = 0.1
ROWS_AT_ONCE = 5_000


@dataclass(frozen=True, kw_only=True)
class ZeroMqIn(Endpoint):
    """Messages of ZeroMQ sockets as rows of a topic.

    The first of several frames is the subject, the last one the payload; what stands between them is in `frames`. `subscribe` are the
    beginnings of the subjects to take; only a subscriber to all of them can tell what is missing.

    >>> ZeroMqIn(topic="ticks", addresses=("tcp://127.0.0.1:5556",), subscribe=("eur",)).name
    'zeromq-in-ticks'
    """

    topic: str = "zeromq"
    pattern: Pattern = "sub"
    subscribe: tuple[str, ...] = ("",)

    kind: ClassVar[str] = "zeromq-in"
    direction: ClassVar[Direction] = "in"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pattern not in get_args(Pattern):
            raise ArgumentInvalid(name="pattern", value=self.pattern, expected=" or ".join(get_args(Pattern)))
        if self.pattern == "sub" and not self.subscribe:
            raise ArgumentInvalid(name="subscribe", value=(), expected="the beginning of a subject, or '' for all")

    @property
    def name(self) -> str:
        return f"zeromq-in-{self.topic}"

    def create_topics(self, log: Log) -> None:
        create_topic(log, self.topic, ZEROMQ_SCHEMA)

    def open(self, log: Log) -> ZeroMqInSession:
        return ZeroMqInSession(log, self)


def message_of(frames: list[bytes], *, now_us: int, redelivered: bool = False) -> Message:
    """A message of ZeroMQ as a row.

    >>> message_of([b"eur", b"1.09"], now_us=0).row["subject"], message_of([b"1.09"], now_us=0).row["subject"]
    ('eur', None)
    """
    position = position_of(frames)
    own = [*frames[:-2], frames[-1]] if position is not None else frames
    subject = own[0].decode("utf-8", "backslashreplace") if len(own) > 1 else None
    row = {
        "at": now_us,
        "subject": subject,
        "payload": own[-1],
        "frames": own[1:-1] or None,
        "position": None if position is None else str(position),
        "redelivered": redelivered,
    }
    return Message(subject=subject or "", payload=own[-1], row=row)


def position_of(frames: list[bytes]) -> Position | None:
    """The position of a message; None if it comes from another program."""
    return Position.of(frames[-2]) if len(frames) > 1 else None


class ZeroMqInSession:
    """A socket; a thread reads all that has come, and appends it together."""

    def __init__(self, log: Log, gateway: ZeroMqIn) -> None:
        self._log = log
        self._gateway = gateway
        self.counters = Counters()
        self._inlet = Inlet(log, gateway.topic, ZEROMQ_SCHEMA, gateway=gateway.name, counters=self.counters)
        self._gaps = Gaps()
        #: Others take a part of what is sent: what is missing here is not lost.
        self._takes_all = gateway.pattern == "sub" and "" in gateway.subscribe
        subscribe = gateway.subscribe if gateway.pattern == "sub" else ()
        self._socket = Socket(gateway.name, gateway, gateway.pattern, subscribe=subscribe)
        self.address = self._socket.address

    def run(self, stop: threading.Event) -> None:
        self._inlet.attempt = AppendRetry(self.counters, stop)
        while not stop.is_set():
            self._take(WAIT_SECONDS, ROWS_AT_ONCE)
        # What was received by now, and not what a fast sender adds meanwhile.
        self._take(0, self._gateway.high_water_mark)

    def close(self) -> None:
        self._socket.close(seconds=0)

    def _take(self, seconds: float, count_max: int) -> None:
        messages, now_us = [], None
        for frames in self._socket.received(seconds=seconds, count_max=count_max):
            now_us = now_us or self._log.clock.now_us()
            lost, redelivered = 0, False
            if (position := position_of(frames)) is not None:
                lost, redelivered = self._gaps.note(position)
            self.counters.add(
                received=1,
                bytes=sum(map(len, frames)),
                lost=lost if self._takes_all else 0,
                duplicates=int(redelivered),
            )
            messages.append(message_of(frames, now_us=now_us, redelivered=redelivered))
        before = self.counters.appended + self.counters.rejected
        try:
            self._inlet.append(messages)
        except BaseException:
            self.counters.add(lost=before + len(messages) - self.counters.appended - self.counters.rejected)
            raise
