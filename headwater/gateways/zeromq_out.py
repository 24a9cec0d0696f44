"""ZeroMQ out: rows of a topic as messages of a PUB or PUSH socket.

PUB sends to all subscribers that are there, and drops what one of them has no room for; subscribers count that by the positions. PUSH
shares the rows out among its receivers, and waits while none of them has room. The position is committed when ZeroMQ has the messages:
what waits in its queues is lost if the process is killed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from headwater.errors import ArgumentInvalid
from headwater.gateways.outlet import Outgoing, Outlet, Start
from headwater.gateways.port import Counters, Direction
from headwater.gateways.zeromq import Endpoint, Position, Socket, source_of
from headwater.log.port import Log
from headwater.units import Duration, parse_seconds

Pattern = Literal["pub", "push"]
WAIT_SECONDS = 0.1
ROWS_AT_ONCE = 5_000


@dataclass(frozen=True, kw_only=True)
class ZeroMqOut(Endpoint):
    """Rows of a topic as messages of a ZeroMQ socket: the subject, the position, the payload.

    `template` makes the subject of a row, with columns in braces; by default it is the topic's name. The payload is the row as JSON, or
    the column `value`.

    >>> ZeroMqOut(topic="ticks", addresses=("tcp://127.0.0.1:5556",), template="{currency}").name
    'zeromq-out-ticks'
    """

    bind: bool = True
    topic: str = "zeromq"
    pattern: Pattern = "pub"
    template: str = ""
    value: str = ""
    #: Where a gateway begins that has committed no position.
    start: Start = "earliest"
    #: How long a stop waits for what is in the queues.
    linger: Duration = "10 seconds"

    kind: ClassVar[str] = "zeromq-out"
    direction: ClassVar[Direction] = "out"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pattern not in get_args(Pattern):
            raise ArgumentInvalid(name="pattern", value=self.pattern, expected=" or ".join(get_args(Pattern)))

    @property
    def name(self) -> str:
        return f"zeromq-out-{self.topic}"

    def create_topics(self, log: Log) -> None:
        """Create nothing: the topic is that of other programs."""

    def open(self, log: Log) -> ZeroMqOutSession:
        return ZeroMqOutSession(log, self)


class ZeroMqOutSession:
    """A socket; a thread reads rows and sends them."""

    def __init__(self, log: Log, gateway: ZeroMqOut) -> None:
        self._gateway = gateway
        self.counters = Counters()
        self._socket = Socket(gateway.name, gateway, gateway.pattern)
        self.address = self._socket.address
        try:
            self._outlet = Outlet(
                log,
                gateway.topic,
                template=gateway.template,
                value=gateway.value,
                start=gateway.start,
                rows_max=min(ROWS_AT_ONCE, gateway.high_water_mark),
                gateway=gateway.name,
                counters=self.counters,
            )
        except BaseException:
            self._socket.close(seconds=0)
            raise
        self._source = source_of(gateway.topic, self._outlet.topic.id)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            for message in self._outlet.next(seconds=WAIT_SECONDS):
                self.counters.add(received=1)
                frames = self._frames(message)
                while not self._socket.send(frames, seconds=WAIT_SECONDS):
                    if stop.is_set():  # no receiver has room: those in front of it are sent again, and say so
                        return
                self.counters.add(appended=1, bytes=len(message.payload))
            self._outlet.commit()

    def close(self) -> None:
        self._outlet.close()
        self._socket.close(seconds=parse_seconds(self._gateway.linger))

    def _frames(self, message: Outgoing) -> list[bytes]:
        position = Position(self._source, message.partition, message.offset)
        return [message.subject.encode(), position.frame(), message.payload]
