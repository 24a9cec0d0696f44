"""Leases: one of several processes, on any host, does a common work, and another one takes over when it falls silent.

A lease needs no shared file and no synchronised clocks, only a log that all processes reach, of whatever kind. Its holder appends
a sign of life to the internal topic `__leases` several times within the lease's seconds. A process that waits reads these
signs, measures by its own clock how long the last one is ago, and appends one of its own when that is longer than the
holder's seconds.

Each sign names the sign that it follows, and counts only if that is the last one that counts. So the order of the log decides which of
two processes holds the lease, and every reader comes to the same answer: a process that was too late, or was paused for
long, reads that its sign does not count.

A holder counts its seconds from before it has sent its last sign, and the process that waits from after it has read the sign. So
the holder knows that it has lost the lease before another one has it, unless it is paused and does not look. What a paused
holder still sends has to be fenced where it arrives: outputs of queries are, by the epoch of their producer.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.errors import LogError
from headwater.log.port import Log
from headwater.log.topic import Retention, Topic
from headwater.log.topic_rules import check_name
from headwater.units import Duration, parse_seconds

TOPIC = "__leases"
SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("holder", pa.string(), nullable=False),
        #: The offset of the sign that this one follows; -1 for none.
        pa.field("after", pa.int64(), nullable=False),
        #: How long the holder keeps the lease after this sign; 0 when it gives the lease back.
        pa.field("seconds", pa.float64(), nullable=False),
    ]
)
#: Within its seconds a holder sends so many signs, so that one that is late or lost changes nothing.
SIGNS = 4
#: Clocks of two hosts do not run equally fast; a process that waits does so by this much longer.
DRIFT = 1.1


def holder_name() -> str:
    """A name for this process as a holder: of this host, and never given again."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def is_renewed(log: Log, name: str, *, seconds: Duration) -> bool:
    """Whether a holder has sent a sign of life within so many seconds.

    This compares the clock of this process with those by which rows are dated, and is meant to be shown to people; a process that
    wants the lease has to `acquire` it.
    """
    if not log.topics(TOPIC, internal=True):
        return False
    since = log.offset_at(TOPIC, log.clock.now_us() - round(parse_seconds(seconds) * DRIFT * 1_000_000))[0]
    last = 0.0
    for batch in log.read_range(TOPIC, 0, start=since, stop=log.end_offsets(TOPIC)[0]):
        for row in batch.data.to_pylist():
            last = row["seconds"] if row["name"] == name else last
    return last > 0


@dataclass(frozen=True, kw_only=True)
class Sign:
    """The last sign of life that counts."""

    offset: int
    after: int
    holder: str
    seconds: float


class Lease:
    """A lease of a name, which `holder` may take.

    >>> import tempfile, headwater
    >>> log = headwater.open(tempfile.mkdtemp())
    >>> first, second = (Lease(log, "app.shop", holder=name, seconds=0.4) for name in ("a", "b"))
    >>> first.acquire(), second.acquire(), second.held_by(), first.release(), second.acquire()
    (True, False, 'a', None, True)
    >>> second.release()
    """

    def __init__(
        self, log: Log, name: str, *, holder: str, seconds: Duration = 10.0, lost: Callable[[], None] = lambda: None
    ) -> None:
        check_name("lease", name)
        self.name = name
        self.holder = holder
        self.seconds = parse_seconds(seconds)
        self._log = log
        self._lost = lost
        self._until = 0.0
        self._ended = threading.Event()
        self._renewal: threading.Thread | None = None
        self._read_first = self._read_next = -1
        self._last: Sign | None = None
        self._last_at = time.monotonic()
        #: Signs that were sent since this process began to look.
        self._signs_read = 0
        self._make_topic()

    @property
    def is_mine(self) -> bool:
        """Whether this process holds the lease now; ask before each act that only the holder may do."""
        return time.monotonic() < self._until

    def held_by(self) -> str | None:
        """The holder by its last sign, which may be dead; None if no process has taken the lease, or it was given back."""
        self._read()
        return None if self._last is None or not self._last.seconds else self._last.holder

    def acquire(self, *, wait: bool = False, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Take the lease if it is free, or wait until it is (`wait`) or until `stopped`; return whether it is held.

        The lease of a holder that has fallen silent becomes free after its seconds; without `wait`, so long is waited for a
        sign that shows whether it lives.
        """
        self._read()
        heard = self._signs_read
        while not stopped():
            left = self._seconds_left()
            if left <= 0 and self._taken():
                return True
            if not wait and self._signs_read > heard:
                return False
            self._log.wait(TOPIC, after={0: self._read_next}, seconds=min(max(left, 0.01), 0.2))
            self._read()
        return False

    def release(self) -> None:
        """Give the lease back, so that another process need not wait."""
        was_mine = self.is_mine
        self._stop_renewal()
        if was_mine:
            self._send(seconds=0.0)
        self._until = 0.0

    # -- taking -------------------------------------------------------------------------------------------------------

    def _seconds_left(self) -> float:
        """How long the last holder may still hold the lease."""
        if self._last is None:
            return 0.0
        return self._last_at + self._last.seconds * DRIFT - time.monotonic()

    def _taken(self) -> bool:
        """Send a first sign, and renew it from then on; False if another process was first."""
        began = time.monotonic()
        if not self._send(seconds=self.seconds):
            return False
        self._until = began + self.seconds
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._renew, name=f"lease-{self.name}", daemon=True)
        self._renewal.start()
        return True

    def _renew(self) -> None:
        """Send signs until the end, or until the lease is lost."""
        ended = self._ended
        while not ended.wait(self.seconds / SIGNS):
            began = time.monotonic()
            try:
                self._read()
                is_last = self._last is not None and self._last.holder == self.holder
                counts = is_last and self._send(seconds=self.seconds)
            except (LogError, OSError):  # the log does not answer: tried again while the lease lasts
                pass
            else:
                self._until = began + self.seconds if counts else 0.0
            if not self.is_mine:
                self._until = 0.0
                self._lost()
                return

    def _stop_renewal(self) -> None:
        self._ended.set()
        renewal, self._renewal = self._renewal, None
        if renewal is not None and renewal is not threading.current_thread():
            renewal.join()

    # -- signs --------------------------------------------------------------------------------------------------------

    def _send(self, *, seconds: float) -> bool:
        """Append a sign behind the last one that was read; return whether it counts."""
        after = -1 if self._last is None else self._last.offset
        row: dict[str, Any] = {"name": self.name, "holder": self.holder, "after": after, "seconds": seconds}
        appended = self._log.append(TOPIC, [row], partition=0)
        self._read()
        return self._last is not None and self._last.offset == appended.offsets_next[0] - 1

    def _read(self) -> None:
        """Read the signs that were sent since the last call; the first call reads all that there are."""
        end = self._log.end_offsets(TOPIC)[0]
        looks_back = self._read_first < 0
        if looks_back:
            self._read_first = self._read_next = self._log.start_offsets(TOPIC)[0]
        for batch in self._log.read_range(TOPIC, 0, start=self._read_next, stop=end):
            for place, row in enumerate(batch.data.to_pylist()):
                if row["name"] == self.name and self._counts(row["after"]):
                    self._last = Sign(
                        offset=batch.offset + place,
                        after=row["after"],
                        holder=row["holder"],
                        seconds=row["seconds"],
                    )
                    self._last_at = time.monotonic()
                    self._signs_read += not looks_back
        self._read_next = max(end, self._read_next)

    def _counts(self, after: int) -> bool:
        """Whether a sign that follows another one follows the last one that counts."""
        if self._last is None or after == self._last.offset:
            return True
        # Both follow signs that retention has deleted: the one that follows the later sign counts.
        return self._last.after < after < self._read_first

    def _make_topic(self) -> None:
        if not self._log.topics(TOPIC, internal=True):
            self._log.create_internal(
                Topic(
                    name=TOPIC,
                    id="1ea5e5" + "0" * 26,
                    schema=SCHEMA,
                    durability="os",  # after a power cut all holders are gone, too
                    segment_bytes_max=1024 * 1024,
                    retention=Retention(seconds_max=3_600.0),
                    created_us=self._log.clock.now_us(),
                )
            )
