"""What a gateway is: a value that says where events come from or go to, and a session that moves them.

`Gateway.open` creates the topics and binds the port, so that a wrong address fails at the start. `GatewaySession.run` works in
the thread that calls it until `stop` is set. A session counts everything that it takes, rejects or knows to be lost.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol

from headwater.log.port import Log


@dataclass(kw_only=True)
class Counters:
    """What a gateway has done since it was opened.

    `received` are datagrams, requests, lines or messages. `appended` are rows in the log (of a gateway out: messages that the receiver
    has taken). `rejected` was answered with an error or is a dead letter. `lost` is known to be gone.

    >>> counters = Counters()
    >>> counters.add(received=2, appended=1, rejected=1)
    >>> counters.received, counters.lost
    (2, 0)
    """

    received: int = 0
    appended: int = 0
    rejected: int = 0
    duplicates: int = 0
    lost: int = 0
    bytes: int = 0
    #: Whether nothing can be appended now, and the last error, which stays.
    waits: bool = field(default=False, compare=False)
    error: str = field(default="", compare=False)
    error_us: int = field(default=0, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **counts: int) -> None:
        """Add to some counters; several threads may call it."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def begin_wait(self, error: Exception) -> None:
        """Nothing can be appended now, because of an error that may pass."""
        self.waits = True
        self.note(error)

    def note(self, error: Exception) -> None:
        """Show an error that does not stop the gateway."""
        self.error, self.error_us = in_one_line(error), time.time_ns() // 1000

    def to_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in COUNTER_NAMES}


#: Whether a gateway appends to its topic, or sends the rows of its topic elsewhere.
Direction = Literal["in", "out"]
COUNTER_NAMES = ("received", "appended", "rejected", "duplicates", "lost", "bytes")


def in_one_line(error: Exception) -> str:
    """An error as a text without line ends.

    >>> in_one_line(OSError("it is\\nfull")), in_one_line(OSError())
    ('it is full', 'OSError')
    """
    return " ".join(str(error).split()) or type(error).__name__


@dataclass(frozen=True, kw_only=True)
class GatewayStatus:
    """A gateway as it is now."""

    name: str
    kind: str
    address: str
    #: "failed": it waits, with exponential back-off, until its address can be used, or until the log takes rows again.
    state: Literal["stopped", "running", "failed"]
    counters: dict[str, int]
    #: The last error, also after the gateway was restarted.
    error: str = ""
    error_us: int | None = None
    restarts: int = 0

    def to_json(self) -> dict[str, object]:
        return asdict(self)


class GatewaySession(Protocol):
    """An open gateway."""

    counters: Counters

    @property
    def address(self) -> str:
        """Where it listens, or what it reads, also after `close`; with the port that was chosen if the port was 0."""

    def run(self, stop: threading.Event) -> None:
        """Move events until `stop` is set; what was received by then is appended before it returns."""

    def close(self) -> None:
        """Release the port and files."""


class Gateway(Protocol):
    """Where events come from or go to."""

    @property
    def kind(self) -> str:
        """The name of this kind of gateway, as `headwater gateway run` takes it."""

    @property
    def direction(self) -> Direction:
        """Whether events come in or go out."""

    @property
    def topic(self) -> str:
        """The topic that it appends to, or whose rows it sends."""

    @property
    def name(self) -> str:
        """The name of this gateway; two that run on one log have different names."""

    def create_topics(self, log: Log) -> None:
        """Create the topics that are missing; `open` does it, too, and the check and the tests of an app do only this."""

    def open(self, log: Log) -> GatewaySession:
        """Create the topics that are missing and bind the address."""
