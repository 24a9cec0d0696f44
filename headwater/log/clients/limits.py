"""Back-pressure: how far a producer may be ahead of a consumer group or of the disk, in rows or bytes."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import ArgumentInvalid
from headwater.log.port import OFFSETS_TOPIC, Offsets

if TYPE_CHECKING:
    from headwater.log.port import Log

#: The committed offsets of the group are cached for so long below the limit. At the limit they are always read.
REFRESH_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How far a producer may be ahead.

    With a `group`, `rows` counts all rows of the topic that the group has not committed, and those waiting in the
    producer; `bytes` counts the bytes of this producer that the group has not committed. Without a group, both count
    what was sent by this producer and is not yet durable.

    >>> Limit(group="billing", rows=100_000)
    Limit(group='billing', rows=100000, bytes=None)
    """

    group: str | None = None
    rows: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        if self.rows is None and self.bytes is None:
            raise ArgumentInvalid(name="limit", value=self, expected="a number of rows or bytes")
        for name in ("rows", "bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ArgumentInvalid(name=name, value=value, expected="at least 1")

    def __str__(self) -> str:
        parts = [f"{self.rows} rows"] if self.rows is not None else []
        parts += [f"{self.bytes} bytes"] if self.bytes is not None else []
        return " or ".join(parts) + (f" ahead of group {self.group!r}" if self.group else " not yet on disk")

    def allows(self, *, rows_ahead: int, bytes_ahead: int, rows: int, bytes: int) -> bool:
        """Whether so many more may be sent. A send that alone exceeds the limit is allowed when nothing is ahead of it."""
        fits_rows = self.rows is None or not rows_ahead or rows_ahead + rows <= self.rows
        fits_bytes = self.bytes is None or not bytes_ahead or bytes_ahead + bytes <= self.bytes
        return fits_rows and fits_bytes


class GroupDistance:
    """How far a topic's end, and the bytes of this producer, are ahead of a group's committed offsets."""

    def __init__(self, log: Log, topic: str, group: str) -> None:
        self._log = log
        self._topic = topic
        self._group = group
        self._sent: dict[int, deque[tuple[int, int]]] = {}
        self._bytes = 0
        self._rows = 0
        self._refreshed_at = 0.0
        self._offsets_end: Offsets = {}
        # An empty commit creates the topic of offsets, to wait for it.
        log.commit_offsets(group, topic, {})
        self.refresh()

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def bytes(self) -> int:
        return self._bytes

    def appended(self, ranges: dict[int, tuple[int, int]], size: int) -> None:
        """Count rows that this producer has appended."""
        count = sum(stop - start for start, stop in ranges.values()) or 1
        self._rows += sum(stop - start for start, stop in ranges.values())
        for number, (start, stop) in ranges.items():
            part = size * (stop - start) // count
            self._sent.setdefault(number, deque()).append((stop, part))
            self._bytes += part

    def refresh_if_old(self, seconds: float = REFRESH_SECONDS) -> None:
        if time.monotonic() - self._refreshed_at >= seconds:
            self.refresh()

    def refresh(self) -> None:
        """Read the committed offsets of the group."""
        # The end first: a commit in between then ends the next wait at once, but is never missed.
        self._offsets_end = self._log.end_offsets(OFFSETS_TOPIC)
        committed = self._log.committed(self._group, self._topic)
        starts, ends = self._log.start_offsets(self._topic), self._log.end_offsets(self._topic)
        self._rows = sum(end - max(committed.get(number, 0), starts[number]) for number, end in ends.items())
        for number, sent in self._sent.items():
            while sent and sent[0][0] <= committed.get(number, 0):
                self._bytes -= sent.popleft()[1]
        self._refreshed_at = time.monotonic()

    def wait(self, *, seconds: float) -> None:
        """Wait until any group commits."""
        self._log.wait({OFFSETS_TOPIC: self._offsets_end}, seconds=seconds)
